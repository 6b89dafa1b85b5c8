"""A model comes over in bounded pieces, goes on after a cut, and is kept only where its SHA-256 is right."""

import shutil
from collections import namedtuple
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from schema.errors import ModelError
from worker import model_transfer as module
from worker.digests import cached_sha256
from worker.model_search import Content, content_of
from worker.model_transfer import receive, serve_chunk

SIZE = 10_000
DISK = namedtuple("DISK", "total used free")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_BYTES", 1000)


@pytest.fixture
def source(tmp_path: Path) -> Content:
    path = tmp_path / "boxa" / "tiny.gguf"
    path.parent.mkdir()
    path.write_bytes(bytes(i * 7 % 251 for i in range(SIZE)))
    return content_of(path, None)


class Wire:
    """Serves `content`, counts what it served, and breaks after `most` pieces."""

    def __init__(self, content: Content, most: int = 1000) -> None:
        self.content, self.most = content, most
        self.asked: list[tuple[int, int]] = []

    def __call__(self, part: int, offset: int, size: int) -> bytes:
        if len(self.asked) >= self.most:
            raise ModelError("cut")
        self.asked.append((offset, size))
        return serve_chunk(self.content, part, offset, size)


def fetched(content: Content, home: Path, chunk: Callable[[int, int, int], bytes]) -> Path:
    *_, last = receive(content, home, chunk)
    return Path(last["path"])


def test_a_model_arrives_whole_and_its_digest_is_remembered(source: Content, tmp_path: Path) -> None:
    wire = Wire(source)
    events = list(receive(source, tmp_path / "home", wire))
    path = Path(events[-1]["path"])
    assert path.read_bytes() == Path(source.path).read_bytes()
    assert path.parent.parent == tmp_path / "home" / "models"
    assert wire.asked == [(offset, 1000) for offset in range(0, SIZE, 1000)]
    assert cached_sha256(path, tmp_path / "home") == source.parts[0].sha256
    shares = [event["fraction"] for event in events]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert {event["text"] for event in events} == {"fetch"}


def test_after_a_cut_it_goes_on_where_it_was(source: Content, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cut"):
        list(receive(source, tmp_path, Wire(source, most=4)))
    wire = Wire(source)
    assert fetched(source, tmp_path, wire).read_bytes() == Path(source.path).read_bytes()
    assert wire.asked[0][0] == 4000


def test_what_was_left_of_another_file_is_thrown_away(source: Content, tmp_path: Path) -> None:
    partial = tmp_path / "models" / str(source.sha256)[:16] / "tiny.gguf.part"
    partial.parent.mkdir(parents=True)
    for left in (b"x" * 3000, b"x" * (SIZE + 5)):
        partial.write_bytes(left)
        wire = Wire(source)
        path = fetched(source, tmp_path, wire)
        assert path.read_bytes() == Path(source.path).read_bytes()
        path.unlink()


def test_what_came_with_another_content_is_not_kept(source: Content, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="came with another content than its SHA-256 says"):
        list(receive(source, tmp_path, lambda part, offset, size: b"y" * size))
    assert list((tmp_path / "models").rglob("*.gguf")) == []


def test_a_model_that_is_here_already_is_not_fetched_again(source: Content, tmp_path: Path) -> None:
    fetched(source, tmp_path, Wire(source))
    wire = Wire(source)
    fetched(source, tmp_path, wire)
    assert wire.asked == []


def test_a_file_that_changes_while_it_is_sent_is_refused(source: Content, tmp_path: Path) -> None:
    Path(source.path).write_bytes(b"shorter")
    with pytest.raises(ModelError, match=r"changed while it was sent\. Plan again\."):
        serve_chunk(source, 0, 0, 10)
    Path(source.path).unlink()
    with pytest.raises(ModelError, match="cannot be read"):
        serve_chunk(source, 0, 0, 10)


def test_a_sender_that_has_less_than_it_promised_is_found_out(source: Content, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tiny\.gguf ended after 0 of 10000 bytes"):
        list(receive(source, tmp_path, lambda part, offset, size: b""))


def test_a_disk_that_is_too_small_is_named_with_the_arithmetic(
    source: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: DISK(10**12, 0, 200 * 10**6))
    huge = replace(source, parts=(replace(source.parts[0], file_bytes=5 * 10**9),))
    with pytest.raises(ModelError, match=r"needs 5\.0 GB more in .*, and 0\.2 GB are free there"):
        list(receive(huge, tmp_path, Wire(source)))


@pytest.mark.parametrize("name", ["../../evil.gguf", "/etc/passwd.gguf", "a\nb.gguf", ".hidden.gguf", "x.sh", "ü.gguf"])
def test_a_name_that_leads_elsewhere_is_refused(source: Content, tmp_path: Path, name: str) -> None:
    bad = replace(source, parts=(replace(source.parts[0], name=name),))
    with pytest.raises(ModelError, match="cannot be fetched: rename it"):
        list(receive(bad, tmp_path / "home", Wire(source)))


def test_two_processes_do_not_fetch_one_model_at_once(source: Content, tmp_path: Path) -> None:
    first = receive(source, tmp_path, Wire(source))
    next(first)
    with pytest.raises(ModelError, match="is being fetched by another process"):
        list(receive(source, tmp_path, Wire(source)))
    assert Path(list(first)[-1]["path"]).is_file()


def test_a_chunk_is_bounded_whatever_is_asked_for(source: Content, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CHUNK_BYTES", 100)
    assert len(serve_chunk(source, 0, 0, 10**12)) == 100
    assert serve_chunk(source, 0, 0, -1) == b""
