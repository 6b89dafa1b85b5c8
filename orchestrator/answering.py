"""`python -m orchestrator.answering`: the process that asks a database one question and tells the answer.

It is a process of its own because neither SQLite nor a driver can be stopped inside every function, nor held to a
limit of memory. One line of JSON comes in, see `Question`; lines of JSON go out: `{"ready": …}`, `{"columns": …}`,
lists of rows, and `{"truncated": …}` or `{"error": …, "text": …}`. It ends when its standard input does.
"""

import contextlib
import json
import os
import select
import sys
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from orchestrator import postgres, sql_words
from orchestrator.sql_words import Value
from orchestrator.stopwatch import Stopwatch
from orchestrator.store_url import is_postgres
from schema.errors import SqlError, TokfleetError

ROWS_AT_ONCE = 500
LINE_BYTES = 1 << 18
TEMPORARY_BYTES = 2 << 30
"""A file in which a database sorts may become so large."""

GRACE_SECONDS = 0.5
"""So much later than a question should end by itself, this process does."""

OVERDUE = 3
"""Its exit status then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked of the store at `url`: rows at most (None: all), seconds that it may work, bytes of memory."""

    url: str
    sql: str
    limit: int | None
    seconds: float
    memory_bytes: int
    parameters: dict[str, Value] = field(default_factory=dict)


class Asked(Protocol):
    """A question to one kind of database."""

    def ask(self, sql: str, parameters: Mapping[str, Value]) -> tuple[str, ...]: ...  # noqa: D102
    def fetch(self, n_rows: int) -> list[tuple[Any, ...]]: ...  # noqa: D102
    def explained(self, error: Exception) -> TokfleetError | None: ...  # noqa: D102
    def cancel(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class Teller:
    """Writes one line of JSON for each thing that is told."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def tell(self, what: Any) -> int:
        """Write `what` and return how many bytes that took."""
        line = json.dumps(what, default=_plain, separators=(",", ":")).encode() + b"\n"
        self._stream.write(line)
        self._stream.flush()
        return len(line)


def main() -> None:
    """Answer the question on standard input."""
    question = Question(**json.loads(sys.stdin.buffer.readline()))
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no part of the answer
    with contextlib.suppress(BrokenPipeError):
        _told(question, Teller(stream))
    os._exit(0)  # the thread that waits for the end of standard input never ends by itself


def _told(question: Question, teller: Teller) -> None:
    try:
        watch = Stopwatch(question.seconds)
        sql_words.check_parameters(question.sql, question.parameters)
        asked = _asked(question, watch)
        threading.Thread(target=_guard, args=(asked, watch), daemon=True).start()
        _limit(question.memory_bytes)
        teller.tell({"ready": True})
        try:
            _answer(asked, question, teller)
        except Exception as error:
            words = asked.explained(error)
            if words is None:
                raise
            raise words from error
        finally:
            asked.close()
    except TokfleetError as error:
        teller.tell({"error": type(error).__name__, "text": str(error)})
    except MemoryError:
        teller.tell({"error": SqlError.__name__, "text": sql_words.too_large(question.memory_bytes)})
    except BrokenPipeError:
        raise
    except Exception:
        teller.tell({"error": "bug", "text": traceback.format_exc()})


def _asked(question: Question, watch: Stopwatch) -> Asked:
    if is_postgres(question.url):
        postgres.parameters(question.url)  # says in words where the driver is missing
        from orchestrator.ask_postgres import PostgresQuestion

        return PostgresQuestion(question.url, watch)
    from orchestrator.ask_sqlite import SqliteQuestion

    return SqliteQuestion(question.url, watch)


def _answer(asked: Asked, question: Question, teller: Teller) -> None:
    """Tell columns, rows and whether some were left out; as many rows to a line as make one of middling length."""
    teller.tell({"columns": asked.ask(question.sql, question.parameters)})
    left, size = question.limit, 1
    while rows := asked.fetch(size if left is None else min(size, left + 1)):
        told = rows if left is None else rows[:left]
        length = teller.tell(told) if told else 0
        if left is not None:
            if len(rows) > left:
                teller.tell({"truncated": True})
                return
            left -= len(rows)
        size = min(2 * size, ROWS_AT_ONCE) if length < LINE_BYTES else max(1, size // 2)
    teller.tell({"truncated": False})


def _guard(asked: Asked, watch: Stopwatch) -> None:
    """End this process when whoever asked closes the pipe or is gone, and where the database heeds no limit of time."""
    while not watch.is_over(GRACE_SECONDS):
        ready, _, _ = select.select([0], [], [], 0.1)
        if ready and not os.read(0, 1):
            asked.cancel()
            os._exit(0)
    asked.cancel()
    os._exit(OVERDUE)


def _limit(memory_bytes: int) -> None:
    try:
        import resource
    except ImportError:  # no Unix: the process that asks still ends this one when the time is over
        return
    for what, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, TEMPORARY_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):  # macOS knows no limit of address space
            resource.setrlimit(what, (most, most))


def _plain(value: Any) -> Any:
    """Return what JSON has no form for as an object (bytes) or as text."""
    return {"hex": value.hex()} if isinstance(value, (bytes, memoryview)) else str(value)


if __name__ == "__main__":
    main()
