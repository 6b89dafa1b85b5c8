"""Start one measuring process, read its events, and say how it ended, whatever way that was (stdlib only)."""

import contextlib
import json
import math
import os
import select
import selectors
import signal
import subprocess
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import IO, Any, cast

from worker import orphans
from worker.exit import Exit, oom_kills
from worker.variables import child_environment

LOG_TAIL_LINES = 40
LOG_LINE_CHARS = 500
LOG_LINE_BYTES = 4 * LOG_LINE_CHARS
EVENT_BYTES = 4 * 1024 * 1024
GRACE_SECONDS = 10.0
DRAIN_SECONDS = 5.0
POLL_SECONDS = 1.0
"""How often its life is asked for where the kernel cannot tell us of its death (no pidfd)."""


class Child:
    """One measuring process in a session of its own; leaving the `with` block ends all of that in any case."""

    def __init__(self, python: str, request: dict[str, Any], variables: Mapping[str, str] | None = None) -> None:
        """Start `python -m worker` with `variables` in its environment and hand it `request`."""
        self._tail: deque[str] = deque(maxlen=LOG_TAIL_LINES)
        self._partial: dict[int, bytes] = {}
        self._oom_kills = oom_kills()
        self._timed_out = self._dead = self._over = False
        self._broken: str | None = None
        self._mark = uuid.uuid4().hex
        events, write_end = os.pipe()
        command = [python, "-m", "worker", "--events", str(write_end), "--parent", str(os.getpid())]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                pass_fds=[write_end],
                env=child_environment(variables) | {orphans.MARK: self._mark},
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            os.close(events)
            raise
        finally:
            os.close(write_end)
        self._death = _death_of(self.process.pid)
        self._events: IO[bytes] = os.fdopen(events, "rb", buffering=0)
        self._stdin: IO[bytes] = cast(IO[bytes], self.process.stdin)
        self._stdout: IO[bytes] = cast(IO[bytes], self.process.stdout)
        os.set_blocking(self._stdin.fileno(), False)
        self._unsaid = b""
        self._say(json.dumps(request) + "\n")

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        for stream in (self._stdin, self._stdout, self._events):
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        if self._death is not None:
            os.close(self._death)
            self._death = None

    def go_on(self) -> None:
        """Tell the process that its last event is safe and it may go on."""
        self._say("\n")

    def refuse(self, reason: str) -> None:
        """Take its last event for none: `events` ends, and so does the process."""
        self._broken = reason[:LOG_LINE_CHARS]

    def _say(self, text: str) -> None:
        """Write without ever waiting: a process that does not read is found out by its deadline."""
        self._unsaid += text.encode()
        try:
            self._unsaid = self._unsaid[os.write(self._stdin.fileno(), self._unsaid) :]
        except BlockingIOError:
            pass
        except BrokenPipeError:
            self._unsaid = b""  # it is gone; the end of its events tells how

    def events(self, deadline: "Deadline", look: Callable[[], float] = lambda: math.inf) -> Iterator[dict[str, Any]]:
        """Yield each event; the caller answers each with `go_on`. Ends when the process does, or its time is up.

        Sleeps in between: nothing here runs while the process measures, except `look`, which says in how many
        seconds it wants to be called again. When the process is dead, what it wrote is read to the end; whoever
        else still holds its pipes is not waited for.
        """
        with selectors.DefaultSelector() as selector:
            for stream in (self._events, self._stdout, *[self._death] * (self._death is not None)):
                selector.register(cast(Any, stream), selectors.EVENT_READ)
            while not self._all_read(selector):
                ready = selector.select(min(look(), self._wait_seconds(selector, deadline)))
                if self._dead and not ready:
                    return
                for key, _ in ready:
                    for event in self._take(key.fileobj, selector):
                        handed_over = time.monotonic()
                        yield event
                        deadline.extend(time.monotonic() - handed_over)  # it waits for us, not we for it
                        if self._broken is not None:
                            return
                if self._broken is not None:
                    return
                deadline = self._shortened(deadline, selector)
                if deadline.seconds_left() <= 0:
                    self._timed_out = not self._dead
                    return

    def _all_read(self, selector: selectors.BaseSelector) -> bool:
        return not {self._events, self._stdout} & {key.fileobj for key in selector.get_map().values()}

    def _wait_seconds(self, selector: selectors.BaseSelector, deadline: "Deadline") -> float:
        """Return how long to sleep; before that, see to it that what is still to be said wakes us."""
        waiting = any(key.fileobj is self._stdin for key in selector.get_map().values())
        if self._unsaid and not waiting:
            selector.register(self._stdin, selectors.EVENT_WRITE)
        elif waiting and not self._unsaid:
            selector.unregister(self._stdin)
        if self._dead:
            return 0.0
        return deadline.seconds_left() if self._death is not None else min(POLL_SECONDS, deadline.seconds_left())

    def _take(self, stream: Any, selector: selectors.BaseSelector) -> Iterator[dict[str, Any]]:
        if stream is self._stdin:
            self._say("")
        elif stream is self._stdout:
            self._keep(self._read_lines(stream, selector, LOG_LINE_BYTES))
        elif stream is self._events:
            yield from self._parse(self._read_lines(stream, selector, EVENT_BYTES))
        else:
            selector.unregister(stream)
            self._dead = True

    def _shortened(self, deadline: "Deadline", selector: selectors.BaseSelector) -> "Deadline":
        """Once it is dead, or has no more to tell, little time is left."""
        if not self._dead and self._death is None:
            self._dead = self.process.poll() is not None
        if self._dead:
            return deadline.at_most(DRAIN_SECONDS)
        told = all(key.fileobj is not self._events for key in selector.get_map().values())
        return deadline.at_most(GRACE_SECONDS) if told else deadline

    def _read_lines(self, stream: IO[bytes], selector: selectors.BaseSelector, most: int) -> list[bytes]:
        """Return the lines that are whole now; of one that does not end, only the first `most` bytes are kept."""
        chunk = os.read(stream.fileno(), 65536)
        text = self._partial.pop(stream.fileno(), b"") + chunk
        if not chunk:
            selector.unregister(stream)
            return [text] if text and stream is self._stdout else []  # half an event is none: its writer died
        *lines, rest = text.split(b"\n")
        self._partial[stream.fileno()] = rest[:most]
        return lines

    def _keep(self, lines: list[bytes]) -> None:
        self._tail.extend(line.decode("utf-8", "replace")[:LOG_LINE_CHARS] for line in lines)

    def _parse(self, lines: list[bytes]) -> Iterator[dict[str, Any]]:
        for line in lines:
            event = parse_event(line)
            if event is None:
                self._broken = line[:80].decode("utf-8", "replace")
                return
            yield event

    def exit(self) -> Exit:
        """End the process if it still lives, with all that it started, and return how it ended."""
        out_of_memory = False
        returncode = self._end()
        self._keep(self._partial.pop(self._stdout.fileno(), b"").splitlines())
        if returncode == -signal.SIGKILL and not self._timed_out:
            out_of_memory = oom_kills() > self._oom_kills
        return Exit(
            returncode=-signal.SIGKILL if returncode is None else returncode,
            timed_out=self._timed_out,
            out_of_memory=out_of_memory,
            broken_reply=self._broken,
            log_tail=tuple(self._tail),
            stuck=returncode is None,
        )

    def _end(self) -> int | None:
        """Return its exit code once it is gone; None where nothing ends it."""
        if not self._over:
            self._over = True
            given_up = self._timed_out or self._broken is not None or sys.exc_info()[0] is not None
            if not given_up:
                self._timed_out = not self._dies_within(GRACE_SECONDS)
            orphans.end_all(self.process.pid, self._mark)
        try:
            return self.process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            return None

    def _dies_within(self, seconds: float) -> bool:
        """Wait for its death without taking its exit code, so that nobody else gets its number meanwhile."""
        if self._death is not None:
            return bool(select.select([self._death], [], [], seconds)[0])
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode is not None


class Deadline:
    """A moment by which something must be over."""

    def __init__(self, seconds: float) -> None:
        """Set it `seconds` from now."""
        self.restart(seconds)

    def restart(self, seconds: float) -> None:
        """Set it anew, `seconds` from now."""
        self._at = time.monotonic() + seconds

    def extend(self, seconds: float) -> None:
        """Put it off by `seconds`."""
        self._at += seconds

    def seconds_left(self) -> float:
        """Return the seconds until then, 0 when it has passed."""
        return max(0.0, self._at - time.monotonic())

    def at_most(self, seconds: float) -> "Deadline":
        """Return the earlier of this moment and `seconds` from now."""
        return Deadline(min(seconds, self.seconds_left()))


def _death_of(pid: int) -> int | None:
    """Return a descriptor that becomes readable when our child `pid` dies; None where the kernel has none."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def parse_event(line: bytes) -> dict[str, Any] | None:
    """Return the event in `line`, None where there is none, or one with a number that is not finite."""
    try:
        event = json.loads(line, parse_constant=_finite, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
