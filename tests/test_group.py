"""A group on a host: the lock is held, the machine may be waited for, a revoked group never begins."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from schema.job import ModelRef
from tests.supervised import DECODE, PREFILL, group_of, records
from worker.group import Errand, measure
from worker.journal import revoke
from worker.lock import HostLock


@pytest.fixture(autouse=True)
def own_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKFLEET_LOCK", str(tmp_path / "lock"))


def errand(model: ModelRef, python: str, **fields: Any) -> Errand:
    return Errand(group=group_of(model, PREFILL, DECODE), python=python, **fields)


def test_the_lock_is_held_while_it_measures_and_says_for_what(
    model: ModelRef, standin_python: str, tmp_path: Path
) -> None:
    holders, events = [], []
    for event in measure(errand(model, standin_python), tmp_path / "home"):
        events.append(event)
        holders.append(HostLock().try_acquire())
    assert {holder and holder.what for holder in holders} == {"tokfleet group group"}
    assert [record.status for record in records(events)] == ["measured", "measured"]
    with HostLock().acquire():
        pass


def test_a_group_that_was_given_up_does_not_begin(model: ModelRef, standin_python: str, tmp_path: Path) -> None:
    revoke(tmp_path, "group")
    assert list(measure(errand(model, standin_python), tmp_path)) == []


def test_it_waits_until_it_is_quiet_only_where_that_was_asked(
    model: ModelRef, standin_python: str, tmp_path: Path
) -> None:
    asked = []

    def quiet(seconds: float) -> Generator[dict[str, Any], None, None]:
        asked.append(seconds)
        yield {"event": "stage", "stage": "wait", "text": "waiting until it is quiet"}

    first = next(iter(measure(errand(model, standin_python, quiet_seconds=60), tmp_path, quiet)))
    assert first["text"] == "waiting until it is quiet"
    assert next(iter(measure(errand(model, standin_python), tmp_path, quiet)))["event"] == "host"
    assert asked == [60]
