"""Start the probing process, hear what it measures, and end it in time whatever it does (stdlib only)."""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import IO, Any, cast

from schema.errors import HostError
from worker import orphans
from worker.probe.request import Request
from worker.variables import child_environment

DROPPED = ("OPENBLAS_", "GOTO_", "OMP_", "GOMP_", "KMP_", "MKL_", "BLIS_", "VECLIB_", "NPY_", "NUMEXPR_")
"""Prefixes of variables that choose other, often slower code, or threads of a library beside our own."""

ONE_THREAD = {
    f"{library}_THREADS": "1"
    for library in ("OPENBLAS_NUM", "GOTO_NUM", "OMP_NUM", "MKL_NUM", "BLIS_NUM", "VECLIB_MAXIMUM", "NUMEXPR_NUM")
}
REPLY_BYTES = 1 << 20
END_SECONDS = 5.0
COMMAND = (sys.executable, "-m", "worker.probe")

Event = dict[str, Any]


def dropped() -> dict[str, str]:
    """Return the variables in force here that a probing process does not get."""
    return {name: value[:100] for name, value in sorted(os.environ.items()) if name.startswith(DROPPED)}


def ask(
    request: Request,
    limit_seconds: float,
    told: Callable[[str], None] = lambda _: None,
    command: tuple[str, ...] = COMMAND,
) -> list[Event]:
    """Return the events of a probing process; `told` is called with each step that it begins.

    Raises HostError where it cannot be started, fails, or is not done within `limit_seconds`: it is ended then.
    """
    mark = uuid.uuid4().hex
    found: list[Event] = []
    with tempfile.TemporaryFile() as complaints, _started(command, complaints, mark) as process:
        _hand_over(process, request)
        for event in _events(process, time.monotonic() + limit_seconds, limit_seconds):
            if event.get("event") == "step":
                told(str(event.get("text")))
            found.append(event)
        if not found or found[-1].get("event") != "end":
            raise HostError(
                f"The probe of this machine failed: {_why(process, complaints)}. Other commands can be used."
            )
    return found


@contextlib.contextmanager
def _started(command: tuple[str, ...], complaints: IO[bytes], mark: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Give the process for the length of the block, after which nothing of it is left."""
    kept = {name: value for name, value in child_environment().items() if not name.startswith(DROPPED)}
    try:
        process = subprocess.Popen(
            [*command, "--parent", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            bufsize=0,
            env=kept | ONE_THREAD | {orphans.MARK: mark},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise HostError(f"The probe of this machine cannot be started: {command[0]}: {error.strerror}.") from error
    try:
        yield process
    finally:
        orphans.end_all(process.pid, mark)
        with contextlib.suppress(BrokenPipeError):
            cast(IO[bytes], process.stdin).close()
        cast(IO[bytes], process.stdout).close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # nothing ends a process that is stuck in the kernel
            process.wait(END_SECONDS)


def _hand_over(process: "subprocess.Popen[bytes]", request: Request) -> None:
    """Write the request, which is shorter than any pipe, so that this never waits."""
    with contextlib.suppress(BrokenPipeError):  # it is gone; the end of its events tells how
        cast(IO[bytes], process.stdin).write(json.dumps(asdict(request)).encode() + b"\n")


def _events(process: "subprocess.Popen[bytes]", until: float, limit_seconds: float) -> Iterator[Event]:
    """Yield each event as it comes; what is not one is passed over, and after a megabyte nothing more is read."""
    stream = cast(IO[bytes], process.stdout)
    rest, n_bytes = b"", 0
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while n_bytes <= REPLY_BYTES:
            if not selector.select(max(0.0, until - time.monotonic())):
                raise HostError(
                    f"The probe of this machine was not done within {limit_seconds:g} s and was ended. "
                    "Try again when the machine is less busy."
                )
            chunk = os.read(stream.fileno(), 65536)
            n_bytes += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (event for event in map(_event, lines) if event is not None)
            if not chunk:
                return


def _event(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _why(process: "subprocess.Popen[bytes]", complaints: IO[bytes]) -> str:
    """Return the last line that it complained with, else how it ended."""
    complaints.seek(0)
    lines = complaints.read(REPLY_BYTES).decode("utf-8", "replace").strip().splitlines()
    if lines:
        return lines[-1][:300].rstrip(".")
    try:
        code = process.wait(1.0)
    except subprocess.TimeoutExpired:
        return "it told nothing that makes sense"
    return f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
