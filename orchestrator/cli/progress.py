"""How far a run is, on standard error: one line kept up to date at a terminal, plain lines anywhere else.

The line at the terminal is drawn only when something happened, never by a clock: the machine
that shows it may be the one that is measured.
"""

import os
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO

from orchestrator.report import duration, rate_text
from orchestrator.tables import encodable, escape

if TYPE_CHECKING:
    from rich.live import Live

BAR_CELLS = 12


class Progress:
    """Shows the jobs of one run as they pass; used as a context manager.

    `expected_seconds` is what the plan says all jobs together take, None where it cannot say.
    Nothing here raises when `stream` (standard error) is closed, full or gone.
    """

    def __init__(
        self,
        total_jobs: int,
        expected_seconds: float | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total_jobs
        self._expected = expected_seconds
        self._stream = _Tolerant(stream or sys.stderr)
        self._clock = clock
        self._start = clock()
        self._done = 0
        self._doing = ""
        self._part = 0.0
        self._shown = ""
        self._live: Live | None = None

    def __enter__(self) -> Self:
        """Start drawing, where there is a terminal that can be drawn on."""
        if self._stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
            self._live = _live(self._stream)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the line that was kept up to date; the lines printed above it stay."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def stage(self, text: str, fraction: float | None = None) -> None:
        """Say what is done outside any job, such as building a model, and what share of it is finished."""
        share = "" if fraction is None else f" {fraction:.0%}"
        self._show(f"{text}{share}")
        quarter = text if fraction is None else f"{text} {int(fraction * 4) * 25}%"
        if self._live is None and quarter != self._shown:
            self._print(f"{text}{share}")
        self._shown = quarter

    def step(self, text: str) -> None:
        """Say what part of the current job is being done; only a line that is kept up to date has room for it."""
        self._show(" · ".join(part for part in (self._doing, text) if part))

    def job_started(self, index: int, label: str) -> None:
        """Say that job number `index`, counted from 1, is being measured."""
        self._part = 0.0
        self._done = max(self._done, index - 1)
        self._doing = label
        self._show(label)

    def sample(self, repetition: int, of: int, rate: float | None) -> None:
        """Say that repetition number `repetition` is finished, and the rate so far in tokens per second."""
        self._part = repetition / of if of else 0.0
        speed = "" if rate is None else f" · {rate_text(rate)} t/s"
        self._show(f"{self._doing} · repetition {repetition} of {of}{speed}")

    def job_ended(
        self, label: str, rate: float | None, spread: float | None = None, failure: str | None = None
    ) -> None:
        """Say how a job ended: its rate and spread in tokens per second, or why it failed."""
        self._done, self._part = min(self._done + 1, self._total), 0.0
        how = f"failed: {failure or 'no result'}" if rate is None else f"{rate_text(rate, spread, True)} t/s"
        self._print(f"[{self._done}/{self._total}] {label}: {how}")
        self._show("")

    def note(self, text: str) -> None:
        """Print a remark that stays."""
        for line in text.splitlines():
            self._print(line)

    @property
    def seconds_left(self) -> float | None:
        """What is left: the plan's estimate, which gives way to the pace so far as jobs get finished."""
        finished = min((self._done + self._part) / self._total, 1.0) if self._total else 1.0
        elapsed = self._clock() - self._start
        if self._expected is not None:
            return (1 - finished) * ((1 - finished) * self._expected + elapsed)
        return elapsed * (1 - finished) / finished if finished else None

    def _print(self, text: str) -> None:
        line = encodable(escape(text), self._stream.encoding)
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            self._stream.write(line + "\n")
            self._stream.flush()

    def _show(self, doing: str) -> None:
        if self._live is not None:
            self._live.update(_one_line(self._status(doing), self._stream.encoding), refresh=True)

    def _status(self, doing: str) -> str:
        if not self._total:
            return escape(doing)
        filled = int(BAR_CELLS * (self._done + self._part) / self._total)
        left = self.seconds_left
        parts = [f"[{'#' * filled}{'.' * (BAR_CELLS - filled)}] {self._done}/{self._total} jobs"]
        if left is not None and self._done < self._total:
            parts.append(f"about {duration(left)} left")
        return " · ".join([*parts, *([escape(doing)] if doing else [])])


class _Tolerant:
    """A text stream that swallows what its owner can no longer take, so that a run goes on without its terminal."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.encoding: str = getattr(stream, "encoding", None) or "ascii"

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text) if self._stream is not None else 0
        except (OSError, ValueError):
            self._stream = None
            return 0

    def flush(self) -> None:
        try:
            if self._stream is not None:
                self._stream.flush()
        except (OSError, ValueError):
            self._stream = None

    def isatty(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
        except (OSError, ValueError):
            return False

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("the stream is closed")
        return self._stream.fileno()


def _live(stream: Any) -> "Live":
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream, highlight=False, emoji=False)
    return Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False)


def _one_line(text: str, encoding: str) -> Any:
    from rich.text import Text

    return Text(encodable(text, encoding), no_wrap=True, overflow="ellipsis" if encoding.startswith("utf") else "crop")
