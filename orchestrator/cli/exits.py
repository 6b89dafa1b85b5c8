"""How a command ends when it does not end well: one or two lines on standard error, and the exit status.

0    done
1    something failed, and the line says what
2    the command line or the sweep file asks for something that has no meaning
3    done in part
4    it cannot be told
130  interrupted from the keyboard
141  the reader of the output left, as any Unix program ends then
"""

import os
import sys
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.output import OutputError, note, write
from orchestrator.tables import escape
from schema.errors import TokfleetError, UsageError

if TYPE_CHECKING:
    from orchestrator.cli.habits import Habit

FAILED = 1
USAGE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141


def end(error: BaseException, arguments: list[str]) -> int:
    """Tell the person at the terminal what `error` means, and return the exit status that goes with it."""
    _let_go_of_stdout()
    if isinstance(error, BrokenPipeError):
        return PIPE_CLOSED
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        note("tokfleet: interrupted" if isinstance(error, KeyboardInterrupt) else "tokfleet: stopped, nothing was done")
        return INTERRUPTED
    if isinstance(error, TokfleetError):
        _tell(str(error))
        return error.exit_code
    if isinstance(error, click.ClickException):
        return _usage(error, arguments)
    if isinstance(error, OSError):
        _tell(f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror or error}.")
        return FAILED
    return _unexpected(error)


def _tell(text: str) -> None:
    first, *rest = [escape(line) for line in text.splitlines()] or [""]
    note("\n".join([f"tokfleet: error: {first}", *(f"  {line}" for line in rest)]))


def _usage(error: click.ClickException, arguments: list[str]) -> int:
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        note(error.format_message())
        return USAGE
    if isinstance(error, click.NoSuchOption) and context and context.info_name in ("run", "plan", "submit"):
        from orchestrator.cli.habits import explain

        try:
            habit = explain(arguments)
        except UsageError as fault:
            return end(fault, arguments)
        if habit is not None:
            return _explain(habit, arguments)
    _tell(error.format_message())
    if context:
        note(f"  `{escape(context.command_path)} --help` shows what it understands.")
    return error.exit_code


def _explain(habit: "Habit", arguments: list[str]) -> int:
    _tell(habit.text)
    try:
        write((habit.line or "").splitlines())
    except (BrokenPipeError, OutputError) as fault:
        return end(fault, arguments)
    return USAGE


def _unexpected(error: BaseException) -> int:
    if isinstance(error, ModuleNotFoundError) and not str(error.name).startswith(("orchestrator", "worker", "schema")):
        _tell(f"This command needs the Python module {error.name}, which is not installed here.")
        return FAILED
    text = "".join(traceback.format_exception(error))
    said = f"This is a bug in tokfleet: {type(error).__name__}: {error}".splitlines()[0]
    if os.environ.get("TOKFLEET_DEBUG"):
        note(text)
        _tell(said)
    else:
        kept = _keep(text)
        _tell(f"{said} ({kept})" if kept else f"{said} (TOKFLEET_DEBUG=1 shows the traceback)")
    return FAILED


def _keep(text: str) -> str | None:
    """Return where the traceback was written, or None where nothing can be written."""
    with suppress(Exception):
        from worker.home import writable_home

        folder = Path(writable_home()) / "tracebacks"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}.txt"
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
        return f"the traceback is in {path}"
    return None


def _let_go_of_stdout() -> None:
    """Send what is still buffered for standard output nowhere, should it not go where it ought to.

    Otherwise the interpreter tries once more at its end, and prints `Exception ignored`.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
