"""The short probes around what one measuring process measures."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from schema.canonical import decode
from schema.host import Fingerprint
from schema.job import Group, ModelRef
from schema.probe import Probe
from schema.settings import Settings
from tests.supervised import DECODE, PREFILL, group_of, python_that, records
from tests.test_probe import a_point, a_probe
from worker import journal
from worker.probe import take
from worker.recovery import recover
from worker.supervisor import Supervisor

Event = dict[str, Any]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[frozenset[int], str]]:
    """Let the memory answer 40 GB/s with two threads whenever it is asked; return how it was."""
    calls: list[tuple[frozenset[int], str]] = []

    def brief(_: Fingerprint, n_threads: Collection[int], series_uid: str, moment: Any) -> Probe:
        calls.append((frozenset(n_threads), moment))
        uid = f"{series_uid}-{moment}"
        return a_probe(a_point(2, 40.0), probe_uid=uid, series_uid=series_uid, moment=moment, value=40e9)

    monkeypatch.setattr(take, "brief", brief)
    return calls


def run(group: Group, fingerprint: Fingerprint, home: Path, python: str, probes: bool = True) -> list[Event]:
    """Return the events of a group."""
    supervisor = Supervisor(group=group, fingerprint=fingerprint, home=home, python=python, probes=probes)
    return list(supervisor.run())


def kinds(events: list[Event]) -> list[str]:
    """Return the order of what is stored."""
    return [event["event"] for event in events if event["event"] in ("probe", "attempt_start", "attempt_end")]


def test_a_series_is_probed_before_its_first_attempt_and_after_its_last(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str, asked: list[Any]
) -> None:
    group = group_of(model, PREFILL, DECODE, settings=Settings(n_threads=2))
    events = run(group, fingerprint, tmp_path, standin_python)
    assert kinds(events) == ["probe", *["attempt_start", "attempt_end"] * 2, "probe"]
    assert asked == [(frozenset({2}), "before"), (frozenset({2}), "after")]
    probes = [decode(Probe, event["probe"]) for event in events if event["event"] == "probe"]
    assert {record.series_uid for record in records(events)} == {probe.series_uid for probe in probes}


def test_without_probes_attempts_still_know_their_series(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str, asked: list[Any]
) -> None:
    events = run(group_of(model, PREFILL, DECODE), fingerprint, tmp_path, standin_python, probes=False)
    first, second = records(events)
    assert asked == []
    assert first.series_uid == second.series_uid is not None


def test_every_measuring_process_is_a_series_and_one_that_measured_nothing_is_not_probed_again(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, asked: list[Any]
) -> None:
    events = run(group_of(model, PREFILL, DECODE), fingerprint, tmp_path, python_that(tmp_path, "os.abort()"))
    assert [moment for _, moment in asked] == ["before", "before"]
    first, second = records(events)
    assert first.series_uid != second.series_uid


def test_a_probe_that_failed_before_is_not_tried_again_after(
    model: ModelRef,
    fingerprint: Fingerprint,
    tmp_path: Path,
    standin_python: str,
    asked: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(take, "brief", lambda *_: a_probe(value=None, errors=("it rains",)))
    events = run(group_of(model, PREFILL), fingerprint, tmp_path, standin_python)
    assert kinds(events) == ["probe", "attempt_start", "attempt_end"]
    assert records(events)[0].status == "measured"


def test_a_probe_of_a_dead_group_is_taken_over_with_its_run(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str, asked: list[Any]
) -> None:
    run(group_of(model, PREFILL), fingerprint, tmp_path, standin_python)
    found = [event for event in recover(tmp_path) if event["event"] == "probe"]
    assert [decode(Probe, event["probe"]).moment for event in found] == ["before", "after"]
    assert {event["run_uid"] for event in found} == {"run"}
    assert len(list(journal.abandoned(tmp_path))) == 1
