import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.inspection_text import as_columns
from schema.errors import ModelError
from tests.shared import CASES, needs_cases
from worker import synthetic
from worker.ggml import BY_NAME
from worker.gguf_writer import Entry, header_bytes, lay_out
from worker.inspection import Inspection, inspect

TENSORS: list[tuple[str, tuple[int, ...], str]] = [("token_embd.weight", (32, 8), "F32")]
NEEDED: list[Entry] = [
    ("general.architecture", "string", "llama"),
    ("llama.context_length", "u32", 256),
    ("llama.embedding_length", "u32", 32),
    ("llama.block_count", "u32", 1),
    ("llama.attention.head_count", "u32", 4),
    ("tokenizer.ggml.model", "string", "llama"),
]


def written(path: Path, entries: list[Entry], tensors: list[tuple[str, tuple[int, ...], str]] = TENSORS) -> Path:
    placed = lay_out((name, shape, BY_NAME[kind]) for name, shape, kind in tensors)
    size = sum(-(-tensor.n_bytes // 32) * 32 for tensor in placed)
    path.write_bytes(header_bytes(entries, placed) + bytes(size))
    return path


def found(tmp_path: Path, *entries: Entry, without: str = "", **named: Any) -> Inspection:
    kept = [entry for entry in NEEDED if entry[0] != without]
    return inspect(written(tmp_path / "model.gguf", [*kept, *entries], **named))


def refused(tmp_path: Path, *entries: Entry, **named: Any) -> str:
    return found(tmp_path, *entries, **named).refused or "it runs"


def test_a_model_is_shown_with_its_sizes(tmp_path: Path) -> None:
    path, _ = synthetic.build(synthetic.parse("test-tiny:Q4_K_M"), tmp_path, lambda what, share: None)
    shown = as_columns(inspect(path))
    assert shown["tensors"].startswith(
        "output.weight: 1 Q6_K; token_embd.weight: 1 Q4_K; ffn_down.weight: 1 Q4_K + 1 Q6_K"
    )
    del shown["tensors"]
    assert shown == {
        "path": str(path),
        "parts": 1,
        "file_bytes": path.stat().st_size,
        "what": "a language model",
        "runs": True,
        "name": "Synthetic test-tiny (not a published model: for tests and first tries)",
        "architecture": "llama",
        "file_type": "Q4_K_M",
        "bits_per_weight": pytest.approx(8 * shown["weight_bytes"] / 2_622_720),
        "n_params": 2_622_720,
        "n_params_active": 2_622_720,
        "weight_bytes": sum(tensor.n_bytes for tensor in synthetic.header(synthetic.parse("test-tiny")).tensors),
        "bytes_per_token": shown["weight_bytes"] - 2048 * 144 + 144,
        "kv_bytes_per_token": 2 * 2 * 2 * 64 * 2,
        "kv_bytes_per_token_beyond_window": None,
        "n_layer": 2,
        "n_ctx_train": 4096,
        "sliding_window": None,
        "n_expert": None,
        "n_expert_used": None,
        "tokenizer": "no_vocab",
        "n_tokens": None,
        "chat_template": False,
        "notes": "",
    }


@pytest.mark.model
def test_the_published_gemma_is_shown_as_it_is(gemma: Path) -> None:
    shown = inspect(gemma)
    assert (shown.name, shown.file_type, shown.tokenizer, shown.n_tokens) == ("Gemma 3 270m", "Q4_K_M", "llama", 262144)
    assert (shown.sizes.n_params, shown.refused, shown.notes) == (268098176, None, ())
    assert shown.sizes.kv_bytes_per_token == 18 * 2 * 256 * 2
    assert shown.sizes.kv_bytes_per_token_beyond_window == 3 * 2 * 256 * 2
    types = {item.name: item.text for item in shown.classes}
    assert types["ffn_down.weight"] == "9 Q6_K + 9 Q4_K"  # what the name Q4_K_M does not say
    assert types["attn_v.weight"] == "9 Q8_0 + 9 Q5_0"


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (("general.type", "string", "adapter"), "a LoRA adapter"),
        (("adapter.type", "string", "lora"), "a LoRA adapter"),
        (("general.type", "string", "mmproj"), "a multimodal projector"),
        (("general.type", "string", "imatrix"), "an importance matrix"),
    ],
)
def test_what_is_no_language_model_is_called_what_it_is(tmp_path: Path, entry: Entry, what: str) -> None:
    shown = found(tmp_path, entry)
    assert (shown.what, shown.refused) == (what, f"is {what}, not a language model. Name the model itself.")


@pytest.mark.parametrize(
    ("architecture", "what"),
    [("clip", "a multimodal projector"), ("controlvector", "a control vector"), ("flux", "an image model")],
)
def test_an_architecture_may_say_that_it_is_no_language_model(tmp_path: Path, architecture: str, what: str) -> None:
    shown = inspect(written(tmp_path / "x.gguf", [("general.architecture", "string", architecture)]))
    assert shown.what == what


@pytest.mark.parametrize(
    ("name", "what"),
    [("blk.0.attn_q.weight.lora_a", "a LoRA adapter"), ("blk.0.attn_q.weight.in_sum2", "an importance matrix")],
)
def test_names_of_tensors_tell_what_the_metadata_do_not(tmp_path: Path, name: str, what: str) -> None:
    assert found(tmp_path, tensors=[(name, (4,), "F32")]).what == what


def test_an_unknown_architecture_is_named_with_the_nearest(tmp_path: Path) -> None:
    other: Entry = ("general.architecture", "string", "lama3")
    said = refused(tmp_path, other, without="general.architecture")
    assert "has the architecture 'lama3', which the llama.cpp of llama-cpp-python" in said
    assert "does not know (the nearest it knows is llama" in said


@pytest.mark.parametrize("key", ["context_length", "embedding_length", "block_count"])
def test_a_key_that_llama_cpp_needs_is_named_where_it_is_missing_or_no_number(tmp_path: Path, key: str) -> None:
    full = f"llama.{key}"
    assert refused(tmp_path, without=full).startswith(f"does not say its {full}, so llama.cpp cannot load it.")
    for kind, value in (("string", "4096"), ("i32", -1), ("u32", 0), ("f32", 1.5), ("bool", True)):
        said = refused(tmp_path, (full, kind, value), without=full)
        assert said == f"says {full} is {str(value)!r}, not a whole number above 0, so llama.cpp cannot load it."


def test_no_architecture_is_said_and_the_rest_is_shown(tmp_path: Path) -> None:
    shown = found(tmp_path, ("general.name", "string", "Nameless"), without="general.architecture")
    assert (shown.name, shown.sizes.n_params) == ("Nameless", 256)
    assert shown.refused is not None
    assert shown.refused.startswith("does not say its general.architecture")


def test_a_model_without_tokenizer_may_run(tmp_path: Path) -> None:
    shown = found(tmp_path, without="tokenizer.ggml.model")
    assert (shown.refused, shown.tokenizer, shown.notes) == (None, None, ("There is no tokenizer.",))


@pytest.mark.parametrize("n_layer", [513, 1 << 31, (1 << 32) - 1])
def test_more_layers_than_any_model_has_take_no_memory(tmp_path: Path, n_layer: int) -> None:
    shown = found(tmp_path, ("llama.block_count", "u32", n_layer), without="llama.block_count")
    assert shown.refused == f"says it has {n_layer} layers; llama.cpp loads at most 512."
    assert shown.sizes.kv_bytes_per_token is None


@pytest.mark.parametrize(
    ("count", "used", "said"),
    [
        (128, 8, "it runs"),
        (None, None, "has experts, but llama.expert_count is missing, so llama.cpp cannot load it."),
        (8, None, "has experts, but llama.expert_used_count is missing, so llama.cpp cannot load it."),
        (4, 8, "says llama.expert_used_count is 8 of 4 experts, which cannot be, so llama.cpp cannot load it."),
        (8, 0, "says llama.expert_used_count is 0 of 8 experts, which cannot be, so llama.cpp cannot load it."),
        (5000, 8, "says llama.expert_count is 5000, which llama.cpp refuses: 1 to 1024 can be."),
    ],
)
def test_experts_are_counted_and_nonsense_is_flagged(
    tmp_path: Path, count: int | None, used: int | None, said: str
) -> None:
    numbers = {"llama.expert_count": count, "llama.expert_used_count": used}
    entries: list[Entry] = [(key, "u32", number) for key, number in numbers.items() if number is not None]
    tensors = [
        *TENSORS,
        ("blk.0.ffn_up_exps.weight", (32, 16, 128), "Q8_0"),
        ("blk.0.ffn_up_shexp.weight", (32, 4), "F32"),
    ]
    shown = found(tmp_path, *entries, tensors=tensors)
    assert (shown.refused or "it runs") == said
    experts = shown.sizes.experts
    assert experts is not None
    assert (experts.count, experts.used) == (count, used)
    total = 256 + 32 * 16 * 128 + 128
    assert shown.sizes.n_params == total
    known = said == "it runs" or count == 5000
    assert shown.sizes.n_params_active == (256 + 128 + 32 * 16 * 128 * 8 // (count or 1) if known else total)
    assert known == ("How many experts a token uses is not known, so all are counted as active." not in shown.notes)


def test_experts_that_the_tensors_do_not_have_are_noted(tmp_path: Path) -> None:
    entries: list[Entry] = [("llama.expert_count", "u32", 128), ("llama.expert_used_count", "u32", 8)]
    shown = found(tmp_path, *entries, tensors=[("blk.0.ffn_up_exps.weight", (32, 16, 8), "F32")])
    assert shown.notes == ("The metadata says 128 experts, the tensors hold 8.",)


def test_a_dense_model_that_says_it_has_one_expert_is_dense(tmp_path: Path) -> None:
    shown = found(tmp_path, ("llama.expert_count", "u32", 1), ("llama.expert_used_count", "u32", 0))
    assert (shown.refused, shown.sizes.experts) == (None, None)


def test_a_name_that_moves_the_cursor_is_shown_escaped(tmp_path: Path, capsys: Any) -> None:
    name = "\x1b[2J\x1b]0;owned\x07Nice\r\nmodel | x\0hidden\u202e"
    path = written(tmp_path / "model.gguf", [*NEEDED, ("general.name", "string", name)])
    for form in ("table", "csv", "markdown"):
        assert main(["model", "inspect", str(path), "--format", form]) == 0
        out, err = capsys.readouterr()
        assert "\\x1b[2J" in out
        assert not {"\x1b", "\r", "\0", "\x07", "\u202e"} & set(out + err)
    assert main(["model", "inspect", str(path), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["name"] == name


def test_what_cannot_run_is_shown_and_said_with_exit_status_1(tmp_path: Path, capsys: Any) -> None:
    path = written(tmp_path / "lora.gguf", [("general.type", "string", "adapter")])
    assert main(["model", "inspect", str(path)]) == 1
    out, err = capsys.readouterr()
    assert "a LoRA adapter" in out
    assert f"{path} is a LoRA adapter, not a language model. Name the model itself." in err
    path.write_bytes(b"<!doctype html>")
    assert main(["model", "inspect", str(path)]) == 1
    assert "is not a GGUF file but a web page" in capsys.readouterr().err


def test_a_directory_and_a_missing_file_are_answered(tmp_path: Path, capsys: Any) -> None:
    written(tmp_path / "model.gguf", NEEDED)
    assert main(["model", "inspect", str(tmp_path)]) == 0
    assert main(["model", "inspect", str(tmp_path / "modell.gguf")]) == 1
    assert "Did you mean model.gguf?" in capsys.readouterr().err


EXPECTED = {
    "B0/good_tiny_header.gguf": "",
    "B1/model-Q4_0.gguf": "a web page",
    "B1/lfs_pointer.gguf": "a Git LFS pointer",
    "B1/json_error.gguf": "a JSON text",
    "B1/empty.gguf": "empty",
    "B1/three_bytes.gguf": "only 3 bytes",
    "B3/big_endian.gguf": "big-endian",
    "B3/big_endian_fugg.gguf": "big-endian",
    "B4/missing_middle/demo-00001-of-00003.gguf": "demo-00002-of-00003.gguf is missing",
    "B4/complete/demo-00002-of-00003.gguf": "",
    "B6/vocab_only.gguf": "a vocabulary only, there is nothing to run",
    "B7/mmproj-F16.gguf": "a multimodal projector",
    "B7/lora.gguf": "a LoRA adapter",
    "B7/imatrix.gguf": "an importance matrix",
    "B9/empty_key.gguf": "a metadata key is empty",
    "B10/huge_key_len.gguf": "the file is 32 bytes",
    "B10/huge_array.gguf": "the file is 69 bytes",
    "B10/huge_counts.gguf": "the file is 24 bytes",
    "B10/nested_arrays.gguf": "holds lists",
    "B10/array_overflow.gguf": "the file is 51 bytes",
    "B11/cut_in_tensor_data.gguf": "the file is 1480 bytes, needs 2080",
    "B11/cut_in_header.gguf": "the file is 200 bytes",
    "B11/tensor_offset_past_end.gguf": "the file is 864 bytes, needs 524288864",
    "B12/latin1_name.gguf": "",
    "B12/escape_codes_name.gguf": "",
    "B12/value_1024_bytes_multibyte_end.gguf": "",
    "B12/nul_in_name.gguf": "",
    "B13/moe_128_8.gguf": "",
    "B13/moe_used_more_than_count.gguf": "qwen3moe.expert_used_count is 8 of 4 experts",
    "B13/moe_count_missing.gguf": "qwen3moe.expert_count is missing",
    "B15/no_context_length.gguf": "llama.context_length",
    "B15/context_length_is_string.gguf": "llama.context_length is '4096'",
    "B15/head_count_array.gguf": "",
    "B15/no_architecture.gguf": "does not say its general.architecture",
    "B15/arch_is_unknown.gguf": "'bailing_moe_v9'",
    "B15/no_tokenizer.gguf": "",
    "B15/duplicate_key.gguf": "the metadata key 'general.name' stands there twice",
}


@needs_cases
@pytest.mark.parametrize("name", EXPECTED)
def test_the_shared_files_are_each_called_what_they_are(name: str) -> None:
    try:
        said = inspect(CASES / name).refused or ""
    except ModelError as error:
        said = str(error)
    assert EXPECTED[name] in said
    assert bool(EXPECTED[name]) == bool(said)
