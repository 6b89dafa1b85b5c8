"""Reaches a machine that has no Ray, nor anything of ours, through a command such as `ssh mac`: the near end.

Our code goes along: the far Python is started with one word of a program, reads the rest and our packages on its
stdin, and then is `worker.far`. Nothing that comes back is trusted: lines of JSON of bounded size.
"""

import base64
import contextlib
import json
import os
import pickle
import queue
import selectors
import shlex
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator
from types import TracebackType
from typing import IO, Any, cast

from schema.errors import ClusterError, HostError, ModelError, PlanError, StoreError, TokfleetError, UsageError
from schema.lab_host import Launcher
from schema.problem import show
from worker import far
from worker.child import EVENT_BYTES, LOG_LINE_CHARS, parse_event
from worker.far_code import FIRST, preamble
from worker.group import Errand
from worker.variables import REPOSITORY

Event = dict[str, Any]

START_SECONDS = 60.0
"""How long it may take until the far end says that it is there: a connection, a Python, our code."""

NOISE_BYTES = 1 << 20
MAX_SAID = 300
TAIL_LINES = 20
END_SECONDS = 10.0
LAST_WORDS_SECONDS = 1.0
CHUNK = 65536
OURS: dict[str, type[TokfleetError]] = {
    kind.__name__: kind for kind in (HostError, ModelError, ClusterError, UsageError, PlanError, StoreError)
}


def ask(launcher: Launcher, question: Callable[..., Any], *arguments: Any, seconds: float) -> Any:
    """Return what `question(*arguments)`, a function of ours, returns on the launcher's host, as parsed JSON.

    Raises the TokfleetError that it raised there, and ClusterError where the host is not reached or lost, or says
    nothing within `seconds`.
    """
    with Far(launcher, question, arguments, seconds) as there:
        answers = there.events()
        while True:
            try:
                next(answers)
            except StopIteration as stop:
                return stop.value


def measure(launcher: Launcher, errand: Errand) -> Generator[Event, None, None]:
    """Yield the events of the errand's group as the launcher's host measures it, waiting there for its lock.

    Each event is in that host's journal before it comes, and the host goes on when the next one is asked for. Raises
    ClusterError where the host is lost, HostError where it cannot measure. Closing the iterator ends it there.
    """
    with Far(launcher, far.measured, (errand,)) as there:
        yield from there.events()


class Far:
    """One process on the launcher's host; leaving the `with` block ends it, and what it started, in any case."""

    def __init__(
        self,
        launcher: Launcher,
        question: Callable[..., Any],
        arguments: tuple[Any, ...],
        seconds: float | None = None,
    ) -> None:
        """Start the launcher; `seconds` is how long the whole may take, None without end."""
        self._launcher, self._nonce = launcher, uuid.uuid4().hex
        self._ends_at = None if seconds is None else time.monotonic() + seconds
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._is_here = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "worker.tied", str(os.getpid()), *command(launcher)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            start_new_session=True,
        )
        asked = base64.b64encode(pickle.dumps((question, arguments), protocol=4)).decode("ascii")
        request = {
            "nonce": self._nonce,
            "silence_seconds": far.SILENCE_SECONDS,
            "home": launcher.home,
            "question": asked,
        }
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._outbox.put(preamble() + json.dumps(request).encode() + b"\n")
        threading.Thread(target=_write, args=(self._process.stdin, self._outbox), daemon=True).start()

    def __enter__(self) -> "Far":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._outbox.put(None)
        # Its pipe closes now: it has that long to end what it started.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            cast(IO[bytes], stream).close()

    def events(self) -> Generator[Event, None, Any]:
        """Yield what comes back, and return the answer at the end; it goes on when the next is asked for."""
        for event in self._heard():
            match event["event"]:
                case "here":
                    self._is_here = True
                case "event":
                    yield event["value"]
                    self._outbox.put(far.GO_ON + b"\n")
                case "error":
                    raise _error(event)
                case "end":
                    return event.get("value")
        raise self._lost(self._how_it_ended())

    def _heard(self) -> Iterator[Event]:
        """Yield each line that is the far end's, until it closes its pipe; ClusterError when nothing comes any more."""
        out, err = (cast(IO[bytes], stream) for stream in (self._process.stdout, self._process.stderr))
        rest, heard, noise = b"", time.monotonic(), 0
        with selectors.DefaultSelector() as selector:
            for stream in (out, err):
                selector.register(stream, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select(self._patience(heard))}
                if err in ready and not self._keep(os.read(err.fileno(), CHUNK)):
                    selector.unregister(err)
                if out not in ready:
                    if self._patience(heard) <= 0:
                        raise self._lost(self._silence(heard))
                    continue
                chunk = os.read(out.fileno(), CHUNK)
                if not chunk:
                    return
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = self._event(line)
                    if event is not None:
                        yield event
                    else:
                        noise += len(line)
                heard = time.monotonic()
                if noise > NOISE_BYTES or len(rest) > EVENT_BYTES:
                    raise self._lost("it sends something that is not ours")

    def _event(self, line: bytes) -> Event | None:
        """Return the event in a line that bears our mark; None for what others print."""
        mark, _, text = line.strip().partition(b" ")
        event = parse_event(text) if mark == self._nonce.encode() else None
        is_whole = event is not None and (event["event"] != "event" or isinstance(event.get("value"), dict))
        return event if is_whole else None

    def _patience(self, heard: float) -> float:
        """Return how long to wait for the next word."""
        most = far.SILENCE_SECONDS if self._is_here else START_SECONDS
        ends = [heard + most] + [self._ends_at] * (self._ends_at is not None)
        return max(0.0, min(end for end in ends if end is not None) - time.monotonic())

    def _silence(self, heard: float) -> str:
        if self._ends_at is not None and time.monotonic() >= self._ends_at:
            return "it did not answer in time"
        if not self._is_here:
            return f"no Python of its own answered within {START_SECONDS:g} s"
        return f"nothing was heard of it for {time.monotonic() - heard:.0f} s"

    def _how_it_ended(self) -> str:
        err = cast(IO[bytes], self._process.stderr)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(LAST_WORDS_SECONDS)
        os.set_blocking(err.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while self._keep(os.read(err.fileno(), CHUNK)):
                pass
        code = self._process.poll()
        ended = "closed its pipe" if code is None else f"ended with exit code {code}"
        return f"its launcher `{self._launcher.words}` {ended}"

    def _lost(self, reason: str) -> ClusterError:
        said = next((line for line in reversed(self._tail) if line.strip()), None)
        told = f" The last that it said: {said[:MAX_SAID]!r}." if said else ""
        host = show(self._launcher.host)
        if not self._is_here:
            return ClusterError(
                f"The host {host} was not reached: {reason}.{told} Try `{self._launcher.words} "
                f"{self._launcher.python} --version` on {show(self._launcher.via)}."
            )
        return ClusterError(f"The host {host} was lost: {reason}.{told} What it had measured is in its journal.")

    def _keep(self, chunk: bytes) -> bytes:
        self._tail.extend(line[:LOG_LINE_CHARS] for line in chunk.decode("utf-8", "replace").splitlines())
        return chunk


def command(launcher: Launcher) -> list[str]:
    """Return what starts the far Python, word by word, quoted once more where a shell there takes it apart."""
    python = launcher.python
    if not launcher.shell:
        return [*launcher.command, python, "-u", "-c", FIRST]
    home, rest = ("~/", python[2:]) if python.startswith("~/") else ("", python)
    return [*launcher.command, f"{home}{shlex.join([rest, '-u', '-c', FIRST])}"]


def _write(stdin: IO[bytes], outbox: "queue.SimpleQueue[bytes | None]") -> None:
    """Write what is put into the outbox, and in between that we are still there; close the pipe at None."""
    with contextlib.suppress(OSError), stdin:
        while True:
            try:
                said = outbox.get(timeout=far.BEAT_SECONDS)
            except queue.Empty:
                said = far.BEAT + b"\n"
            if said is None:
                return
            while said:
                said = said[os.write(stdin.fileno(), said) :]


def _error(event: Event) -> TokfleetError:
    """Return what was raised there as one of our own errors."""
    text = str(event.get("message"))[:2000]
    return OURS.get(str(event.get("kind")), HostError)(text)
