"""The probes that may fit attempts, looked up once for all attempts of a machine."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, or_, select

from orchestrator.machine_rows import probe_value
from schema.probe import Kind, Probe
from schema.tables import host, probe

Fields = Mapping[Any, Any]
"""The row of an attempt, with its `host_id`."""

CANDIDATES = 50
"""So many probes of a kind are looked at, newest first."""

_OWN = ("host_id", "hardware_id", "allocation_id")
_QUERY = (
    select(probe, host.c.host_uid)
    .join(host, host.c.id == probe.c.host_id)
    .where(probe.c.value.is_not(None))
    .order_by(probe.c.taken_at.desc(), probe.c.id.desc())
)


class Candidates:
    """The probes of the machines on which `attempts` ran; `ids` has the rows' ids of those that were given, by uid."""

    def __init__(self, connection: Connection, attempts: Sequence[Fields]) -> None:
        self.ids: dict[str | None, int] = {}
        self._connection = connection
        self._attempts = attempts
        self._found: dict[tuple[Any, ...], list[Fields]] = {}
        self._made: dict[int, Probe] = {}

    def fitting(self, row: Fields, kind: Kind) -> list[Probe]:
        """Return the probes of this kind that fit the attempt, newest first: of its series, or from before it."""
        key = (kind, *(row[name] for name in _OWN))
        if key not in self._found:
            self._found[key] = self._look_up(*key)
        series = row["series_uid"]
        fits = [
            each
            for each in self._found[key]
            if each["taken_at"] <= row["started_at"] or (series is not None and each["series_uid"] == series)
        ]
        return [self._made_of(each) for each in fits[:CANDIDATES]]

    def _look_up(self, kind: Kind, *own: Any) -> list[Fields]:
        """Return what fits any of the attempts with these ids, newest first.

        What was there before the first of them fits all: of that the newest ones are enough.
        """
        host_id, hardware_id, allocation_id = own
        attempts = [each for each in self._attempts if tuple(each[name] for name in _OWN) == own]
        times = [each["started_at"] for each in attempts]
        series = {each["series_uid"] for each in attempts} - {None}
        query = _QUERY.where(
            probe.c.host_id == host_id,
            probe.c.kind == kind,
            probe.c.hardware_id == hardware_id,
            or_(probe.c.allocation_id.is_(None), probe.c.allocation_id == allocation_id),
        )
        old = self._connection.execute(query.where(probe.c.taken_at <= min(times)).limit(CANDIDATES)).mappings().all()
        if not series and min(times) == max(times):
            return list(old)
        fits = or_(probe.c.taken_at <= max(times), probe.c.series_uid.in_(series))
        young = self._connection.execute(query.where(probe.c.taken_at > min(times), fits)).mappings().all()
        return [*young, *old]

    def _made_of(self, row: Fields) -> Probe:
        if row["id"] not in self._made:
            self._made[row["id"]] = probe_value(row)
            self.ids[row["probe_uid"]] = row["id"]
        return self._made[row["id"]]
