from collections.abc import Collection
from datetime import UTC, datetime

import pytest

from orchestrator.gates import Gates
from orchestrator.place import Place
from orchestrator.queues import Queues
from schema.errors import StoreUnavailableError
from schema.lab import parse_lab
from schema.lab_host import Lab
from tests.factories import make_job

NIGHT = parse_lab('zone: UTC\nhosts: {box-a: {windows: ["22:00-07:00"]}}\n', "lab.yaml")
PLACE = Place(label="label", name="box-a", uid="host-1")


class Clock:
    def __init__(self, hour: int) -> None:
        self.now = datetime(2026, 3, 2, hour, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def queues() -> Queues:
    found = Queues()
    found.add([(make_job(), 10.0)])
    found.came("host-1", 0.0)
    return found


def begins(found: Queues, now: float = 0.0) -> bool:
    return bool(list(found.starts(now)))


def test_a_drained_host_is_held_until_it_is_resumed_and_said_once() -> None:
    drained: set[str] = {"host-1"}
    told: list[str] = []
    gates, found = Gates(lab=Lab(), drained=lambda: drained, tell=told.append), queues()
    for now in (0.0, 6.0):
        gates(found, [PLACE], now)
    assert not begins(found)
    assert found.over(6.0)
    assert told == ["box-a is drained: it gets no new jobs; `tokfleet hosts` says more."]
    drained.clear()
    gates(found, [PLACE], 12.0)
    assert begins(found)


def test_a_host_outside_its_window_waits_for_it() -> None:
    told: list[str] = []
    clock = Clock(12)
    gates, found = Gates(lab=NIGHT, drained=set, tell=told.append, clock=clock), queues()
    gates(found, [PLACE], 0.0)
    assert not begins(found)
    assert not found.over(1.0)
    assert "box-a measures only at 22:00-07:00 (UTC)" in told[0]
    assert told[0].endswith("It goes on at 2026-03-02 22:00 UTC.")
    clock.now = datetime(2026, 3, 2, 23, tzinfo=UTC)
    gates(found, [PLACE], 6.0)
    assert begins(found, 6.0)


def test_a_run_of_higher_priority_has_the_host_first() -> None:
    first: set[str] = {"host-1"}
    gates, found = Gates(lab=Lab(), drained=set, outranked=lambda: first, tell=lambda text: None), queues()
    gates(found, [PLACE], 0.0)
    assert not begins(found)
    assert not found.over(1.0)
    first.clear()
    gates(found, [PLACE], 6.0)
    assert begins(found, 6.0)


def test_while_the_database_is_away_everything_stays_as_it_is() -> None:
    def away() -> Collection[str]:
        raise StoreUnavailableError("It is away.")

    found = queues()
    Gates(lab=Lab(), drained=away, tell=pytest.fail)(found, [PLACE], 0.0)
    assert begins(found)
