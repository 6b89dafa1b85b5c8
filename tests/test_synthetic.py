import hashlib
import json
import os
import re
import subprocess
import sys
import textwrap
import time
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from schema.errors import ModelError
from worker import noise, recipe, synthetic
from worker.facts import sizes
from worker.gguf import read_header
from worker.gguf_writer import header_bytes
from worker.quantisation import FILE_TYPES
from worker.shapes import QUANTISATIONS, SHAPES, find_shape

ROOT = Path(__file__).parents[1]
GOLDEN = json.loads((ROOT / "tests" / "golden" / "synthetic.json").read_text())
MIXES = {name: FILE_TYPES[name] for name in QUANTISATIONS if name != "F16"}

LLAMA = """
    import ctypes, json, math, sys
    import llama_cpp.llama_cpp as lib

    log = []
    write = lib.llama_log_callback(lambda level, text, data: log.append(text.decode("utf-8", "replace")))
    lib.llama_log_set(write, ctypes.c_void_p(0))
    lib.llama_backend_init()
"""

DECODE = """
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    model = lib.llama_model_load_from_file(sys.argv[1].encode(), params)
    assert model, "".join(log)[-2000:]
    params = lib.llama_context_default_params()
    params.n_ctx, params.n_threads, params.n_threads_batch = 256, 2, 2
    context = lib.llama_init_from_model(model, params)
    n_vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    best = []
    for step in range(8):
        token = (ctypes.c_int32 * 1)(step * 7919 % n_vocab)
        assert lib.llama_decode(context, lib.llama_batch_get_one(token, 1)) == 0
        logits = lib.llama_get_logits(context)[:n_vocab]
        assert all(map(math.isfinite, logits)) and max(logits) > min(logits)
        best.append(logits.index(max(logits)))
    print(json.dumps([n_vocab, lib.llama_model_size(model), lib.llama_model_n_params(model), len(set(best))]))
"""

QUANTISE = """
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.dry_run, params.nthread = int(sys.argv[3]), sys.argv[4] == "dry", 1
    assert lib.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(params)) == 0
    print("".join(log))
"""


DRY_RUNS = """
    params = lib.llama_model_quantize_default_params()
    params.dry_run, params.nthread = True, 1
    logs = []
    for number in sys.argv[3].split(","):
        params.ftype = int(number)
        log.clear()
        assert lib.llama_model_quantize(sys.argv[1].encode(), sys.argv[2].encode(), ctypes.byref(params)) == 0
        logs.append("".join(log))
    print(json.dumps(logs))
"""

LOAD = """
    params = lib.llama_model_default_params()
    params.n_gpu_layers, params.no_alloc, params.load_mode = 0, True, lib.LLAMA_LOAD_MODE_NONE
    model = lib.llama_model_load_from_file(sys.argv[1].encode(), params)
    assert model, "".join(log)[-2000:]
    print(lib.llama_model_n_params(model))
"""


def llama(program: str, *arguments: str | Path | int) -> str:
    """Run `program` on llama.cpp in a process of its own and return what it prints."""
    code = textwrap.dedent(LLAMA) + textwrap.dedent(program)
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def silent(_what: str, _share: float) -> None:
    """Take progress and do nothing with it."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the path of every model whose bytes are golden, built once."""
    directory = tmp_path_factory.mktemp("models")
    return {spec: synthetic.build(synthetic.parse(spec), directory, silent)[0] for spec in GOLDEN["sha256"]}


@pytest.mark.parametrize("spec", GOLDEN["sha256"])
def test_a_model_has_the_same_bytes_everywhere(built: dict[str, Path], spec: str) -> None:
    assert GOLDEN["generator_version"] == synthetic.GENERATOR_VERSION
    assert hashlib.sha256(built[spec].read_bytes()).hexdigest() == GOLDEN["sha256"][spec]


PUBLISHED = {
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
    "gemma-3-4b": 3_880_263_168,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "mistral-7b": 7_248_023_552,
    "tinyllama-1.1b": 1_100_048_384,
    "phi-3-mini": 3_821_079_552,
}
"""Parameters of the published weights (of Gemma 3 4B the language model's); a GGUF counts `rope_freqs`, too."""


def test_every_shape_has_the_parameters_of_the_published_model() -> None:
    counts = {}
    for shape in SHAPES:
        tensors = synthetic.header(synthetic.parse(f"{shape.name}:F16")).tensors
        counts[shape.name] = sum(tensor.n_weights for tensor in tensors if tensor.name != "rope_freqs.weight")
    assert counts == PUBLISHED | {"test-tiny": 2_622_720}


def test_of_the_experts_one_token_uses_a_tenth_of_the_weights() -> None:
    moe = sizes(synthetic.header(synthetic.parse("qwen3-30b-a3b:Q4_K_M")))
    assert moe.n_params_active == 3_353_032_704  # "30.5B in total and 3.3B activated"


@pytest.mark.parametrize("spec", GOLDEN["sha256"])
def test_the_header_is_known_before_the_model_is_built(built: dict[str, Path], spec: str) -> None:
    assert read_header(built[spec]) == synthetic.header(synthetic.parse(spec))


@pytest.mark.parametrize("spec", GOLDEN["tensor_types"])
def test_every_mix_has_the_recorded_counts_of_types(spec: str) -> None:
    types = Counter(tensor.type.name for tensor in synthetic.header(synthetic.parse(spec)).tensors)
    assert dict(types) == GOLDEN["tensor_types"][spec]


def test_counts_are_recorded_for_every_shape_and_mix() -> None:
    assert [listed.spec for listed in synthetic.listing()] == list(GOLDEN["tensor_types"])
    assert len(GOLDEN["tensor_types"]) == len(SHAPES) * len(QUANTISATIONS)


@pytest.mark.model
def test_the_gemma_clone_has_the_tensors_of_the_published_file(gemma: Path) -> None:
    published, ours = read_header(gemma), synthetic.header(synthetic.parse("gemma-3-270m:Q4_K_M"))
    assert ours.tensors == published.tensors
    ours_alone = {"general.name", "general.description", "tokfleet.synthetic.identity", "tokenizer.ggml.model"}
    for key in ours.metadata.keys() & published.metadata.keys() - ours_alone:
        assert ours.metadata[key] == published.metadata[key], key


def sparse(spec: str, path: Path) -> Path:
    """Write the header of a model in front of a hole as large as its data."""
    model = synthetic.parse(spec)
    with path.open("wb") as file:
        file.write(header_bytes(synthetic.metadata(model), synthetic.header(model).tensors))
        file.truncate(synthetic.header(model).file_bytes)
    return path


def quantised_types(log: str) -> dict[str, str]:
    """Return the type that llama.cpp chose for each tensor, by the log of a dry run."""
    chosen = {}
    for name, kind, rest in re.findall(r"\[ *\d+/ *\d+\] (\S+) +- \[.*?\], type = +(\w+), (.*)", log):
        target = re.search(r"-> .*\((\w+)\)", rest)
        chosen[name] = (target[1] if target else kind).upper()
    return chosen


@pytest.mark.model
@pytest.mark.parametrize("shape", [shape.name for shape in SHAPES])
def test_llama_cpp_would_choose_the_same_type_for_every_tensor(tmp_path: Path, shape: str) -> None:
    path = sparse(f"{shape}:F16", tmp_path / "f16.gguf")  # a dry run reads the header alone
    numbers = ",".join(map(str, MIXES.values()))
    logs = json.loads(llama(DRY_RUNS, path, tmp_path / "none.gguf", numbers))
    for mix, log in zip(MIXES, logs, strict=True):
        tensors = synthetic.header(synthetic.parse(f"{shape}:{mix}")).tensors
        assert quantised_types(log) == {tensor.name: tensor.type.name for tensor in tensors}, mix


@pytest.mark.model
@pytest.mark.parametrize("shape", [shape.name for shape in SHAPES])
def test_llama_cpp_finds_every_tensor_that_it_wants_of_a_shape(tmp_path: Path, shape: str) -> None:
    path = sparse(f"{shape}:F16", tmp_path / "f16.gguf")
    n_params = json.loads(llama(LOAD, path))
    assert n_params == sum(tensor.n_weights for tensor in synthetic.header(synthetic.parse(f"{shape}:F16")).tensors)


@pytest.mark.model
@pytest.mark.parametrize("mix", MIXES)
def test_llama_cpp_quantises_the_f16_model_into_our_tensor_table(
    built: dict[str, Path], tmp_path: Path, mix: str
) -> None:
    llama(QUANTISE, built["test-tiny:F16"], tmp_path / "real.gguf", MIXES[mix], "real")
    real = read_header(tmp_path / "real.gguf")
    ours = synthetic.header(synthetic.parse(f"test-tiny:{mix}"))
    assert ours.tensors == real.tensors
    assert ours.metadata["general.file_type"] == real.metadata["general.file_type"]


@pytest.mark.model
@pytest.mark.parametrize("spec", GOLDEN["sha256"])
def test_llama_cpp_runs_the_model_and_its_logits_depend_on_the_token(built: dict[str, Path], spec: str) -> None:
    n_vocab, size, n_params, n_answers = json.loads(llama(DECODE, built[spec]))
    model = synthetic.parse(spec)
    tensors = synthetic.header(model).tensors
    assert n_vocab == model.shape.n_vocab
    assert size == sum(tensor.n_bytes for tensor in tensors)
    assert n_params == sum(tensor.n_weights for tensor in tensors)
    assert n_answers > 4


@pytest.mark.model
@pytest.mark.parametrize("name", ["qwen3-0.6b", "qwen3-30b-a3b", "gemma-3-4b", "qwen2.5-1.5b", "phi-3-mini"])
def test_llama_cpp_runs_a_model_of_every_architecture_cut_to_two_layers(tmp_path: Path, name: str) -> None:
    small = {"n_layer": 2, "n_embd": 256, "n_ff": 512, "n_head": 4, "n_head_kv": 2, "head_size": 64, "n_vocab": 2048}
    shape = find_shape(name)
    small |= {"n_expert": 8, "n_expert_used": 2, "n_ff_expert": 256} if shape.n_expert else {}
    model = synthetic.Synthetic(shape=replace(shape, **small), quantisation="Q4_K_M")  # type: ignore[arg-type]
    path, _ = synthetic.build(model, tmp_path, silent)
    _, size, _, n_answers = json.loads(llama(DECODE, path))
    assert size == sum(tensor.n_bytes for tensor in synthetic.header(model).tensors)
    assert n_answers > 2


def test_the_random_words_are_those_of_pcg64() -> None:
    """The published generator (a 128-bit LCG, XSL-RR output), written out in whole numbers."""
    seed = hashlib.sha256(b"name").digest()
    state, increment = int.from_bytes(seed[:16], "little"), int.from_bytes(seed[16:], "little") | 1
    words = []
    for _ in range(100):
        state = (state * 0x2360ED051FC65DA44385DF649FCCF645 + increment) % (1 << 128)
        folded, turn = (state >> 64 ^ state) & 0xFFFFFFFFFFFFFFFF, state >> 122
        words.append((folded >> turn | folded << (64 - turn)) & 0xFFFFFFFFFFFFFFFF)
    expected = b"".join(word.to_bytes(8, "little") for word in words)
    stream = noise.Words("name")
    assert stream.take(80).tobytes() + stream.take(717).tobytes() == expected[:797]


def test_the_size_of_the_pieces_leaves_no_trace_in_the_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(noise, "CHUNK_BYTES", 4096)
    _, sha256 = synthetic.build(synthetic.parse("test-tiny"), tmp_path, silent)
    assert sha256 == GOLDEN["sha256"]["test-tiny:Q4_K_M"]


@pytest.mark.parametrize("mix", QUANTISATIONS)
def test_every_weight_is_finite_and_no_block_scale_is_denormal(mix: str) -> None:
    seen = set()
    for shape in SHAPES:
        for tensor in synthetic.header(synthetic.parse(f"{shape.name}:{mix}")).tensors:
            if tensor.type.block_weights == 1 or (tensor.type, tensor.shape[0]) in seen:
                continue
            seen.add((tensor.type, tensor.shape[0]))
            data = next(noise.tensor_data(tensor, "any"))
            blocks = data.reshape(-1, tensor.type.block_bytes)
            for position in {"Q6_K": [208], "Q8_0": [0], "Q5_0": [0], "Q4_0": [0], "IQ4_NL": [0]}.get(
                tensor.type.name, [0, 2]
            ):
                scales = np.abs(blocks[:, position : position + 2].copy().view("<f2"))
                assert np.isfinite(scales).all()
                assert (scales >= 2.0**-14).all(), tensor


def test_a_model_does_not_compress(built: dict[str, Path]) -> None:
    data = built["test-tiny:Q4_K_M"].read_bytes()
    assert len(zlib.compress(data)) > 0.9 * len(data)


def test_models_of_other_shapes_mixes_and_seeds_share_no_data(tmp_path: Path) -> None:
    other = synthetic.Synthetic(shape=SHAPES[-1], quantisation="Q4_K_M", seed=1)
    path, sha256 = synthetic.build(other, tmp_path, silent)
    assert path.name == "test-tiny-Q4_K_M-seed1-v1.gguf"
    assert other.identity == "synthetic:test-tiny:Q4_K_M:1:v1"
    assert sha256 != GOLDEN["sha256"]["test-tiny:Q4_K_M"]


def test_two_processes_may_build_the_same_model_at_once(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import sys
        from pathlib import Path
        from worker import synthetic
        model = synthetic.parse("test-tiny:F16")
        for _ in range(5):
            print(synthetic.build(model, Path(sys.argv[1]), lambda what, share: None)[1])
    """)
    command = [sys.executable, "-c", code, str(tmp_path)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate()[0].split() for process in running]
    assert outputs == [[GOLDEN["sha256"]["test-tiny:F16"]] * 5] * 2
    assert [path.name for path in tmp_path.iterdir()] == ["test-tiny-F16-seed0-v1.gguf"]


def test_a_disk_that_takes_no_more_is_a_model_error_and_nothing_is_left(tmp_path: Path) -> None:
    code = textwrap.dedent("""
        import resource, sys
        from pathlib import Path
        from schema.errors import ModelError
        from worker import synthetic
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        try:
            synthetic.build(synthetic.parse("test-tiny:F16"), Path(sys.argv[1]), lambda what, share: None)
        except ModelError as error:
            print(error)
    """)
    command = [sys.executable, "-c", code, str(tmp_path)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said == (
        f"The synthetic model test-tiny:F16 could not be written to {tmp_path}: File too large. "
        "It needs 5 MB; make room or set TOKFLEET_HOME to another directory.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_a_build_that_is_interrupted_leaves_nothing(tmp_path: Path) -> None:
    def interrupt(_what: str, share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        synthetic.build(synthetic.parse("test-tiny"), tmp_path, interrupt)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_builder_left_is_removed_and_a_living_one_is_not_disturbed(tmp_path: Path) -> None:
    model = synthetic.parse("test-tiny")
    dead, living = (tmp_path / f".{model.filename}.{pid}.tmp" for pid in (1, 2))
    for path in (dead, living):
        path.write_bytes(b"half")
    long_ago = time.time() - 2 * recipe.ABANDONED_AFTER_SECONDS
    os.utime(dead, (long_ago, long_ago))
    synthetic.build(model, tmp_path, silent)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([living.name, model.filename])


def test_progress_rises_to_one(tmp_path: Path) -> None:
    shares: list[float] = []
    synthetic.build(synthetic.parse("test-tiny"), tmp_path, lambda what, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_the_quantisation_may_be_left_out_and_case_does_not_matter() -> None:
    assert synthetic.parse("gemma-3-270m").spec == "gemma-3-270m:Q4_K_M"
    assert synthetic.parse("Gemma-3-270M:q8_0").spec == "gemma-3-270m:Q8_0"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("lama-3.2-1b", "'lama-3.2-1b' is no known shape of a synthetic model. Did you mean llama-3.2-1b? Known: gem"),
        ("gemma-3-270m:Q4_KM", "'Q4_KM' is no known quantisation of a synthetic model. Did you mean Q4_K_M? Known: "),
        ("test-tiny:Q8_0:7", "'Q8_0:7' is no known quantisation"),
        ("", "'' is no known shape of a synthetic model. Known: gemma-3-270m, gemma-3-1b"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest_and_the_list(spec: str, said: str) -> None:
    with pytest.raises(ModelError, match=re.escape(said)):
        synthetic.parse(spec)


def test_the_list_names_sizes_and_what_is_no_published_shape() -> None:
    listed = {entry.spec: entry for entry in synthetic.listing()}
    assert listed["gemma-3-270m:Q4_K_M"].file_bytes == 246602880
    assert listed["llama-3.2-1b:Q4_K_M"].n_params == 1235814432
    assert [entry.spec for entry in listed.values() if not entry.published] == [
        f"test-tiny:{mix}" for mix in QUANTISATIONS
    ]
