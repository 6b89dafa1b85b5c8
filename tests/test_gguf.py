import ctypes
import importlib.util
import os
import struct
import tracemalloc
from pathlib import Path

import pytest

from schema.errors import ModelError
from worker.ggml import BY_CODE, BY_NAME
from worker.gguf import MAX_STRINGS, Skipped, read_header
from worker.gguf_writer import header_bytes, lay_out

U32, STRING, ARRAY = 4, 8, 9
HTML = b'<!doctype html>\n<html class=""><head><title>demo-7b.Q4_0.gguf</title></head></html>\n'
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:3f3f\nsize 4108916384\n"


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def start(n_tensors: int, n_keys: int, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_keys)


def string_entry(key: str, value: str | bytes) -> bytes:
    return text(key) + struct.pack("<I", STRING) + text(value)


def list_entry(key: str, code: int, count: int, items: bytes = b"") -> bytes:
    return text(key) + struct.pack("<IIQ", ARRAY, code, count) + items


def tensor_row(name: str, shape: tuple[int, ...], code: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, code, offset)


def good_file() -> bytes:
    kind = BY_NAME["Q8_0"]
    tensors = lay_out([("token_embd.weight", (32, 3), kind), ("output_norm.weight", (32,), BY_NAME["F32"])])
    entries: list[tuple[str, str, int | float | bool | str]] = [
        ("general.architecture", "string", "llama"),
        ("llama.block_count", "u32", 2),
        ("llama.rope.freq_base", "f32", 10000.0),
        ("tokenizer.ggml.add_bos_token", "bool", True),
    ]
    return header_bytes(entries, tensors) + bytes(128 + 128)


def message(tmp_path: Path, content: bytes) -> str:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError) as caught:
        read_header(path)
    return str(caught.value).replace(str(path), "FILE")


def test_a_written_header_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(good_file())
    header = read_header(path)
    assert header.metadata == {
        "general.architecture": "llama",
        "llama.block_count": 2,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.add_bos_token": True,
    }
    assert [(t.name, t.shape, t.type.name, t.offset, t.n_bytes) for t in header.tensors] == [
        ("token_embd.weight", (32, 3), "Q8_0", 0, 102),
        ("output_norm.weight", (32,), "F32", 128, 128),
    ]
    assert (header.version, header.file_bytes) == (3, len(good_file()))
    assert header.data_offset == header.file_bytes - 256
    assert header.integer("llama.block_count") == 2
    assert header.integer("tokenizer.ggml.add_bos_token") is None


@pytest.mark.model
def test_the_published_gemma_is_read_without_its_tokenizer(gemma: Path) -> None:
    header = read_header(gemma)
    assert len(header.tensors) == 236
    assert header.metadata["general.architecture"] == "gemma3"
    assert header.metadata["general.tags"] == ("gemma3", "gemma", "google", "text-generation")
    assert header.metadata["tokenizer.ggml.tokens"] == Skipped("string", 262144)
    assert header.metadata["tokenizer.ggml.scores"] == Skipped("f32", 262144)
    last = header.tensors[-1]
    assert header.data_offset + last.offset + last.n_bytes == header.file_bytes


@pytest.mark.parametrize(
    ("content", "meant"),
    [
        (HTML, "a web page. Download the model again"),
        (b"\xef\xbb\xbf\n  <HTML>", "a web page"),
        (LFS, "a Git LFS pointer"),
        (b'{"error":"Repository not found"}', "a JSON text, most likely a server's error: '{\"error\":"),
        (b"", "empty"),
        (b"GGU", "only 3 bytes long"),
        (b"GGUF\x03", "only 5 bytes long"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "a big-endian GGUF file"),
        (b"FUGG" + struct.pack(">IQQ", 3, 0, 0), "a big-endian GGUF file"),
        (b"PK\x03\x04" + bytes(30), "a ZIP archive or a PyTorch checkpoint"),
        (struct.pack("<Q", 1000) + b'{"a": {}}', "a safetensors file"),
        (b"tjgg" + bytes(30), "from before GGUF"),
        (bytes(5000), "filled with zeros"),
        (b"\n  version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"<Error><Code>AccessDenied</Code></Error>", "a web page"),
        (b"<!-- moved --><html>", "a web page"),
        (b'[\n {"error": 404}]', "a JSON text"),
        (b"Entry not found", "a text that begins with 'Entry not found'. Download the model again"),
        (b"Access to model x/y is restricted.\n" * 40, "a text that begins with 'Access to model"),
        (b"ggml" + bytes(30), "from before GGUF"),
        (b"fmgg" + bytes(30), "from before GGUF"),
        (b"algg" + bytes(30), "a LoRA adapter from before GGUF"),
        (bytes(257) + b"ustar\x0000" + bytes(300), "a tar archive"),
        (b"\x1b[31mred" + bytes(9), "something that starts with 1b 5b 33"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 of GGUF"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9 of GGUF"),
    ],
)
def test_a_file_that_is_something_else_is_called_what_it_is(tmp_path: Path, content: bytes, meant: str) -> None:
    assert meant in message(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "meant"),
    [
        (start(0, 1) + list_entry("a.b", 12, 1 << 61), "the file is 51 bytes, the list 'a.b' needs at least 1844"),
        (start(0, 1) + list_entry("tokenizer.ggml.tokens", STRING, 1 << 61), "the file is 69 bytes"),
        (start(1 << 40, 1 << 40), "a header with 1099511627776 tensors needs at least 26388279066"),
        (start(0, 1 << 40), "a header with 1099511627776 metadata keys needs at least 142936511"),
        (start(0, 1) + b"\xff\xff\xff\xff\xff\xff\0\0" + bytes(40), "a metadata key needs at least 281474976710"),
        (start(0, 1) + text("k" * 70_000) + bytes(99), "a metadata key is 70000 bytes long, more than the 65535"),
        (start(0, 1) + list_entry("x.y", ARRAY, 1) + struct.pack("<IQ", ARRAY, 1) * 2000, "the list 'x.y' holds lists"),
        (start(0, 200_000) + bytes(200_000 * 13), "claims 200000 metadata keys, more than any model has"),
        (start(200_000, 0) + bytes(200_000 * 24), "claims 200000 tensors, more than any model has"),
        (
            start(0, 1) + list_entry("a", STRING, MAX_STRINGS + 1, bytes(8 * MAX_STRINGS + 8)),
            "more than 2000000 texts",
        ),
        (start(0, 2) + string_entry("general.name", "a") * 2, "'general.name' stands there twice"),
        (start(0, 1) + string_entry("", ""), "a metadata key is empty"),
        (start(0, 1) + text("a") + struct.pack("<IQ", 77, 0), "'a' has the unknown value type 77"),
        (start(0, 1) + list_entry("a", 77, 1, bytes(8)), "'a' has the unknown element type 77"),
        (start(0, 1) + text("general.alignment") + struct.pack("<II", U32, 0), "general.alignment is '0', not a power"),
        (start(1, 0) + tensor_row("w", (256,), 999, 0), "tensor 'w' has the unknown type 999. Use a newer"),
        (
            start(1, 0) + tensor_row("w", (32,), 31, 0),
            "tensor 'w' has the type Q4_0_4_4, which llama.cpp no longer loads",
        ),
        (start(2, 0) + tensor_row("w", (1,), 0, 0) * 2, "the tensor 'w' stands there twice"),
        (start(0, 1) + text("general.alignment") + struct.pack("<II", U32, 1 << 30), "is 1073741824, more than any"),
        (start(0, 1) + text("k" * 300) + struct.pack("<IQ", 77, 0), "the metadata key 'kkkkkkkkk"),
        (start(1, 0) + tensor_row("w", (100,), 12, 0), "tensor 'w' of type Q4_K has the impossible shape (100,)"),
        (start(1, 0) + tensor_row("w", (0, 4), 0, 0), "the impossible shape (0, 4)"),
        (start(1, 0) + tensor_row("w", (1, 1, 1, 1, 1), 0, 0), "tensor 'w' has 5 dimensions"),
        (start(1, 0) + tensor_row("w" * 64, (1,), 0, 0), "a tensor's name is 64 bytes long, more than the 63"),
    ],
)
def test_a_hostile_header_is_refused_with_a_reason_and_little_memory(
    tmp_path: Path, content: bytes, meant: str
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        assert meant in message(tmp_path, content)
        assert tracemalloc.get_traced_memory()[1] - len(content) < 2 << 20
    finally:
        tracemalloc.stop()


def test_a_file_cut_anywhere_says_its_size_and_what_it_needs(tmp_path: Path) -> None:
    whole = good_file()
    for size in range(8, len(whole) - 1, 7):
        said = message(tmp_path, whole[:size])
        assert f"the file is {size} bytes" in said, size
        assert "needs" in said


def test_a_file_cut_in_its_data_says_exactly_what_it_needs(tmp_path: Path) -> None:
    assert message(tmp_path, good_file()[:-200]) == (
        f"FILE is not complete: the file is {len(good_file()) - 200} bytes, needs {len(good_file())} "
        "(for tensor 'output_norm.weight'). Download or copy it again."
    )


def test_a_tensor_past_the_end_of_the_file_is_named(tmp_path: Path) -> None:
    content = start(1, 0) + tensor_row("token_embd.weight", (32, 3), 8, 524_288_000) + bytes(200)
    assert "needs 524288198 (for tensor 'token_embd.weight')" in message(tmp_path, content)


def test_a_header_without_its_data_is_read_where_that_is_enough_and_called_one_where_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(good_file()[:-256])
    assert f"FILE holds a header only, without weights: the file is {len(good_file()) - 256} bytes, needs " in message(
        tmp_path, good_file()[:-256]
    )
    assert read_header(path, whole=False).tensors[1].name == "output_norm.weight"


def test_reading_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("worker.bounded_file.READ_SECONDS", -1.0)
    assert "reading its header takes more than" in message(tmp_path, good_file())
    assert "reading its header takes more than" in message(
        tmp_path, start(0, 1) + list_entry("a", STRING, 5000, bytes(8 * 5000))
    )


def test_what_is_kept_is_little_in_sum(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    texts = b"".join(string_entry(f"text{number}", "x" * 500_000) for number in range(25))
    lists = b"".join(list_entry(f"list{number}", 0, 1000, bytes(1000)) for number in range(200))
    path.write_bytes(start(0, 225) + texts + lists)
    kept = read_header(path).metadata
    assert sum(isinstance(value, str) for value in kept.values()) == 16
    assert sum(isinstance(value, tuple) for value in kept.values()) == 99
    assert (kept["text24"], kept["list199"]) == (Skipped("string", 1), Skipped("u8", 1000))


def test_where_each_key_stands_is_known(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(good_file())
    spans = read_header(path).spans
    assert list(spans) == list(read_header(path).metadata)
    first, last = spans["general.architecture"][0], spans["tokenizer.ggml.add_bos_token"][1]
    assert (first, good_file()[last - 1]) == (24, 1)


def test_short_lists_are_kept_and_long_values_only_counted(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(
        start(0, 4)
        + list_entry("heads", U32, 3, struct.pack("<III", 8, 4, 8))
        + list_entry("tags", STRING, 2, text("a") + text("b"))
        + list_entry("tokens", STRING, 5000, text("tok") * 5000)
        + string_entry("chat", "x" * (2 << 20))
    )
    assert read_header(path).metadata == {
        "heads": (8, 4, 8),
        "tags": ("a", "b"),
        "tokens": Skipped("string", 5000),
        "chat": Skipped("string", 1),
    }


def test_a_text_that_is_not_utf8_is_shown_escaped(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(start(0, 1) + string_entry("general.name", b"Mod\xe8le"))
    assert read_header(path).metadata == {"general.name": "Mod\\xe8le"}


def test_a_pipe_or_directory_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    for path in (tmp_path / "pipe.gguf", tmp_path):
        with pytest.raises(ModelError, match="not a regular file"):
            read_header(path)


def test_a_missing_file_is_a_model_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read: No such file"):
        read_header(tmp_path / "absent.gguf")


@pytest.mark.model
def test_the_table_of_types_is_that_of_the_installed_ggml() -> None:
    found = importlib.util.find_spec("llama_cpp")
    assert found is not None
    assert found.origin is not None
    ggml = ctypes.CDLL(str(next(Path(found.origin).parent.glob("lib/libggml-base.*"))))
    ggml.ggml_type_name.restype = ctypes.c_char_p
    ggml.ggml_blck_size.restype = ctypes.c_int64
    ggml.ggml_type_size.restype = ctypes.c_size_t
    for code, entry in BY_CODE.items():
        assert ggml.ggml_type_name(code).decode().upper() == entry.name
        assert ggml.ggml_blck_size(code) == entry.block_weights
        assert ggml.ggml_type_size(code) == entry.block_bytes
