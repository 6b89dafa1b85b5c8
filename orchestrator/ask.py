"""Answers to questions in SQL, by a connection that has no means to change anything (standard library only).

Four locks, each sufficient against most: the file is opened read-only, `query_only` is set, an
authorizer allows nothing but reading, and limits with a clock bound what a question may cost.
"""

import difflib
import re
import sqlite3
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from orchestrator.sqlite_file import check_store, open_reader, sqlite_path, store_error
from schema.errors import SqlError
from schema.views import VIEWS

ROWS_AT_ONCE = 500
VALUE_BYTES = 1_000_000
SQL_BYTES = 100_000

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION}
_WORDS = ("SELECT", "WITH", "VALUES")
_STORE_TROUBLE = ("SQLITE_BUSY", "SQLITE_CORRUPT", "SQLITE_IOERR", "SQLITE_NOTADB")
_DENIED_FUNCTIONS = {"load_extension"}


class Answer:
    """The rows of one question: `columns` are their names, iterating gives them as tuples, once.

    They are read as they are asked for; `truncated` tells after the last one whether `limit` cut the rest off.
    """

    def __init__(
        self, columns: tuple[str, ...], rows: Generator[tuple[Any, ...], None, None], limit: int | None
    ) -> None:
        self.columns = columns
        self.truncated = False
        self.rows = self._limited(rows, limit)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return self.rows

    def close(self) -> None:
        """Let go of the database; what was not read is gone."""
        self.rows.close()

    def _limited(
        self, rows: Generator[tuple[Any, ...], None, None], limit: int | None
    ) -> Generator[tuple[Any, ...], None, None]:
        with closing(rows):
            for number, row in enumerate(rows):
                if limit is not None and number >= limit:
                    self.truncated = True
                    break
                yield row


def ask(url: str, sql: str, limit: int | None = 1000, timeout_seconds: float = 30.0) -> Answer:
    """Return the answer to one SELECT on the store at `url`; at most `limit` rows, None for all of them.

    `timeout_seconds` counts the time that the database works, not that in which the caller reads.
    Raises SqlError in plain words for whatever is no SELECT, names no column, or takes too long, also
    while rows are read; StoreError where there is no store.
    """
    path = sqlite_path(url)
    check_store(path)
    connection = open_reader(path)
    rows = _rows(path, connection, sql, _Clock(timeout_seconds))
    try:
        columns = next(rows)
    except BaseException:
        connection.close()
        raise
    return Answer(columns, rows, limit)


class _Clock:
    """Counts the seconds in which the database works, and says when they are used up."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._left = seconds
        self._since = 0.0
        self.used_up = False

    def __enter__(self) -> None:
        self._since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._left -= time.monotonic() - self._since

    def is_over(self) -> bool:
        self.used_up = time.monotonic() - self._since > self._left
        return self.used_up


def _rows(
    path: Path, connection: sqlite3.Connection, sql: str, clock: _Clock
) -> Generator[tuple[Any, ...], None, None]:
    """Yield the columns' names, then every row; whatever happens the connection is closed at the end."""
    columns = _columns(path, connection)
    try:
        _lock(connection, clock)
        with clock:
            cursor = connection.execute(sql)
        if cursor.description is None:
            raise SqlError("There is no question. Write a SELECT, such as: select host, test, avg_ts from latest")
        yield tuple(field[0] for field in cursor.description)
        while True:
            with clock:
                found = cursor.fetchmany(ROWS_AT_ONCE)
            if not found:
                break
            yield from found
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_INTERRUPT" and not clock.used_up:
            raise KeyboardInterrupt from error  # Ctrl-C while SQLite called the clock, which swallows it
        if name.startswith(_STORE_TROUBLE) and isinstance(error, sqlite3.Error):
            raise store_error(path, error) from error
        raise SqlError(_plain_words(error, sql, columns, clock)) from error
    finally:
        connection.close()


def _lock(connection: sqlite3.Connection, clock: _Clock) -> None:
    # SQLite sets up this table of a function by statements that the authorizer would refuse.
    connection.execute("SELECT value FROM json_each('[]')").fetchall()
    connection.execute("PRAGMA query_only = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES)
    connection.set_progress_handler(clock.is_over, 1000)
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _DENIED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _columns(path: Path, connection: sqlite3.Connection) -> dict[str, list[str]]:
    """Return the columns of every view, for near matches; raise StoreError where the store lacks one."""
    try:
        return {
            view: [str(row[0]) for row in connection.execute("SELECT name FROM pragma_table_info(?)", (view,))]
            for view in VIEWS
        }
    except sqlite3.Error as error:
        raise store_error(path, error) from error


def _plain_words(error: Exception, sql: str, columns: dict[str, list[str]], clock: _Clock) -> str:
    text, name = str(error), getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_INTERRUPT":
        return f"The answer took more than {clock.seconds:g} s. Ask for less, or allow more with --timeout."
    if name == "SQLITE_TOOBIG":
        return f"A value in the answer is larger than {VALUE_BYTES} bytes. Ask for less of it, as with substr()."
    if "one statement at a time" in text:
        return "Only one statement is answered at a time. Leave out what follows the first semicolon."
    writes = text.startswith(("no such ", "cannot modify ")) and _first_word(sql) not in (*_WORDS, "EXPLAIN")
    if writes or "prohibited" in text or "authoriz" in text or name.startswith("SQLITE_READONLY"):
        return _not_a_question(sql, text)
    if text.startswith("no such column: "):
        return _no_column(text.partition(": ")[2], sql, columns)
    if text.startswith("no such table: "):
        return _no_table(text.partition(": ")[2])
    if text.endswith("syntax error"):
        return _syntax(text, sql)
    return f"SQLite does not understand the question: {text.rstrip('.')}."


def _not_a_question(sql: str, text: str) -> str:
    word = _first_word(sql)
    if word in _WORDS:
        return f"The question does more than read: {text}. Only SELECT is answered here, without PRAGMA and extensions."
    return f"Only SELECT is answered here, not {word}: questions never change the database."


def _no_column(name: str, sql: str, columns: dict[str, list[str]]) -> str:
    named = [view for view in columns if re.search(rf"\b{view}\b", sql, re.IGNORECASE)]
    known = dict.fromkeys(column for view in named or columns for column in columns[view])
    bare = name.rpartition(".")[2]
    near = difflib.get_close_matches(bare.lower(), known, n=1, cutoff=0.6)
    if near:
        return f"There is no column {name}. Did you mean {near[0]}?"
    return f"There is no column {name}. {' and '.join(named) or 'The views'} have: {', '.join(sorted(known))}."


def _no_table(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), VIEWS, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(VIEWS)}."
    return f"There is no table or view {name}. {hint}"


def _syntax(text: str, sql: str) -> str:
    word = _first_word(sql)
    if word not in _WORDS:
        near = difflib.get_close_matches(word, _WORDS, n=1, cutoff=0.6)
        hint = f" Did you mean {near[0]}?" if near else " A question starts with SELECT."
        return f"The question starts with {word or 'no word'}, which is no SQL.{hint}"
    where = re.search(r'near "(.*)"', text, re.DOTALL)
    return f"The question is not SQL from {where[1]!r} on." if where else f"The question is not SQL: {text}."


def _first_word(sql: str) -> str:
    bare = re.sub(r"^(\s|;|--[^\n]*(\n|$)|/\*.*?\*/)*", "", sql, flags=re.DOTALL)
    return re.split(r"[^A-Za-z_]", bare, maxsplit=1)[0].upper()
