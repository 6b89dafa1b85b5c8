from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from orchestrator.intake import Intake
from orchestrator.journals import Journals, lost_record
from orchestrator.spool import Spool
from orchestrator.store import Store
from schema.accept import check_record
from tests.factories import make_job, make_probe, make_record, make_run
from tests.stores import new_store


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool.open(tmp_path / "spool.sqlite") as found:
        yield found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(str(new_store(tmp_path))) as found:
        found.save_run(make_run(), [make_job()])
        yield found


def test_what_is_of_this_store_is_kept_and_what_is_of_another_is_left_where_it_is(store: Store, spool: Spool) -> None:
    own, strange = make_record(), make_record(make_job(run_uid="run-of-another-store"))
    events = [
        {"event": "attempt_end", "record": asdict(own)},
        {"event": "attempt_end", "record": asdict(strange)},
        {"event": "probe", "probe": asdict(make_probe()), "run_uid": "run-of-another-store"},
    ]
    told: list[str] = []
    assert list(Journals(store, Intake(spool), "run-1", told.append).keep(events)) == [own]
    assert spool.waiting() == 1
    assert told == []


def test_a_damaged_line_is_told_and_the_rest_is_kept(store: Store, spool: Spool) -> None:
    own = make_record()
    damaged = asdict(own) | {"attempt_uid": "other", "number": -1}
    events: list[dict[str, Any]] = [
        {"event": "attempt_end"},
        {"event": "attempt_end", "record": damaged},
        {"no": "event"},
    ]
    told: list[str] = []
    journals = Journals(store, Intake(spool), "run-1", told.append)
    assert list(journals.keep([*events, {"event": "attempt_end", "record": asdict(own)}])) == [own]
    assert len(told) == 3
    assert "number" in told[1]


def test_only_what_is_stored_is_safe(store: Store, spool: Spool) -> None:
    record = make_record()
    store.save_records([record])
    held = {"a": {record.attempt_uid: "run-1", "not-stored": "run-1"}, "b": ValueError("lost"), "c": {"x": "other"}}
    assert Journals(store, Intake(spool), "run-1", print).safe(held) == {record.attempt_uid}


def test_a_job_of_a_lost_host_ends_as_a_record_that_any_store_takes() -> None:
    record = lost_record(make_job(), 3, "It did not come back. " * 500)
    check_record(record)
    assert record.failure is not None
    assert (record.number, record.failure.stage, record.status) == (3, "host lost", "failed")
