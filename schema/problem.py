"""One fault in a file a person wrote, and how all of them become one SweepError."""

from collections.abc import Sequence
from dataclasses import dataclass

from schema.errors import SweepError

MAX_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: its line (from 1; 0 for the file as a whole), the key it belongs to ("" for none), what is wrong."""

    line: int
    key: str
    text: str


def raise_problems(filename: str, problems: Sequence[Problem]) -> None:
    """Raise SweepError with each problem as `FILE:LINE: key: text`, in the order of the file; without any, return."""
    if not problems:
        return
    ordered = sorted(dict.fromkeys(problems), key=lambda problem: problem.line)
    lines = [_as_line(filename, problem) for problem in ordered[:MAX_PROBLEMS]]
    if len(ordered) > MAX_PROBLEMS:
        lines.append(f"{show_name(filename)}: and {len(ordered) - MAX_PROBLEMS} more problems after these.")
    raise SweepError(lines)


def _as_line(filename: str, problem: Problem) -> str:
    place = f"{show_name(filename)}:{problem.line}" if problem.line else show_name(filename)
    return f"{place}: {show_name(problem.key)}: {problem.text}" if problem.key else f"{place}: {problem.text}"


def show(text: str) -> str:
    """Return `text` in quotes, control characters escaped, shortened to what fits into a message."""
    return repr(text if len(text) <= 60 else text[:57] + "...")


def show_name(text: str) -> str:
    """Return `text` bare where printing it does no harm, else as `show` does."""
    return text if text.isprintable() and len(text) <= 400 else show(text)
