"""`tokfleet probe`: what it prints, and what it keeps."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from schema.errors import HostError
from schema.host import Fingerprint
from schema.probe import Probe
from tests.test_probe import a_point, a_probe
from worker.lock import HostLock
from worker.probe import take


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standin_python: str) -> Path:
    """Return a home of its own on a machine whose memory reads 40 GB/s with one thread and 78 with two."""

    def full(fingerprint: Fingerprint, told: Any) -> tuple[Probe, ...]:
        told("reading memory")
        with pytest.raises(HostError, match="tokfleet probe"):
            HostLock(lock).acquire()
        mine = {"host_uid": fingerprint.host_uid, "hardware_id": fingerprint.hardware.hardware_id}
        points = (a_point(1, 40.0), a_point(2, 78.0))
        return (
            a_probe(*points, **mine, probe_uid="read", value=78e9, n_threads=2, core_limited=True, saturated=False),
            a_probe(**mine, probe_uid="products", kind="gemm_f32", value=460e9, n_threads=2),
        )

    lock = tmp_path / "lock"
    monkeypatch.setattr(take, "full", full)
    monkeypatch.setenv("TOKFLEET_LOCK", str(lock))
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TOKFLEET_PYTHON", standin_python)
    monkeypatch.delenv("TOKFLEET_DB", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path / "home"


def kept(home: Path) -> list[tuple[Any, ...]]:
    """Return kind and value of the stored probes, read without our code."""
    with sqlite3.connect(f"file:{home / 'tokfleet.sqlite'}?mode=ro", uri=True) as connection:
        found = connection.execute("SELECT kind, value FROM probe ORDER BY kind").fetchall()
    connection.close()
    return found


def test_a_probe_is_a_curve_with_a_verdict_and_is_kept(home: Path, capsys: Any) -> None:
    assert main(["probe"]) == 0
    out, err = capsys.readouterr()
    assert f"      2    78.0  {'#' * 40}" in out
    assert "Two threads give twice one: the cores are the limit, not the memory." in out
    assert "reading memory" in err
    assert f"Kept in {home / 'tokfleet.sqlite'}." in err
    assert kept(home) == [("gemm_f32", 460e9), ("memory_read", 78e9)]


def test_a_probe_that_is_not_kept_leaves_no_database(home: Path, capsys: Any) -> None:
    assert main(["probe", "--no-save"]) == 0
    assert "Kept" not in capsys.readouterr().err
    assert not (home / "tokfleet.sqlite").exists()


def test_json_is_every_point(home: Path, capsys: Any) -> None:
    assert main(["probe", "--json", "--no-save"]) == 0
    read, products = json.loads(capsys.readouterr().out)
    assert [point["n_threads"] for point in read["points"]] == [1, 2]
    assert products["kind"] == "gemm_f32"


def test_a_probe_that_fails_is_one_line(home: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise HostError("The probe of this machine failed: it rains.")

    monkeypatch.setattr(take, "full", fail)
    assert main(["probe"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "tokfleet: error: The probe of this machine failed: it rains."
