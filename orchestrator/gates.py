"""When a host may begin something: not while it is drained, outside its windows, or wanted by a run that goes first."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestrator.place import Place
from orchestrator.queues import Queues
from schema.errors import StoreError
from schema.lab_host import Lab, LabHost, may_start, must_end

LOOK_SECONDS = 5.0


def utc_now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


@dataclass(slots=True, kw_only=True)
class Gates:
    """Holds and releases hosts; asks `drained` and `outranked` (for host_uids) and the clock every few seconds.

    `tell` is called with a sentence when a host is held.
    """

    lab: Lab
    drained: Callable[[], Collection[str]]
    outranked: Callable[[], Collection[str]] = frozenset
    tell: Callable[[str], None]
    clock: Callable[[], datetime] = utc_now
    _look_at: float = 0.0
    _held: dict[str, str] = field(default_factory=dict)

    def __call__(self, queues: Queues, places: Iterable[Place], now: float) -> None:
        """Hold and release the hosts of `queues`, where it is time to look again; `now` is the queues' clock."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        try:
            drained, outranked = self.drained(), self.outranked()
        except StoreError:
            return  # the database is away: everything stays as it is
        for place in places:
            if place.uid is not None:
                self._decide(queues, place, place.uid in drained, place.uid in outranked, now)

    def _decide(self, queues: Queues, place: Place, is_drained: bool, is_outranked: bool, now: float) -> None:
        uid, own, at = str(place.uid), lab_host(self.lab, place), self.clock()
        closed = may_start(own, at)
        if is_drained:
            self._hold(queues, uid, False, f"{place.name} is drained: it gets no new jobs; `tokfleet hosts` says more.")
        elif closed is not None:
            self._hold(queues, uid, True, f"{closed.why} It goes on at {closed.until:%Y-%m-%d %H:%M} UTC.")
        elif is_outranked:
            self._hold(queues, uid, True, f"{place.name} measures for a run of higher priority first.")
        else:
            ends = must_end(own, at)
            if uid in self._held or ends is not None:
                self._held.pop(uid, None)
                queues.release(uid, None if ends is None else now + (ends - at).total_seconds())

    def _hold(self, queues: Queues, uid: str, wait: bool, why: str) -> None:
        queues.hold(uid, wait)
        if self._held.get(uid) != why:
            self._held[uid] = why
            self.tell(why)


def lab_host(lab: Lab, place: Place) -> LabHost:
    """Return the lab's entry for a host, which is under its label or its name."""
    return lab.host(place.label if place.label in lab.hosts else place.name)
