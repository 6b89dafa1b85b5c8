"""What it takes to store attempts with their samples, many in one go, within a transaction that the caller holds.

A round trip to a server costs more than the row it carries: what records have in common is looked up once for
all of them, and their rows go in together.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from sqlalchemy import Connection, select, update

from orchestrator import rows
from orchestrator.efficiency import settle_attempts
from orchestrator.inserts import CIRCUMSTANCES, insert_into, model_id
from orchestrator.series import mark_unsteady
from orchestrator.standing import Standing, stand
from schema.errors import StoreError
from schema.job import Test
from schema.record import ModelFacts, Record
from schema.tables import attempt, condition, host, job, model, run, sample

AT_ONCE = 100
"""So many records go in together; databases bound what one statement may hold."""


@dataclass(slots=True)
class _Place:
    """The job of a record, and how its attempts stand so far; `final` is the row of the final one where that is new."""

    job_id: int
    run_uid: str
    host_uid: str
    test: Test
    config_key: str
    model_identity: str
    others: list[Standing] = field(default_factory=list)
    final: rows.Row | None = None


def save_records(connection: Connection, records: Sequence[Record]) -> int:
    """Store, in their order, those of `records` whose uid is not there yet; return how many those are.

    What `schema.accept` checks must have been checked. Raises StoreError where a job is not in the database.
    """
    return sum(_save(connection, records[begin : begin + AT_ONCE]) for begin in range(0, len(records), AT_ONCE))


def _save(connection: Connection, records: Sequence[Record]) -> int:
    new = _new(connection, records)
    if not new:
        return 0
    places = _places(connection, new)
    for table in CIRCUMSTANCES:
        digests = {getattr(record, f"{table.name}_id") for record in new} - {None}
        _insert(connection, insert_into(connection, table).on_conflict_do_nothing(),
                [{f"{table.name}_id": digest} for digest in sorted(digests)])  # fmt: skip
    replaced: set[int] = set()
    made = [_attempt_row(record, places, replaced) for record in new]
    for row, facts in zip(made, _model_ids(connection, new), strict=True):
        row |= facts
    if replaced:
        connection.execute(update(attempt).where(attempt.c.job_id.in_(replaced), attempt.c.final).values(final=False))
    ids = _insert_attempts(connection, made)
    _insert(connection, sample.insert(), [row for each in new for row in rows.sample_rows(each, ids[each.attempt_uid])])
    _insert(connection, condition.insert(), [
        rows.condition_row(each.conditions, ids[each.attempt_uid]) for each in new if each.conditions])  # fmt: skip
    measured = [each for each in new if each.status == "measured"]
    settle_attempts(connection, [ids[each.attempt_uid] for each in measured])
    for series_uid in dict.fromkeys(each.series_uid for each in measured if each.series_uid is not None):
        mark_unsteady(connection, series_uid)
    return len(new)


def _new(connection: Connection, records: Iterable[Record]) -> list[Record]:
    """Return the records that are not stored yet, each once."""
    by_uid: dict[str, Record] = {}
    for record in records:
        by_uid.setdefault(record.attempt_uid, record)
    known = connection.execute(select(attempt.c.attempt_uid).where(attempt.c.attempt_uid.in_(by_uid))).scalars().all()
    return [record for uid, record in by_uid.items() if uid not in set(known)]


def _places(connection: Connection, records: Sequence[Record]) -> dict[str, _Place]:
    """Return the jobs of all records by uid; they stay locked until the transaction ends."""
    query = (
        select(job.c.id, job.c.job_uid, job.c.config_key, model.c.identity, run.c.run_uid, host.c.host_uid)
        .add_columns(*(job.c[own.name] for own in fields(Test)))
        .join(run, run.c.id == job.c.run_id)
        .join(host, host.c.id == job.c.host_id)
        .join(model, model.c.id == job.c.model_id)
        .where(job.c.job_uid.in_({record.job_uid for record in records}))
        .with_for_update(of=job)
    )
    places = {
        row.job_uid: _Place(
            job_id=row.id,
            run_uid=row.run_uid,
            host_uid=row.host_uid,
            test=Test(**{own.name: getattr(row, own.name) for own in fields(Test)}),
            config_key=row.config_key,
            model_identity=row.identity,
        )
        for row in connection.execute(query)
    }
    for record in records:
        place = places.get(record.job_uid)
        if place is None or (place.run_uid, place.host_uid) != (record.run_uid, record.host_uid):
            raise StoreError(
                f"The record of attempt {record.attempt_uid} was not stored: job {record.job_uid} of run "
                f"{record.run_uid} on host {record.host_uid} is not in the database. Is it the database of that run?"
            )
    _look_up_others(connection, {place.job_id: place for place in places.values()})
    return places


def _look_up_others(connection: Connection, places: dict[int, _Place]) -> None:
    own = tuple(attempt.c[each.name] for each in fields(Standing))
    for row in connection.execute(select(attempt.c.job_id, *own).where(attempt.c.job_id.in_(places))).mappings():
        places[row["job_id"]].others.append(Standing(**{each.name: row[each.name] for each in own}))


def _attempt_row(record: Record, places: dict[str, _Place], replaced: set[int]) -> rows.Row:
    """Return the row of a new attempt; those of its job stand as they do with it, stored ones in `replaced`."""
    place = places[record.job_uid]
    verdict = stand(record, place.others)
    if verdict.replaces:
        place.others = [replace(other, final=False) for other in place.others]
        if place.final is not None:
            place.final["final"] = False
        else:
            replaced.add(place.job_id)
    standing = {"number": verdict.number, "final": verdict.final, "superseded": verdict.superseded}
    subject = rows.subject_key(record, place.model_identity, place.config_key)
    row = rows.attempt_row(record, place.test) | standing | {"job_id": place.job_id, "subject_key": subject}
    place.others.append(
        Standing(number=verdict.number, status=record.status, final=verdict.final, quality=record.quality)
    )
    if verdict.final:
        place.final = row
    return row


def _model_ids(connection: Connection, records: Iterable[Record]) -> Iterator[dict[str, int]]:
    """Yield for each record the column with the id of its model, none where it has no model."""
    known: dict[ModelFacts, int] = {}
    for record in records:
        facts = record.model
        if facts is not None and facts not in known:
            known[facts] = model_id(connection, rows.model_facts_row(facts))
        yield {} if facts is None else {"model_id": known[facts]}


def _insert_attempts(connection: Connection, made: Sequence[rows.Row]) -> dict[str, int]:
    """Store rows that need not have the same columns; return their ids by their uids."""
    insert = attempt.insert().returning(attempt.c.attempt_uid, attempt.c.id)
    found = connection.execute(insert, _of_one_shape(made))
    return {str(uid): int(number) for uid, number in found}


def _insert(connection: Connection, statement: Any, values: Sequence[rows.Row]) -> None:
    if values:
        connection.execute(statement, _of_one_shape(values))


def _of_one_shape(values: Sequence[rows.Row]) -> list[rows.Row]:
    """Return the rows with the columns of all of them, as one statement for many rows needs them."""
    names = dict.fromkeys(name for row in values for name in row)
    return [{name: row.get(name) for name in names} for row in values]
