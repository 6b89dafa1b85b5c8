"""Commands that run at the head: asked for here, answered there, with output and remarks told apart on the way back."""

import contextlib
import io
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import IO, Any

import click

from orchestrator.cli.output import note, terminal_width, write
from orchestrator.tables import escape
from schema.errors import ClusterError

OUT, ERR = "out ", "err "
PREFIX = "tokfleet-ask-"
END_SECONDS = 10.0
NOT_FOUND = 127


def ride(address: str | None, arguments: Sequence[str]) -> int:
    """Run `tokfleet ARGUMENTS` at the head, print what it prints, and return its exit status.

    Ctrl-C ends it there too. Raises ClusterError where the head cannot be reached, or has no tokfleet.
    """
    from orchestrator.jobs_api import connect, entrypoint

    jobs = connect(address)
    width = terminal_width(sys.stdout)
    name = jobs.start(
        f"{PREFIX}{uuid.uuid4().hex}",
        entrypoint(["there", *arguments], {"COLUMNS": str(width)} if width else None),
    )
    try:
        for line in jobs.follow(name):
            _pass_on(line)
        return exit_status(jobs, name)
    except BaseException:
        with contextlib.suppress(Exception):
            jobs.stop(name)
        raise


def told_apart(line: str) -> tuple[str, bool]:
    """Return a line of a job's log without its mark, and whether it belongs to standard output."""
    if line.startswith(OUT):
        return line.removeprefix(OUT), True
    return line.removeprefix(ERR), False


def _pass_on(line: str) -> None:
    text, is_output = told_apart(line)
    if is_output:
        write([escape(text)])
    elif text:
        note(escape(text))


def exit_status(jobs: Any, name: str) -> int:
    """Return the exit status of a job whose log has ended; that is known a moment later."""
    deadline = time.monotonic() + END_SECONDS
    while (ended := jobs.ended(name)) is None:
        if time.monotonic() > deadline:
            raise ClusterError(f"The job {name} at the head has printed all, and does not end.")
        time.sleep(0.1)
    status, code = ended
    if code == NOT_FOUND:
        raise ClusterError(
            "The head's Ray does not find the command tokfleet. Start Ray there from an environment that has it: "
            "`tokfleet cluster start`, or `. .venv/bin/activate` before `ray start`."
        )
    if code is None:
        raise ClusterError(f"The command did not come to its end at the head: it was {status.lower()}.")
    return int(code)


@click.command(hidden=True, context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def there(arguments: tuple[str, ...]) -> int:
    """Run a command for one who asks from elsewhere: each line it prints is marked by where it belongs."""
    from orchestrator.cli import main

    with _marked():
        return main(list(arguments))


class _Marked(io.TextIOBase):
    """A stream of text that marks each line and hands it on in UTF-8, whatever the locale is."""

    encoding = "utf-8"

    def __init__(self, target: IO[bytes], mark: str) -> None:
        self._target, self._mark, self._begun = target, mark, ""

    def write(self, text: str) -> int:
        """Take `text`, and hand on the lines that it ends."""
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._target.write(f"{self._mark}{line}\n".encode(errors="backslashreplace"))
        return len(text)

    def flush(self) -> None:
        """Hand on what was taken."""
        self._target.flush()

    def finish(self) -> None:
        """Hand on a last line that has no end."""
        if self._begun:
            self.write("\n")
        self.flush()


@contextlib.contextmanager
def _marked() -> Iterator[None]:
    before = sys.stdout, sys.stderr
    out, err = (_Marked(stream.buffer, mark) for stream, mark in zip(before, (OUT, ERR), strict=True))
    sys.stdout, sys.stderr = out, err
    try:
        yield
    finally:
        out.finish()
        err.finish()
        sys.stdout, sys.stderr = before
