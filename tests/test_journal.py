from pathlib import Path

import pytest

from schema.errors import HostError
from worker.journal import Journal, abandoned, append, lives


def test_what_was_written_is_found_by_whoever_comes_after(tmp_path: Path) -> None:
    with Journal(tmp_path, "g") as book:
        book.write({"event": "a"})
        book.write({"event": "b"})
    ((path, events),) = abandoned(tmp_path)
    assert [event["event"] for event in events] == ["a", "b"]
    append(path, {"event": "c"})
    ((_, events),) = abandoned(tmp_path)
    assert [event["event"] for event in events] == ["a", "b", "c"]


def test_an_event_appended_after_half_a_line_replaces_the_half(tmp_path: Path) -> None:
    with Journal(tmp_path, "g") as book:
        book.write({"event": "a"})
    path = tmp_path / "journal" / "g.jsonl"
    with path.open("ab") as file:
        file.write(b'{"event"')
    append(path, {"event": "b"})
    assert path.read_bytes() == b'{"event":"a"}\n{"event":"b"}\n'


def test_a_line_that_is_no_json_does_not_hide_the_others(tmp_path: Path) -> None:
    with Journal(tmp_path, "g") as book:
        book.write({"event": "a"})
    with (tmp_path / "journal" / "g.jsonl").open("ab") as file:
        file.write(b"\x00\x00\n" + b'{"event":"b"}\n')
    ((_, events),) = abandoned(tmp_path)
    assert [event["event"] for event in events] == ["a", "b"]


def test_a_journal_lives_as_long_as_it_is_open(tmp_path: Path) -> None:
    assert not lives(tmp_path, "g")
    with Journal(tmp_path, "g"):
        assert lives(tmp_path, "g")
        assert list(abandoned(tmp_path)) == []
    assert not lives(tmp_path, "g")


def test_a_journal_that_cannot_be_written_is_named_with_the_way_on(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("in the way")
    with pytest.raises(HostError, match="TOKFLEET_HOME"):
        Journal(tmp_path, "g")
