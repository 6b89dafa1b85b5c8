"""A model is found by its content, under whatever name; what only looks alike is never taken for it."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from worker import digests, model_search
from worker.digests import cached_sha256
from worker.model_search import adopt, content_of, find, folders_of, hashed, is_same, may_be_same


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take files above a KiB for huge."""
    monkeypatch.setattr(model_search, "HASHED_AT_ONCE_BYTES", 1024)
    monkeypatch.setattr(digests, "PIECE_BYTES", 64)


def write(path: Path, middle: bytes = b"", size: int = 4096) -> Path:
    """Write a file whose first and last bytes are always the same, with `middle` in between."""
    path.parent.mkdir(parents=True, exist_ok=True)
    body = bytearray(b"GGUF" + bytes(size - 4))
    body[size // 2 : size // 2 + len(middle)] = middle
    path.write_bytes(bytes(body))
    return path


def test_a_model_is_found_under_another_name_and_not_a_file_that_differs_in_one_byte(tmp_path: Path) -> None:
    wanted = content_of(write(tmp_path / "boxa/models/tiny.gguf", b"one"), None)
    write(tmp_path / "boxc/llm/tiny.gguf", b"two")
    assert find(wanted, [tmp_path / "boxc"], None) is None
    same = write(tmp_path / "boxb/deep/below/renamed.gguf", b"one")
    found = find(wanted, [tmp_path / "nothing", tmp_path / "boxc", tmp_path / "boxb"], None)
    assert found is not None
    assert found.path == str(same)
    assert found.sha256 == wanted.sha256


def test_a_huge_file_that_looks_alike_may_be_it_and_surely_is_only_when_it_was_read(
    tmp_path: Path, small_limit: None
) -> None:
    home = tmp_path / "home"
    wanted = hashed(write(tmp_path / "a/tiny.gguf", b"one"), home)
    other = write(tmp_path / "b/tiny.gguf", b"two")
    found = find(wanted, [tmp_path / "b"], home)
    assert found is not None
    assert found.quick == wanted.quick
    assert found.sha256 is None
    assert may_be_same(wanted, found)
    assert not is_same(wanted, found)
    read = hashed(other, home)
    assert not may_be_same(wanted, read)
    assert find(wanted, [tmp_path / "b"], home) is None


def test_what_surely_is_the_model_comes_before_what_may_be_it(tmp_path: Path, small_limit: None) -> None:
    home = tmp_path / "home"
    wanted = hashed(write(tmp_path / "a/tiny.gguf", b"one"), home)
    write(tmp_path / "b/1/tiny.gguf", b"two")
    sure = write(tmp_path / "b/2/other-name.gguf", b"one")
    hashed(sure, home)
    found = find(wanted, [tmp_path / "b"], home)
    assert found is not None
    assert found.path == str(sure)


def test_a_huge_file_is_not_read_whole_to_tell_of_it(tmp_path: Path) -> None:
    sparse = tmp_path / "huge.gguf"
    with sparse.open("wb") as file:
        file.write(b"GGUF")
        file.truncate(400 * 10**9)
    found = content_of(sparse, tmp_path / "home")
    assert found.identity.startswith("quick:")
    assert found.file_bytes == 400 * 10**9


def test_a_digest_is_taken_over_only_where_it_is_the_very_file_that_was_read(tmp_path: Path, small_limit: None) -> None:
    path = write(tmp_path / "disk/tiny.gguf", b"one")
    known = hashed(path, tmp_path / "home-1")
    assert adopt(path, known, tmp_path / "home-2")
    assert cached_sha256(path, tmp_path / "home-2") == known.parts[0].sha256
    twin = write(tmp_path / "other/tiny.gguf", b"two")
    os.utime(twin, ns=(path.stat().st_mtime_ns, path.stat().st_mtime_ns))
    assert not adopt(twin, known, tmp_path / "home-2")
    assert not adopt(path, replace(known, parts=tuple(replace(p, sha256=None) for p in known.parts)), tmp_path / "h")
    os.utime(path, ns=(5, 5))
    assert not adopt(path, known, tmp_path / "home-3")


def test_a_second_reading_is_spared_by_the_cache(tmp_path: Path, small_limit: None) -> None:
    path = write(tmp_path / "tiny.gguf")
    told: list[float] = []
    first = hashed(path, tmp_path / "home", told.append)
    assert told[-1] == 1.0
    told.clear()
    assert hashed(path, tmp_path / "home", told.append) == first
    assert told == []


def test_folders_and_links_that_lead_nowhere_are_passed_over(tmp_path: Path) -> None:
    wanted = content_of(write(tmp_path / "a.gguf"), None)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "gone.gguf").symlink_to(tmp_path / "nothing")
    (folder / "loop").symlink_to(folder)
    (folder / "dir.gguf").mkdir()
    assert find(wanted, [folder], None) is None
    (folder / "link.gguf").symlink_to(tmp_path / "a.gguf")
    assert find(wanted, [folder], None) is not None


def test_the_number_of_files_looked_at_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_search, "MAX_FILES", 3)
    wanted = content_of(write(tmp_path / "a.gguf"), None)
    for name in ("1.txt", "2.txt", "3.txt"):
        write(tmp_path / "many" / name)
    shutil.copy(tmp_path / "a.gguf", tmp_path / "many" / "z.gguf")
    assert find(wanted, [tmp_path / "many"], None) is None


def test_a_host_looks_in_the_labs_folders_in_its_home_and_in_the_hubs_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/hub")
    monkeypatch.setenv("HOME", "/home/u")
    assert folders_of(["/srv/models", "~/llm"], tmp_path) == (
        Path("/srv/models"),
        Path("/home/u/llm"),
        tmp_path / "models",
        Path("/hub"),
    )
