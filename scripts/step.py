"""One long step of an installation: a command whose output goes to a file while a person sees how far it is."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
LOGS = ROOT / ".cache" / "logs"
TAIL_LINES = 30
INTERRUPTED = 130

NETWORK = (
    r"NewConnectionError|NameResolutionError|Temporary failure|ConnectTimeout|ReadTimeout|ProxyError|SSLError",
    "The network or its proxy did not answer. Run the same command again: what is finished is not repeated.",
)


class State(NamedTuple):
    """How far a step is; `detail` says what it is doing now."""

    done: int
    total: int
    detail: str = ""


class Progress:
    """Shows a step as one updating line on a terminal, as a plain line every tenth of the way anywhere else."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.updating = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.started = time.monotonic()
        self._tenth = 0

    def show(self, state: State) -> None:
        """Show how far the step is."""
        text = f"{self.label} {state.done}/{state.total}{state.detail}"
        tenth = 10 * state.done // max(state.total, 1)
        if self.updating:
            self._rewrite(text)
        elif tenth > self._tenth:
            print(text, file=sys.stderr, flush=True)
        self._tenth = max(tenth, self._tenth)

    def start(self) -> None:
        """Say that the step has begun."""
        if self.updating:
            self._rewrite(self.label)
        else:
            print(self.label, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the updating line."""
        if self.updating:
            self._rewrite("")

    @staticmethod
    def _rewrite(text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write(f"\r\x1b[K{text[:width]}")
        sys.stderr.flush()

    def time_left(self, done: int, total: int) -> str:
        """Return a guess such as ` (about 2 min left)`; empty at the end, and while there is little to guess from."""
        spent = time.monotonic() - self.started
        if done < total / 20 or done == total or spent < 3:
            return ""
        minutes = spent / done * (total - done) / 60
        return f" (about {minutes:.0f} min left)" if minutes >= 1 else " (less than a minute left)"


def run(
    command: list[str],
    progress: Progress,
    read: Callable[[str], State | None],
    environment: Mapping[str, str],
    advice: Iterable[tuple[str, str]] = (),
) -> None:
    """Run `command`, show what `read` makes of each line, keep all lines in a file; exit with its end on failure.

    `advice` pairs a pattern to look for in the output with the sentences to end on when it is there.
    """
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / (re.sub(r"\W+", "-", progress.label).strip("-") + ".log")
    progress.start()
    try:
        code = _follow(command, log, progress, read, environment)
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        progress.close()
    if code in (INTERRUPTED, -signal.SIGINT):
        print(f"Interrupted: {progress.label}. The same command goes on from here.", file=sys.stderr)
        sys.exit(INTERRUPTED)
    if code:
        sys.exit(_explain(progress.label, log, [*advice, NETWORK]))


def _follow(
    command: list[str],
    log: Path,
    progress: Progress,
    read: Callable[[str], State | None],
    environment: Mapping[str, str],
) -> int:
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env={**environment, "PYTHONUNBUFFERED": "1"},
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            file.write(line)
            state = read(line)
            if state:
                progress.show(state)
    return process.returncode


def _explain(label: str, log: Path, advice: list[tuple[str, str]]) -> str:
    text = log.read_text(encoding="utf-8")
    lines = [line[:300] for line in text.splitlines()[-TAIL_LINES:]]
    hints = [hint for pattern, hint in advice if re.search(pattern, text)]
    return "\n".join([*lines, "", f"Failed: {label}. All of its output is in {log}.", *hints[:1]])
