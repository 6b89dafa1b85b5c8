"""A whole store as a text file, and the same store made of it again, in either kind of database.

The first line says what it is; then each table's name and columns in a line, and each of its rows in one; the last
line has the number of rows and a hash of all lines before it, so that a file cut short or changed is no store.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Connection, Double, Integer, Table, func, select, text
from sqlalchemy.types import JSON

from orchestrator.interchange.own_lines import OwnLines, read_own
from orchestrator.interchange.whole_file import write_lines
from orchestrator.store import Store
from schema.column_types import UtcDateTime
from schema.errors import SchemaMismatchError, StoreError
from schema.revisions import REVISIONS
from schema.tables import metadata, schema_info

MARK = "tokfleet_store"
"""Key of the first line, whose value is the version of the form."""

VERSION = 1
AT_ONCE = 500
TABLES: tuple[Table, ...] = tuple(table for table in metadata.sorted_tables if table is not schema_info)
"""Every table with rows of people's, each behind those that it refers to."""


def write_store(store: Store, path: Path) -> int:
    """Write the whole store to the file, compressed where its name ends with `.gz`; return how many rows it has."""
    lines = _Lines(store_lines(store))
    write_lines(path, lines)
    return int(json.loads(lines.last)["end"]["n_rows"])


def store_lines(store: Store) -> Iterator[str]:
    """Yield the lines of the file, all of one moment of the store; the same store gives the same lines."""
    n_rows, whole = 0, sha256()
    with store.snapshot() as connection:
        for line, is_row in _content(connection):
            whole.update(f"{line}\n".encode())
            n_rows += is_row
            yield line
    yield _json({"end": {"n_rows": n_rows, "sha256": whole.hexdigest()}})


def load_store(path: Path, store: Store) -> int:
    """Fill the empty `store` with what `write_store` wrote to the file; return how many rows that are.

    All of it or nothing. Raises StoreError where the store has rows already, or the file is damaged, cut short, or
    of a tokfleet that is newer than this one.
    """
    return store.change(lambda connection: _load(connection, path, store.name))


class _Lines:
    """Lines that remember the last of them."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = lines
        self.last = ""

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            self.last = line
            yield line


def _content(connection: Connection) -> Iterator[tuple[str, bool]]:
    """Yield each line but the last, and whether it is a row."""
    yield _json({MARK: VERSION, "revision": REVISIONS[-1]}), False
    for table in TABLES:
        yield _json({"table": table.name, "columns": [column.name for column in table.c]}), False
        query = select(table).order_by(*table.primary_key.columns)
        with closing(connection.execute(query, execution_options={"yield_per": AT_ONCE})) as result:
            for row in result:
                yield _json([_out(value) for value in row]), True


def _out(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return value


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _load(connection: Connection, path: Path, name: str) -> int:
    _refuse_rows(connection, name)
    with read_own(path) as lines:
        _check_head(lines)
        n_rows = 0
        left = {table.name: table for table in TABLES}
        item = lines.next()
        while isinstance(item, dict) and "table" in item:
            table, columns = _table(lines, item, left)
            rows = _Rows(lines, table, columns)
            while some := list(islice(rows, AT_ONCE)):
                connection.execute(table.insert(), some)
                n_rows += len(some)
            item = rows.after
        end = item.get("end") if isinstance(item, dict) else None
        if end != {"n_rows": n_rows, "sha256": lines.sha256_before} or not lines.over:
            raise lines.refuse("it was changed, or cut short: its last line does not fit what is before it")
    _go_on_counting(connection)
    return n_rows


def _refuse_rows(connection: Connection, name: str) -> None:
    for table in TABLES:
        if connection.execute(select(*table.primary_key.columns).limit(1)).first() is not None:
            raise StoreError(
                f"The database {name} has rows already, and a whole store goes into an empty one only. "
                "Give a new one with --db."
            )


def _check_head(lines: OwnLines) -> None:
    head = lines.next()
    if not isinstance(head, dict) or MARK not in head:
        raise lines.refuse("it does not begin as an exported store does")
    if head[MARK] != VERSION or head.get("revision") not in REVISIONS:
        raise SchemaMismatchError(
            f"{lines.path} was exported by a newer tokfleet (revision {head.get('revision')!s:.20}); "
            f"this one knows {REVISIONS[-1]}. Install the newer one."
        )


def _table(lines: OwnLines, item: dict[str, Any], left: dict[str, Table]) -> tuple[Table, list[str]]:
    """Return the table that a line begins, and the columns of its rows."""
    name, columns = item["table"], item.get("columns")
    table = left.pop(name, None) if isinstance(name, str) else None
    if table is None:
        raise lines.refuse(f"there is no table {name!r:.60}, or it comes twice")
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise lines.refuse(f"the columns of {table.name} are no list of names")
    strange = set(columns) - set(table.c.keys())
    if strange or len(set(columns)) != len(columns):
        raise lines.refuse(f"the table {table.name} has no column {sorted(strange)!r:.60}, or one comes twice")
    return table, columns


class _Rows:
    """The rows of one table as the database takes them, until a line is something else: `after`."""

    def __init__(self, lines: OwnLines, table: Table, columns: Sequence[str]) -> None:
        self._lines, self._table, self._columns = lines, table, columns
        self.after: Any = None

    def __iter__(self) -> "_Rows":
        return self

    def __next__(self) -> dict[str, Any]:
        item = self._lines.next() if self.after is None else self.after
        if not isinstance(item, list):
            self.after = item
            raise StopIteration
        if len(item) != len(self._columns):
            raise self._lines.refuse(f"a row of {self._table.name} has {len(item)} values, not {len(self._columns)}")
        return {name: self._in(name, value) for name, value in zip(self._columns, item, strict=True)}

    def _in(self, name: str, value: Any) -> Any:
        kind = self._table.c[name].type
        if value is None or isinstance(kind, JSON):
            return value
        if isinstance(kind, UtcDateTime) and isinstance(value, str):
            try:
                return datetime.fromisoformat(value).astimezone(UTC)
            except (ValueError, OverflowError):
                value = None
        if not _fits(kind, value):
            raise self._lines.refuse(f"{self._table.name}.{name} is no value of its kind")
        return value


def _fits(kind: Any, value: Any) -> bool:
    if isinstance(kind, Boolean):
        return isinstance(value, bool)
    if isinstance(kind, Integer):
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if isinstance(kind, Double):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str) and not isinstance(kind, UtcDateTime)


def _go_on_counting(connection: Connection) -> None:
    """Let PostgreSQL number new rows after those that came with a number; SQLite does so by itself."""
    if connection.dialect.name != "postgresql":
        return
    for table in TABLES:
        if "id" in table.c and isinstance(table.c.id.type, Integer):
            newest = connection.execute(select(func.max(table.c.id))).scalar()
            if newest is not None:
                query = text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :newest)")
                connection.execute(query, {"name": table.name, "newest": newest})
