"""Ray started in the background: tried again where this machine was too busy for it, and nothing left of it in the end.

`ray start` leaves behind what had begun to run when it fails, and what survives its raylet. All of it carries a
mark in its environment, by which it is found and ended: `python -m orchestrator.ray_start MARK PROGRAM` waits for that.
"""

import contextlib
import os
import re
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import psutil

from schema.errors import ClusterError

MARK = "TOKFLEET_RAY_START"
TRIES = 3
END_SECONDS = 10.0
PASSES = 5
GRACE_SECONDS = 3.0
"""So long Ray's other parts may take to end by themselves."""

POLL_SECONDS = 2.0
SESSION = re.compile(r"/[^ =]*/session_[^/ ]+/")
"""The directory of one run of Ray, as it stands in the command lines of its programs."""


def start_detached(
    command: Sequence[str], variables: Mapping[str, str], program: str, tell: Callable[[str], None]
) -> None:
    """Run `command` (a `ray start` that comes back) until it succeeds, three times at most, and have it watched.

    Ray gives its own parts 15 s to say at which port they listen, which a busy machine does not always keep. What
    has begun to run is ended before the next try, and `tell` hears of it. When `program` (raylet, or
    gcs_server on a head) ends, whatever is left of Ray is ended too. Raises ClusterError after the last try.
    """
    for number in range(1, TRIES + 1):
        mark = uuid.uuid4().hex
        done = subprocess.run(command, env={**os.environ, **variables, MARK: mark}, check=False)
        if done.returncode == 0:
            _watch_detached(mark, program)
            return
        end_marked(mark)
        if number < TRIES:
            tell(f"Ray did not come up, at try {number} of {TRIES}; a busy machine is too slow for it. Trying again.")
    raise ClusterError(
        f"Ray did not come up in {TRIES} tries, see above why. Where nothing else is said this machine was too busy: "
        "run it again when it is not."
    )


def end_marked(mark: str) -> None:
    """Kill the processes that were started under `mark`, and wait until they are gone."""
    for _ in range(PASSES):  # what is being started at the same moment may only be seen the next time
        if not _end(_marked(mark)):
            return
        time.sleep(0.1)


def _end(processes: Iterable[psutil.Process]) -> int:
    """Kill `processes`, wait until they are gone, and return how many there were."""
    found = list(processes)
    for process in found:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(found, timeout=END_SECONDS)
    return len(found)


def watch(mark: str, program: str) -> None:
    """Return when the marked process of this name has ended, and with it what it leaves behind.

    That is all that carries the mark, and the agents: they write their title over their environment.
    """
    session: str | None = None
    for process in _marked(mark):
        with contextlib.suppress(psutil.Error):
            if process.name().startswith(program):
                found = SESSION.search(" ".join(process.cmdline()))
                session = found[0] if found else None
                _wait(process)
                break
    time.sleep(GRACE_SECONDS)
    end_marked(mark)
    if session:
        _end(_orphans(session))


def _orphans(session: str) -> Iterator[psutil.Process]:
    """Yield the agents of Ray that write to the directory `session` and whose raylet is gone."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if not process.name().startswith("ray::"):
                continue
            parent = process.parent()
            is_orphan = parent is None or parent.name() != "raylet"
            if is_orphan and any(file.path.startswith(session) for file in process.open_files()):
                yield process


def _watch_detached(mark: str, program: str) -> None:
    unmarked = {name: value for name, value in os.environ.items() if name != MARK}
    subprocess.Popen(
        [sys.executable, "-m", "orchestrator.ray_start", mark, program],
        env=unmarked,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _wait(process: psutil.Process) -> None:
    """Wait until the process is gone, asleep where the system can wake us (Linux), else looking now and then."""
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            descriptor = os.pidfd_open(process.pid)
            select.select([descriptor], [], [])
            os.close(descriptor)
            return
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    watch(sys.argv[1], sys.argv[2])
