"""One question in SQL to a store that is an SQLite file, without the means to change anything (standard library only).

Four locks, each sufficient against most: the file is opened read-only, `query_only` is set, an
authorizer allows nothing but reading, and limits with a clock bound what a question may cost.
"""

import re
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

from orchestrator import sql_words
from orchestrator.sql_words import Relations, Value
from orchestrator.sqlite_file import check_store, open_reader, sqlite_path, store_error
from orchestrator.stopwatch import Stopwatch
from schema.errors import SqlError, TokfleetError
from schema.views import VIEWS

VALUE_BYTES = 1_000_000
SQL_BYTES = 100_000
PATTERN_BYTES = 1_000
CACHE_KIB = 65_536

_RELATIONS = """SELECT m.name, c.name FROM sqlite_master AS m, pragma_table_info(m.name) AS c
WHERE m.type IN ('table', 'view')"""

_READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE, sqlite3.SQLITE_FUNCTION}
_DENIED_FUNCTIONS = {"load_extension", "fts3_tokenizer"}  # the second tells, and takes, an address in memory
_STORE_TROUBLE = ("SQLITE_BUSY", "SQLITE_CORRUPT", "SQLITE_IOERR", "SQLITE_NOTADB")
_ROOM = ("SQLITE_FULL", "SQLITE_IOERR_WRITE")
"""A connection that only reads writes nothing but what it sorts."""


class SqliteQuestion:
    """A locked connection and the question that it is asked; `watch` counts how long SQLite works on it."""

    def __init__(self, url: str, watch: Stopwatch) -> None:
        """Open the store at `url`; raises StoreError where there is none that this code can read."""
        self._path = sqlite_path(url)
        check_store(self._path)
        self._watch = watch
        self._connection = open_reader(self._path)
        self._sql = ""

    def ask(self, sql: str, parameters: Mapping[str, Value]) -> tuple[str, ...]:
        """Return the names of the answer's columns; whatever goes wrong is raised, `explained` says it in words."""
        self._sql = sql
        _lock(self._connection, self._watch)
        with self._watch:
            self._cursor = self._connection.execute(sql, dict(parameters))
        if self._cursor.description is None:
            raise SqlError(sql_words.NO_QUESTION)
        return tuple(field[0] for field in self._cursor.description)

    def fetch(self, n_rows: int) -> list[tuple[Any, ...]]:
        """Return the next rows, at most `n_rows`; none at the end."""
        with self._watch:
            return self._cursor.fetchmany(n_rows)

    def explained(self, error: Exception) -> TokfleetError | None:
        """Return what `ask` or `fetch` raised in plain words, None where it is not SQLite's."""
        if not isinstance(error, (sqlite3.Error, sqlite3.Warning, ValueError)):
            return None
        name = getattr(error, "sqlite_errorname", None) or ""
        if name in _ROOM:
            return SqlError("The answer needs more room to sort than it is given. Ask for less of it at a time.")
        if name.startswith(_STORE_TROUBLE) and isinstance(error, sqlite3.Error):
            return store_error(self._path, error)
        missing = str(error).removeprefix("no such table: ").removeprefix("main.")
        if missing != str(error) and missing in VIEWS and isinstance(error, sqlite3.Error):
            return store_error(self._path, error)
        return SqlError(_plain_words(str(error), name, self._sql, self._relations, self._watch.seconds))

    def cancel(self) -> None:
        """Nothing: SQLite's work ends with the process."""

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @property
    def _relations(self) -> Relations:
        """What there is to ask, read by a connection of its own: the locked one may not look."""
        found: dict[str, list[str]] = {}
        with suppress(sqlite3.Error), closing(open_reader(self._path)) as connection:
            for relation, column in connection.execute(_RELATIONS):
                found.setdefault(relation, []).append(column)
        return found


def _lock(connection: sqlite3.Connection, watch: Stopwatch) -> None:
    # SQLite sets up this table of a function by statements that the authorizer would refuse.
    connection.execute("SELECT value FROM json_each('[]')").fetchall()
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute("PRAGMA query_only = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, SQL_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_BYTES)
    connection.set_progress_handler(watch.is_over, 1000)
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _DENIED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY


def _plain_words(text: str, name: str, sql: str, relations: Relations, seconds: float) -> str:
    if name == "SQLITE_INTERRUPT":
        return sql_words.too_slow(seconds)
    if name == "SQLITE_TOOBIG":
        return f"A value in the answer is larger than {VALUE_BYTES} bytes. Ask for less of it, as with substr()."
    if "one statement at a time" in text:
        return sql_words.ONE_AT_A_TIME
    if text.startswith("Could not decode to UTF-8"):
        return "A value in the answer is no text in UTF-8. Ask for hex() of it."
    writes = text.startswith(("no such ", "cannot modify ")) and sql_words.first_word(sql) not in (
        *sql_words.WORDS,
        "EXPLAIN",
    )
    if writes or "prohibited" in text or "authoriz" in text or name.startswith("SQLITE_READONLY"):
        return sql_words.not_a_question(sql, text)
    if text.startswith("no such column: "):
        return sql_words.no_column(text.partition(": ")[2], sql, relations)
    if text.startswith("no such table: "):
        return sql_words.no_relation(text.partition(": ")[2], relations)
    if text.endswith("syntax error"):
        where = re.search(r'near "(.*)"', text, re.DOTALL)
        return sql_words.syntax(where[1] if where else None, sql, text)
    return f"SQLite does not understand the question: {text.rstrip('.')}."
