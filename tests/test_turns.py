"""Jobs of one process take their repetitions in turn; whose failure ends it is one's fault, and costs one result."""

import dataclasses
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from schema.host import Fingerprint
from schema.job import ROUND_JOBS, Assignment, Group, ModelRef, Test
from schema.record import Sample
from tests.command import Command
from tests.fakes import FakeClock, FakeEngine
from tests.measuring import measure
from tests.supervised import BOTH, DECODE, PREFILL, group_of, python_that, records, supervise
from worker.measure import start
from worker.recovery import recover
from worker.run import turns
from worker.supervisor import Supervisor


def interleaved(group: Group, *alone: int) -> Group:
    """Return the group with all jobs interleaved but those of the numbers `alone`."""
    made = tuple(
        dataclasses.replace(each, job=dataclasses.replace(each.job, interleaved=number not in alone))
        for number, each in enumerate(group.assignments)
    )
    return dataclasses.replace(group, assignments=made)


def order(events: list[dict[str, Any]]) -> list[str]:
    """Return the samples in the order in which they came, as attempt and repetition, and the ends of attempts."""
    found = []
    for event in events:
        if event["event"] == "sample":
            found.append(f"{event['attempt_uid'][-1]}{event['sample']['repetition']}")
        elif event["event"] == "attempt_end":
            found.append(f"end {event['record']['attempt_uid'][-1]}")
    return found


def test_every_job_has_its_turn_before_the_next_repetition_and_the_direction_alternates(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    events = supervise(interleaved(group_of(model, PREFILL, DECODE, BOTH)), fingerprint, tmp_path, standin_python)
    assert order(events) == ["01", "11", "21", "22", "12", "02", "03", "end 0", "13", "end 1", "23", "end 2"]
    found = records(events)
    assert [record.status for record in found] == ["measured"] * 3
    assert [[sample.repetition for sample in record.samples] for record in found] == [[1, 2, 3]] * 3
    assert len({record.placement.child_pid for record in found if record.placement}) == 1
    assert {sample.n_tokens for sample in found[2].samples} == {12}
    assert found[1].latency is not None
    assert sum(found[1].latency.histogram) == 12


def test_jobs_that_take_no_turns_are_measured_alone_among_those_that_do(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    group = interleaved(group_of(model, PREFILL, DECODE, BOTH, PREFILL, repetitions=2), 2)
    found = order(supervise(group, fingerprint, tmp_path, standin_python))
    assert found == ["01", "11", "12", "end 1", "02", "end 0", "21", "22", "end 2", "31", "32", "end 3"]


def assignments(*flags: bool) -> list[Assignment]:
    model = ModelRef(source="path", spec="/m", identity="sha256:0")
    group = interleaved(group_of(model, *[PREFILL] * len(flags)), *[n for n, flag in enumerate(flags) if not flag])
    return list(group.assignments)


@pytest.mark.parametrize(
    ("flags", "sizes"),
    [
        ([False, False], [1, 1]),
        ([True, True], [2]),
        ([True] * ROUND_JOBS, [ROUND_JOBS]),
        ([True] * (ROUND_JOBS + 1), [5, 4]),
        ([True] * 17, [6, 6, 5]),
        ([False, True, True, False, True], [1, 2, 1, 1]),
        ([], []),
    ],
)
def test_turns_are_taken_by_eight_at_most_in_parts_of_about_the_same_size(flags: list[bool], sizes: list[int]) -> None:
    given = assignments(*flags)
    parts = list(turns(given))
    assert [len(part) for part in parts] == sizes
    assert [each for part in parts for each in part] == given


@pytest.mark.parametrize("fault", ["abort", "kill", "exit7", "garbage", "decode1", "oom"])
@pytest.mark.parametrize("place", ["warmup", "decode:1", "decode:2", "decode:3"])
def test_one_is_to_blame_and_those_that_took_turns_are_still_to_be_done(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str, fault: str, place: str
) -> None:
    group = interleaved(group_of(model, PREFILL, DECODE, BOTH))
    found = records(supervise(group, fingerprint, tmp_path, standin_python, f"{fault}@{place}#4"))
    kinds = {record.attempt_uid: record.failure.kind if record.failure else "measured" for record in found}
    assert sorted(kinds) == sorted({record.attempt_uid for record in found})
    assert kinds["attempt-1"] not in ("measured", "interrupted")
    if place == "decode:3":  # the first had its last turn before
        assert (kinds["attempt-0"], kinds["attempt-2"]) == ("measured", "interrupted")
    elif place == "warmup":  # the third had not begun: a new process measures it
        assert (kinds["attempt-0"], kinds["attempt-2"]) == ("interrupted", "measured")
    else:
        assert (kinds["attempt-0"], kinds["attempt-2"]) == ("interrupted", "interrupted")
    cut = [record.failure.message for record in found if record.failure and record.failure.kind == "interrupted"]
    assert all("still to be done" in message for message in cut)


def test_an_illegal_instruction_ends_all_of_them_for_good(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    group = interleaved(group_of(model, PREFILL, DECODE, BOTH, PREFILL), 3)
    found = records(supervise(group, fingerprint, tmp_path, standin_python, "sigill@decode:2#4"))
    failures = [record.failure for record in found]
    assert len(found) == len({record.attempt_uid for record in found}) == 4
    assert all(failure is not None and failure.signal == "SIGILL" for failure in failures)
    assert sum("Not tried" in failure.message for failure in failures if failure) == 3


def test_the_limit_of_a_job_counts_its_own_turns_only(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKFLEET_STANDIN_TOKEN_SECONDS", "0.04")
    slow = Test(n_prompt=0, n_gen=8)
    group = interleaved(group_of(model, slow, slow, slow, slow, timeout_seconds=4.0))
    begun = time.monotonic()
    found = records(supervise(group, fingerprint, tmp_path, standin_python))
    assert time.monotonic() - begun > 4.0
    assert [record.status for record in found] == ["measured"] * 4


def test_a_hang_is_ended_at_the_limit_and_named_with_its_job(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    group = interleaved(group_of(model, PREFILL, DECODE, timeout_seconds=8.0))
    by_uid = {
        r.attempt_uid: r for r in records(supervise(group, fingerprint, tmp_path, standin_python, "hang@decode:2"))
    }
    blamed, cut = by_uid["attempt-1"].failure, by_uid["attempt-0"].failure
    assert blamed is not None
    assert cut is not None
    assert (blamed.kind, blamed.stage, cut.kind) == ("timeout", "decode", "interrupted")
    assert len(by_uid["attempt-1"].samples) == 1


def test_what_a_killed_supervisor_had_open_is_recovered_attempt_by_attempt(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    group = interleaved(group_of(model, PREFILL, DECODE))
    events = Supervisor(group=group, fingerprint=fingerprint, home=tmp_path, python=standin_python).run()
    for event in events:
        if event["event"] == "sample" and event["sample"]["repetition"] == 2:
            break
    events.close()  # type: ignore[attr-defined]
    first, second = sorted(records(list(recover(tmp_path))), key=lambda record: record.attempt_uid)
    assert first.failure is not None
    assert second.failure is not None
    assert (first.failure.kind, second.failure.kind) == ("interrupted", "interrupted")
    assert (len(first.samples), len(second.samples)) == (1, 2)


LIAR = """
assignments = json.loads(sys.stdin.readline())["assignments"]
for assignment in assignments:
    tell(event="attempt_start", attempt_uid=assignment["attempt_uid"])
    sys.stdin.readline()
tell(event="stage", stage="decode", attempt_uid="nobody")
time.sleep(60)
"""


def test_an_event_of_an_attempt_that_is_not_open_is_not_believed(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path
) -> None:
    group = interleaved(group_of(model, PREFILL, DECODE, timeout_seconds=50))
    supervisor = Supervisor(group=group, fingerprint=fingerprint, home=tmp_path, python=python_that(tmp_path, LIAR))
    found = {record.attempt_uid: record.failure for record in records(list(supervisor.run()))}
    assert found["attempt-1"] is not None
    assert "KeyError('nobody')" in found["attempt-1"].message
    assert found["attempt-0"] is not None
    assert found["attempt-0"].kind == "interrupted"


def test_a_repetition_in_turn_is_timed_as_one_alone() -> None:
    test = Test(n_prompt=130, n_gen=3)
    alone: list[Sample] = []
    engine = FakeEngine(FakeClock())
    measure(engine, test, 3, 7, engine.clock, lambda _: None, alone.append, engine.clock, 1)
    other = FakeEngine(FakeClock())
    ready = start(other, test, 7, other.clock, lambda _: None, other.clock, 1)
    found = []
    for repetition in (1, 2, 3):
        other.log.clear()
        ready.wake()
        assert other.log == ["clear", "process 1"]
        found.append(ready.repeat(repetition))
    assert found == alone
    assert ready.stage == "prefill"


SWEEP = """
name: in turn
models: [{synthetic: "test-tiny:Q8_0"}]
tests: {n_prompt: [8, 16], n_gen: [4, 6]}
order: interleaved
repeat: 3
"""


@pytest.fixture
def command(tmp_path: Path, standin_python: str) -> Command:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return Command(tmp_path / "home", standin_python)


@pytest.mark.ray
def test_a_run_measures_those_again_whose_process_another_ended(command: Command, tmp_path: Path) -> None:
    end = command.run("run", str(tmp_path / "sweep.yaml"), TOKFLEET_FAULT="abort@decode:2#6")
    assert end.returncode == 3, end.stderr
    (failure,) = command.rows("select test, failure_kind, n_samples from failures where final")
    assert (failure["test"], failure["failure_kind"], failure["n_samples"]) == ("tg6", "abort", 1)
    rows = command.rows("select test, n_samples, interleaved, attempt_number from results order by test")
    assert [(row["test"], row["n_samples"], row["interleaved"]) for row in rows] == [
        ("pp16", 3, 1),
        ("pp8", 3, 1),
        ("tg4", 3, 1),
    ]
    assert {row["attempt_number"] for row in rows} == {2}
    cut = command.rows("select final from attempt where failure_kind = 'interrupted'")
    assert [row["final"] for row in cut] == [0, 0, 0]
    assert "[4/4]" in end.stderr


@pytest.mark.ray
def test_ctrl_c_and_resume_take_turns_again(command: Command, tmp_path: Path) -> None:
    running = command.start("run", str(tmp_path / "sweep.yaml"), TOKFLEET_FAULT="hang@decode:2#6")
    deadline = time.monotonic() + 60
    while not _journalled(command.home):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    assert command.run("resume").returncode == 0
    rows = command.rows("select test, n_samples, interleaved from results")
    assert sorted((row["test"], row["n_samples"], row["interleaved"]) for row in rows) == [
        ("pp16", 3, 1),
        ("pp8", 3, 1),
        ("tg4", 3, 1),
        ("tg6", 3, 1),
    ]


def _journalled(home: Path) -> bool:
    """Return whether the journal holds the first repetition of all four jobs."""
    return any(path.read_text().count('"event":"sample"') >= 4 for path in (home / "journal").glob("*.jsonl"))


ACROSS = """
models: [{synthetic: "test-tiny:Q8_0"}]
tests: {n_prompt: [NUMBERS]}
builds: [default, other]
across: builds
rounds: 2
repeat: 1
"""

PAIRED = """
select a.test, count(*) n, avg(b.avg_ts / a.avg_ts) ratio
from results a join results b using (run_uid, test, model_identity, replica)
where a.asked_build = 'default' and b.asked_build = 'other' group by a.test order by a.test
"""


@pytest.mark.ray
def test_builds_alternate_in_processes_of_their_own_and_sql_pairs_their_rounds(
    tmp_path: Path, standin_python: str
) -> None:
    numbers = ", ".join(str(n) for n in range(1, 41))
    (tmp_path / "sweep.yaml").write_text(ACROSS.replace("NUMBERS", numbers))
    command = Command(tmp_path / "home", standin_python)
    assert command.run("build", "add", "other", "--python", standin_python).returncode == 0
    end = command.run("run", str(tmp_path / "sweep.yaml"))
    assert end.returncode == 0, end.stderr
    assert "builds alternate in blocks" in end.stderr
    rows = command.rows("select asked_build, replica, across, test from results order by test_time")
    assert [(row["asked_build"], row["replica"]) for row in rows[::40]] == [
        ("default", 0),
        ("other", 0),
        ("other", 1),
        ("default", 1),
    ]
    assert command.rows("select count(distinct child_pid) n from attempt") == [{"n": 4}]
    assert {row["across"] for row in rows} == {"builds"}
    paired = command.rows(PAIRED)
    assert (len(paired), {row["n"] for row in paired}) == (40, {2})
