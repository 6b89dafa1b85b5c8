import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from worker.child import Child, Deadline, Exit
from worker.variables import child_environment


def python_that(tmp_path: Path, body: str) -> str:
    """Return an `interpreter` that runs `body`, with `events` open for writing."""
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, signal, sys, time\n"
        "events = os.fdopen(int(sys.argv[sys.argv.index('--events') + 1]), 'w')\n"
        "def tell(**event):\n    print(json.dumps(event), file=events, flush=True)\n" + body
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    python.chmod(0o755)
    return str(python)


def run(python: str, timeout: float = 30.0) -> tuple[list[dict[str, Any]], Exit]:
    with Child(python, {}) as child:
        events = []
        for event in child.events(Deadline(timeout)):
            events.append(event)
            child.go_on()
        return events, child.exit()


def test_events_arrive_in_order_and_an_exit_without_a_result_is_named(tmp_path: Path) -> None:
    events, end = run(python_that(tmp_path, "tell(event='a')\ntell(event='b')\n"))
    assert [e["event"] for e in events] == ["a", "b"]
    assert (end.kind, end.returncode) == ("no_result", 0)
    assert "without a result" in end.describe(1)


def test_the_process_waits_for_an_answer_after_an_event(tmp_path: Path) -> None:
    body = "sys.stdin.readline()\ntell(event='a')\ntell(event='b' if sys.stdin.readline() else 'none')\n"
    events, _ = run(python_that(tmp_path, body))
    assert [e["event"] for e in events] == ["a", "b"]


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("os.abort()", "abort", "aborted (SIGABRT)"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "signal", "killed by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal", "killed by SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGILL)", "signal", "killed by SIGILL"),
        ("sys.exit(7)", "exit", "exit code 7"),
        ("events.write('not json\\n'); events.flush(); time.sleep(60)", "garbage", "not an event: not json"),
        ("events.write('[1]\\n'); events.flush(); time.sleep(60)", "garbage", "not an event: [1]"),
    ],
)
def test_each_way_to_die_has_its_name_and_keeps_the_last_log_lines(
    tmp_path: Path, body: str, kind: str, words: str
) -> None:
    _, end = run(python_that(tmp_path, "print('last words', file=sys.stderr, flush=True)\n" + body))
    assert end.kind == kind
    assert words in end.describe(1)
    assert end.log_tail == ("last words",)


def test_a_hang_is_ended_at_the_deadline(tmp_path: Path) -> None:
    events, end = run(python_that(tmp_path, "tell(event='a')\ntime.sleep(3600)\n"), timeout=0.5)
    assert len(events) == 1
    assert (end.kind, end.signal_name) == ("timeout", "SIGKILL")
    assert end.describe(0.5) == "ran past its limit of 0.5 s and was ended"


def test_a_process_that_closes_its_events_and_hangs_is_ended_too(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("worker.child.GRACE_SECONDS", 0.5)
    _, end = run(python_that(tmp_path, "events.close()\ntime.sleep(3600)\n"))
    assert end.kind == "timeout"


def test_a_flood_of_log_lines_is_read_but_only_the_last_are_kept(tmp_path: Path) -> None:
    _, end = run(python_that(tmp_path, "for i in range(200_000): print('line', i)\nprint('x' * 5000)\n"))
    assert len(end.log_tail) == 40
    assert end.log_tail[-2] == "line 199999"
    assert len(end.log_tail[-1]) == 500


def test_leaving_the_block_early_ends_the_process(tmp_path: Path) -> None:
    def leave_early() -> None:
        with Child(python_that(tmp_path, "tell(event='a')\ntime.sleep(3600)\n"), {}) as child:
            pids.append(child.process.pid)
            next(child.events(Deadline(30)))
            raise KeyboardInterrupt

    pids: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        leave_early()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_the_real_measuring_process_dies_with_its_parent(standin_python: str) -> None:
    """A parent that is killed outright cannot end its child: the kernel must."""
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, os, time\n"
            f"c = subprocess.Popen([{standin_python!r}, '-m', 'worker', '--parent', str(os.getpid())],"
            " stdin=subprocess.PIPE)\n"
            "print(c.pid, flush=True); time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    with parent.stdout:
        child_pid = int(parent.stdout.readline())
        time.sleep(0.5)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    for _ in range(100):
        if not Path(f"/proc/{child_pid}").exists():
            return
        time.sleep(0.05)
    pytest.fail("the measuring process outlived its parent")


def test_the_process_does_not_inherit_what_ray_and_shells_set_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "RAY_AUTH_TOKEN"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    environment = child_environment()
    assert not {"OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "RAY_AUTH_TOKEN"} & set(environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == "0"
