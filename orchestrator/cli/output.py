"""The way out for rows and lines: a writer that no terminal, pipe or disk can upset, and the questions to the person.

`table` is the default everywhere, also into a pipe: it is for people, has no colour and no
drawn boxes, and may change. `csv`, `json`, `jsonl` and `markdown` are for programs.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TextIO, TypeVar, get_args

import click

from orchestrator.tables import Row, encodable, render
from schema.errors import TokfleetError, UsageError

Format = Literal["table", "csv", "json", "jsonl", "markdown"]
FORMATS: tuple[Format, ...] = get_args(Format)
F = TypeVar("F", bound=Callable[..., Any])


class OutputError(TokfleetError):
    """What was to be printed could not be written where standard output goes."""


def format_option(command: F) -> F:
    """Give `command` the option `--format`, passed as `form`."""
    return click.option(
        "--format",
        "form",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="A table for people, the rest for programs.",
    )(command)


def write(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Write `lines` to `stream` (standard output), in whatever it can encode, and flush.

    Raises BrokenPipeError where the reader has left, OutputError where it cannot be written.
    """
    stream = stream or sys.stdout
    if stream is None:  # started with standard output closed
        return
    try:
        for line in lines:
            stream.write(encodable(line, stream.encoding) + "\n")
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"The output could not be written: {error.strerror or error}.") from error


def write_rows(columns: Sequence[str], rows: Iterable[Row], form: str = "table") -> None:
    """Write `rows` to standard output in `form`, a table as wide as the terminal allows."""
    write(render(columns, rows, form, terminal_width(sys.stdout)))


def note(text: str) -> None:
    """Write a remark for the person to standard error; nothing happens where it cannot be written."""
    if sys.stderr is None:  # started with it closed; standard output is for the rows
        return
    try:
        write(text.splitlines() or [""], sys.stderr)
    except (OSError, OutputError, ValueError):
        return


def terminal_width(stream: TextIO | None) -> int | None:
    """Return the columns of the terminal behind `stream`, or COLUMNS where it is set; None where there is no limit."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked) > 0:
        return int(asked)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None if stream else None
    except (OSError, ValueError):
        return None


def confirm(question: str, flag: str = "--yes") -> bool:
    """Ask a yes/no question at the terminal; where nobody can answer, raise UsageError naming `flag`."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"{question} There is nobody to ask here: answer with {flag}.")
    return click.confirm(question, default=False, err=True)
