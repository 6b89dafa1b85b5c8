"""`tokfleet hosts` on a real store, and draining a host there."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.store import Store
from tests.factories import make_fingerprint, make_job, make_run
from tests.stores import new_store
from worker.lock import HostLock

NASTY = "box\na\x1b[31m\u202eexe"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home and a lock of their own, without a store."""
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOKFLEET_LOCK", str(tmp_path / "host.lock"))
    for name in ("TOKFLEET_DB", "TOKFLEET_RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"


@pytest.fixture
def store(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store with two hosts, one of them with a name that is meant to harm."""
    path = new_store(tmp_path)
    with Store.open(str(path)) as opened:
        opened.save_fingerprint(make_fingerprint(hostname=NASTY))
        opened.save_fingerprint(make_fingerprint(host_uid="host-2", hostname="box-b"))
        opened.save_run(make_run(), [make_job()])
        opened.save_seen("host-2", "lab-b", {"rack": "b", "host": "lab-b"}, "2026-01-02T05:00:00Z")
    monkeypatch.setenv("TOKFLEET_DB", str(path))
    return path


def rows(capsys: Any, *arguments: str) -> list[dict[str, Any]]:
    assert main(["hosts", *arguments, "--format", "json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_without_a_store_it_is_this_machine(home: Path, capsys: Any) -> None:
    (here,) = rows(capsys)
    assert (here["state"], here["doing"]) == ("free", None)
    assert here["machine"]
    assert not (home / "tokfleet.sqlite").exists()


def test_this_machine_is_busy_while_somebody_measures_on_it(home: Path, capsys: Any) -> None:
    with HostLock(what="tokfleet probe").acquire():
        (here,) = rows(capsys)
    assert here["state"] == "busy"
    assert here["doing"].endswith("tokfleet probe")


def test_hosts_of_the_store_are_listed_with_what_is_known(store: Path, capsys: Any) -> None:
    found = {row["host_uid"]: row for row in rows(capsys)}
    assert len(found) == 3
    other = found["host-2"]
    assert (other["host"], other["state"], other["labels"]) == ("box-b", "not asked", {"rack": "b"})
    assert other["last_seen"] == "2026-01-02T05:00:00Z"
    assert other["machine"].startswith("AMD Ryzen 9 5900X")


@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
def test_a_hosts_name_cannot_leave_its_line(store: Path, form: str, capsys: Any) -> None:
    assert main(["hosts", "--format", form]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "box\\na\\x1b[31m\\u202eexe" in out


def test_csv_has_every_column(store: Path, capsys: Any) -> None:
    assert main(["hosts", "--format", "csv"]) == 0
    head = next(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert head == ["host", "state", "doing", "since", "machine", "labels", "last_seen", "why", "host_uid"]


def test_draining_and_resuming_a_host_is_kept_and_told(store: Path, capsys: Any) -> None:
    assert main(["hosts", "drain", "box-b", "--why", "new fan"]) == 0
    assert capsys.readouterr().out == "box-b gets no new jobs; what it is measuring it finishes.\n"
    (row,) = (row for row in rows(capsys) if row["host_uid"] == "host-2")
    assert row["state"] == "drained"
    assert row["why"].endswith(": new fan")
    assert main(["hosts", "drain", "lab-b"]) == 0
    assert capsys.readouterr().out == "box-b is drained already; nothing was changed.\n"
    assert main(["hosts", "resume", "host-2"]) == 0
    assert capsys.readouterr().out == "box-b gets jobs again.\n"
    assert main(["hosts", "resume", "box-b"]) == 0
    assert "is not drained" in capsys.readouterr().out


def test_a_host_that_is_not_known_is_answered_with_the_nearest(store: Path, capsys: Any) -> None:
    assert main(["hosts", "drain", "boxb"]) == 1
    assert "Did you mean 'box-b'?" in capsys.readouterr().err


def test_an_address_where_no_head_is_is_one_line(home: Path, capsys: Any) -> None:
    assert main(["hosts", "--address", "127.0.0.1:9"]) == 1
    err = capsys.readouterr().err
    assert "No Ray head answers at 127.0.0.1:9" in err
    assert len(err.splitlines()) == 1


def test_a_reason_of_any_length_and_make_stays_one_line(store: Path, capsys: Any) -> None:
    assert main(["hosts", "drain", "box-b", "--why", "\x1b[31m\n" + "x" * 5000]) == 0
    capsys.readouterr()
    assert main(["hosts"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "x" * 501 not in out
