"""What holds this machine, and which job that is at, without disturbing it."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from schema.job import Assignment, Group, ModelRef, Test
from tests.factories import make_job
from worker.busy import Busy, busy
from worker.journal import Journal
from worker.lock import HostLock, peek

GROUP = "0123456789abcdef" * 2
JOBS = (make_job(), make_job(test=Test(n_prompt=0, n_gen=128)))


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "host.lock"


def journal(home: Path, *events: dict[str, object]) -> None:
    group = Group(
        group_uid=GROUP,
        assignments=tuple(Assignment(job=job, attempt_uid=f"attempt-{n}") for n, job in enumerate(JOBS)),
    )
    with Journal(home, GROUP) as book:
        book.write({"event": "group", "group": asdict(group)})
        for event in events:
            book.write(event)


def start(n: int) -> dict[str, object]:
    return {"event": "attempt_start", "attempt_uid": f"attempt-{n}", "started_at": f"2026-01-02T03:0{n}:00Z"}


def test_a_machine_that_nobody_holds_is_free_and_asking_makes_no_file(tmp_path: Path, lock: Path) -> None:
    assert busy(tmp_path, lock) is None
    assert peek(lock) is None
    assert not lock.exists()


def test_asking_neither_takes_the_lock_nor_keeps_it(lock: Path) -> None:
    with HostLock(lock, "a sweep").acquire():
        assert str(peek(lock).what) == "a sweep"  # type: ignore[union-attr]
    assert peek(lock) is None
    with HostLock(lock).acquire():
        assert peek(lock) is not None


def test_a_group_says_the_job_that_it_is_at_and_since_when(tmp_path: Path, lock: Path) -> None:
    journal(tmp_path, start(0), start(1))
    with HostLock(lock, f"tokfleet group {GROUP}").acquire():
        found = busy(tmp_path, lock)
    assert found is not None
    assert (found.job, found.since, found.run_uid) == ("tiny:Q4_K_M tg128", "2026-01-02T03:01:00Z", "run-1")


def test_a_group_that_loads_its_model_says_its_first_job(tmp_path: Path, lock: Path) -> None:
    journal(tmp_path)
    with HostLock(lock, f"tokfleet group {GROUP}").acquire() as held:
        found = busy(tmp_path, lock)
        assert found is not None
        assert (found.job, found.since) == ("tiny:Q4_K_M pp512", peek(lock).since)  # type: ignore[union-attr]
        assert held is not None


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no json\n",
        b"[1]\n",
        b'{"event": "group", "group": 7}\n',
        b'{"event": "group", "group": {"group_uid": "x", "assignments": []}}\n',
        b'{"event": "attempt_start"}\n',
        json.dumps({"event": "attempt_start", "attempt_uid": "stranger"}).encode() + b"\n",
    ],
)
def test_a_journal_that_tells_nothing_leaves_who_holds_the_machine(tmp_path: Path, lock: Path, content: bytes) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / f"{GROUP}.jsonl").write_bytes(content)
    with HostLock(lock, f"tokfleet group {GROUP}").acquire():
        found = busy(tmp_path, lock)
    assert found is not None
    assert found.job is None
    assert f"tokfleet group {GROUP}" in found.holder


def test_another_program_that_holds_the_machine_is_named(tmp_path: Path, lock: Path) -> None:
    with HostLock(lock, "tokfleet probe").acquire():
        found = busy(tmp_path, lock)
    assert isinstance(found, Busy)
    assert found.holder.endswith("tokfleet probe")


def test_a_job_is_called_by_its_model_its_test_and_what_is_not_usual() -> None:
    model = ModelRef(source="path", spec="/srv/models/a b.gguf", identity="sha256:0")
    assert make_job(model=model, build="fork").label == "a b.gguf pp512 build=fork"
