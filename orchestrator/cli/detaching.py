"""Ctrl-C while a run could go on without this terminal: asked once, whether to leave it running."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

from orchestrator.cli.output import note

QUESTION = "Leave it running at the head? [Y/n] "


@dataclass(slots=True)
class Asked:
    """Whether Ctrl-C came, and whether the run is then to go on without this terminal."""

    was_asked: bool = False
    detach: bool = False


@contextlib.contextmanager
def asking(can_detach: bool) -> Iterator[Asked]:
    """Ask, within the block, at the first Ctrl-C whether to detach; either way it then goes on as Ctrl-C does.

    Where the run cannot be handed over, or nobody can be asked, Ctrl-C means what it always means.
    """
    asked = Asked()
    if not can_detach or not can_ask():
        yield asked
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        if not asked.was_asked:
            asked.was_asked = True
            asked.detach = not ends_here()
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)


def ends_here() -> bool:
    """Ask whether the run is to end with this command, and return the answer.

    Without a terminal nobody can be asked, and Ctrl-C ends the run as it always does. A second one does so too.
    """
    if not can_ask():
        return True
    note("")
    try:
        sys.stderr.write(QUESTION)
        sys.stderr.flush()
        answer = sys.stdin.readline()
    except KeyboardInterrupt:
        note("")
        return True
    return answer.strip().lower() in ("n", "no")


def can_ask() -> bool:
    """Return whether a person sits at both ends of the conversation."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
