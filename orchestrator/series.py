"""What the probes before and after a series of attempts say of all of them, within the caller's transaction."""

from sqlalchemy import Connection, select, update

from orchestrator.machine_rows import probe_value
from schema.probe import Probe, change
from schema.tables import attempt, host, probe


def mark_unsteady(connection: Connection, series_uid: str) -> None:
    """Add the reason to the attempts of a series around which the memory's bandwidth changed; the same twice as once.

    Until both probes are stored there is nothing to say; whichever comes last, a probe or an attempt, asks anew.
    """
    found = {each.moment: each for each in _probes(connection, series_uid)}
    before, after = found.get("before"), found.get("after")
    reason = change(before, after) if before and after else None
    if reason is None:
        return
    own = (attempt.c.series_uid == series_uid, attempt.c.status == "measured")
    query = select(attempt.c.id, attempt.c.quality, attempt.c.quality_reasons).where(*own)
    for row in connection.execute(query).all():
        if reason not in row.quality_reasons:
            quality = "noisy" if row.quality == "clean" else row.quality
            values = {"quality": quality, "quality_reasons": [*row.quality_reasons, reason]}
            connection.execute(update(attempt).where(attempt.c.id == row.id).values(values))


def _probes(connection: Connection, series_uid: str) -> list[Probe]:
    query = select(probe, host.c.host_uid).join(host, host.c.id == probe.c.host_id)
    own = query.where(probe.c.series_uid == series_uid, probe.c.kind == "memory_read").order_by(probe.c.id.desc())
    return [probe_value(row) for row in connection.execute(own).mappings()]
