import ctypes
import hashlib
import importlib.util
import json
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.cli import main
from schema.errors import ModelError
from worker import recipe, synthetic
from worker.ggml import BY_CODE, BY_NAME
from worker.gguf import Tensor, read_header
from worker.gguf_writer import Entry, header_bytes, lay_out
from worker.like import read_skeleton, recipe_like
from worker.noise import ZEROS, can_be_made, tensor_data

KINDS = [kind.name for kind in BY_CODE.values() if can_be_made(kind.name) and kind.name not in ZEROS]
ENTRIES: list[Entry] = [
    ("general.architecture", "string", "llama"),
    ("llama.context_length", "u32", 256),
    ("llama.embedding_length", "u32", 256),
    ("llama.block_count", "u32", 1),
]


def silent(_what: str, _share: float) -> None:
    """Take progress and do nothing with it."""


def tokens(key: str, count: int) -> bytes:
    """Return a list of texts as it stands in a file, too long to be kept in memory."""
    items = b"".join(struct.pack("<Q", 4) + b"%04d" % number for number in range(count))
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<IIQ", 9, 8, count) + items


def original(path: Path, alignment: int = 32) -> Path:
    named = [("token_embd.weight", (256, 3000), BY_NAME["Q6_K"]), ("output_norm.weight", (256,), BY_NAME["F32"])]
    named += [("blk.0.ffn_down.weight", (256, 8), BY_NAME["IQ3_S"])]
    placed = lay_out(named, alignment)
    entries: list[Entry | bytes] = [*ENTRIES, ("general.alignment", "u32", alignment)]
    entries += [("general.name", "string", "The original"), tokens("tokenizer.ggml.tokens", 3000)]
    head = header_bytes(entries, placed, alignment)
    path.write_bytes(head + bytes(sum(-(-tensor.n_bytes // alignment) * alignment for tensor in placed)))
    return path


def test_the_model_has_all_of_the_original_but_the_weights(tmp_path: Path) -> None:
    path = original(tmp_path / "model.gguf", alignment=128)
    made, sha256 = recipe.build(recipe_like(path), tmp_path, silent)
    ours, theirs = read_header(made), read_header(path)
    assert ours.tensors == theirs.tensors
    assert ours.metadata == theirs.metadata | {"tokfleet.synthetic.identity": recipe_like(path).identity}
    assert tokens("tokenizer.ggml.tokens", 3000) in made.read_bytes()
    assert hashlib.sha256(made.read_bytes()).hexdigest() == sha256
    assert any(made.read_bytes()[ours.data_offset :][:1000])


def test_a_skeleton_stands_for_its_model(tmp_path: Path, capsys: Any) -> None:
    path, bones = original(tmp_path / "model.gguf"), tmp_path / "model.skeleton"
    assert main(["model", "skeleton", str(path), "--out", str(bones)]) == 0
    assert capsys.readouterr().out == f"{bones}\n"
    assert bones.stat().st_size == read_header(path).data_offset
    assert recipe_like(bones).identity == recipe_like(path).identity
    assert recipe_like(bones).head == recipe_like(path).head
    assert read_skeleton(bones).data == bones.read_bytes()
    assert read_skeleton(bones).tensors == read_header(path).tensors
    assert main(["model", "inspect", str(bones)]) == 1
    assert "holds a header only, without weights" in capsys.readouterr().err


def test_a_download_that_was_cut_is_enough(tmp_path: Path) -> None:
    path = original(tmp_path / "model.gguf")
    whole = recipe_like(path).identity
    with path.open("r+b") as file:
        file.truncate(read_header(path).data_offset + 1000)
    assert recipe_like(path).identity == whole


def test_a_model_like_a_synthetic_one_is_marked_once(tmp_path: Path) -> None:
    path, _ = synthetic.build(synthetic.parse("test-tiny"), tmp_path, silent)
    made, _ = recipe.build(recipe_like(path), tmp_path, silent)
    assert read_header(made).tensors == read_header(path).tensors
    again = recipe_like(made)
    assert again.identity == recipe_like(path).identity
    assert again.head == recipe_like(path).head


def test_models_like_files_of_other_shapes_and_seeds_share_no_data(tmp_path: Path) -> None:
    path = original(tmp_path / "model.gguf")
    built = {recipe.build(recipe_like(path, seed), tmp_path, silent) for seed in (0, 1)}
    assert len(built) == 2
    assert len({sha256 for _, sha256 in built}) == 2


def test_all_parts_of_a_split_set_become_one_model(tmp_path: Path) -> None:
    for number, name in enumerate(("token_embd.weight", "output.weight")):
        entries: list[Entry] = [*ENTRIES] if number == 0 else []
        entries += [("split.no", "u16", number), ("split.count", "u16", 2), ("split.tensors.count", "i32", 2)]
        placed = lay_out([(name, (256, 4), BY_NAME["Q8_0"])])
        head = header_bytes(entries, placed)
        (tmp_path / f"x-0000{number + 1}-of-00002.gguf").write_bytes(head + bytes(1088))
    made, _ = recipe.build(recipe_like(tmp_path / "x-00002-of-00002.gguf"), tmp_path, silent)
    assert [tensor.name for tensor in read_header(made).tensors] == ["token_embd.weight", "output.weight"]
    assert not any(key.startswith("split.") for key in read_header(made).metadata)


def test_what_is_no_model_has_no_likeness(tmp_path: Path) -> None:
    path = tmp_path / "lora.gguf"
    path.write_bytes(header_bytes([("general.type", "string", "adapter")], lay_out([("a", (4,), BY_NAME["F32"])])))
    with pytest.raises(ModelError, match="is a LoRA adapter, not a language model"):
        recipe_like(path)
    placed = lay_out([("token_embd.weight", (256, 4), BY_NAME["Q8_K"])])
    path.write_bytes(header_bytes(ENTRIES, placed))
    with pytest.raises(ModelError, match=r"tensor 'token_embd.weight' has the type Q8_K, which cannot be made here"):
        recipe_like(path)


def test_a_file_is_not_overwritten_unasked(tmp_path: Path, capsys: Any) -> None:
    path = original(tmp_path / "model.gguf")
    before = path.read_bytes()
    for command in (["synth", "test-tiny"], ["synth", "--like", str(path)], ["skeleton", str(path)]):
        assert main(["model", *command, "--out", str(path)]) == 2
        assert f"{path} exists already. Remove it, choose another name, or overwrite it" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert main(["model", "synth", "--like", str(path), "--out", str(path), "--force"]) == 0
    assert read_header(path).metadata["general.name"] == "The original"


def test_a_file_of_that_name_beside_the_one_wanted_is_left_alone(tmp_path: Path) -> None:
    beside = tmp_path / synthetic.parse("test-tiny:Q8_0").filename
    beside.write_bytes(b"mine")
    assert main(["model", "synth", "test-tiny:Q8_0", "--out", str(tmp_path / "out.gguf")]) == 0
    assert beside.read_bytes() == b"mine"


@pytest.mark.parametrize("arguments", [[], ["test-tiny", "--like", "x.gguf"]])
def test_either_a_shape_or_a_file_is_wanted(arguments: list[str], capsys: Any) -> None:
    assert main(["model", "synth", *arguments]) == 2
    assert "Give either SHAPE:QUANTISATION or --like FILE." in capsys.readouterr().err


def row(kind: str, name: str = "any.weight", width: int = 4096, height: int = 8) -> np.ndarray[Any, Any]:
    tensor = Tensor(name, (width, height), BY_NAME[kind], 0)
    return np.concatenate(list(tensor_data(tensor, "any")))


def test_tables_are_zeros_and_what_must_be_one_is_one() -> None:
    assert not row("I32").any()
    for name in ("blk.0.attn_norm.weight", "rope_freqs.weight", "rope_factors_long.weight"):
        assert (row("F32", name).view("<f4") == 1).all()
    assert (row("F32", "blk.0.ssm_a").view("<f4") == -1).all()


@pytest.mark.model
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [256, 4096, 28672])
def test_weights_of_every_type_are_small_and_lie_around_zero(kind: str, width: int) -> None:
    """Each row is turned into numbers by ggml itself."""
    values = to_float(kind, row(kind, width=width, height=64), width * 64)
    assert np.isfinite(values).all()
    assert 0.1 < np.sqrt(np.mean(values.astype(np.float64) ** 2)) * np.sqrt(width) < 4
    assert abs(np.mean(values)) < 0.2 * np.std(values)


class Traits(ctypes.Structure):
    """`struct ggml_type_traits`, up to the function that turns a row into floats."""

    _fields_ = (
        ("type_name", ctypes.c_char_p),
        ("block_weights", ctypes.c_int64),
        ("interleaved", ctypes.c_int64),
        ("block_bytes", ctypes.c_size_t),
        ("is_quantized", ctypes.c_bool),
        ("to_float", ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)),
    )


def to_float(kind: str, data: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    if kind in ("F32", "F64"):
        return data.view("<f4" if kind == "F32" else "<f8")
    found = importlib.util.find_spec("llama_cpp")
    assert found is not None
    assert found.origin is not None
    ggml = ctypes.CDLL(str(next(Path(found.origin).parent.glob("lib/libggml-base.*"))))
    ggml.ggml_get_type_traits.restype = ctypes.POINTER(Traits)
    ggml.ggml_validate_row_data.restype = ctypes.c_bool
    ggml.ggml_validate_row_data.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
    assert ggml.ggml_validate_row_data(BY_NAME[kind].code, data.ctypes.data, data.nbytes)
    traits = ggml.ggml_get_type_traits(BY_NAME[kind].code).contents
    assert (traits.type_name.decode().upper(), traits.block_bytes) == (kind, BY_NAME[kind].block_bytes)
    values = np.empty(count, np.float32)
    traits.to_float(data.ctypes.data, values.ctypes.data, count)
    return values


@pytest.mark.model
def test_llama_cpp_runs_the_likeness_of_the_published_gemma(gemma: Path, tmp_path: Path) -> None:
    bones = tmp_path / "gemma.skeleton"
    bones.write_bytes(read_skeleton(gemma).data)
    path, _ = recipe.build(recipe_like(bones), tmp_path, silent)
    assert read_header(path).tensors == read_header(gemma).tensors
    code = textwrap.dedent("""
        import json, sys
        from llama_cpp import Llama
        model = Llama(sys.argv[1], n_ctx=64, n_threads=1, logits_all=True, verbose=False)
        tokens = model.tokenize(b"The quick brown fox")
        model.eval(tokens)
        print(json.dumps([model.n_vocab(), len(tokens), bool(model.scores[len(tokens) - 1].std() > 0)]))
    """)
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert json.loads(done.stdout) == [262144, 5, True], done.stderr[-2000:]
