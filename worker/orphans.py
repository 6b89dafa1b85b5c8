"""No process outlives the one that started it: asked of the kernel beforehand, and seen to afterwards."""

import contextlib
import ctypes
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "TOKFLEET_CHILD"
"""The variable that every process of one measuring process has in its environment, with the same value."""

ROUNDS = 100
ROUND_SECONDS = 0.01
PROC = Path("/proc")


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies (Linux; elsewhere it lives on)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)


def die_with_writer(descriptor: int) -> None:
    """End this process when nobody holds the other end of the pipe `descriptor` any more, whatever it is doing then.

    For where the kernel is not told to kill it: a thread sleeps until the pipe is closed.
    """
    pipe = select.poll()
    pipe.register(descriptor, 0)  # its end is told without being asked for

    def watch() -> None:
        pipe.poll()
        os._exit(1)

    threading.Thread(target=watch, name="writer", daemon=True).start()


def end_all(session: int, mark: str) -> None:
    """Kill all that lives of the session, or was started with `mark`, also in a session of its own.

    Looks again until nobody is left, since a process may fork while it is being killed; about a second
    at most, since one that is stuck in the kernel cannot be ended. Without /proc it is the process group.
    """
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(session, signal.SIGKILL)
    for _ in range(ROUNDS):
        living = list(_members(session, mark))
        if not living:
            return
        for pid in living:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(ROUND_SECONDS)


def _members(session: int, mark: str) -> Iterator[int]:
    wanted = f"{MARK}={mark}".encode()
    try:
        pids = [int(name) for name in os.listdir(PROC) if name.isdecimal()]
    except OSError:
        return
    for pid in pids:
        if _lives_in(pid, session) or wanted in _environment(pid):
            yield pid


def _lives_in(pid: int, session: int) -> bool:
    """Return whether the process is of the session and no zombie: the fields follow the name in parentheses."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return len(fields) > 3 and fields[0] not in (b"Z", b"X") and int(fields[3]) == session


def _environment(pid: int) -> list[bytes]:
    """Return the variables it was started with; a zombie, and another user's process, show none."""
    return _read(pid, "environ").split(b"\0")


def _read(pid: int, name: str) -> bytes:
    try:
        return (PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
