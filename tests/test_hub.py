import hashlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.cli import main
from schema.errors import ModelError
from schema.sweep import parse_sweep
from tests.test_split import part
from worker import hub, models, synthetic

OLD, NEW = "a" * 40, "b" * 40
REPOSITORY = "someone/Tiny-GGUF"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HUB_OFFLINE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)  # importing it fails
    return tmp_path / "hf" / "hub"


@pytest.fixture(scope="session")
def model_bytes(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path, _ = synthetic.build(synthetic.parse("test-tiny:Q4_0"), tmp_path_factory.mktemp("hub"), silent)
    return path.read_bytes()


def silent(_what: str, _share: float) -> None:
    """Take progress and do nothing with it."""


def put(cache: Path, revision: str, name: str, content: bytes, ref: str | None = "main") -> Path:
    """Put a file into the cache as huggingface_hub does, and return its path in the snapshot."""
    root = cache / f"models--{REPOSITORY.replace('/', '--')}"
    blob = root / "blobs" / hashlib.sha256(content).hexdigest()
    path = root / "snapshots" / revision / name
    for directory in (blob.parent, path.parent, root / "refs"):
        directory.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(content)
    path.unlink(missing_ok=True)
    path.symlink_to(blob)
    if ref:
        (root / "refs" / ref).write_text(revision)
    return path


def found(spec: str) -> str:
    return hub.find(hub.parse(spec)).file


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        ("a/b", ("a/b", None, None, None)),
        ("a/b:Q4_K_M", ("a/b", None, "Q4_K_M", None)),
        ("a/b@v1:Q4_K_M", ("a/b", "v1", "Q4_K_M", None)),
        ("a/b/c.gguf", ("a/b", None, None, "c.gguf")),
        ("a/b@main/Q8_0/c-00001-of-00002.gguf", ("a/b", "main", None, "Q8_0/c-00001-of-00002.gguf")),
    ],
)
def test_a_model_of_the_hub_is_named_in_these_ways(spec: str, parts: tuple[str | None, ...]) -> None:
    model = hub.parse(spec)
    assert (model.repository, model.revision, model.quantisation, model.file) == parts
    assert model.spec == spec
    sweep = parse_sweep(f"models: [{{hf: '{spec}'}}]\n", "x.yaml", Path("/"))
    assert [(entry.source, entry.spec) for entry in sweep.models] == [("hf", spec)]


@pytest.mark.parametrize(
    "spec", ["", "a", "a/b/c", "a/b:", "a/b:Q4/c.gguf", "a/../../b.gguf", "../b", "a b/c", "https://x/y"]
)
def test_what_names_no_model_is_refused(spec: str) -> None:
    with pytest.raises(ModelError, match=r"names no model of the Hugging Face hub. Write USER/REPOSITORY:QUANT"):
        hub.parse(spec)


def test_a_model_in_the_cache_is_known_by_the_name_of_its_blob(cache: Path, model_bytes: bytes, tmp_path: Path) -> None:
    path = put(cache, NEW, "tiny-Q4_0.gguf", model_bytes)
    ref = models.reference("hf", f"{REPOSITORY}:q4_0", tmp_path)
    sha256 = hashlib.sha256(model_bytes).hexdigest()
    assert (ref.source, ref.identity) == ("hf", f"sha256:{sha256}")
    assert ref.spec == f"{REPOSITORY}@{NEW}/tiny-Q4_0.gguf"
    assert models.describe(ref).n_params == 2_622_720
    resolved = models.resolve(ref, tmp_path / "home", silent)
    assert (resolved.path, resolved.sha256, resolved.file_bytes) == (path, sha256, len(model_bytes))
    assert ref.identity == models.reference("path", str(path), tmp_path).identity
    assert not (tmp_path / "home" / "digests").exists()  # nothing had to be read for it


def test_a_cache_without_links_is_hashed(cache: Path, model_bytes: bytes, tmp_path: Path) -> None:
    path = put(cache, NEW, "tiny-Q4_0.gguf", model_bytes)
    path.unlink()
    path.write_bytes(model_bytes)
    ref = models.reference("hf", REPOSITORY, tmp_path)
    assert ref.identity == f"sha256:{hashlib.sha256(model_bytes).hexdigest()}"


def test_the_revision_of_main_comes_first_and_then_what_else_is_there(cache: Path) -> None:
    put(cache, OLD, "tiny-Q8_0.gguf", b"old")
    put(cache, OLD, "tiny-Q4_0.gguf", b"old", ref="v1")
    put(cache, NEW, "tiny-Q4_0.gguf", b"new")
    assert hub.find(hub.parse(f"{REPOSITORY}:Q4_0")).revision == NEW
    assert hub.find(hub.parse(f"{REPOSITORY}:Q8_0")).revision == OLD
    for revision in ("v1", OLD):
        assert hub.find(hub.parse(f"{REPOSITORY}@{revision}:Q4_0")).revision == OLD
    with pytest.raises(ModelError, match="is not in this machine's cache"):
        found(f"{REPOSITORY}@v2:Q4_0")


def test_the_file_is_chosen_by_the_quantisation_in_its_name(cache: Path) -> None:
    names = ["tiny-Q4_K_M.gguf", "tiny-Q4_K_S.gguf", "tiny.Q6_K.gguf", "mmproj-tiny-Q8_0.gguf", "README.md"]
    names += ["BF16/tiny-BF16-00001-of-00002.gguf", "BF16/tiny-BF16-00002-of-00002.gguf", "sub/Q5_0/model.gguf"]
    for name in names:
        put(cache, NEW, name, name.encode())
    assert found(REPOSITORY) == "tiny-Q4_K_M.gguf"
    assert found(f"{REPOSITORY}:q6_k") == "tiny.Q6_K.gguf"
    assert found(f"{REPOSITORY}:BF16") == "BF16/tiny-BF16-00001-of-00002.gguf"
    assert found(f"{REPOSITORY}:Q5_0") == "sub/Q5_0/model.gguf"
    assert found(f"{REPOSITORY}/mmproj-tiny-Q8_0.gguf") == "mmproj-tiny-Q8_0.gguf"
    for spec in (f"{REPOSITORY}:Q8_0", f"{REPOSITORY}:Q4_K", f"{REPOSITORY}/tiny-Q4.gguf"):
        with pytest.raises(ModelError, match=r"is not in this machine's cache .* There are BF16/tiny-BF16-00001-of-"):
            found(spec)
    put(cache, NEW, "tiny-Q6_K-imat.gguf", b"another")
    with pytest.raises(ModelError, match=r"could mean several files: tiny-Q6_K-imat.gguf, tiny.Q6_K.gguf. Write"):
        found(f"{REPOSITORY}:Q6_K")


def test_a_repository_with_one_model_needs_no_quantisation(cache: Path) -> None:
    put(cache, NEW, "tiny-IQ3_S.gguf", b"one")
    assert found(REPOSITORY) == "tiny-IQ3_S.gguf"


def test_the_parts_of_a_split_set_are_all_wanted(cache: Path, tmp_path: Path) -> None:
    names = [f"tiny-Q4_0-0000{number}-of-00002.gguf" for number in (1, 2)]
    for number, name in enumerate(names):
        content = part(tmp_path / name, number, 2, [f"blk.{number}.attn_q.weight"], 2).read_bytes()
        put(cache, NEW, name, content)
    ref = models.reference("hf", f"{REPOSITORY}:Q4_0", tmp_path)
    digests = "\n".join(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in names)
    assert ref.identity == f"sha256:{hashlib.sha256(digests.encode()).hexdigest()}"
    next(cache.rglob(names[1])).unlink()
    with pytest.raises(ModelError, match=f"{names[1]} is missing"):
        models.reference("hf", f"{REPOSITORY}:Q4_0", tmp_path)


def test_what_is_not_in_the_cache_is_told_how_to_get(cache: Path, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(ModelError) as caught:
        models.reference("hf", f"{REPOSITORY}:Q4_0", tmp_path)
    assert str(caught.value) == (
        f"{REPOSITORY}:Q4_0 is not in this machine's cache of the Hugging Face hub ({cache}). "
        f"Get it with `tokfleet model fetch {REPOSITORY}:Q4_0`."
    )
    assert main(["model", "fetch", f"{REPOSITORY}:Q4_0"]) == 1
    assert "huggingface_hub, which would fetch it, is not installed. Install it with `pip" in capsys.readouterr().err


def test_offline_nothing_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace())
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE forbids to fetch it"):
        hub.fetch(hub.parse(REPOSITORY), silent)


def library(cache: Path, files: dict[str, bytes]) -> SimpleNamespace:
    """Return a stand-in for huggingface_hub that has these files on its hub."""

    def download(repository: str, name: str, *, revision: str) -> str:
        assert repository == REPOSITORY
        return str(put(cache, revision, name, files[name], ref=None))

    info = SimpleNamespace(sha=NEW)
    return SimpleNamespace(
        HfApi=lambda: SimpleNamespace(model_info=lambda repository, revision: info),
        list_repo_files=lambda repository, revision: list(files),
        hf_hub_download=download,
    )


def test_what_is_fetched_is_found_from_then_on(
    monkeypatch: pytest.MonkeyPatch, cache: Path, model_bytes: bytes, tmp_path: Path, capsys: Any
) -> None:
    files = {"tiny-Q4_0.gguf": model_bytes, "tiny-Q8_0.gguf": b"other", "README.md": b""}
    monkeypatch.setitem(sys.modules, "huggingface_hub", library(cache, files))
    assert main(["model", "fetch", f"{REPOSITORY}:Q4_0"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.read_bytes() == model_bytes
    assert not list(cache.rglob("tiny-Q8_0.gguf"))
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert hub.fetch(hub.parse(f"{REPOSITORY}:Q4_0"), silent).path == path
    assert models.reference("hf", f"{REPOSITORY}:Q4_0", tmp_path).spec == f"{REPOSITORY}@{NEW}/tiny-Q4_0.gguf"


def test_a_set_that_was_fetched_in_part_is_completed(
    monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path
) -> None:
    names = [f"tiny-Q4_0-0000{number}-of-00002.gguf" for number in (1, 2)]
    files = {
        name: part(tmp_path / name, n, 2, [f"blk.{n}.attn_q.weight"], 2).read_bytes() for n, name in enumerate(names)
    }
    put(cache, NEW, names[0], files[names[0]])
    monkeypatch.setitem(sys.modules, "huggingface_hub", library(cache, files))
    shares: list[float] = []
    hub.fetch(hub.parse(f"{REPOSITORY}:Q4_0"), lambda what, share: shares.append(share))
    assert shares == [0.0, 0.5]
    assert len(models.reference("hf", REPOSITORY, tmp_path).identity) == 71


def test_what_the_hub_does_not_have_or_refuses_is_said(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", library(cache, {"tiny-Q8_0.gguf": b""}))
    with pytest.raises(ModelError, match=r"is not on the hub; someone/Tiny-GGUF has tiny-Q8_0.gguf."):
        hub.fetch(hub.parse(f"{REPOSITORY}:Q4_0"), silent)

    def refuse() -> None:
        raise OSError("401 Client Error.\nRequest ID: 1")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(HfApi=refuse))
    with pytest.raises(ModelError, match=r"could not be fetched from the Hugging Face hub: 401 Client Error. If "):
        hub.fetch(hub.parse(f"{REPOSITORY}:Q4_0"), silent)


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"HF_HUB_CACHE": "/c/hub"}, "/c/hub"),
        ({"HUGGINGFACE_HUB_CACHE": "/old"}, "/old"),
        ({"HF_HOME": "/h"}, "/h/hub"),
        ({"HF_HOME": "", "XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HF_HOME": "", "HOME": "/me"}, "/me/.cache/huggingface/hub"),
    ],
)
def test_the_cache_is_where_huggingface_hub_has_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], place: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert hub.cache() == Path(place)
