"""What others measured, in the database: which of it is known, and how a file's rows are taken in, all or none.

Works within a transaction of the caller's; writers of one store take turns, so what was looked up stays true.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, insert, or_, select, update

from orchestrator.interchange.doubles import Identity, Sorted, identified, sort_out
from orchestrator.interchange.found import Row
from orchestrator.interchange.import_rows import SourceFile, file_row, filling, imported_row
from orchestrator.machine_rows import text_of
from schema.canonical import digest
from schema.errors import UsageError
from schema.import_tables import import_file, import_row
from schema.job import Test
from schema.tables import attempt, host, job

T = TypeVar("T")

AT_ONCE = 100
"""So many rows are asked for in one statement; databases bound what one may hold."""
NAME_CHARACTERS = 255


def host_uid_of(connection: Connection, name: str) -> str:
    """Return the uid of the host called `name` (or whose uid that is); a new uid where there is none yet.

    Raises UsageError where several hosts are called so, and for what is no name.
    """
    new = new_host_uid(name)
    query = select(host.c.host_uid).where(or_(host.c.hostname == name, host.c.host_uid == name))
    found = sorted(connection.execute(query).scalars())
    if len(found) > 1:
        raise UsageError(f"Several hosts are called {name!r}; give the host_uid of one: {', '.join(found)}.")
    return found[0] if found else new


def new_host_uid(name: str) -> str:
    """Return the uid of a host that is known by this name alone; UsageError for what is no name."""
    if not name.strip() or len(name) > NAME_CHARACTERS or not name.isprintable():
        raise UsageError(f"{name!r:.80} is no name of a host: write one line of at most {NAME_CHARACTERS} characters.")
    return f"imported-{digest(['imported host', name])[:32]}"


def look_up(connection: Connection, rows: Sequence[Identity]) -> list[Identity]:
    """Return what the store has of `rows`: those with their keys, those that may be the same, and their results."""
    found: dict[str, Identity] = {}
    for some in _portions(rows):
        alike = or_(
            import_row.c.import_key.in_([key for who in some for key in who.keys]),
            import_row.c.printed_key.in_([who.printed_key for who in some]),
            import_row.c.timed_key.in_([who.timed_key for who in some if who.timed_key]),
        )
        found |= {one.import_key: one for one in _identities(connection, alike)}
    roots = sorted({one.same_as for one in found.values() if one.same_as} - {*found})
    for keys in _portions(roots):
        found |= {one.import_key: one for one in _identities(connection, import_row.c.import_key.in_(keys))}
    return [*found.values()]


def measured_here(connection: Connection, rows: Sequence[tuple[Row, Identity]]) -> frozenset[str]:
    """Return the keys of `rows` that an attempt of this store measured: same test, same second, same nanoseconds."""
    timed = sorted((pair for pair in rows if pair[1].timed_key), key=lambda pair: pair[0].tested_at or "")
    keys: set[str] = set()
    for some in _portions(timed):
        there = _attempts(connection, [row for row, _ in some])
        keys |= {who.import_key for row, who in some if (row.tested_at, row.avg_ns, row.test) in there}
    return frozenset(keys)


def _attempts(connection: Connection, rows: Sequence[Row]) -> set[tuple[str, int, Test]]:
    """Return second, nanoseconds and test of the attempts that may be among `rows`, which are in order of time."""
    first, last = (datetime.fromisoformat(rows[at].tested_at or "") for at in (0, -1))
    own = [job.c[part.name] for part in fields(Test)]
    query = (
        select(attempt.c.started_at, attempt.c.avg_ns, *own)
        .join(job, job.c.id == attempt.c.job_id)
        .where(attempt.c.started_at >= first, attempt.c.started_at < last + timedelta(seconds=1))
        .where(attempt.c.avg_ns.in_([row.avg_ns for row in rows]))
    )
    return {
        (text_of(started.replace(microsecond=0)), ns, Test(**dict(zip((part.name for part in own), test, strict=True))))
        for started, ns, *test in connection.execute(query)
    }


def told_apart(connection: Connection, rows: Sequence[tuple[Row, Identity]], *, distinct: bool = False) -> Sorted:
    """Return what of the `identified` rows of one file is new to the store."""
    stored = look_up(connection, [who for _, who in rows])
    return sort_out(rows, stored, measured_here(connection, rows), distinct)


def save_file(
    connection: Connection, file: SourceFile, host_name: str | None, version: str, *, distinct: bool = False
) -> Sorted:
    """Take in the rows of `file` that the store has not yet, measured on the host of that name where one is given.

    A host that is not known is made, without a fingerprint. Raises UsageError where the name is none, or of several.
    """
    host_uid = None if host_name is None else host_uid_of(connection, host_name)
    told = told_apart(connection, identified(file.found.rows, host_uid), distinct=distinct)
    host_id = _host_id(connection, host_uid, host_name) if told.fresh or told.placed else None
    if told.fresh:
        file_id = _file_id(connection, file, version)
        values = [imported_row(row, who, file_id, host_id) for row, who in told.fresh]
        for some in _alike(values):
            connection.execute(insert(import_row), some)
    for row, who in told.fuller:
        _update(
            connection, [who.import_key], **{name: value for name, value in filling(row).items() if value is not None}
        )
    for poorer, richer in told.doubles:
        mine = or_(import_row.c.import_key == poorer, import_row.c.same_as == poorer)
        connection.execute(update(import_row).where(mine).values(same_as=richer))
    _update(connection, told.placed, host_id=host_id)
    _update(connection, told.freed, same_as=None)
    return told


def _update(connection: Connection, keys: Sequence[str], **values: Any) -> None:
    for some in _portions(keys):
        connection.execute(update(import_row).where(import_row.c.import_key.in_(some)).values(**values))


def _host_id(connection: Connection, host_uid: str | None, name: str | None) -> int | None:
    if host_uid is None:
        return None
    found: int | None = connection.execute(select(host.c.id).where(host.c.host_uid == host_uid)).scalar()
    if found is not None:
        return found
    row = {"host_uid": host_uid, "hostname": name, "uid_source": "imported"}
    made: int = connection.execute(insert(host).values(row).returning(host.c.id)).scalar_one()
    return made


def _file_id(connection: Connection, file: SourceFile, version: str) -> int:
    """Return the id of the file's row; the same content under another name is the file that it was."""
    known: int | None = connection.execute(select(import_file.c.id).where(import_file.c.sha256 == file.sha256)).scalar()
    if known is not None:
        return known
    row = file_row(file, datetime.now(UTC), version)
    made: int = connection.execute(insert(import_file).values(row).returning(import_file.c.id)).scalar_one()
    return made


def _identities(connection: Connection, which: ColumnElement[bool]) -> Iterator[Identity]:
    names = ("import_key", "printed_key", "timed_key", "build_commit", "n_facts", "same_as", "tested_at")
    query = (
        select(*(import_row.c[name] for name in names), host.c.host_uid)
        .outerjoin(host, host.c.id == import_row.c.host_id)
        .where(which)
        .order_by(import_row.c.id)
    )
    for *values, tested_at, host_uid in connection.execute(query):
        own = dict(zip(names, values, strict=False))
        yield Identity(**own, tested_at=None if tested_at is None else text_of(tested_at), host=host_uid)


def _portions(values: Sequence[T]) -> Iterator[Sequence[T]]:
    for at in range(0, len(values), AT_ONCE):
        yield values[at : at + AT_ONCE]


def _alike(values: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows in portions that have the same columns, as one statement for many takes them."""
    by_columns: dict[frozenset[str], list[dict[str, Any]]] = {}
    for row in values:
        by_columns.setdefault(frozenset(row), []).append(row)
    yield from by_columns.values()
