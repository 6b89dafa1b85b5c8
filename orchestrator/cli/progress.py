"""How far a run is, on standard error: kept up to date at a terminal, plain lines anywhere else.

At the terminal there is one line, and one more for each busy host where there are several; it is drawn
only when something happened, never by a clock: the machine that shows it may be the one that is measured.
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
MOST_LANES = 12


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
        self._lanes: dict[str, HostLane] = {}
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

    def lane(self, host: str) -> "HostLane":
        """Return where the doings of the host of this name are shown; "" where there is only one host."""
        return self._lanes.setdefault(host, HostLane(self, host))

    def stage(self, text: str, fraction: float | None = None) -> None:
        """Say what is done outside any job, such as building a model, and what share of it is finished."""
        self.lane("").stage(text, fraction)

    def step(self, text: str) -> None:
        """Say what part of the current job is being done; only a line that is kept up to date has room for it."""
        self.lane("").step(text)

    def job_started(self, index: int, label: str) -> None:
        """Say that job number `index`, counted from 1, is being measured."""
        self._done = max(self._done, index - 1)
        self.lane("").job_started(label)

    def sample(self, repetition: int, of: int, rate: float | None) -> None:
        """Say that repetition number `repetition` is finished, and the rate so far in tokens per second."""
        self.lane("").sample(repetition, of, rate)

    def job_ended(
        self, label: str, rate: float | None, spread: float | None = None, failure: str | None = None
    ) -> None:
        """Say how a job ended: its rate and spread in tokens per second, or why it failed."""
        self.lane("").job_ended(label, rate, spread, failure)

    def note(self, text: str) -> None:
        """Print a remark that stays."""
        for line in text.splitlines():
            self._print(line)

    def more(self, n_jobs: int, expected_seconds: float | None = None) -> None:
        """Count `n_jobs` more, which take so long on a host that has nothing else to do."""
        self._total += n_jobs
        if self._expected is not None and expected_seconds is not None:
            self._expected = max(self._expected, expected_seconds)

    @property
    def seconds_left(self) -> float | None:
        """What is left: the plan's estimate, which gives way to the pace so far as jobs get finished."""
        finished = min(self._finished / self._total, 1.0) if self._total else 1.0
        elapsed = self._clock() - self._start
        if self._expected is not None:
            return (1 - finished) * ((1 - finished) * self._expected + elapsed)
        return elapsed * (1 - finished) / finished if finished else None

    @property
    def _finished(self) -> float:
        return self._done + sum(lane.part for lane in self._lanes.values())

    def _ended(self, host: str, label: str, how: str) -> None:
        self._done = min(self._done + 1, self._total)
        self._print(f"[{self._done}/{self._total}] {_of(host)}{label}: {how}")

    def _print(self, text: str) -> None:
        line = encodable(escape(text), self._stream.encoding)
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            self._stream.write(line + "\n")
            self._stream.flush()

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(_lines(self._status(), self._stream.encoding), refresh=True)

    def _status(self) -> list[str]:
        busy = [lane for lane in self._lanes.values() if lane.doing]
        if not self._total:
            return [escape(_of(lane.host) + lane.doing) for lane in busy] or [""]
        filled = int(BAR_CELLS * self._finished / self._total)
        left = self.seconds_left
        parts = [f"[{'#' * filled}{'.' * (BAR_CELLS - filled)}] {self._done}/{self._total} jobs"]
        if left is not None and self._done < self._total:
            parts.append(f"about {duration(left)} left")
        if len(busy) == 1 and not busy[0].host:
            return [" · ".join([*parts, escape(busy[0].doing)])]
        lines = [escape(f"  {_of(lane.host)}{lane.doing}") for lane in busy[:MOST_LANES]]
        more = [f"  … and {len(busy) - MOST_LANES} more hosts"] if len(busy) > MOST_LANES else []
        return [" · ".join(parts), *lines, *more]


class HostLane:
    """What one host does, as `Progress` shows it; `doing` is in words, `part` what share of its job is finished."""

    def __init__(self, progress: Progress, host: str) -> None:
        self.host = host
        self.doing = ""
        self.part = 0.0
        self._progress = progress
        self._job = ""
        self._shown = ""

    def stage(self, text: str, fraction: float | None = None) -> None:
        """Say what is done outside any job, such as building a model, and what share of it is finished."""
        share = "" if fraction is None else f" {fraction:.0%}"
        self._do(f"{text}{share}")
        quarter = text if fraction is None else f"{text} {int(fraction * 4) * 25}%"
        if self._progress._live is None and quarter != self._shown:
            self._progress._print(f"{_of(self.host)}{text}{share}")
        self._shown = quarter

    def step(self, text: str) -> None:
        """Say what part of the current job is being done; only a line that is kept up to date has room for it."""
        self._do(" · ".join(part for part in (self._job, text) if part))

    def job_started(self, label: str) -> None:
        """Say that a job is being measured."""
        self.part = 0.0
        self._job = label
        self._do(label)

    def sample(self, repetition: int, of: int, rate: float | None) -> None:
        """Say that repetition number `repetition` is finished, and the rate so far in tokens per second."""
        self.part = repetition / of if of else 0.0
        speed = "" if rate is None else f" · {rate_text(rate)} t/s"
        self._do(f"{self._job} · repetition {repetition} of {of}{speed}")

    def job_ended(
        self, label: str, rate: float | None, spread: float | None = None, failure: str | None = None
    ) -> None:
        """Say how a job ended: its rate and spread in tokens per second, or why it failed."""
        self.part = 0.0
        how = f"failed: {failure or 'no result'}" if rate is None else f"{rate_text(rate, spread, True)} t/s"
        self._progress._ended(self.host, label, how)
        self.idle()

    def idle(self) -> None:
        """Say that the host does nothing for us now."""
        self.part = 0.0
        self._do("")

    def _do(self, doing: str) -> None:
        self.doing = doing
        self._progress._draw()


def _of(host: str) -> str:
    return f"{host}: " if host else ""


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


def _lines(lines: list[str], encoding: str) -> Any:
    from rich.console import Group
    from rich.text import Text

    overflow: Any = "ellipsis" if encoding.startswith("utf") else "crop"
    texts = [Text(encodable(line, encoding), no_wrap=True, overflow=overflow) for line in lines]
    return texts[0] if len(texts) == 1 else Group(*texts)
