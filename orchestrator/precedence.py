"""Which of several runs in one store has a host first: the one of higher priority, as long as a driver is at it."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from sqlalchemy import and_, exists, select, update

from orchestrator.store import Store
from schema.tables import attempt, host, job, run

ALIVE_SECONDS = 60.0
"""A run whose driver has not said for so long that it is at it keeps nobody from a host."""


def say_driven(store: Store, run_uid: str, priority: int, now: datetime) -> None:
    """Keep that a driver is at the run, and how it ranks."""
    values = {"priority": priority, "driven_at": now}
    store.change(lambda connection: connection.execute(update(run).where(run.c.run_uid == run_uid).values(values)))


def say_left(store: Store, run_uid: str) -> None:
    """Keep that no driver is at the run any more."""
    store.change(
        lambda connection: connection.execute(update(run).where(run.c.run_uid == run_uid).values(driven_at=None))
    )


def outranked(store: Store, run_uid: str, priority: int, now: datetime) -> Collection[str]:
    """Return the hosts (by host_uid) for which a run of higher priority, with a driver at it, has jobs left."""
    since = now - timedelta(seconds=ALIVE_SECONDS)
    is_open = ~exists().where(and_(attempt.c.job_id == job.c.id, attempt.c.final))
    query = (
        select(host.c.host_uid)
        .join(job, job.c.host_id == host.c.id)
        .join(run, run.c.id == job.c.run_id)
        .where(run.c.run_uid != run_uid, run.c.priority > priority, run.c.driven_at > since, is_open)
        .distinct()
    )
    with store.snapshot() as connection:
        return frozenset(connection.execute(query).scalars())


def utc_now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)
