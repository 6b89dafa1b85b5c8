"""Answers to questions in SQL: asked by a process of their own, which can change nothing and be ended at any moment.

See `orchestrator.answering` for that process, `ask_sqlite` and `ask_postgres` for what locks each database
(standard library only).
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict
from typing import IO, Any, cast

from orchestrator import sql_words
from orchestrator.answering import OVERDUE, Question
from orchestrator.sql_words import Value
from schema import errors
from schema.errors import SqlError
from worker.variables import REPOSITORY

MEMORY_BYTES = 1 << 30
START_SECONDS = 60.0
PATIENCE_SECONDS = 2.0
"""So much later than it should have told something, the process that asks is killed."""

END_SECONDS = 1.0
SQL_BYTES = 100_000

_READ_BYTES = 1 << 16


class Answer:
    """The rows of one question: `columns` are their names, iterating gives them as tuples, once.

    They are read as they are asked for; `truncated` tells after the last one whether `limit` cut the rest off.
    """

    def __init__(self, asker: "_Asker", columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.truncated = False
        self.rows = self._read(asker)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self.rows

    def close(self) -> None:
        """End the process that asks; what was not read is gone."""
        self.rows.close()

    def _read(self, asker: "_Asker") -> Generator[tuple[Any, ...], None, None]:
        with contextlib.closing(asker):
            while isinstance(told := asker.told(), list):
                yield from map(tuple, told)
            self.truncated = bool(told["truncated"])


def ask(
    url: str,
    sql: str,
    limit: int | None = 1000,
    timeout_seconds: float = 30.0,
    parameters: Mapping[str, Value] | None = None,
    memory_bytes: int = MEMORY_BYTES,
) -> Answer:
    """Return the answer to one SELECT on the store at `url`; at most `limit` rows, None for all of them.

    `timeout_seconds` counts the time that the database works, not that in which the caller reads; `parameters` are
    the values of `:name` in the question. Texts, whole and real numbers, bytes and None come back, whatever the
    database: a boolean is 0 or 1, a time a text in UTC, JSON its text.
    Raises SqlError in plain words for whatever is no SELECT, names no column, or takes too long or too much, also
    while rows are read; StoreError where there is no store.
    """
    if len(sql) > SQL_BYTES:
        raise SqlError(f"The question has {len(sql)} characters, more than the {SQL_BYTES} that one may have.")
    given = dict(parameters or {})
    question = Question(
        url=url, sql=sql, limit=limit, seconds=timeout_seconds, memory_bytes=memory_bytes, parameters=given
    )
    asker = _Asker(question)
    try:
        asker.told(START_SECONDS)
        return Answer(asker, tuple(asker.told()["columns"]))
    except BaseException:
        asker.close()
        raise


class _Asker:
    """The process that asks, in a session of its own: Ctrl-C at the terminal is for the person's command alone."""

    def __init__(self, question: Question) -> None:
        self._question = question
        self._unread = bytearray()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orchestrator.answering"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            start_new_session=True,
        )
        self._stdin = cast(IO[bytes], self.process.stdin)
        self._stdout = cast(IO[bytes], self.process.stdout)
        with contextlib.suppress(BrokenPipeError):  # how it ended, its output tells
            self._stdin.write(json.dumps(asdict(question)).encode() + b"\n")

    def told(self, seconds: float | None = None) -> Any:
        """Return the next thing told, or raise what it tells of; SqlError where nothing is for so long."""
        patience = self._question.seconds + PATIENCE_SECONDS if seconds is None else seconds
        line = self._line(time.monotonic() + patience)
        if not line.endswith(b"\n"):
            raise SqlError(self._how_it_ended())
        told = json.loads(line, object_hook=_object)
        if isinstance(told, dict) and "error" in told:
            raise _error(told["error"], told["text"])
        return told

    def close(self) -> None:
        """End the process: by closing its input, which lets it cancel what its database does, else by force."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        finally:
            self._stdout.close()

    def _line(self, deadline: float) -> bytes:
        """Return the next line, what there is of it where the process has ended; SqlError where time is over."""
        seen = 0
        while (end := self._unread.find(b"\n", seen)) < 0:
            seen = len(self._unread)
            data = self._data(deadline)
            if not data:
                break
            self._unread += data
        size = end + 1 if end >= 0 else len(self._unread)
        line = bytes(self._unread[:size])
        del self._unread[:size]
        return line

    def _data(self, deadline: float) -> bytes:
        poll = select.poll()
        poll.register(self._stdout, select.POLLIN)
        if not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
            raise SqlError(sql_words.too_slow(self._question.seconds))
        return os.read(self._stdout.fileno(), _READ_BYTES)

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        status = self.process.returncode
        if status == OVERDUE:
            return sql_words.too_slow(self._question.seconds)
        how = f"by signal {-status}" if status is not None and status < 0 else f"with status {status}"
        return f"The process that asked the question ended {how}. Ask for less of it at a time."


def _object(told: dict[str, Any]) -> Any:
    return bytes.fromhex(told["hex"]) if told.keys() == {"hex"} else told


def _error(name: str, text: str) -> Exception:
    kind = getattr(errors, name, None)
    return cast(Exception, kind(text)) if kind else RuntimeError(text)
