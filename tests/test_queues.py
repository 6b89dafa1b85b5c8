from collections.abc import Iterable

from orchestrator.order import Expected
from orchestrator.queues import Queues, Rules
from schema.job import Job, ModelRef, Test
from tests.factories import make_job


def jobs_of(host: str, n: int, seconds: float = 10.0, model: str = "m", **fields: object) -> list[Expected]:
    """Return jobs on a host with one model, each with another length of prompt."""
    ref = ModelRef(source="synthetic", spec=model, identity=f"synthetic:{model}:0:1")
    made = [
        make_job(host_uid=host, model=ref, test=Test(n_prompt=number + 1, n_gen=0), **fields) for number in range(n)
    ]
    return [(job, seconds) for job in made]


def queues_of(*jobs: Iterable[Expected], rules: Rules | None = None, here: bool = True) -> Queues:
    found = Queues(rules)
    for some in jobs:
        listed = list(some)
        found.add(listed)
        if here:
            for uid in {job.host_uid for job, _ in listed}:
                found.came(uid, 0.0)
    return found


def started(queues: Queues, now: float = 0.0) -> dict[str, list[str]]:
    """Return the tests that each host begins now."""
    return {start.host_uid: [job.test.name for job in start.jobs] for start in queues.starts(now)}


def finish(queues: Queues, host: str, jobs: Iterable[Job]) -> None:
    for job in jobs:
        queues.finished(job.job_uid, host)
    queues.ended(host)


def test_each_host_has_one_group_in_flight_and_the_next_when_that_has_ended() -> None:
    queues = queues_of(jobs_of("a", 60), jobs_of("b", 1))
    (a, b) = queues.starts(0)
    assert (len(a.jobs), len(b.jobs)) == (50, 1)
    assert not list(queues.starts(1))
    finish(queues, "a", a.jobs)
    (rest,) = queues.starts(2)
    assert (rest.host_uid, len(rest.jobs)) == ("a", 10)
    finish(queues, "b", b.jobs)
    assert not queues.over(3)
    finish(queues, "a", rest.jobs)
    assert queues.over(3)


def test_a_group_is_cut_at_about_ten_minutes() -> None:
    (start,) = queues_of(jobs_of("a", 10, seconds=250.0)).starts(0)
    assert len(start.jobs) == 2


def test_what_shares_a_model_stays_together_and_the_longest_comes_first() -> None:
    small, large = jobs_of("a", 2, 1.0, "small"), jobs_of("a", 2, 100.0, "large")
    queues = queues_of([small[0], large[0], small[1], large[1]])
    (first,) = queues.starts(0)
    assert {job.model.spec for job in first.jobs} == {"large"}
    finish(queues, "a", first.jobs)
    (second,) = queues.starts(0)
    assert {job.model.spec for job in second.jobs} == {"small"}


def test_what_alternates_in_blocks_keeps_its_order() -> None:
    blocks = [
        (job, seconds)
        for name, seconds in (("small", 1.0), ("large", 100.0), ("large", 100.0), ("small", 1.0))
        for job, _ in jobs_of("a", 1, seconds, name, across="models", replica=0 if name == "small" else 1)
    ]
    (first,) = queues_of(blocks).starts(0)
    assert first.jobs[0].model.spec == "small"


def test_a_group_of_hosts_measures_only_as_many_at_once_as_its_limit_says_the_longest_first() -> None:
    rules = Rules(limits={"circuit": 2}, groups_of=dict.fromkeys("abc", ("circuit",)))
    queues = queues_of(jobs_of("a", 1, 5), jobs_of("b", 1, 50), jobs_of("c", 1, 20), jobs_of("d", 1, 1), rules=rules)
    begun = list(queues.starts(0))
    assert sorted(start.host_uid for start in begun) == ["b", "c", "d"]
    assert not list(queues.starts(1))
    finish(queues, "c", next(start.jobs for start in begun if start.host_uid == "c"))
    assert [start.host_uid for start in queues.starts(2)] == ["a"]


def test_a_host_in_two_groups_waits_for_both() -> None:
    rules = Rules(limits={"x": 1, "y": 1}, groups_of={"a": ("x",), "b": ("x", "y"), "c": ("y",)})
    queues = queues_of(jobs_of("a", 1, 9), jobs_of("b", 1, 5), jobs_of("c", 1, 7), rules=rules)
    begun = {start.host_uid: start.jobs for start in queues.starts(0)}
    assert set(begun) in ({"a", "c"}, {"b"})
    for host, jobs in begun.items():
        finish(queues, host, jobs)
    assert set(started(queues)) == {"a", "b", "c"} - set(begun)


def test_a_lost_hosts_limit_is_free_for_another() -> None:
    rules = Rules(limits={"x": 1}, groups_of={"a": ("x",), "b": ("x",)})
    queues = queues_of(jobs_of("a", 1, 9), jobs_of("b", 1, 5), rules=rules)
    assert set(started(queues)) == {"a"}
    queues.lost("a", 1.0, "cut")
    assert set(started(queues, 1)) == {"b"}


def test_a_job_that_was_cut_comes_first_when_the_host_is_back_and_not_before() -> None:
    queues = queues_of(jobs_of("a", 60))
    (start,) = queues.starts(0)
    for job in start.jobs[:10]:
        queues.finished(job.job_uid, "a")
    queues.lost("a", 5.0, "the network", begun={job.job_uid for job in start.jobs[:11]})
    assert not list(queues.starts(6))
    assert not queues.over(6)
    queues.came("a", 7.0)
    (again,) = queues.starts(7)
    assert [job.job_uid for job in again.jobs[:40]] == [job.job_uid for job in start.jobs[10:]]


def test_a_job_that_is_cut_each_time_is_given_up_and_the_others_go_on() -> None:
    queues = queues_of(jobs_of("a", 3), rules=Rules(tries=3))
    for n in range(3):
        (start,) = queues.starts(n)
        queues.finished(start.jobs[0].job_uid if n == 0 else "none", "a")
        bad = start.jobs[1 if n == 0 else 0]
        queues.lost("a", n, "the worker was killed", begun={bad.job_uid})
        queues.came("a", n)
        if n < 2:
            assert queues.given_up(n) == []
    (given_up,) = queues.given_up(3)
    assert given_up.job == bad
    assert given_up.reason == "It was begun 3 times and cut each time: the worker was killed"
    (rest,) = queues.starts(3)
    assert len(rest.jobs) == 1


def test_a_host_that_ends_group_after_group_with_nothing_is_given_up() -> None:
    queues = queues_of(jobs_of("a", 2), rules=Rules(tries=3))
    for n in range(3):
        assert len(list(queues.starts(n))) == 1
        queues.lost("a", n, "the disk is full")
        queues.came("a", n)
    assert [each.reason for each in queues.given_up(3)] == [
        "The host ended 3 groups without any result: the disk is full"
    ] * 2
    assert queues.over(4)


def test_a_lost_host_is_waited_for_and_then_given_up() -> None:
    queues = queues_of(jobs_of("a", 2), jobs_of("b", 1), rules=Rules(wait_seconds=600))
    for start in list(queues.starts(0)):
        if start.host_uid == "b":
            finish(queues, "b", start.jobs)
    queues.lost("a", 10.0, "it was cut off.")
    queues.lost("a", 500.0, "it is still cut off.")
    assert queues.given_up(609.0) == []
    assert not queues.over(609.0)
    given_up = queues.given_up(610.0)
    assert len(given_up) == 2
    assert given_up[0].reason == "The host did not come back within 10 minutes: it is still cut off."
    assert queues.over(611.0)


def test_what_the_hosts_journal_had_is_not_measured_again() -> None:
    made = jobs_of("a", 3)
    queues = queues_of(made)
    list(queues.starts(0))
    queues.lost("a", 1.0, "cut")
    queues.finished(made[0][0].job_uid, "a")
    queues.came("a", 2.0)
    assert started(queues, 2) == {"a": ["pp2", "pp3"]}


def test_a_host_that_never_came_is_not_waited_for_and_begins_when_it_comes() -> None:
    queues = queues_of(jobs_of("a", 1), here=False)
    assert queues.over(0)
    assert queues.waiting() == {"a": 1}
    queues.came("a", 1.0)
    assert not queues.over(1)
    assert set(started(queues, 1)) == {"a"}


def test_a_late_host_gets_its_share_and_a_job_that_is_known_is_not_added_twice() -> None:
    made = jobs_of("a", 2)
    queues = queues_of(made, jobs_of("b", 1))
    queues.add(made)
    queues.add(jobs_of("late", 4))
    assert {host: len(jobs) for host, jobs in started(queues).items()} == {"a": 2, "b": 1}
    queues.came("late", 5.0)
    assert {host: len(jobs) for host, jobs in started(queues, 5).items()} == {"late": 4}


def test_jobs_that_took_turns_with_a_failed_one_come_next_and_are_left_when_nothing_ended() -> None:
    queues = queues_of(jobs_of("a", 3, interleaved=True))
    (start,) = queues.starts(0)
    queues.finished(start.jobs[0].job_uid, "a")
    queues.ended("a")
    (again,) = queues.starts(1)
    assert again.jobs == start.jobs[1:]
    queues.ended("a")
    assert queues.over(2)
    assert queues.given_up(2) == []


def test_a_drained_host_begins_nothing_and_is_not_waited_for() -> None:
    queues = queues_of(jobs_of("a", 1), jobs_of("b", 1))
    queues.hold("a", wait=False)
    assert set(started(queues)) == {"b"}
    assert queues.waiting() == {"a": 1}
    queues.release("a")
    assert set(started(queues)) == {"a"}


def test_a_closed_window_is_waited_for_and_its_end_cuts_the_group() -> None:
    queues = queues_of(jobs_of("a", 10, seconds=60.0))
    queues.hold("a", wait=True)
    assert not started(queues)
    assert not queues.over(0)
    queues.release("a", until=200.0)
    assert len(started(queues, 20.0)["a"]) == 3
    queues.ended("a")
    assert not started(queues, 201.0)


def test_after_the_last_hour_nothing_begins_and_what_is_in_flight_ends() -> None:
    queues = queues_of(jobs_of("a", 100, seconds=60.0), rules=Rules(seconds=300))
    (start,) = queues.starts(0)
    assert len(start.jobs) == 5
    assert not queues.over(301)
    finish(queues, "a", start.jobs)
    assert not list(queues.starts(301))
    assert queues.over(301)
    assert queues.given_up(301) == []


def test_a_contended_result_is_measured_again_at_the_end_as_often_as_the_rules_say() -> None:
    queues = queues_of(jobs_of("a", 2), rules=Rules(contended_tries=1))
    (start,) = queues.starts(0)
    assert queues.finished(start.jobs[0].job_uid, "a", contended=True)
    queues.finished(start.jobs[1].job_uid, "a")
    queues.ended("a")
    (again,) = queues.starts(1)
    assert again.jobs == start.jobs[:1]
    assert not queues.finished(again.jobs[0].job_uid, "a", contended=True)
    queues.ended("a")
    assert queues.over(2)
