import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from schema.errors import HostError, ModelError
from schema.job import ModelRef
from tests.test_synthetic import LOAD, llama
from worker import models, synthetic
from worker.digests import cached_sha256, content_sha256, remember
from worker.ggml import BY_NAME
from worker.gguf_writer import Entry, header_bytes, lay_out

ROOT = Path(__file__).parents[1]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "synthetic.json").read_text())["sha256"]


@pytest.fixture(autouse=True)
def tokfleet_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Return the path of a small model that lies beside a sweep file."""
    path, _ = synthetic.build(synthetic.parse("test-tiny"), tmp_path, silent)
    return path.rename(tmp_path / "tiny.gguf")


def silent(_what: str, _share: float) -> None:
    """Take progress and do nothing with it."""


def touch(path: Path, content: bytes) -> None:
    """Replace the content, with a time of change that differs whatever the file system's clock resolves."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_bytes(content)
    os.utime(path, ns=(before + 1_000_000_000, before + 1_000_000_000))


def gguf(path: Path, entries: list[Entry], tensors: list[tuple[str, tuple[int, ...], str]]) -> Path:
    placed = lay_out((name, shape, BY_NAME[kind]) for name, shape, kind in tensors)
    with path.open("wb") as file:
        file.write(header_bytes(entries, placed))
        file.truncate(file.tell() + sum(-(-tensor.n_bytes // 32) * 32 for tensor in placed))
    return path


def test_a_path_counts_from_the_sweep_file_and_is_known_by_its_content(tiny: Path, tmp_path: Path) -> None:
    ref = models.reference("path", "tiny.gguf", tmp_path)
    assert ref == ModelRef(source="path", spec=str(tiny), identity=f"sha256:{GOLDEN['test-tiny:Q4_K_M']}")
    assert models.reference("path", str(tiny), Path("/elsewhere")) == ref
    (tmp_path / "sweeps").mkdir()
    assert models.reference("path", "../tiny.gguf", tmp_path / "sweeps") == ref


def test_a_huge_file_is_known_by_its_ends_until_it_was_hashed_once(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tmp_path: Path, tokfleet_home: Path
) -> None:
    monkeypatch.setattr(models, "HASHED_AT_ONCE_BYTES", 1000)
    data = tiny.read_bytes()
    ends = str(len(data)).encode() + b":" + data[: 1 << 20] + data[-(1 << 20) :]
    ref = models.reference("path", "tiny.gguf", tmp_path)
    assert ref.identity == f"quick:{hashlib.sha256(ends).hexdigest()}"
    sha256 = models.resolve(ref, tokfleet_home, silent).sha256
    assert models.reference("path", "tiny.gguf", tmp_path).identity == f"sha256:{sha256}"


def test_a_synthetic_model_is_known_without_building_it(tmp_path: Path) -> None:
    ref = models.reference("synthetic", "Gemma-3-270m", tmp_path)
    assert ref == ModelRef(
        source="synthetic", spec="gemma-3-270m:Q4_K_M", identity="synthetic:gemma-3-270m:Q4_K_M:0:v1"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_answered_with_the_nearest_names(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"There is no model file .*tinny.gguf. Did you mean tiny.gguf\?"):
        models.reference("path", "tinny.gguf", tmp_path)
    with pytest.raises(ModelError, match=r"There is no model file .*zzz. In .* there are tiny.gguf."):
        models.reference("path", "zzz", tmp_path)


def test_a_missing_directory_is_named_and_not_the_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    with pytest.raises(ModelError, match=r"There is no directory .*/modles. Did you mean models\?"):
        models.reference("path", "modles/deep/tiny.gguf", tmp_path)


def test_a_directory_with_one_model_stands_for_it(tiny: Path, tmp_path: Path) -> None:
    assert models.reference("path", ".", tmp_path) == models.reference("path", "tiny.gguf", tmp_path)


def test_a_link_to_a_file_that_is_gone_is_called_one(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").symlink_to("blobs/cafe")
    with pytest.raises(ModelError, match=r"model.gguf is a link to blobs/cafe, which is not there. Download the file"):
        models.reference("path", "model.gguf", tmp_path)


def test_a_link_is_the_file_that_it_leads_to(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "other.gguf").symlink_to(tiny)
    linked = models.reference("path", "links", tmp_path)
    assert linked.spec == str(tmp_path / "links" / "other.gguf")
    assert linked.identity == models.reference("path", "tiny.gguf", tmp_path).identity


def test_a_path_that_no_system_can_have_is_a_model_error(tmp_path: Path) -> None:
    for spec in ("a\0b", "x" * 5000, "~nobody-of-that-name/x.gguf"):
        with pytest.raises(ModelError):
            models.reference("path", spec, tmp_path)


def test_resolving_a_path_checks_that_it_is_what_the_plan_saw(tiny: Path, tmp_path: Path, tokfleet_home: Path) -> None:
    ref = models.reference("path", "tiny.gguf", tmp_path)
    found = models.resolve(ref, tokfleet_home, silent)
    assert found == models.Resolved(
        path=tiny, sha256=GOLDEN["test-tiny:Q4_K_M"], file_bytes=tiny.stat().st_size, synthetic=False
    )
    data = bytearray(tiny.read_bytes())
    data[-40] ^= 1
    touch(tiny, bytes(data))
    with pytest.raises(ModelError, match=r"tiny.gguf changed since the plan was made"):
        models.resolve(ref, tokfleet_home, silent)


def test_a_quick_identity_is_checked_too(
    monkeypatch: pytest.MonkeyPatch, tiny: Path, tmp_path: Path, tokfleet_home: Path
) -> None:
    monkeypatch.setattr(models, "HASHED_AT_ONCE_BYTES", 1000)
    ref = models.reference("path", "tiny.gguf", tmp_path)
    data = bytearray(tiny.read_bytes())
    data[-40] ^= 1
    touch(tiny, bytes(data))
    with pytest.raises(ModelError, match="changed since the plan was made"):
        models.resolve(ref, tokfleet_home, silent)


def test_resolving_says_what_a_file_is_that_is_no_gguf(tmp_path: Path, tokfleet_home: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"<!doctype html><html></html>")
    ref = models.reference("path", "model.gguf", tmp_path)
    for use in (lambda: models.resolve(ref, tokfleet_home, silent), lambda: models.describe(ref)):
        with pytest.raises(ModelError, match="is not a GGUF file but a web page"):
            use()


def test_a_synthetic_model_is_built_once_and_then_found(tmp_path: Path, tokfleet_home: Path) -> None:
    ref = models.reference("synthetic", "test-tiny:Q8_0", tmp_path)
    done: list[str] = []
    for _ in range(2):
        found = models.resolve(ref, tokfleet_home, lambda what, share: done.append(what))
        assert found.path == tokfleet_home / "models" / "test-tiny-Q8_0-seed0-v1.gguf"
        assert (found.sha256, found.synthetic) == (GOLDEN["test-tiny:Q8_0"], True)
        assert found.file_bytes == found.path.stat().st_size
        assert set(done) == {"build"}  # nothing is hashed or built a second time
    n_calls = len(done)
    models.resolve(ref, tokfleet_home, lambda what, share: done.append(what))
    assert len(done) == n_calls


def test_a_synthetic_model_that_was_cut_is_built_again(tmp_path: Path, tokfleet_home: Path) -> None:
    ref = models.reference("synthetic", "test-tiny", tmp_path)
    path = models.resolve(ref, tokfleet_home, silent).path
    os.truncate(path, 1000)
    assert models.resolve(ref, tokfleet_home, silent).sha256 == GOLDEN["test-tiny:Q4_K_M"]


def test_a_plan_made_by_another_generator_is_refused(tokfleet_home: Path) -> None:
    ref = ModelRef(source="synthetic", spec="test-tiny:Q8_0", identity="synthetic:test-tiny:Q8_0:0:v999")
    with pytest.raises(ModelError, match=r"wants synthetic:test-tiny:Q8_0:0:v999, this host makes .*:v1. Install the"):
        models.resolve(ref, tokfleet_home, silent)


def test_the_seed_of_the_identity_is_the_one_that_is_built(tokfleet_home: Path) -> None:
    ref = ModelRef(source="synthetic", spec="test-tiny:Q8_0", identity="synthetic:test-tiny:Q8_0:7:v1")
    found = models.resolve(ref, tokfleet_home, silent)
    assert found.path.name == "test-tiny-Q8_0-seed7-v1.gguf"
    assert found.sha256 != GOLDEN["test-tiny:Q8_0"]


def test_a_home_that_cannot_be_written_is_named_when_a_model_must_be_built(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ref = models.reference("synthetic", "test-tiny", tmp_path)
    with pytest.raises(HostError, match=r"file/home/models cannot be created: .*/file is no directory. Set TOKFLEET"):
        models.resolve(ref, tmp_path / "file" / "home", silent)


def test_a_home_that_cannot_be_written_only_means_that_nothing_is_remembered(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in (tmp_path / "file" / "home", None):
        assert content_sha256(tiny, home) == GOLDEN["test-tiny:Q4_K_M"]
        assert cached_sha256(tiny, home) is None


def test_a_digest_is_remembered_until_size_or_time_change(tiny: Path, tokfleet_home: Path) -> None:
    assert cached_sha256(tiny, tokfleet_home) is None
    content_sha256(tiny, tokfleet_home)
    remember(tiny, "f" * 64, tokfleet_home)
    assert content_sha256(tiny, tokfleet_home) == "f" * 64
    touch(tiny, tiny.read_bytes())
    assert cached_sha256(tiny, tokfleet_home) is None
    assert content_sha256(tiny, tokfleet_home) == GOLDEN["test-tiny:Q4_K_M"]


@pytest.mark.parametrize("junk", [b"", b"[]", b"{}", b"\xff\xfe", b'{"path": 1, "size": 2, "mtime_ns": 3}'])
def test_a_cache_that_cannot_be_read_is_ignored_and_mended(tiny: Path, tokfleet_home: Path, junk: bytes) -> None:
    content_sha256(tiny, tokfleet_home)
    (entry,) = (tokfleet_home / "digests").iterdir()
    entry.write_bytes(junk)
    assert content_sha256(tiny, tokfleet_home) == GOLDEN["test-tiny:Q4_K_M"]
    assert cached_sha256(tiny, tokfleet_home) == GOLDEN["test-tiny:Q4_K_M"]


def test_a_file_that_changes_while_it_is_hashed_is_refused(tiny: Path, tokfleet_home: Path) -> None:
    def grow(_share: float) -> None:
        with tiny.open("ab") as file:
            file.write(b"more")

    with pytest.raises(ModelError, match="changed while it was read"):
        content_sha256(tiny, tokfleet_home, grow)
    assert cached_sha256(tiny, tokfleet_home) is None


def test_processes_may_remember_digests_at_once(tiny: Path, tokfleet_home: Path) -> None:
    code = """
import sys
from pathlib import Path
from worker.digests import cached_sha256, remember
path, home = map(Path, sys.argv[1:])
for _ in range(200):
    remember(path, "a" * 64, home)
    assert cached_sha256(path, home) == "a" * 64
"""
    command = [sys.executable, "-c", code, str(tiny), str(tokfleet_home)]
    running = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert len(list((tokfleet_home / "digests").iterdir())) == 1


def test_a_shape_and_its_file_tell_the_same_facts(tiny: Path, tmp_path: Path) -> None:
    assert models.describe(models.reference("synthetic", "test-tiny", tmp_path)) == models.describe(
        models.reference("path", "tiny.gguf", tmp_path)
    )


@pytest.mark.model
def test_the_published_gemma_and_its_clone_have_the_same_facts(gemma: Path, tmp_path: Path) -> None:
    clone = models.describe(models.reference("synthetic", "gemma-3-270m", tmp_path))
    assert clone == models.describe(models.reference("path", str(gemma), tmp_path))
    assert (clone.architecture, clone.n_layer, clone.n_ctx_train) == ("gemma3", 18, 32768)
    assert (clone.n_params, clone.weight_bytes) == (268098176, 246587904)  # as llama.cpp says of the loaded file


def test_a_tied_embedding_is_read_whole_and_a_separate_one_by_the_row(tmp_path: Path) -> None:
    tied = models.describe(models.reference("synthetic", "gemma-3-270m", tmp_path))
    assert tied.bytes_per_token == tied.weight_bytes
    separate = models.describe(models.reference("synthetic", "phi-3-mini:Q4_K_M", tmp_path))
    row = 3072 // 256 * 144
    assert separate.weight_bytes - separate.bytes_per_token == row * 32064 - row


def test_only_the_experts_in_use_are_read(tmp_path: Path) -> None:
    entries: list[Entry] = [
        ("general.architecture", "string", "qwen3moe"),
        *needed("qwen3moe"),
        ("qwen3moe.expert_count", "u32", 8),
        ("qwen3moe.expert_used_count", "u32", 2),
    ]
    tensors = [("blk.0.ffn_up_exps.weight", (32, 10, 8), "Q8_0"), ("output.weight", (32, 5), "Q8_0")]
    path = gguf(tmp_path / "moe.gguf", entries, tensors)
    moe = models.describe(models.reference("path", str(path), tmp_path))
    assert moe.bytes_per_token == 34 * 10 * 2 + 34 * 5
    assert (moe.n_params, moe.n_params_active) == (32 * 10 * 8 + 32 * 5, 32 * 10 * 2 + 32 * 5)


def needed(architecture: str) -> list[Entry]:
    """Return the keys without which llama.cpp loads no model."""
    return [(f"{architecture}.{key}", "u32", 4) for key in ("context_length", "embedding_length", "block_count")]


def test_the_kv_cache_is_as_large_as_llama_cpp_makes_it(tmp_path: Path) -> None:
    llama = models.describe(models.reference("synthetic", "llama-3.2-1b", tmp_path))
    assert llama.kv_bytes(256, "f16", "f16") == 8 << 20  # llama.cpp's log: KV buffer size = 8.00 MiB
    assert llama.kv_bytes(1, "f16", "f16") == 8 << 20
    assert llama.kv_bytes(4096, "q8_0", "f16") == 16 * 4096 * (512 // 32 * 34 + 512 * 2)
    phi = models.describe(models.reference("synthetic", "phi-3-mini", tmp_path))
    assert phi.kv_bytes(256, "f16", "f16") == 96 << 20  # its window is not in use in llama.cpp


def test_a_cache_type_whose_blocks_do_not_fit_the_heads_leaves_the_size_open(tmp_path: Path) -> None:
    entries: list[Entry] = [("general.architecture", "string", "llama"), *needed("llama")]
    entries.append(("llama.attention.head_count", "u32", 2))
    path = gguf(tmp_path / "narrow.gguf", entries, [("token_embd.weight", (32, 4), "F16")])
    narrow = models.describe(models.reference("path", str(path), tmp_path))
    assert narrow.kv_bytes(256, "f16", "f16") == 4 * 256 * 2 * (4 * 2)
    assert narrow.kv_bytes(256, "f16", "q8_0") is None


def test_layers_with_a_window_keep_the_window_and_one_micro_batch(tmp_path: Path) -> None:
    gemma = models.describe(models.reference("synthetic", "gemma-3-270m", tmp_path))
    per_cell = 256 * 2 * 2
    assert gemma.kv_bytes(256, "f16", "f16") == 18 * 256 * per_cell
    assert gemma.kv_bytes(32768, "f16", "f16") == (3 * 32768 + 15 * 1024) * per_cell
    assert gemma.kv_bytes(32768, "f16", "f16", n_ubatch=2048) == (3 * 32768 + 15 * 2560) * per_cell


def test_keys_that_are_no_use_leave_facts_open(tmp_path: Path) -> None:
    entries: list[Entry] = [
        ("general.architecture", "string", "llama"),
        *needed("llama"),
        ("llama.attention.head_count", "string", "x"),
        ("llama.attention.key_length", "i32", -8),
    ]
    path = gguf(tmp_path / "odd.gguf", entries, [("token_embd.weight", (32, 4), "F16")])
    odd = models.describe(models.reference("path", str(path), tmp_path))
    assert (odd.architecture, odd.n_layer, odd.n_ctx_train, odd.n_params) == ("llama", 4, 4, 128)
    assert odd.kv_bytes(256, "f16", "f16") is None


@pytest.mark.parametrize(
    ("kind", "meant"),
    [("adapter", "a LoRA adapter"), ("mmproj", "a multimodal projector"), ("imatrix", "an importance matrix")],
)
def test_a_gguf_that_is_no_language_model_is_called_what_it_is(tmp_path: Path, kind: str, meant: str) -> None:
    path = gguf(tmp_path / "x.gguf", [("general.type", "string", kind)], [("a", (4,), "F32")])
    with pytest.raises(ModelError, match=f"is {meant}, not a language model. Name the model itself."):
        models.describe(models.reference("path", str(path), tmp_path))


def test_a_vocabulary_alone_cannot_be_run(tmp_path: Path) -> None:
    path = gguf(tmp_path / "vocab.gguf", [("general.architecture", "string", "llama"), *needed("llama")], [])
    with pytest.raises(ModelError, match="holds a vocabulary only, there is nothing to run"):
        models.describe(models.reference("path", str(path), tmp_path))


def part(path: Path, number: int, count: int, names: list[str]) -> Path:
    """Write one part of a split set, as llama-gguf-split does: the metadata of the model stand in the first only."""
    entries: list[Entry] = [
        ("split.no", "u16", number),
        ("split.count", "u16", count),
        ("split.tensors.count", "i32", 3),
    ]
    if number == 0:
        entries += [("general.architecture", "string", "llama"), *needed("llama")]
    return gguf(path, entries, [(name, (32, 4), "F32") for name in names])


def split_set(directory: Path) -> list[Path]:
    directory.mkdir(exist_ok=True)
    tensors = [["token_embd.weight"], ["blk.0.attn_q.weight"], ["output_norm.weight"]]
    return [part(directory / f"demo-0000{n + 1}-of-00003.gguf", n, 3, names) for n, names in enumerate(tensors)]


def test_any_part_stands_for_the_whole_set_and_its_identity_is_that_of_all_parts(
    tmp_path: Path, tokfleet_home: Path
) -> None:
    parts = split_set(tmp_path / "set")
    ref = models.reference("path", "set/demo-00002-of-00003.gguf", tmp_path)
    assert ref.spec == str(parts[0])
    for spec in ("set", "set/demo-00001-of-00003.gguf", "set/demo-00003-of-00003.gguf"):
        assert models.reference("path", spec, tmp_path) == ref
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in parts]
    assert ref.identity == f"sha256:{hashlib.sha256(chr(10).join(digests).encode()).hexdigest()}"
    assert models.describe(ref).n_params == 3 * 128
    shares: list[float] = []
    found = models.resolve(ref, tokfleet_home, lambda what, share: shares.append(share))
    assert (found.path, f"sha256:{found.sha256}") == (parts[0], ref.identity)
    assert found.file_bytes == sum(path.stat().st_size for path in parts)
    data = bytearray(parts[2].read_bytes())
    data[-1] ^= 1
    touch(parts[2], bytes(data))
    with pytest.raises(ModelError, match="changed since the plan was made"):
        models.resolve(ref, tokfleet_home, silent)


def test_a_huge_set_is_known_by_the_ends_of_its_parts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    split_set(tmp_path / "set")
    monkeypatch.setattr(models, "HASHED_AT_ONCE_BYTES", 1000)
    ref = models.reference("path", "set", tmp_path)
    assert ref.identity.startswith("quick:")
    models.resolve(ref, tmp_path / "home", silent)


def test_a_missing_part_is_named_before_anything_runs(tmp_path: Path) -> None:
    split_set(tmp_path / "set")[1].unlink()
    for spec in ("set", "set/demo-00001-of-00003.gguf", "set/demo-00003-of-00003.gguf"):
        with pytest.raises(ModelError, match=r"one of 3 parts, of which demo-00002-of-00003.gguf is missing in .*/set"):
            models.reference("path", spec, tmp_path)


def test_a_model_like_a_file_is_built_under_the_identity_of_its_header(tiny: Path, tmp_path: Path) -> None:
    ref = models.reference("synthetic", "like:tiny.gguf", tmp_path)
    assert ref.spec == f"like:{tiny}"
    assert ref.identity.startswith("synthetic:like:")
    found = models.resolve(ref, tmp_path / "home", silent)
    assert found.synthetic
    assert models.describe(ref) == models.describe(models.reference("path", str(tiny), tmp_path))
    assert models.resolve(ref, tmp_path / "home", silent) == found
    with pytest.raises(ModelError, match="The plan wants"):
        models.resolve(ModelRef(source="synthetic", spec=ref.spec, identity=ref.identity + "9"), tmp_path, silent)


@pytest.mark.model
def test_llama_cpp_loads_a_split_set_from_the_part_that_is_named_to_it(
    tiny: Path, tmp_path: Path, tokfleet_home: Path
) -> None:
    model = synthetic.parse("test-tiny")
    whole, data = synthetic.header(model), tiny.read_bytes()
    (tmp_path / "set").mkdir()
    for number, tensors in enumerate((whole.tensors[:5], whole.tensors[5:])):
        placed = lay_out((tensor.name, tensor.shape, tensor.type) for tensor in tensors)
        count: Entry = ("split.tensors.count", "i32", len(whole.tensors))
        entries: list[Entry] = [("split.no", "u16", number), ("split.count", "u16", 2), count]
        with (tmp_path / "set" / f"tiny-0000{number + 1}-of-00002.gguf").open("wb") as file:
            file.write(header_bytes([*(synthetic.metadata(model) if number == 0 else []), *entries], placed))
            for tensor in tensors:
                start = whole.data_offset + tensor.offset
                file.write(data[start : start + -(-tensor.n_bytes // 32) * 32])
    ref = models.reference("path", "set/tiny-00002-of-00002.gguf", tmp_path)
    assert models.describe(ref) == models.describe(models.reference("path", str(tiny), tmp_path))
    n_params = llama(LOAD, models.resolve(ref, tokfleet_home, silent).path)
    assert int(n_params) == 2_622_720
