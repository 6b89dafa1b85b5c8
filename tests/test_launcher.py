"""A machine without Ray, or anything of ours, measures through a command that starts a process there.

The command here is a plain `sh` with an environment of its own: what it runs has no way to our code but the pipe.
`test_ssh.py` does the same through a real sshd.
"""

import contextlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator import on_host
from schema.errors import ClusterError, HostError
from schema.job import ModelRef
from schema.lab_host import Launcher, SettingCommands
from schema.settings import Settings
from tests.supervised import DECODE, PREFILL, group_of, records
from worker import far, far_code, recipe, synthetic
from worker import launcher as module
from worker.group import Errand
from worker.launcher import ask, command, measure
from worker.lock import HostLock
from worker.models import reference

HERE = Path(__file__).parents[1]
PATIENCE_SECONDS = 60.0
"""A quiet machine needs one or two; tests share theirs with others."""


@pytest.fixture
def there(tmp_path: Path) -> Launcher:
    """Return a launcher into an environment without our code, with a home and a lock of its own."""
    variables = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path / "far-user"),
        "TOKFLEET_LOCK": str(tmp_path / "far.lock"),
        "TOKFLEET_STANDIN_TOKEN_SECONDS": "0.01",
    }
    words = ("env", "-i", *(f"{name}={value}" for name, value in variables.items()), "sh", "-c", 'exec "$0" "$@"')
    return Launcher(host="mac", command=words, via="boxa", python=sys.executable, home=str(tmp_path / "far-home"))


@pytest.fixture
def far_python(tmp_path: Path) -> str:
    """Return a Python for the far end that measures with the stand-in."""
    script = tmp_path / "far-python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m worker.standin "$@"\n')
    script.chmod(0o755)
    return str(script)


def errand(model: ModelRef, python: str, repetitions: int = 3, **fields: Any) -> Errand:
    return Errand(group=group_of(model, PREFILL, DECODE, repetitions=repetitions), python=python, **fields)


def living(tmp_path: Path) -> list[psutil.Process]:
    """Return the processes that live in the far environment of this test."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("TOKFLEET_LOCK") == str(tmp_path / "far.lock")
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def all_gone(tmp_path: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while living(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not living(tmp_path)


def test_a_group_is_measured_there_with_its_own_fingerprint_and_journal(
    there: Launcher, far_python: str, model: ModelRef, tmp_path: Path
) -> None:
    events = list(measure(there, errand(model, far_python)))
    assert events[0]["event"] == "host"
    assert [record.status for record in records(events)] == ["measured", "measured"]
    journal = (tmp_path / "far-home" / "journal" / "group.jsonl").read_text().splitlines()
    written = [event for event in map(json.loads, journal) if event["event"] != "group"]
    assert written == [event for event in events if event["event"] not in ("stage", "host")]
    who = records(events)[0].placement
    assert who is not None
    assert who.worker_pid != os.getpid()
    assert (tmp_path / "far-user" / ".cache" / "tokfleet").is_dir()
    assert all_gone(tmp_path, PATIENCE_SECONDS)


def test_the_locks_of_both_machines_are_held_by_whom_they_should(
    there: Launcher, far_python: str, model: ModelRef, tmp_path: Path
) -> None:
    for event in measure(there, errand(model, far_python)):
        if event["event"] == "sample":
            holder = HostLock(tmp_path / "far.lock").try_acquire()
            assert holder is not None
            assert holder.what == "tokfleet group group"
            near = HostLock(tmp_path / "near.lock")
            assert near.try_acquire() is None
            near.release()
            break


def test_it_waits_for_the_far_lock_and_says_so(
    there: Launcher, far_python: str, model: ModelRef, tmp_path: Path
) -> None:
    with HostLock(tmp_path / "far.lock", what="somebody else").acquire():
        events = measure(there, errand(model, far_python))
        assert "somebody else" in next(events)["text"]
        events.close()
    assert all_gone(tmp_path, PATIENCE_SECONDS)


def test_a_question_is_answered_by_a_function_of_ours(there: Launcher, tmp_path: Path) -> None:
    found = ask(there, on_host.fingerprint, None, seconds=120)
    assert found["host_uid"]
    assert found["build"] is None or found["build"]["binding"]
    assert (tmp_path / "far-home").is_dir()
    assert ask(there, on_host.any_lives, ["group"], seconds=60) is False


def test_what_was_measured_before_a_cut_is_recovered_and_acknowledged_there(
    there: Launcher, far_python: str, model: ModelRef
) -> None:
    for event in measure(there, errand(model, far_python)):
        if event["event"] == "sample":
            break
    found = ask(there, on_host.recovered, seconds=60)
    ends = [event["record"] for event in found if event["event"] == "attempt_end"]
    assert [(end["attempt_uid"], end["failure"]["kind"]) for end in ends] == [("attempt-0", "interrupted")]
    assert len(ends[0]["samples"]) == 1
    ask(there, on_host.acknowledge, frozenset({"attempt-0"}), seconds=60)
    assert ask(there, on_host.recovered, seconds=60) == []


def test_our_error_there_is_our_error_here(there: Launcher, model: ModelRef) -> None:
    with pytest.raises(HostError, match="nothing-of-the-kind cannot be started"):
        list(measure(there, errand(model, "/nothing-of-the-kind")))


def test_when_the_pipe_closes_everything_there_ends(
    there: Launcher, far_python: str, model: ModelRef, tmp_path: Path
) -> None:
    events = measure(there, errand(model, far_python, repetitions=1000))
    next(event for event in events if event["event"] == "sample")
    assert len(living(tmp_path)) >= 2
    events.close()
    assert all_gone(tmp_path, PATIENCE_SECONDS)


DRIVE = """
import pickle, sys
from worker import far
from worker.launcher import measure
far.SILENCE_SECONDS, far.BEAT_SECONDS = 5.0, 0.2
launcher, errand = pickle.loads(bytes.fromhex(sys.argv[1]))
for event in measure(launcher, errand):
    print(event["event"], flush=True)
"""


@contextlib.contextmanager
def driven(launcher: Launcher, errand: Errand) -> Iterator["subprocess.Popen[str]"]:
    """Run a worker in a process of its own until it has a sample; it is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", DRIVE, pickle.dumps((launcher, errand)).hex()],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(HERE)},
        text=True,
    )
    assert process.stdout is not None
    with process.stdout:
        assert any(line == "sample\n" for line in process.stdout)
        yield process
        process.kill()
        process.wait()


def test_when_the_worker_is_killed_nothing_there_lives_on_and_the_host_is_put_back(
    there: Launcher, far_python: str, model: ModelRef, tmp_path: Path
) -> None:
    (tmp_path / "knob").write_text("350\n")
    commands = SettingCommands(
        set=("sh", "-c", f'echo "$0" > {tmp_path}/knob', "{value}"), get=("cat", str(tmp_path / "knob"))
    )
    group = group_of(model, DECODE, repetitions=1000, settings=Settings(host_settings="power=250"))
    with driven(there, Errand(group=group, python=far_python, commands={"power": commands})):
        assert (tmp_path / "knob").read_text() == "250\n"
    assert all_gone(tmp_path, PATIENCE_SECONDS)
    assert (tmp_path / "knob").read_text() == "350\n"


def test_a_far_process_that_hears_nothing_takes_the_other_end_for_gone(
    there: Launcher, far_python: str, model: ModelRef, tmp_path: Path
) -> None:
    with driven(there, errand(model, far_python, repetitions=1000)) as process:
        process.send_signal(signal.SIGSTOP)  # as a cut does: nothing comes, nothing is closed
        assert all_gone(tmp_path, PATIENCE_SECONDS)


def test_a_host_that_falls_silent_is_lost(
    there: Launcher, far_python: str, model: ModelRef, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far, "SILENCE_SECONDS", 5.0)
    monkeypatch.setattr(far, "BEAT_SECONDS", 0.5)
    events = measure(there, errand(model, far_python, repetitions=1000))
    next(event for event in events if event["event"] == "sample")
    stopped = living(tmp_path)
    for process in stopped:
        process.suspend()
    with pytest.raises(ClusterError, match=r"'mac' was lost: nothing was heard of it for \d+ s"):
        list(events)
    assert all_gone(tmp_path, PATIENCE_SECONDS)


def test_what_a_shell_prints_before_is_passed_over(there: Launcher, tmp_path: Path) -> None:
    chatty = (*there.command[:-2], "-c", 'echo "Welcome!"; echo \'{"event": "end"}\'; exec "$0" "$@"')
    assert ask(replace(there, command=chatty), on_host.any_lives, ["x"], seconds=60) is False


def python_of(minor: int) -> str:
    """Return a Python 3 of this minor version that runs here; the test is skipped where there is none."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [shutil.which(f"python3.{minor}"), *map(str, root.glob(f"versions/3.{minor}.*/bin/python3"))]
    for path in filter(None, found):
        asked = subprocess.run([path, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, check=False)
        if asked.stdout.strip() == str(minor).encode():
            return path
    pytest.skip(f"there is no Python 3.{minor} here")


@pytest.mark.parametrize("minor", [minor for minor in (11, 12, 13) if minor != sys.version_info[1]])
def test_another_python_than_ours_measures_there(there: Launcher, tmp_path: Path, minor: int) -> None:
    other = python_of(minor)
    standin = tmp_path / "far-python"
    standin.write_text(f'#!/bin/sh\nexec "{other}" -m worker.standin "$@"\n')
    standin.chmod(0o755)
    file, _ = recipe.build(synthetic.recipe_of(synthetic.parse("test-tiny:Q8_0")), tmp_path, lambda *_: None)
    events = list(measure(replace(there, python=other), errand(reference("path", str(file), tmp_path), str(standin))))
    assert [record.status for record in records(events)] == ["measured", "measured"]
    assert events[0]["fingerprint"]["environment"]["python"].startswith(f"CPython 3.{minor}.")


def test_a_real_python_that_is_too_old_says_so_too(there: Launcher) -> None:
    old = python_of(10)
    with pytest.raises(ClusterError, match=r"is Python 3\.10, and 3\.11 or newer is needed"):
        ask(replace(there, python=old), on_host.any_lives, ["x"], seconds=60)


def test_a_python_that_is_too_old_says_so(there: Launcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far_code, "LEAST_PYTHON", (4, 0))
    with pytest.raises(ClusterError, match=r"is Python 3\.\d+, and 4\.0 or newer is needed"):
        ask(there, on_host.any_lives, ["x"], seconds=60)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("/nonexistent/ssh", "mac"), "'/nonexistent/ssh cannot be started: No such file or directory'"),
        (("sh", "-c", "echo 'Permission denied (publickey).' >&2; exit 255"), "Permission denied"),
        (("sh", "-c", "exit 3"), "ended with exit code 3"),
        (("sh", "-c", "yes"), "it sends something that is not ours"),
    ],
)
def test_a_host_that_is_not_reached_is_named_with_the_reason(
    there: Launcher, words: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ClusterError) as caught:
        ask(replace(there, command=words), on_host.any_lives, ["x"], seconds=60)
    assert reason in str(caught.value)
    assert "'mac'" in str(caught.value)


def test_a_launcher_that_says_nothing_is_given_up(there: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START_SECONDS", 0.5)
    monkeypatch.setattr(module, "END_SECONDS", 0.5)
    with pytest.raises(ClusterError, match=r"no Python of its own answered within 0\.5 s"):
        ask(replace(there, command=("sh", "-c", "sleep 60")), on_host.any_lives, ["x"], seconds=60)


def test_behind_ssh_the_words_are_quoted_for_the_shell_there() -> None:
    through = Launcher(host="mac", command=("ssh", "mac"), via="boxa", python="~/my env/bin/python3", shell=True)
    words = command(through)
    assert words[:2] == ["ssh", "mac"]
    assert words[2].startswith("~/'my env/bin/python3' -u -c 'exec(")
    plain = command(replace(through, shell=False))
    assert plain[2:5] == ["~/my env/bin/python3", "-u", "-c"]


def test_what_is_sent_is_the_same_for_the_same_code_and_small() -> None:
    far_code.archive.cache_clear()
    first = far_code.archive()
    far_code.archive.cache_clear()
    assert far_code.archive() == first
    assert len(first) < 1 << 20


def test_the_first_words_are_read_by_an_old_python_too() -> None:
    head = far_code.preamble().split(b"\n", 1)[0].decode("ascii")
    assert head.startswith("exec('")
    assert "\\n" in head


@pytest.fixture(autouse=True)
def ended(tmp_path: Path) -> Iterator[None]:
    """End what a failed test has left."""
    yield
    for process in living(tmp_path):
        process.kill()
