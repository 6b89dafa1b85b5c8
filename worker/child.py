"""Start one measuring process, read its events, and say how it ended, whatever way that was (stdlib only)."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from worker.variables import child_environment

LOG_TAIL_LINES = 40
LOG_LINE_CHARS = 500
EVENT_BYTES = 4 * 1024 * 1024
GRACE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """How the measuring process ended."""

    returncode: int
    timed_out: bool
    out_of_memory: bool
    broken_reply: str | None
    log_tail: tuple[str, ...]

    @property
    def signal_name(self) -> str | None:
        """The signal that ended it, such as `SIGABRT`; None when it ended by itself."""
        if self.returncode >= 0:
            return None
        try:
            return signal.Signals(-self.returncode).name
        except ValueError:
            return f"signal {-self.returncode}"

    @property
    def kind(self) -> str:
        """One word for the way it ended: `timeout`, `oom`, `garbage`, `abort`, `signal`, `exit` or `no_result`."""
        if self.timed_out:
            return "timeout"
        if self.out_of_memory:
            return "oom"
        if self.broken_reply is not None:
            return "garbage"
        if self.signal_name:
            return "abort" if self.signal_name == "SIGABRT" else "signal"
        return "exit" if self.returncode else "no_result"

    def describe(self, timeout_seconds: float) -> str:
        """Return the way it ended in words."""
        return {
            "timeout": f"ran past its limit of {timeout_seconds:g} s and was ended",
            "oom": "ended by the kernel because memory ran out",
            "garbage": f"sent something that is not an event: {self.broken_reply}",
            "abort": "llama.cpp aborted (SIGABRT)",
            "signal": f"killed by {self.signal_name}",
            "exit": f"ended with exit code {self.returncode}",
            "no_result": "ended without a result",
        }[self.kind]


class Child:
    """One measuring process; leaving the `with` block ends it in any case."""

    def __init__(self, python: str, request: dict[str, Any], variables: Mapping[str, str] | None = None) -> None:
        """Start `python -m worker` with `variables` in its environment and hand it `request`."""
        self._tail: deque[str] = deque(maxlen=LOG_TAIL_LINES)
        self._partial: dict[int, bytes] = {}
        self._oom_kills = _oom_kills()
        self._timed_out = False
        self._broken: str | None = None
        events, write_end = os.pipe()
        command = [python, "-m", "worker", "--events", str(write_end), "--parent", str(os.getpid())]
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[write_end],
                env=child_environment(variables),
                cwd="/",
            )
        except OSError:
            os.close(events)
            raise
        finally:
            os.close(write_end)
        self._events: IO[bytes] = os.fdopen(events, "rb", buffering=0)
        self._stdin: IO[bytes] = cast(IO[bytes], self.process.stdin)
        self._stdout: IO[bytes] = cast(IO[bytes], self.process.stdout)
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

    def go_on(self) -> None:
        """Tell the process that its last event is safe and it may go on."""
        self._say("\n")

    def _say(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is gone; the end of its events tells how
            self._stdin.write(text.encode())
            self._stdin.flush()

    def events(self, deadline: "Deadline") -> Iterator[dict[str, Any]]:
        """Yield each event; the caller answers each with `go_on`. Ends when the process does, or its time is up.

        Sleeps in between: nothing here runs while the process measures.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ, "events")
            selector.register(self._stdout, selectors.EVENT_READ, "log")
            while selector.get_map():
                ready = selector.select(deadline.seconds_left())
                if not ready and deadline.seconds_left() <= 0:
                    self._timed_out = True
                    return
                for key, _ in ready:
                    lines = self._read_lines(key.fileobj, selector)  # type: ignore[arg-type]
                    if key.data == "log":
                        self._tail.extend(line.decode("utf-8", "replace")[:LOG_LINE_CHARS] for line in lines)
                    else:
                        yield from self._parse(lines)
                if self._broken is not None:
                    return
                if not any(key.data == "events" for key in selector.get_map().values()):
                    deadline = deadline.at_most(GRACE_SECONDS)

    def _read_lines(self, stream: IO[bytes], selector: selectors.BaseSelector) -> list[bytes]:
        chunk = os.read(stream.fileno(), 65536)
        text = self._partial.pop(stream.fileno(), b"") + chunk
        if not chunk:
            selector.unregister(stream)
            return [text] if text else []
        *lines, rest = text.split(b"\n")
        self._partial[stream.fileno()] = rest[-EVENT_BYTES:]
        return lines

    def _parse(self, lines: list[bytes]) -> Iterator[dict[str, Any]]:
        for line in lines:
            event = _event(line)
            if event is None:
                self._broken = line[:80].decode("utf-8", "replace")
                return
            yield event

    def exit(self) -> Exit:
        """End the process if it still lives, and return how it ended."""
        out_of_memory = False
        returncode = self._end()
        if returncode == -signal.SIGKILL and not self._timed_out:
            out_of_memory = _oom_kills() > self._oom_kills
        return Exit(
            returncode=returncode,
            timed_out=self._timed_out,
            out_of_memory=out_of_memory,
            broken_reply=self._broken,
            log_tail=tuple(self._tail),
        )

    def _end(self) -> int:
        if self._timed_out or self._broken is not None or sys.exc_info()[0] is not None:
            self.process.kill()
        try:
            return self.process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._timed_out = True
            self.process.kill()
            return self.process.wait()


class Deadline:
    """A moment by which something must be over."""

    def __init__(self, seconds: float) -> None:
        """Set it `seconds` from now."""
        self.restart(seconds)

    def restart(self, seconds: float) -> None:
        """Set it anew, `seconds` from now."""
        self._at = time.monotonic() + seconds

    def seconds_left(self) -> float:
        """Return the seconds until then, 0 when it has passed."""
        return max(0.0, self._at - time.monotonic())

    def at_most(self, seconds: float) -> "Deadline":
        """Return the earlier of this moment and `seconds` from now."""
        return Deadline(min(seconds, self.seconds_left()))


def _event(line: bytes) -> dict[str, Any] | None:
    """Return the event in `line`, None where there is none."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def _oom_kills() -> int:
    """Return how many processes the kernel has ended for lack of memory since it started (0 where unknown)."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
