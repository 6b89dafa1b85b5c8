"""`python -m worker.guard NOTE`: puts a host's settings back when whoever changed them is gone, however that went.

It waits on its stdin, whose other end nobody else holds: a line says that all is as it was, its end that the process
which measured is gone. It is nobody's child and in a session of its own, so what ends a worker, its children or a
raylet does not end it; a signal that asks it to end makes it put back first.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from schema.errors import HostError
from worker import orphans
from worker.host_settings import restore
from worker.variables import REPOSITORY

START_SECONDS = 20.0
ROUNDS = 30
ROUND_SECONDS = 2.0
DONE = b"done\n"
READY = b"ready\n"


@contextlib.contextmanager
def guarding(note: Path) -> Iterator[Callable[[], None]]:
    """Have the note at `note` guarded for the length of the block; gives what tells the guard that all is as it was.

    Raises HostError where the guard does not start; nothing may be changed then.
    """
    environment = {name: value for name, value in os.environ.items() if name != orphans.MARK}
    process = subprocess.Popen(
        [sys.executable, "-m", "worker.guard", str(note)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        env=environment | {"PYTHONPATH": str(REPOSITORY)},
        start_new_session=True,
    )
    assert process.stdin is not None  # noqa: S101 - it was started with pipes
    assert process.stdout is not None  # noqa: S101
    with process.stdin as wire:
        with process.stdout as told:
            if told.readline() != READY:
                process.kill()
                process.wait()
                note.unlink(missing_ok=True)
                raise HostError("The process that would put the host's settings back did not start; nothing was set.")
        process.wait(START_SECONDS)  # the guard itself is that process's child, and goes on

        def release() -> None:
            with contextlib.suppress(BrokenPipeError):
                wire.write(DONE)

        yield release


def is_guarded(note: Path) -> bool:
    """Return whether a guard of the note at `note` is still at work."""
    try:
        with note.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def main() -> None:
    """Guard the note that the command line names, until all is as it was."""
    note = Path(sys.argv[1])
    with note.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fork():
            os._exit(0)
        with contextlib.suppress(_AskedToEndError):
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(number, _end)
            os.write(1, READY)
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            if sys.stdin.buffer.readline() == DONE:
                return
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        for _ in range(ROUNDS):
            if not restore(note):
                return
            time.sleep(ROUND_SECONDS)


class _AskedToEndError(Exception):
    """A signal asked the guard to end."""


def _end(number: int, frame: object) -> None:
    raise _AskedToEndError


if __name__ == "__main__":
    main()
