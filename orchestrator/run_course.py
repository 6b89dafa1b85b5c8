"""How far a run is, host by host, within a transaction that the caller holds."""

from typing import Any

from sqlalchemy import Connection, and_, func, select

from schema.tables import attempt, host, job, run

Row = dict[str, Any]


def by_host(connection: Connection, run_uid: str) -> list[Row]:
    """Return for each host with jobs of the run: how many, how they ended, when the last did; by name."""
    measured = func.count(attempt.c.id).filter(attempt.c.status == "measured").label("n_measured")
    failed = func.count(attempt.c.id).filter(attempt.c.status == "failed").label("n_failed")
    n_jobs = func.count(job.c.id)
    remaining = (n_jobs - func.count(attempt.c.id)).label("n_remaining")
    last = func.max(attempt.c.ended_at).label("last_ended_at")
    query = (
        select(host.c.host_uid, host.c.hostname, n_jobs.label("n_jobs"), measured, failed, remaining, last)
        .join(job, job.c.host_id == host.c.id)
        .join(run, run.c.id == job.c.run_id)
        .outerjoin(attempt, and_(attempt.c.job_id == job.c.id, attempt.c.final))
        .where(run.c.run_uid == run_uid)
        .group_by(host.c.id, host.c.host_uid, host.c.hostname)
    )
    found = [dict(row) for row in connection.execute(query).mappings()]
    return sorted(found, key=lambda row: (row["hostname"] or "", row["host_uid"]))
