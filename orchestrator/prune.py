"""What an old attempt can do without: its samples, its histogram of latencies, its log. Everything else stays."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, and_, delete, func, null, select, update

from orchestrator.store import Store
from schema.tables import attempt, sample

AT_ONCE = 500
"""So many attempts are pruned in one transaction, so that others can write in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prunable:
    """What of the attempts from before a moment can be dropped, or was; `oldest` is None where there are none."""

    n_attempts: int
    n_samples: int
    n_histograms: int
    n_logs: int
    oldest: datetime | None


def prunable(store: Store, before: datetime) -> Prunable:
    """Return what `prune` would drop; nothing is changed."""
    with store.snapshot() as connection:
        return _prunable(connection, before)


def prune(store: Store, before: datetime) -> Prunable:
    """Drop samples, histograms and logs of the attempts from before that moment; return what was dropped.

    The attempts stay, with their rates, spreads, percentiles and conditions; `pruned_at` says when it was.
    """
    found = prunable(store, before)
    while store.change(lambda connection: _some(connection, before)):
        pass
    return found


def pruned_text(found: Prunable, before: datetime, done: bool) -> list[str]:
    """Return in sentences what was dropped, or would be."""
    if not found.n_attempts:
        return [f"There is nothing to drop of attempts from before {before:%Y-%m-%d %H:%M} UTC."]
    what = (
        f"{found.n_samples} samples, {found.n_histograms} histograms and {found.n_logs} logs of {found.n_attempts} "
        f"attempts from before {before:%Y-%m-%d %H:%M} UTC"
    )
    kept = "The attempts stay, with their rates, spreads, percentiles and conditions."
    if done:
        return [
            f"Dropped {what}. {kept}",
            "New rows use the space; VACUUM in sqlite3 or psql gives it back to the disk.",
        ]
    return [f"Would drop {what}, the oldest of {found.oldest:%Y-%m-%d}. {kept}", "--yes does it."]


def _old(before: datetime) -> Any:
    return and_(attempt.c.started_at < before, attempt.c.pruned_at.is_(None))


def _prunable(connection: Connection, before: datetime) -> Prunable:
    row = connection.execute(
        select(
            func.count(attempt.c.id).label("n_attempts"),
            func.count(attempt.c.latency_histogram).label("n_histograms"),
            func.count(attempt.c.log_tail).label("n_logs"),
            func.min(attempt.c.started_at).label("oldest"),
        ).where(_old(before))
    ).one()
    n_samples = connection.execute(
        select(func.count()).select_from(sample.join(attempt, attempt.c.id == sample.c.attempt_id)).where(_old(before))
    ).scalar_one()
    return Prunable(n_samples=n_samples, **row._mapping)


def _some(connection: Connection, before: datetime) -> int:
    """Prune a few attempts and return how many they were."""
    query = select(attempt.c.id).where(_old(before)).order_by(attempt.c.id).limit(AT_ONCE)
    ids = list(connection.execute(query).scalars())
    if ids:
        connection.execute(delete(sample).where(sample.c.attempt_id.in_(ids)))
        nothing = {"latency_histogram": null(), "log_tail": null(), "pruned_at": datetime.now(UTC)}
        connection.execute(update(attempt).where(attempt.c.id.in_(ids)).values(nothing))
    return len(ids)
