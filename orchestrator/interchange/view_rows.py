"""Rows of a view for those who take them elsewhere: chosen, in order, the same from both databases, a few at a time."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, TextClause, bindparam, text

from schema.column_types import UtcDateTime
from schema.columns import Kind
from schema.errors import UsageError
from schema.view_columns import VIEW_COLUMNS

Row = dict[str, Any]

AT_ONCE = 500
"""So many rows are in memory at a time."""

ORDERS = {"samples": "test_time, attempt_uid, repetition"}
"""The order of a view's rows, where it is another than that of most."""

ORDER = "test_time, attempt_uid"
_SPANS = {"h": 3600.0, "d": 86_400.0, "w": 604_800.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which rows of which view: of a run, of a host (its name or uid), of models whose name has `model` in it.

    `sound` leaves out what is not to be compared: rows marked bad, and those of the stand-in that measures nothing.
    """

    view: str = "results"
    run_uid: str | None = None
    host: str | None = None
    model: str | None = None
    since: datetime | None = None
    sound: bool = False


def moment(text: str, now: datetime) -> datetime:
    """Return the moment that `text` means: a date or time (UTC unless it has a zone), or `12h`, `7d`, `4w` ago.

    Raises UsageError for anything else.
    """
    number, unit = text[:-1], text[-1:]
    try:
        if unit in _SPANS and number.isdecimal():
            return now - timedelta(seconds=int(number) * _SPANS[unit])
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UsageError(f"{text!r:.60} is no time: write 2026-01-31, 2026-01-31T18:00, or 12h, 7d, 4w ago.") from None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


@contextmanager
def selected(
    connection: Connection, wanted: Wanted, order: str | None = None
) -> Iterator[tuple[tuple[str, ...], Iterator[Row]]]:
    """Give the columns of the view and its rows, oldest first (or in `order`, words of ours), read as they are asked.

    Times are text (`2026-01-02T03:04:05.000000Z`), booleans true or false, and JSON is parsed, from every database.
    """
    terms, values = _terms(wanted)
    order = order or ORDERS.get(wanted.view, ORDER)
    query = _asked(f"SELECT * FROM {wanted.view}{terms} ORDER BY {order}", values)  # noqa: S608 - words of ours
    result = connection.execute(query, values, execution_options={"yield_per": AT_ONCE})
    try:
        known = kinds(wanted.view)
        yield tuple(result.keys()), (_row(found, known) for found in result.mappings())
    finally:
        result.close()


def count_rows(connection: Connection, wanted: Wanted) -> int:
    """Return how many rows those are."""
    terms, values = _terms(wanted)
    query = _asked(f"SELECT COUNT(*) FROM {wanted.view}{terms}", values)  # noqa: S608 - words of ours
    return int(connection.execute(query, values).scalar_one())


def kinds(view: str) -> dict[str, Kind]:
    """Return the kind of each column of `view`."""
    return {column.name: column.kind for column in VIEW_COLUMNS[view]}


def _asked(query: str, values: Row) -> TextClause:
    asked = text(query)
    return asked.bindparams(bindparam("since", type_=UtcDateTime())) if "since" in values else asked


def _terms(wanted: Wanted) -> tuple[str, Row]:
    """Return the WHERE of what is wanted, and the values in it."""
    values: Row = {}
    terms = []
    if wanted.run_uid is not None:
        terms.append("run_uid = :run_uid")
        values["run_uid"] = wanted.run_uid
    if wanted.host is not None:
        terms.append("(host = :host OR host_uid = :host)")
        values["host"] = wanted.host
    if wanted.model is not None:
        terms.append("LOWER(model) LIKE :model ESCAPE '!'")
        values["model"] = f"%{_literal(wanted.model.lower())}%"
    if wanted.since is not None:
        terms.append("test_time >= :since")
        values["since"] = wanted.since
    if wanted.sound:
        terms += ["(method IS NULL OR method <> 'fake')", "NOT COALESCE(marked_bad, FALSE)"]
    return f" WHERE {' AND '.join(terms)}" if terms else "", values


def _literal(text: str) -> str:
    """Return `text` as LIKE takes it for itself."""
    return text.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _row(found: Mapping[Any, Any], known: Mapping[str, Kind]) -> Row:
    return {name: _plain(value, known.get(name, "text")) for name, value in found.items()}


def _plain(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if kind == "json" and isinstance(value, str):
        return json.loads(value)
    return bool(value) if kind == "boolean" else value
