"""People's own SQLite files of llama-bench's rows: looked at, never changed, in bounded time.

Only plain tables are read, only their plain columns, by name; nothing that a schema can make run is asked for: no
view, no virtual table, no generated column, no function. The database is a copy in memory, so no file is opened.
"""

import sqlite3
import time
from collections.abc import Iterator

from orchestrator.interchange.bench_fields import KNOWN
from orchestrator.interchange.bench_row import row_of
from orchestrator.interchange.found import Part, RefusedError

MOST_SECONDS = 5.0
MOST_ROWS = 1_000_000
LEAST_KNOWN = 8
STEPS = 1000
OURS = {"alembic_version", "schema_info", "attempt", "sample"}
"""Tables by which a database is known as one of tokfleet's, whose rows are no file's of llama-bench."""


def read_sqlite(raw: bytes, seconds: float = MOST_SECONDS) -> Part:
    """Return the rows of the tables in the database `raw` that have llama-bench's columns."""
    part = Part()
    connection = sqlite3.connect(":memory:")
    try:
        _guard(connection, raw, seconds)
        tables = [*_tables(connection)]
        if {table for table, _ in tables} >= OURS:
            part.notes.append("it is a database of tokfleet's own: `tokfleet export` takes results out of one")
            return part
        for table, columns in tables:
            if len({*columns} & KNOWN) >= LEAST_KNOWN:
                _read(connection, table, columns, part)
    except (sqlite3.Error, ValueError, MemoryError, OverflowError) as error:  # a message of it may be no UTF-8
        part.refuse(0, _fault(error, seconds))
    finally:
        connection.close()
    return part


def _fault(error: BaseException, seconds: float) -> str:
    if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT" or "interrupted" in str(error):
        return f"the database could not be read within {seconds:g} s"
    return f"the database is damaged or no plain one ({error})"


def _guard(connection: sqlite3.Connection, raw: bytes, seconds: float) -> None:
    if raw[18:20] == b"\2\2":  # it was written with a log beside it, which a copy in memory cannot have
        raw = raw[:18] + b"\1\1" + raw[20:]
    connection.deserialize(raw)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 24)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.text_factory = lambda value: value.decode("utf-8", "replace")
    end = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    connection.set_authorizer(_authorize)


def _authorize(action: int, first: str | None, second: str | None, *_: object) -> int:
    """Allow to read columns of tables and to list them; no function but none, no other pragma."""
    if action == sqlite3.SQLITE_PRAGMA:
        return sqlite3.SQLITE_OK if first == "table_xinfo" else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ) else sqlite3.SQLITE_DENY


def _tables(connection: sqlite3.Connection) -> Iterator[tuple[str, list[str]]]:
    """Yield each plain table with its plain columns."""
    listed = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0 ORDER BY name"
    )
    for name, sql in listed.fetchmany(1000):
        if not isinstance(name, str) or not isinstance(sql, str) or sql[:20].upper().startswith("CREATE VIRTUAL"):
            continue
        found = connection.execute(f"PRAGMA table_xinfo({_quoted(name)})").fetchall()
        yield name, [column[1] for column in found if column[6] == 0]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _read(connection: sqlite3.Connection, table: str, columns: list[str], part: Part) -> None:
    picked = ", ".join(_quoted(name) for name in columns)
    rows = connection.execute(f"SELECT {picked} FROM {_quoted(table)} LIMIT {MOST_ROWS + 1}")  # noqa: S608
    for number, values in enumerate(rows, 1):
        if number > MOST_ROWS:
            part.refuse(number, f"table {table!r:.60} has more than {MOST_ROWS} rows")
            return
        raw = repr(dict(zip(columns, values, strict=True)))[:20_000]
        try:
            cells = {name: _text(name, value) for name, value in zip(columns, values, strict=True)}
            given = {name: text for name, text in cells.items() if text}
            part.take(row_of(given, form="sqlite", line=number, raw=raw, table=table))
        except RefusedError as error:
            part.refuse(number, f"table {table!r:.60}: {error}", raw, error.severity)


def _text(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bytes):
        raise RefusedError(f"{name}: it is no text and no number")
    return repr(value) if isinstance(value, float) else str(value).strip(" \t")
