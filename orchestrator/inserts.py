"""What it takes to store a value, within a transaction that the caller holds; the same value twice is one row."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import Column, Connection, Table, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from orchestrator import machine_rows, rows
from orchestrator.efficiency import settle_after, settle_attempt, settle_hardware
from orchestrator.series import mark_unsteady
from orchestrator.standing import Standing, stand
from schema.accept import check_fingerprint, check_probe, check_record
from schema.errors import StoreError
from schema.host import Fingerprint
from schema.job import Job, ModelRef, Test
from schema.probe import Probe
from schema.record import Record
from schema.run import Run
from schema.tables import (
    allocation,
    attempt,
    build,
    condition,
    environment,
    hardware,
    host,
    job,
    model,
    probe,
    run,
    sample,
)

CIRCUMSTANCES = (hardware, allocation, environment, build)


def save_run(connection: Connection, value: Run, jobs: Sequence[Job], models: Iterable[ModelRef]) -> None:
    """Store a run and its jobs, with the hosts and models that they name."""
    strangers = {each.run_uid for each in jobs} - {value.run_uid}
    if strangers:
        raise StoreError(f"Run {value.run_uid} was not stored: it has jobs of run {strangers.pop()}.")
    run_id = _id_of(connection, run.c.run_uid, rows.run_row(value))
    known = {each.identity: each for each in (*models, *(each.model for each in jobs))}
    model_ids = {key: _id_of(connection, model.c.identity, rows.model_row(each)) for key, each in known.items()}
    uids = dict.fromkeys(each.host_uid for each in jobs)
    host_ids = {uid: _id_of(connection, host.c.host_uid, {"host_uid": uid}) for uid in uids}
    values = [rows.job_row(each, run_id, host_ids[each.host_uid], model_ids[each.model.identity]) for each in jobs]
    if values:
        connection.execute(_insert(connection, job).on_conflict_do_nothing(), values)


def save_fingerprint(connection: Connection, fingerprint: Fingerprint) -> None:
    """Store the facts of a host; the newest fingerprint becomes the host's own."""
    check_fingerprint(fingerprint)
    row = machine_rows.host_row(fingerprint)
    late = _is_bare(connection, hardware, row) or _is_bare(connection, build, row)
    _fill(connection, hardware, machine_rows.hardware_row(fingerprint.hardware))
    _fill(connection, allocation, machine_rows.allocation_row(fingerprint.allocation))
    _fill(connection, environment, machine_rows.environment_row(fingerprint.environment))
    if fingerprint.build:
        _fill(connection, build, machine_rows.build_row(fingerprint.build))
    if late:
        settle_hardware(connection, fingerprint.hardware.hardware_id)
    host_id = _id_of(connection, host.c.host_uid, {"host_uid": fingerprint.host_uid})
    is_newest = func.coalesce(host.c.fingerprint_at <= row["fingerprint_at"], True)
    connection.execute(update(host).where(host.c.id == host_id, is_newest).values(row))


def save_probe(connection: Connection, value: Probe) -> bool:
    """Store `value` unless its uid is there already, and settle what it bears on; return whether it was new."""
    check_probe(value)
    for table in CIRCUMSTANCES:
        _name(connection, table, getattr(value, f"{table.name}_id", None))
    host_id = _id_of(connection, host.c.host_uid, {"host_uid": value.host_uid})
    statement = _insert(connection, probe).values(machine_rows.probe_row(value, host_id))
    if connection.execute(statement.on_conflict_do_nothing().returning(probe.c.id)).first() is None:
        return False
    settle_after(connection, value, host_id)
    if value.series_uid is not None:
        mark_unsteady(connection, value.series_uid)
    return True


def save_record(connection: Connection, record: Record) -> bool:
    """Store `record` unless its uid is there already; return whether it was new."""
    check_record(record)
    if connection.execute(select(attempt.c.id).where(attempt.c.attempt_uid == record.attempt_uid)).first():
        return False
    job_id, test = _job_of(connection, record)
    for table in CIRCUMSTANCES:
        _name(connection, table, getattr(record, f"{table.name}_id"))
    row = rows.attempt_row(record, test) | {"job_id": job_id, **_standing(connection, job_id, record)}
    if record.model:
        row["model_id"] = _model_id(connection, rows.model_facts_row(record.model))
    attempt_id = connection.execute(attempt.insert().returning(attempt.c.id), row).scalar_one()
    if record.samples:
        connection.execute(sample.insert(), rows.sample_rows(record, attempt_id))
    if record.conditions:
        connection.execute(condition.insert(), rows.condition_row(record.conditions, attempt_id))
    if record.status == "measured":
        settle_attempt(connection, attempt_id)
        if record.series_uid is not None:
            mark_unsteady(connection, record.series_uid)
    return True


def _job_of(connection: Connection, record: Record) -> tuple[int, Test]:
    """Return id and test of the record's job, which stays locked until the transaction ends."""
    query = (
        select(job.c.id, *(job.c[field.name] for field in fields(Test)))
        .join(run, run.c.id == job.c.run_id)
        .join(host, host.c.id == job.c.host_id)
        .where(job.c.job_uid == record.job_uid, run.c.run_uid == record.run_uid, host.c.host_uid == record.host_uid)
        .with_for_update(of=job)
    )
    row = connection.execute(query).first()
    if row is None:
        raise StoreError(
            f"The record of attempt {record.attempt_uid} was not stored: job {record.job_uid} of run {record.run_uid} "
            f"on host {record.host_uid} is not in the database. Is it the database of that run?"
        )
    return row.id, Test(**{field.name: getattr(row, field.name) for field in fields(Test)})


def _standing(connection: Connection, job_id: int, record: Record) -> rows.Row:
    """Return number, `final` and `superseded` of a new attempt, having taken `final` from the one that it replaces."""
    query = select(attempt.c.number, attempt.c.status, attempt.c.final).where(attempt.c.job_id == job_id)
    others = [Standing(number=row.number, status=row.status, final=row.final) for row in connection.execute(query)]
    verdict = stand(record, others)
    if verdict.replaces:
        connection.execute(update(attempt).where(attempt.c.job_id == job_id, attempt.c.final).values(final=False))
    return {"number": verdict.number, "final": verdict.final, "superseded": verdict.superseded}


def _id_of(connection: Connection, key: Column[Any], row: rows.Row) -> int:
    """Return the id of the row that has `row`'s value of `key`; made from `row` where there is none."""
    table = key.table
    statement = _insert(connection, table).values(row).on_conflict_do_nothing().returning(table.c.id)
    made: int | None = connection.execute(statement).scalar()
    if made is not None:
        return made
    found: int = connection.execute(select(table.c.id).where(key == row[key.name])).scalar_one()
    return found


def _model_id(connection: Connection, row: rows.Row) -> int:
    """Return the id of the model with the facts in `row`; the name it was planned under stays."""
    facts = {name: value for name, value in row.items() if name not in ("identity", "name") and value is not None}
    statement = _insert(connection, model).values(row).on_conflict_do_update(index_elements=["identity"], set_=facts)
    made: int = connection.execute(statement.returning(model.c.id)).scalar_one()
    return made


def _name(connection: Connection, table: Table, digest: str | None) -> None:
    """See to it that there is a row for `digest`, so that others may refer to it before its facts are known."""
    if digest:
        statement = _insert(connection, table).values({f"{table.name}_id": digest})
        connection.execute(statement.on_conflict_do_nothing())


def _is_bare(connection: Connection, table: Table, row: rows.Row) -> bool:
    """Tell whether others refer already to what `row` names in `table`, though none of its facts are known yet."""
    key, fact = table.c[f"{table.name}_id"], table.c["facts" if "facts" in table.c else "binding"]
    query = select(key).where(key == row[key.name], fact.is_(None))
    return connection.execute(query).first() is not None


def _fill(connection: Connection, table: Table, row: rows.Row) -> None:
    """Store facts under their digest, also where only the digest was known so far."""
    key = f"{table.name}_id"
    facts = {name: value for name, value in row.items() if name != key}
    statement = _insert(connection, table).values(row)
    connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=facts))


def _insert(connection: Connection, table: Table) -> sqlite.Insert:
    """Return an INSERT that can say ON CONFLICT; both dialects spell it alike."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)  # type: ignore[return-value]
    return sqlite.insert(table)
