from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from orchestrator.intake import Intake
from orchestrator.spool import Spool
from schema.errors import StoreError
from schema.job import Assignment, Group
from tests.factories import make_fingerprint, make_job, make_probe, make_record

GROUP = Group(group_uid="g", assignments=(Assignment(job=make_job(), attempt_uid="a-1"),))


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool.open(tmp_path / "spool.sqlite") as found:
        yield found


def test_what_must_not_be_lost_of_an_event_is_on_the_disk_when_it_is_handed_on(spool: Spool) -> None:
    intake = Intake(spool)
    record = make_record(make_job(), attempt_uid="a-1")
    assert intake.keep({"event": "attempt_end", "record": asdict(record)}, GROUP).record == record
    intake.keep({"event": "host", "fingerprint": asdict(make_fingerprint())}, GROUP)
    intake.keep({"event": "probe", "probe": asdict(make_probe())}, GROUP)
    intake.keep({"event": "sample", "sample": {}}, GROUP)
    assert spool.waiting() == 3


@pytest.mark.parametrize("field", ["attempt_uid", "job_uid", "run_uid", "host_uid"])
def test_a_record_that_nobody_asked_for_is_refused(spool: Spool, field: str) -> None:
    payload = asdict(make_record(make_job(), attempt_uid="a-1")) | {field: "another"}
    with pytest.raises(StoreError, match="nobody asked this host for it"):
        Intake(spool).keep({"event": "attempt_end", "record": payload}, GROUP)
    assert spool.waiting() == 0


def test_a_probe_that_is_none_is_a_remark(spool: Spool) -> None:
    assert "kind" in (Intake(spool).keep({"event": "probe", "probe": {"kind": 3}}, GROUP).remark or "")
