"""The output of a program that the machine may have, asked once and not waited for longer than a limit."""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence

from worker.fingerprint.evidence import MAX_BYTES, Notes

SECONDS = 5.0


def output(command: Sequence[str], notes: Notes, seconds: float = SECONDS, search: str | None = None) -> str | None:
    """Return what `command` printed, at most 4 MiB; None, with a note where it is there and failed.

    It is looked for on the path, then in `search`. One that hangs is ended with all that it started.
    """
    path = shutil.which(command[0]) or shutil.which(command[0], path=search or os.devnull)
    if path is None:
        return None
    try:
        process = subprocess.Popen(
            [path, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as error:
        notes.missing(command[0], f"{path} cannot be started: {error.strerror}")
        return None
    printed = ended(process, seconds)
    if printed is None:
        notes.missing(command[0], f"{path} did not end within {seconds:g} s")
        return None
    if process.returncode != 0:
        notes.missing(command[0], f"{path} ended with exit code {process.returncode}")
    return printed[:MAX_BYTES].decode("utf-8", "replace") or None


def ended(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """Wait for a program in a session of its own and return what it printed; None where its time was up.

    Then the whole session is ended: a child of its own may hold the pipe too.
    """
    with process:
        try:
            return process.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            return None
