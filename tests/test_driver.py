from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from orchestrator.driver import Driver
from orchestrator.fleet import Message, Seen
from orchestrator.intake import Intake
from orchestrator.journals import Journals
from orchestrator.order import Expected
from orchestrator.queues import Rules
from orchestrator.spool import Spool
from orchestrator.store import Store
from schema.errors import ClusterError, HostError
from schema.job import Job, Test
from tests.factories import make_failure, make_job, make_run
from tests.scripted_hosts import ScriptedHosts, Story, cut, end_of
from tests.stores import new_store

Messages = Iterator[Message | None]


class Listener:
    """A show that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.total = 0

    def lane(self, host: str) -> "Listener":
        return self

    def more(self, n_jobs: int, expected_seconds: float | None = None) -> None:
        self.total += n_jobs

    def note(self, text: str) -> None:
        self.told.append(text)

    def job_ended(
        self, label: str, rate: float | None, spread: float | None = None, failure: str | None = None
    ) -> None:
        self.told.append(f"{label}: {failure or 'measured'}")

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


@dataclass
class Lab:
    """A store, a spool, and a driver of scripted hosts; `join` is what becomes of a late host."""

    store: Store
    spool: Spool
    show: Listener

    def drive(self, jobs: Sequence[Job], story: Story, *hosts: str, **fields: Any) -> ScriptedHosts:
        """Measure `jobs` as the story goes, and store what came of it."""
        self.store.save_run(make_run(), jobs)
        return self.go_on(story, *hosts, **fields)

    def go_on(self, story: Story, *hosts: str, **fields: Any) -> ScriptedHosts:
        """Measure what is left of the run."""
        intake = Intake(self.spool)
        scripted = ScriptedHosts(intake, story, *hosts)
        journals = Journals(self.store, intake, "run-1", self.show.note)
        driver = Driver(store=self.store, journals=journals, hosts=scripted, run_uid="run-1", show=self.show, **fields)
        driver.take_over()
        self.spool.drain(self.store.save_entries)
        jobs = [(job, 10.0) for job in self.store.remaining_jobs("run-1")]
        try:
            driver.measure(jobs, self.show)
        finally:
            self.spool.drain(self.store.save_entries)
        driver.acknowledge()
        return scripted

    def attempts(self) -> list[tuple[str, str, int, str, bool]]:
        """Return host, test, number, how it ended and whether it is final, of each attempt."""
        with self.store.snapshot() as connection:
            found = connection.exec_driver_sql(
                "select h.host_uid, j.test, a.number, coalesce(a.failure_stage, a.status), a.final from attempt a "
                "join job j on j.id = a.job_id join host h on h.id = j.host_id "
                "order by h.host_uid, j.n_prompt, a.number"
            )
            return [(row[0], row[1], row[2], row[3], bool(row[4])) for row in found]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with Store.open(str(new_store(tmp_path))) as store, Spool.open(tmp_path / "spool.sqlite") as spool:
        yield Lab(store, spool, Listener())


def jobs_of(host: str, n: int) -> list[Job]:
    return [make_job(host_uid=host, test=Test(n_prompt=number + 1, n_gen=0)) for number in range(n)]


def measured(host: str, n: int, number: int = 1) -> tuple[str, str, int, str, bool]:
    return (host, f"pp{n}", number, "measured", True)


def test_two_hosts_measure_side_by_side_and_finish_independently(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        assert set(hosts.started) == {"a", "b"}
        yield hosts.begins("a", 0)
        yield from hosts.whole_group("b")
        yield hosts.ends("a", 0)
        yield hosts.ends("a", 1)
        yield hosts.over("a")

    lab.drive([*jobs_of("a", 2), *jobs_of("b", 1)], story, "a", "b")
    assert lab.attempts() == [measured("a", 1), measured("a", 2), measured("b", 1)]


def test_a_lost_host_that_comes_back_under_another_node_id_goes_on_where_its_journal_ends(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        first = hosts.group("a")
        yield hosts.begins("a", 0)
        del hosts.here["a"]
        yield hosts.seen()
        assert hosts.dropped == ["a"]
        yield hosts.seen()
        assert hosts.asked == []
        hosts.here["a"] = "another-node"
        yield hosts.seen()
        assert hosts.asked == [("a", "settle", ([first.group_uid], False))]
        hosts.journals["a"] = [end_of(first, 0), cut(first, 1)]
        yield hosts.answers()
        assert [each.job.test.name for each in hosts.group("a").assignments] == ["pp2", "pp3"]
        assert [each.number for each in hosts.group("a").assignments] == [2, 1]
        yield from hosts.whole_group("a")

    hosts = lab.drive(jobs_of("a", 3), story, "a")
    assert lab.attempts() == [
        measured("a", 1),
        ("a", "pp2", 1, "interrupted", False),
        measured("a", 2, number=2),
        measured("a", 3),
    ]
    assert hosts.acknowledged == {event["record"]["attempt_uid"] for event in hosts.journals["a"]}


def test_a_worker_that_is_killed_is_asked_at_once_and_the_group_goes_on(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        first = hosts.group("a")
        yield hosts.begins("a", 0)
        yield hosts.over("a", ClusterError("The worker died."))
        yield hosts.seen()
        hosts.journals["a"] = [cut(first, 0)]
        yield hosts.answers()
        yield from hosts.whole_group("a")

    lab.drive(jobs_of("a", 1), story, "a")
    assert lab.attempts() == [("a", "pp1", 1, "interrupted", False), measured("a", 1, number=2)]


def test_a_host_that_still_runs_a_group_that_was_given_up_is_not_given_another(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        yield hosts.over("a", ClusterError("The line was cut."))
        yield hosts.seen()
        yield hosts.answers(HostError("A process of an earlier group still measures."))
        yield hosts.seen()
        assert len(hosts.asked) == 1
        hosts.clock = 3.0
        yield hosts.seen()
        assert len(hosts.asked) == 2
        assert len(hosts.started["a"]) == 1
        yield hosts.answers()
        yield from hosts.whole_group("a")

    lab.drive(jobs_of("a", 1), story, "a")
    assert lab.attempts() == [measured("a", 1)]


def test_a_host_that_stays_away_leaves_a_named_reason_for_each_job_and_the_others_go_on(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        yield hosts.begins("a", 0)
        del hosts.here["a"]
        yield hosts.seen()
        yield from hosts.whole_group("b")
        hosts.clock = 899.0
        yield hosts.seen()
        hosts.clock = 901.0
        yield hosts.seen()
        yield None

    lab.drive([*jobs_of("a", 2), *jobs_of("b", 1)], story, "a", "b")
    assert lab.attempts() == [
        ("a", "pp1", 2, "host lost", True),
        ("a", "pp2", 1, "host lost", True),
        measured("b", 1),
    ]
    (failure, _) = lab.store.failures("run-1")
    assert failure["message"].startswith("The host did not come back within 15 minutes: the head does not reach it")


def test_a_record_that_comes_late_from_a_host_taken_for_lost_counts_once(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        first = hosts.group("a")
        del hosts.here["a"]
        yield hosts.seen()
        yield hosts.ends("a", 0, first)
        hosts.here["a"] = "node-of-a"
        yield hosts.seen()
        hosts.journals["a"] = [end_of(first, 0)]
        yield hosts.answers()
        assert [each.job.test.name for each in hosts.group("a").assignments] == ["pp2"]
        yield from hosts.whole_group("a")

    lab.drive(jobs_of("a", 2), story, "a")
    assert lab.attempts() == [measured("a", 1), measured("a", 2)]


def test_a_host_that_is_killed_at_one_job_again_and_again_fails_that_job_alone(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        for _ in range(3):
            group = hosts.group("a")
            yield hosts.begins("a", 0)
            yield hosts.over("a", ClusterError("The worker died."))
            yield hosts.seen()
            hosts.journals["a"] = [*hosts.journals.get("a", []), cut(group, 0)]
            yield hosts.answers()
        yield from hosts.whole_group("a")

    lab.drive([*jobs_of("a", 2)], story, "a", rules=Rules(tries=3))
    found = lab.attempts()
    assert [row[2:] for row in found if row[1] == "pp1"] == [
        *[(n, "interrupted", False) for n in (1, 2, 3)],
        (4, "host lost", True),
    ]
    assert [row[3] for row in found if row[1] == "pp2"] == ["measured"]


def test_a_head_that_says_nothing_for_half_a_minute_ends_the_run_and_what_is_left_can_be_resumed(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        yield hosts.ends("a", 0)
        hosts.head_silent = 31.0
        yield None

    with pytest.raises(ClusterError, match=r"The Ray head has not answered for 30 s.*tokfleet resume run-1"):
        lab.drive(jobs_of("a", 2), story, "a")
    assert lab.attempts() == [measured("a", 1)]


def test_ctrl_c_cancels_every_group_and_keeps_what_came(lab: Lab) -> None:
    seen: list[ScriptedHosts] = []

    def story(hosts: ScriptedHosts) -> Messages:
        seen.append(hosts)
        yield hosts.ends("a", 0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.drive(jobs_of("a", 2), story, "a")
    assert seen[0].cancelled
    assert lab.attempts() == [measured("a", 1)]


def test_a_host_that_comes_late_gets_its_share(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        hosts.here["late"] = "node"
        yield hosts.seen()
        yield hosts.answers()
        assert hosts.asked[-1][1:] == ("describe", ("words",))
        yield hosts.answers("what it says of itself")
        yield from hosts.whole_group("late")
        yield from hosts.whole_group("a")

    def join(label: str, answer: Any) -> Sequence[Expected]:
        assert (label, answer) == ("late", "what it says of itself")
        jobs = jobs_of("late", 2)
        lab.store.save_run(make_run(), jobs)
        return [(job, 1.0) for job in jobs]

    lab.drive(jobs_of("a", 1), story, "a", join=join, join_words=("words",), planned=frozenset({"a"}))
    assert lab.attempts() == [measured("a", 1), measured("late", 1), measured("late", 2)]
    assert lab.show.total == 2


def test_a_late_host_that_can_have_no_share_is_named_and_the_run_goes_on(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        hosts.here["late"] = "node"
        yield hosts.seen()
        yield hosts.answers()
        yield hosts.answers("nonsense")
        yield from hosts.whole_group("a")

    def join(label: str, answer: Any) -> Sequence[Expected]:
        raise HostError("It speaks in riddles.")

    lab.drive(jobs_of("a", 1), story, "a", join=join, planned=frozenset({"a"}))
    assert "box-late, which came late, does nothing in this run: It speaks in riddles." in lab.show.told


def test_jobs_of_a_host_that_is_not_there_stay_to_be_done_and_are_said(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        yield from hosts.whole_group("a")

    lab.drive([*jobs_of("a", 1), *jobs_of("away", 3)], story, "a")
    assert lab.attempts() == [measured("a", 1)]
    assert len(lab.store.remaining_jobs("run-1")) == 3
    assert "3 jobs are of hosts that are not in the cluster; they begin when those come." in lab.show.told


def test_what_dead_drivers_left_in_journals_is_taken_over_first_and_measured_no_more(lab: Lab) -> None:
    groups = []

    def first(hosts: ScriptedHosts) -> Messages:
        groups.append(hosts.group("a"))
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        lab.drive(jobs_of("a", 3), first, "a")

    def second(hosts: ScriptedHosts) -> Messages:
        assert [each.job.test.name for each in hosts.group("a").assignments] == ["pp2", "pp3"]
        yield from hosts.whole_group("a")

    intake = Intake(lab.spool)
    scripted = ScriptedHosts(intake, second, "a")
    scripted.journals["a"] = [end_of(groups[0], 0), cut(groups[0], 1)]
    journals = Journals(lab.store, intake, "run-1", lab.show.note)
    driver = Driver(store=lab.store, journals=journals, hosts=scripted, run_uid="run-1", show=lab.show)
    driver.take_over()
    lab.spool.drain(lab.store.save_entries)
    driver.measure([(job, 1.0) for job in lab.store.remaining_jobs("run-1")], lab.show)
    lab.spool.drain(lab.store.save_entries)
    assert [row for row in lab.attempts() if row[4]] == [
        measured("a", 1),
        measured("a", 2, number=2),
        measured("a", 3),
    ]


def test_on_one_machine_its_own_fault_and_the_end_of_its_ray_end_the_run(lab: Lab) -> None:
    def full(hosts: ScriptedHosts) -> Messages:
        yield hosts.over("a", HostError("The journal cannot be written: No space left on device."))

    with pytest.raises(HostError, match="No space left"):
        lab.drive(jobs_of("a", 1), full, "a", is_local=True)

    def gone(hosts: ScriptedHosts) -> Messages:
        yield Seen(members=())

    with pytest.raises(ClusterError, match="Ray on this machine has ended"):
        lab.go_on(gone, "a", is_local=True)


def test_a_failed_job_is_a_row_and_is_not_tried_again(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        yield hosts.ends("a", 0, failure=make_failure(stage="decode"))
        yield hosts.over("a")

    lab.drive(jobs_of("a", 1), story, "a")
    assert lab.attempts() == [("a", "pp1", 1, "decode", True)]


def test_a_disturbed_result_is_measured_again_and_both_rows_are_kept(lab: Lab) -> None:
    def story(hosts: ScriptedHosts) -> Messages:
        yield hosts.ends("a", 0, quality="contended")
        yield hosts.over("a")
        yield from hosts.whole_group("a")

    lab.drive(jobs_of("a", 1), story, "a", rules=Rules(contended_tries=2))
    assert [row[:4] for row in lab.attempts()] == [("a", "pp1", 1, "measured"), ("a", "pp1", 2, "measured")]
    assert sum(row[4] for row in lab.attempts()) == 1
