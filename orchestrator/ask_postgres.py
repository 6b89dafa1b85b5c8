"""One question in SQL to a store in PostgreSQL, without the means to change anything (psycopg, without SQLAlchemy).

Four locks: a role that may only read, a READ ONLY transaction that is never committed, a cursor that takes one SELECT
and no other statement, and the server's own limit of time.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC
from typing import Any

import psycopg
from psycopg import sql
from psycopg.adapt import Loader
from psycopg.types.datetime import TimestamptzLoader

from orchestrator import postgres, reader_role, reader_url, sql_words
from orchestrator.sql_words import Relations, Value
from orchestrator.stopwatch import Stopwatch
from schema.errors import SqlError, StoreError, TokfleetError
from schema.views import VIEWS
from worker.home import home_or_nowhere

CANCEL_SECONDS = 1.0

_RELATIONS = """
SELECT c.relname, a.attname FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
AND c.relkind IN ('r', 'p', 'v') AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.relname, a.attnum"""

_WRITES = ("25006", "42501", "0A000", "42809")
"""Read-only transaction, no permission, not in a cursor, not that kind of thing."""


class PostgresQuestion:
    """A locked connection and the question that it is asked; `watch` counts how long the server works on it."""

    def __init__(self, url: str, watch: Stopwatch) -> None:
        """Connect to the store at `url` as somebody who may only read.

        Raises StoreError where there is none that this code can read, SqlError where there is no such somebody.
        """
        self._reader = reader_url.chosen(url, home_or_nowhere())
        self._watch = watch
        self._sql = ""
        try:
            self._connection = postgres.connect(self._reader.url, read_only=True)
        except psycopg.Error as error:
            raise self._not_let_in(error) from error
        try:
            reader_role.check_reader(self._connection, self._reader)
            postgres.check_connection(self._reader.url, self._connection)
            self._prepare()
        except psycopg.Error as error:
            raise postgres.store_error(self._reader.url, error) from error

    def ask(self, sql: str, parameters: Mapping[str, Value]) -> tuple[str, ...]:
        """Return the names of the answer's columns; whatever goes wrong is raised, `explained` says it in words."""
        self._sql = sql
        if not sql_words.first_word(sql):
            raise SqlError(sql_words.NO_QUESTION)
        self._cursor = self._connection.cursor(name="answer")
        # Texts, which the server takes for what they stand beside: numbers, times, names.
        values = {name: str(value) for name, value in parameters.items()}
        query = sql_words.with_percent(sql) if values else sql
        with self._watch:
            self._cursor.execute(query, values or None)
        return tuple(field.name for field in self._cursor.description or ())

    def fetch(self, n_rows: int) -> list[tuple[Any, ...]]:
        """Return the next rows, at most `n_rows`; none at the end."""
        with self._watch:
            return self._cursor.fetchmany(n_rows)

    def explained(self, error: Exception) -> TokfleetError | None:
        """Return what `ask` or `fetch` raised in plain words, None where it is not PostgreSQL's."""
        if isinstance(error, psycopg.Error):
            state = error.sqlstate or ""
            message = error.diag.message_primary or str(error).splitlines()[0]
            if state.startswith(("08", "57P", "58", "XX", "53300")) or (not state and "memory" not in message):
                return postgres.store_error(self._reader.url, error)
            if state == "42501" and (view := next((name for name in VIEWS if f" {name}" in message), None)):
                return StoreError(f"The role that `tokfleet sql` asks as may not read {view}. `tokfleet db upgrade`, "
                                  "as the owner, lets it.")  # fmt: skip
            return SqlError(self._plain_words(error, state, message))
        if isinstance(error, (ValueError, OverflowError)):
            return SqlError(f"PostgreSQL does not understand the question: {error}.")
        return None

    def cancel(self) -> None:
        """Stop what the server does; from another thread."""
        with suppress(Exception):
            self._connection.cancel_safe(timeout=CANCEL_SECONDS)

    def close(self) -> None:
        """Leave; the transaction is never committed."""
        self._connection.close()

    def _prepare(self) -> None:
        """Bound the server's time, and have values come as on SQLite."""
        milliseconds = max(1, int(1000 * self._watch.seconds))
        for name, value in (("statement_timeout", str(milliseconds)), ("TimeZone", "UTC"), ("jit", "off")):
            self._connection.execute(sql.SQL("SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
        self._connection.commit()
        for name, loader in _LOADERS.items():
            self._connection.adapters.register_loader(name, loader)

    def _not_let_in(self, error: psycopg.Error) -> StoreError:
        plain = postgres.store_error(self._reader.url, error)
        if self._reader.found_in is None:
            return plain
        return StoreError(
            f"{plain} `tokfleet sql` asks as {reader_url.user_of(self._reader.url)}, as {self._reader.found_in} says; "
            "`tokfleet db reader --renew` gives it a new password."
        )

    def _plain_words(self, error: psycopg.Error, state: str, message: str) -> str:
        text = self._sql
        if state == "57014":
            return sql_words.too_slow(self._watch.seconds)
        if state == "42703":
            return sql_words.no_column(_named(message, text), text, self._relations)
        if state == "42P01":
            return sql_words.no_relation(_named(message, text), self._relations)
        if state == "42601":
            if "multiple commands" in message:
                return sql_words.ONE_AT_A_TIME
            where = re.search(r'"(.*)"', message, re.DOTALL)
            near = where[1] if where else None
            if sql_words.first_word(text) in sql_words.STATEMENTS:
                return sql_words.not_a_question(text, message)
            return sql_words.syntax(near, text, message)
        if state in _WRITES:
            return sql_words.not_a_question(text, message)
        if state.startswith(("53", "54")) or not state:
            return f"The answer needs more than the server or this process can hold: {message}. Ask for less of it."
        hint = f" {error.diag.message_hint}" if error.diag.message_hint else ""
        return f"PostgreSQL does not understand the question: {message.rstrip('.')}.{hint}"

    @property
    def _relations(self) -> Relations:
        found: dict[str, list[str]] = {}
        with suppress(psycopg.Error):
            self._connection.rollback()
            for relation, column in self._connection.execute(_RELATIONS):
                found.setdefault(relation, []).append(column)
        return found


class _Boolean(Loader):
    def load(self, data: Any) -> int:
        """Return 1 or 0."""
        return int(bytes(data) == b"t")


class _Numeric(Loader):
    def load(self, data: Any) -> int | float:
        """Return a whole number where there is no decimal point and it is not absurdly long."""
        text = bytes(data).decode()
        return int(text) if re.fullmatch(r"-?\d{1,300}", text) else float(text)


class _Json(Loader):
    def load(self, data: Any) -> str:
        """Return the text that SQLite would hold."""
        return json.dumps(json.loads(bytes(data)))


class _Instant(TimestamptzLoader):
    def load(self, data: Any) -> Any:
        """Return the text that SQLite would hold; what no calendar has (`infinity`) as the server writes it."""
        try:
            moment = super().load(data).astimezone(UTC)
        except psycopg.DataError:
            return bytes(data).decode()
        return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


_LOADERS: dict[str, type[Loader]] = {
    "bool": _Boolean,
    "numeric": _Numeric,
    "timestamptz": _Instant,
    "json": _Json,
    "jsonb": _Json,
}


def _named(message: str, text: str) -> str:
    """Return the name that the server's message, in whatever language, is about: the first word that `text` has too."""
    quoted = re.search(r'"([^"]+)"', message)
    if quoted:
        return str(quoted[1])
    lowered = text.lower()
    words = [word for word in re.findall(r"[\w.]+", message) if word.lower() in lowered]
    dotted = [word for word in words if "." in word]
    return str((dotted or words or [message])[0])
