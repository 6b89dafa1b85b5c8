"""What it takes to store a value, within a transaction that the caller holds; the same value twice is one row."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Table, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from orchestrator import machine_rows, rows
from orchestrator.efficiency import settle_after, settle_hardware
from orchestrator.series import mark_unsteady
from schema.accept import check_fingerprint, check_probe
from schema.errors import StoreError
from schema.host import Fingerprint
from schema.job import Job, ModelRef
from schema.probe import Probe
from schema.run import Run
from schema.tables import (
    allocation,
    build,
    environment,
    hardware,
    host,
    job,
    model,
    probe,
    run,
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
        connection.execute(insert_into(connection, job).on_conflict_do_nothing(), values)


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
    statement = insert_into(connection, probe).values(machine_rows.probe_row(value, host_id))
    if connection.execute(statement.on_conflict_do_nothing().returning(probe.c.id)).first() is None:
        return False
    settle_after(connection, value, host_id)
    if value.series_uid is not None:
        mark_unsteady(connection, value.series_uid)
    return True


def _id_of(connection: Connection, key: Column[Any], row: rows.Row) -> int:
    """Return the id of the row that has `row`'s value of `key`; made from `row` where there is none."""
    table = key.table
    statement = insert_into(connection, table).values(row).on_conflict_do_nothing().returning(table.c.id)
    made: int | None = connection.execute(statement).scalar()
    if made is not None:
        return made
    found: int = connection.execute(select(table.c.id).where(key == row[key.name])).scalar_one()
    return found


def model_id(connection: Connection, row: rows.Row) -> int:
    """Return the id of the model with the facts in `row`; the name it was planned under stays."""
    facts = {name: value for name, value in row.items() if name not in ("identity", "name") and value is not None}
    statement = (
        insert_into(connection, model).values(row).on_conflict_do_update(index_elements=["identity"], set_=facts)
    )
    made: int = connection.execute(statement.returning(model.c.id)).scalar_one()
    return made


def _name(connection: Connection, table: Table, digest: str | None) -> None:
    """See to it that there is a row for `digest`, so that others may refer to it before its facts are known."""
    if digest:
        statement = insert_into(connection, table).values({f"{table.name}_id": digest})
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
    statement = insert_into(connection, table).values(row)
    connection.execute(statement.on_conflict_do_update(index_elements=[key], set_=facts))


def insert_into(connection: Connection, table: Table) -> sqlite.Insert:
    """Return an INSERT that can say ON CONFLICT; both dialects spell it alike."""
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table)  # type: ignore[return-value]
    return sqlite.insert(table)
