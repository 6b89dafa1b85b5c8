import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from tests.supervised import python_that
from worker import child as module
from worker import orphans
from worker.child import Child, Deadline
from worker.exit import Exit
from worker.variables import child_environment


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
        ("os.abort()", "abort", "aborted by llama.cpp (SIGABRT)"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "signal", "killed by SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "signal", "killed by SIGKILL"),
        (
            "os.kill(os.getpid(), signal.SIGILL)",
            "signal",
            "killed by SIGILL, an illegal instruction: its llama.cpp was built for",
        ),
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


def test_eight_mebibytes_on_both_streams_take_little_memory_and_the_last_lines_are_kept(tmp_path: Path) -> None:
    body = (
        "for stream in (sys.stdout.buffer, sys.stderr.buffer):\n"
        "    stream.write(b'x' * (4 << 20) + b'\\n' + b'a line of the flood\\n' * 200_000)\n"
        "    stream.flush()\n"
        "sys.stderr.write('no end of line')\nsys.stderr.flush()\nos.abort()\n"
    )
    python = python_that(tmp_path, body)
    tracemalloc.start()
    try:
        _, end = run(python)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert end.kind == "abort"
    assert end.log_tail[-2:] == ("a line of the flood", "no end of line")
    assert peak < 2 << 20


def test_a_log_that_is_not_utf8_is_kept_as_far_as_it_can_be_read(tmp_path: Path) -> None:
    _, end = run(python_that(tmp_path, "os.write(2, b'caf\\xe9 \\xff\\n')\n"))
    assert end.log_tail == ("caf\ufffd \ufffd",)


def test_a_process_that_writes_without_end_is_ended_at_the_deadline(tmp_path: Path) -> None:
    _, end = run(python_that(tmp_path, "while True: print('x' * 1000)\n"), timeout=1.0)
    assert end.kind == "timeout"


def test_an_event_that_never_ends_is_no_event_and_takes_no_more_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EVENT_BYTES", 1 << 16)
    body = "events.write('[' * (8 << 20) + '\\n')\nevents.flush()\ntime.sleep(60)\n"
    _, end = run(python_that(tmp_path, body))
    assert end.kind == "garbage"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_not_finite_makes_no_event(tmp_path: Path, number: str) -> None:
    body = f'events.write(\'{{"event": "a", "n": {number}}}\\n\')\nevents.flush()\ntime.sleep(60)\n'
    events, end = run(python_that(tmp_path, body))
    assert (events, end.kind) == ([], "garbage")


def test_a_process_that_does_not_read_what_it_is_told_keeps_nobody_waiting(tmp_path: Path) -> None:
    with Child(python_that(tmp_path, "time.sleep(3600)\n"), {"much": "x" * (1 << 20)}) as child:
        assert list(child.events(Deadline(1.0))) == []
        assert child.exit().kind == "timeout"


def test_a_death_in_the_middle_of_an_event_is_a_death_and_no_garbage(tmp_path: Path) -> None:
    _, end = run(python_that(tmp_path, "events.write('{\"event\": ')\nevents.flush()\nos.abort()\n"))
    assert end.kind == "abort"


def test_a_long_request_arrives_whole_though_it_is_read_late(tmp_path: Path) -> None:
    body = "time.sleep(0.5)\ntell(event='a', n=len(json.loads(sys.stdin.readline())['much']))\n"
    with Child(python_that(tmp_path, body), {"much": "x" * (1 << 20)}) as child:
        assert list(child.events(Deadline(30))) == [{"event": "a", "n": 1 << 20}]


def test_what_a_process_leaves_behind_is_ended_and_not_waited_for(tmp_path: Path) -> None:
    body = (
        "if os.fork() == 0:\n    os.setsid()\n    tell(event='pid', pid=os.getpid())\n    time.sleep(600)\n"
        "time.sleep(0.5)\n"
    )
    events, end = run(python_that(tmp_path, body), timeout=600)
    assert end.kind == "no_result"
    assert not _lives(events[0]["pid"])


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_without_notice_of_a_death_it_is_found_out_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_death_of", lambda _: None)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)
    body = "if os.fork() == 0:\n    time.sleep(600)\ntell(event='a')\nos._exit(7)\n"
    events, end = run(python_that(tmp_path, body), timeout=600)
    assert len(events) == 1
    assert (end.kind, end.returncode) == ("exit", 7)


def test_without_proc_the_process_group_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "PROC", tmp_path / "nowhere")
    body = "tell(event='pid', pid=os.fork() or os.getpid())\ntime.sleep(600)\n"
    events, end = run(python_that(tmp_path, body), timeout=1.0)
    assert end.kind == "timeout"
    for _ in range(100):  # nobody waits for those that are not our children
        if not any(_lives(event["pid"]) for event in events):
            return
        time.sleep(0.05)
    pytest.fail("a process of the group outlived it")


def test_a_process_that_nothing_ends_is_left_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.2)
    with monkeypatch.context() as patched, Child(python_that(tmp_path, "time.sleep(600)\n"), {}) as child:
        patched.setattr(orphans, "end_all", lambda *_: None)
        assert list(child.events(Deadline(0.2))) == []
        end = child.exit()
        child.process.kill()
        child.process.wait()
    assert end.kind == "timeout"
    assert "even SIGKILL did not end it" in end.describe(0.2)


def test_time_in_which_it_waits_for_us_is_not_its_own(tmp_path: Path) -> None:
    body = "sys.stdin.readline()\nfor name in 'ab':\n    tell(event=name)\n    sys.stdin.readline()\n"
    deadline = Deadline(30)
    with Child(python_that(tmp_path, body), {}) as child:
        events = child.events(deadline)
        assert next(events)["event"] == "a"
        begun = time.monotonic()
        deadline.restart(30)
        time.sleep(0.5)
        child.go_on()
        assert next(events)["event"] == "b"
        assert deadline.seconds_left() + time.monotonic() - begun > 30.4
        child.go_on()


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
