from pathlib import Path

import pytest

from schema.errors import ModelError
from tests.shared import CASES, needs_cases
from worker.ggml import BY_NAME
from worker.gguf_writer import Entry, header_bytes, lay_out
from worker.split import model_in, parts_of, read_model


def part(path: Path, number: int, count: int, names: list[str], total: int | None = 3) -> Path:
    """Write one part of a split set, as llama-gguf-split does; the metadata of the model stand in the first only."""
    entries: list[Entry] = [("split.no", "u16", number), ("split.count", "u16", count)]
    entries += [("split.tensors.count", "i32", total)] if total is not None else []
    entries += [("general.architecture", "string", "llama")] if number == 0 else []
    placed = lay_out((name, (32, 4), BY_NAME["F32"]) for name in names)
    path.write_bytes(header_bytes(entries, placed) + bytes(512 * len(placed)))
    return path


def split_set(directory: Path) -> list[Path]:
    tensors = [["token_embd.weight"], ["blk.0.attn_q.weight"], ["output_norm.weight"]]
    return [part(directory / f"demo-0000{n + 1}-of-00003.gguf", n, 3, names) for n, names in enumerate(tensors)]


def said(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        read_model(path)
    return str(caught.value)


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_leads_to_the_whole_model(tmp_path: Path, given: int) -> None:
    parts = split_set(tmp_path)
    files = read_model(parts[given])
    assert files.parts == tuple(parts)
    assert parts_of(parts[given]) == tuple(parts)
    assert files.header.metadata["general.architecture"] == "llama"
    assert [tensor.name for tensor in files.header.tensors] == [
        "token_embd.weight",
        "blk.0.attn_q.weight",
        "output_norm.weight",
    ]
    assert files.header.file_bytes == sum(path.stat().st_size for path in parts)


def test_missing_parts_are_named(tmp_path: Path) -> None:
    parts = split_set(tmp_path)
    parts[1].unlink()
    for path in (parts[0], parts[2]):
        assert f"of which demo-00002-of-00003.gguf is missing in {tmp_path}. Download all parts" in said(path)
    parts[0].unlink()
    assert "of which demo-00001-of-00003.gguf, demo-00002-of-00003.gguf are missing" in said(parts[2])


def test_a_part_that_is_cut_or_something_else_is_named(tmp_path: Path) -> None:
    parts = split_set(tmp_path)
    parts[2].write_bytes(parts[2].read_bytes()[:-100])
    assert said(parts[0]).startswith(f"{parts[2]} is not complete: the file is ")
    parts[2].write_bytes(b"<!doctype html>")
    assert said(parts[0]).startswith(f"{parts[2]} is not a GGUF file but a web page")


def test_parts_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    parts = split_set(tmp_path)
    part(parts[2], 1, 3, ["output_norm.weight"])
    assert f"{parts[2]} should be part 3 of 3, but its metadata says split.no 1 (from 0) of 3" in said(parts[0])
    part(parts[2], 2, 3, ["blk.0.attn_q.weight"])
    assert "hold 3 tensors and should hold 3, each once" in said(parts[0])
    part(parts[2], 2, 3, ["output_norm.weight", "output.weight"])
    assert "hold 4 tensors and should hold 3" in said(parts[0])


def test_a_part_that_was_renamed_is_told_what_its_name_must_end_with(tmp_path: Path) -> None:
    renamed = split_set(tmp_path)[1].rename(tmp_path / "model.gguf")
    assert "is part 2 of 3 by its metadata, but not by its name" in said(renamed)
    assert "...-00002-of-00003.gguf" in said(renamed)


def test_numbers_that_no_set_has_are_refused(tmp_path: Path) -> None:
    assert "says that it is part 8 of 3" in said(part(tmp_path / "a-00008-of-00003.gguf", 7, 3, ["a"]))
    assert "says that it is part 1 of 60000" in said(part(tmp_path / "a-00001-of-60000.gguf", 0, 60000, ["a"]))


@pytest.mark.parametrize("name", ["demo-00001-of-00001.gguf", "best-of-breed.gguf", "x-00002-of-00003.gguf"])
def test_a_model_in_one_file_is_plain_whatever_its_name(tmp_path: Path, name: str) -> None:
    placed = lay_out([("token_embd.weight", (32, 4), BY_NAME["F32"])])
    (tmp_path / name).write_bytes(header_bytes([("general.architecture", "string", "llama")], placed) + bytes(512))
    assert read_model(tmp_path / name).parts == (tmp_path / name,)
    assert read_model(part(tmp_path / "one-00001-of-00001.gguf", 0, 1, ["a"], 1)).parts[0].name.startswith("one")


def test_the_parts_may_be_links_to_anywhere(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    for path in split_set(tmp_path):
        path.rename(tmp_path / "blobs" / path.stem[:10])
        path.symlink_to(tmp_path / "blobs" / path.stem[:10])
    assert len(read_model(tmp_path / "demo-00003-of-00003.gguf").parts) == 3


def test_a_directory_with_one_model_stands_for_it(tmp_path: Path) -> None:
    parts = split_set(tmp_path)
    for name in ("README.md", "config.json", "mmproj-F16.gguf", "demo.imatrix.gguf", ".hidden.gguf"):
        (tmp_path / name).touch()
    assert model_in(tmp_path) == parts[0]
    parts[0].unlink()
    assert model_in(tmp_path) == parts[1]  # which then says what is missing


def test_a_directory_with_several_models_or_none_says_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="without a GGUF file; it holds nothing"):
        model_in(tmp_path)
    for name in ("a.safetensors", "b.json"):
        (tmp_path / name).touch()
    with pytest.raises(ModelError, match=r"without a GGUF file; it holds a.safetensors, b.json. Name a GGUF file"):
        model_in(tmp_path)
    for name in [f"m-{n}.gguf" for n in range(9)] + ["s-00001-of-00002.gguf", "s-00002-of-00002.gguf"]:
        (tmp_path / name).touch()
    with pytest.raises(ModelError, match=r"holds 10 models: m-0.gguf, .*, m-5.gguf and 4 more. Name one of them."):
        model_in(tmp_path)


@needs_cases
def test_the_shared_sets_are_found_whole_or_their_missing_part_is_named() -> None:
    for number in (1, 2, 3):
        files = read_model(CASES / "B4" / "complete" / f"demo-0000{number}-of-00003.gguf")
        assert (len(files.parts), len(files.header.tensors), files.header.file_bytes) == (3, 4, 1984 + 8416 + 288)
    for number in (1, 3):
        assert "demo-00002-of-00003.gguf is missing" in said(
            CASES / "B4" / "missing_middle" / f"demo-0000{number}-of-00003.gguf"
        )
    for path in ("one_of_one/demo-00001-of-00001.gguf", "name_only/best-of-breed.gguf"):
        assert read_model(CASES / "B4" / path).parts == (CASES / "B4" / path,)
