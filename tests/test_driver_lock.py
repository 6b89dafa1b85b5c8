"""One driver for a run at a time, found and ended from another terminal."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.driver_lock import driver, driving_alone, end_driver, lock_path
from schema.errors import ClusterError

RUN = "ab" * 16
REPOSITORY = Path(__file__).parents[1]
DRIVE = """
import signal, sys, time
from pathlib import Path
from orchestrator.driver_lock import driving_alone
if sys.argv[3] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with driving_alone(Path(sys.argv[1]), sys.argv[2]):
    print("driving", flush=True)
    time.sleep(600)
"""


def start_driver(home: Path, kind: str = "") -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVE, str(home), RUN, kind], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert process.stdout
    with process.stdout as told:
        assert told.readline() == "driving\n"
    return process


def test_nobody_drives_a_run_that_nobody_drives(tmp_path: Path) -> None:
    assert driver(tmp_path, RUN) is None
    assert end_driver(tmp_path, RUN, 1) is None
    assert list(tmp_path.iterdir()) == []


def test_a_second_driver_is_refused_and_told_who_the_first_is(tmp_path: Path) -> None:
    with (
        driving_alone(tmp_path, RUN),
        pytest.raises(ClusterError, match=f"Run abababab is being measured already, by process {os.getpid()} of"),
        driving_alone(tmp_path, RUN),
    ):
        pass
    assert not lock_path(tmp_path, RUN).exists()


def test_another_run_may_be_driven_at_the_same_time(tmp_path: Path) -> None:
    with driving_alone(tmp_path, RUN), driving_alone(tmp_path, "cd" * 16):
        assert driver(tmp_path, RUN) is not None


def test_a_driver_is_ended_from_outside_and_waited_for(tmp_path: Path) -> None:
    process = start_driver(tmp_path)
    holder = end_driver(tmp_path, RUN, 20)
    assert holder is not None
    assert holder.pid == process.pid
    assert driver(tmp_path, RUN) is None
    assert process.wait() != 0


def test_a_driver_that_was_killed_is_none_any_more(tmp_path: Path) -> None:
    process = start_driver(tmp_path)
    process.kill()
    process.wait()
    assert driver(tmp_path, RUN) is None
    with driving_alone(tmp_path, RUN):
        pass


def test_a_driver_that_does_not_end_is_said(tmp_path: Path) -> None:
    process = start_driver(tmp_path, "stubborn")
    try:
        with pytest.raises(ClusterError, match=r"was asked to end run abababab and has not within 0.2 s"):
            end_driver(tmp_path, RUN, 0.2)
    finally:
        process.kill()
        process.wait()


def test_a_driver_on_another_machine_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with driving_alone(tmp_path, RUN):
        monkeypatch.setattr(socket, "gethostname", lambda: "elsewhere")
        with pytest.raises(ClusterError, match="End it on that machine"):
            end_driver(tmp_path, RUN, 1)
