"""The far end of a launcher: answers one question, or measures one group, for whoever started this process.

What it yields goes out on stdout, one line of JSON each, and waits there for leave to go on; all that others print
goes to stderr. Whoever started it says every few seconds that it is still there, and is answered. When its pipe
closes, or nothing is heard of it for a while, this process ends within ten seconds, with all that it has started: a
cut line closes no pipe.
"""

import base64
import contextlib
import json
import os
import pickle
import queue
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, is_dataclass, replace
from typing import Any, NoReturn

from schema.errors import TokfleetError
from worker.group import Errand, measure
from worker.home import writable_home

Event = dict[str, Any]

BEAT = b"beat"
GO_ON = b"go"
BEAT_SECONDS = 5.0
SILENCE_SECONDS = 30.0
"""After so long without a word the other end is taken for gone; a shorter cut of the line is survived."""

END_SECONDS = 5.0
CHUNK = 65536


def main() -> None:
    """Read the request, answer it, and end; see `worker.launcher` for the other end."""
    out = os.dup(1)
    os.dup2(2, 1)
    request = json.loads(_first_line())
    wire = Wire(0, out, str(request["nonce"]), float(request["silence_seconds"]))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    wire.start()
    if request["home"]:
        os.environ["TOKFLEET_HOME"] = os.path.expanduser(request["home"])
    question, arguments = pickle.loads(base64.b64decode(request["question"]))  # noqa: S301 - it sent our code, too
    try:
        _answer(wire, question, arguments)
    except TokfleetError as error:
        wire.send({"event": "error", "kind": type(error).__name__, "message": str(error)})
    except BrokenPipeError:
        sys.exit("nobody listens any more")


def measured(errand: Errand) -> Generator[Event, None, None]:
    """Yield the events of the errand's group, measured here; the placement tells of this process."""
    own = errand.python or os.environ.get("TOKFLEET_PYTHON") or sys.executable
    placement = replace(errand.placement, worker_pid=os.getpid())
    yield from measure(replace(errand, python=own, placement=placement), writable_home())


def _answer(wire: "Wire", question: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    found = question(*arguments)
    if isinstance(found, Generator):
        with contextlib.closing(found):
            for event in found:
                wire.send({"event": "event", "value": event})
                wire.wait()
        found = None
    wire.send(
        {"event": "end", "value": asdict(found) if is_dataclass(found) and not isinstance(found, type) else found}
    )


class Wire:
    """The pipe to whoever started this process: events out, leave to go on in."""

    def __init__(self, source: int, sink: int, nonce: str, silence_seconds: float) -> None:
        self._source, self._sink, self._nonce = source, sink, nonce
        self._silence_seconds = silence_seconds
        self._lock = threading.Lock()
        self._leave: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def start(self) -> None:
        """Say that we are there, and listen from now on."""
        self.send({"event": "here", "python": sys.version.split()[0]})
        threading.Thread(target=self._listen, name="launcher", daemon=True).start()

    def send(self, event: Event) -> None:
        """Write one event; its mark tells it from what a shell's start-up files may print."""
        line = f"{self._nonce} {json.dumps(event, allow_nan=False)}\n".encode()
        with self._lock:
            while line:
                line = line[os.write(self._sink, line) :]

    def wait(self) -> None:
        """Wait for leave to go on."""
        self._leave.get()

    def _listen(self) -> NoReturn:
        rest = b""
        while select.select([self._source], [], [], self._silence_seconds)[0]:
            chunk = os.read(self._source, CHUNK)
            if not chunk:
                break
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line == BEAT:
                    self._beat()
                else:
                    self._leave.put(line)
        _end_all()

    def _beat(self) -> None:
        """Answer, unless the pipe is full or being written to: then it hears of us anyway."""
        if select.select([], [self._sink], [], 0)[1] and self._lock.acquire(blocking=False):
            try:
                with contextlib.suppress(OSError):
                    os.write(self._sink, f"{self._nonce} {json.dumps({'event': 'beat'})}\n".encode())
            finally:
                self._lock.release()


def _end_all() -> NoReturn:
    """End the main thread, which ends what it has started; and this process in any case."""
    main_thread = threading.main_thread().ident
    if main_thread is not None:
        signal.pthread_kill(main_thread, signal.SIGTERM)
    time.sleep(END_SECONDS)
    os._exit(1)


def _end(number: int, frame: object) -> None:
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    sys.exit("whoever started this is gone")


def _first_line() -> bytes:
    """Return the first line of stdin, byte by byte: what follows is for the thread that listens."""
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        return stdin.readline()
