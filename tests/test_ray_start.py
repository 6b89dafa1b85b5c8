import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from orchestrator import ray_start
from orchestrator.ray_start import MARK, TRIES, start_detached, watch
from schema.errors import ClusterError

START = """
import os, subprocess, sys
from pathlib import Path
tries = Path(sys.argv[1])
number = int(tries.read_text()) + 1 if tries.exists() else 1
tries.write_text(str(number))
left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
tries.with_name(f"left-{number}").write_text(str(left.pid))
sys.exit(number < int(sys.argv[2]))
"""
"""Comes up at the try that is asked for, and leaves a process behind each time, as Ray does."""


def pids(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in sorted(folder.glob("left-*"))]


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_what_comes_up_at_the_second_try_leaves_nothing_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_start, "_watch_detached", lambda mark, program: None)
    told: list[str] = []
    start_detached([sys.executable, "-c", START, str(tmp_path / "tries"), "2"], {}, "sleeper", told.append)
    first, second = pids(tmp_path)
    assert not runs(first)
    assert runs(second)
    assert len(told) == 1
    psutil.Process(second).kill()


def test_what_never_comes_up_is_given_up_with_nothing_left(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=f"in {TRIES} tries"):
        start_detached([sys.executable, "-c", START, str(tmp_path / "tries"), "99"], {}, "sleeper", lambda _: None)
    assert len(pids(tmp_path)) == TRIES
    assert not any(runs(pid) for pid in pids(tmp_path))


def test_processes_of_others_are_left_alone(tmp_path: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with pytest.raises(ClusterError):
        start_detached([sys.executable, "-c", "raise SystemExit(1)"], {}, "sleeper", lambda _: None)
    time.sleep(0.1)
    assert other.poll() is None
    other.kill()
    other.wait()


def test_what_survives_the_watched_program_is_ended_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_start, "GRACE_SECONDS", 0.1)
    environment = {**os.environ, MARK: "a-mark-of-this-test"}
    raylet = subprocess.Popen(["sleep", "0.5"], env=environment)
    survivor = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environment)
    reaper = threading.Thread(target=raylet.wait)
    reaper.start()
    watch("a-mark-of-this-test", "sleep")
    reaper.join()
    assert not runs(survivor.pid)
    survivor.wait()
