"""One driver for a run at a time on this machine, and who it is: a lock beside the run's other files."""

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from schema.errors import ClusterError
from worker.home import make_writable
from worker.lock import Holder, HostLock, peek

POLL_SECONDS = 0.1


def lock_path(home: Path, run_uid: str) -> Path:
    """Return the file whose lock the driver of the run holds."""
    return home / "drivers" / f"{run_uid}.lock"


@contextlib.contextmanager
def driving_alone(home: Path, run_uid: str, what: str = "") -> Iterator[None]:
    """Be the run's one driver on this machine for the length of the block; ClusterError where another is it already."""
    path = lock_path(home, run_uid)
    make_writable(path.parent)
    lock = HostLock(path, what or f"run {run_uid}")
    holder = lock.try_acquire()
    if holder is not None:
        raise ClusterError(
            f"Run {run_uid[:8]} is being measured already, by {holder.describe()}. "
            f"`tokfleet status {run_uid[:8]} --watch` shows how far it is, `tokfleet cancel {run_uid[:8]}` ends it."
        )
    with lock:
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def driver(home: Path, run_uid: str) -> Holder | None:
    """Return the process that drives the run on this machine, None where none does."""
    return peek(lock_path(home, run_uid))


def end_driver(home: Path, run_uid: str, seconds: float) -> Holder | None:
    """Ask the run's driver on this machine to end as Ctrl-C does, wait until it has, and return who it was.

    None where no process drives the run here. Raises ClusterError where it has not ended after `seconds`, or is
    another user's.
    """
    holder = driver(home, run_uid)
    if holder is None:
        return None
    if holder.pid is None:
        raise ClusterError(f"Run {run_uid[:8]} is driven by {holder.describe()}. Try again in a moment.")
    if holder.host != socket.gethostname():
        raise ClusterError(f"Run {run_uid[:8]} is driven by {holder.describe()}. End it on that machine.")
    try:
        os.kill(holder.pid, signal.SIGTERM)
    except ProcessLookupError:
        return holder
    except PermissionError as error:
        raise ClusterError(f"Run {run_uid[:8]} is driven by {holder.describe()}, which you may not end.") from error
    deadline = time.monotonic() + seconds
    while driver(home, run_uid) is not None:
        if time.monotonic() > deadline:
            raise ClusterError(
                f"{holder.describe()} was asked to end run {run_uid[:8]} and has not within {seconds:g} s."
            )
        time.sleep(POLL_SECONDS)
    return holder
