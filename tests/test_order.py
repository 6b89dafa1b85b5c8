"""Blocks that alternate come A B B A, each in a process of its own, where loading again is not too dear."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.fit import KnownModel
from orchestrator.order import Cost, family, groups, in_rounds, too_dear
from orchestrator.plan import Plan, make_plan
from orchestrator.plan_text import render_plan
from schema.host import Build, Fingerprint
from schema.job import ROUND_JOBS, Job, ModelRef, Test
from schema.settings import Settings
from schema.sweep import parse_sweep
from tests.factories import make_build, make_fingerprint, make_hardware, make_job
from worker.models import describe, reference

CPU = make_build(devices=("CPU",))
BENCH = make_build(binding="llama-bench 7012", method="llama-bench", devices=("CPU",))
LONG = "tests: {n_prompt: [512, 1024], n_gen: 256}\nrepeat: 50\n"


def host(**hardware: Any) -> Fingerprint:
    return make_fingerprint(build=CPU, hardware=make_hardware(gpus=(), **hardware))


def plan(text: str, models: int = 1, builds: tuple[str, ...] = ("default",), **options: Any) -> Plan:
    """Return the plan of `text` for models of one shape; builds called `bench` are llama-benches."""
    names = [f"/m/{'abc'[n]}.gguf" for n in range(models)]
    sizes = describe(reference("synthetic", "llama-3.2-1b:Q4_K_M", Path("/")))
    known = {
        name: KnownModel(ref=ModelRef(source="path", spec=name, identity=f"sha256:{name}"), sizes=sizes)
        for name in names
    }
    head = "models: [" + ", ".join(f"{{path: {name}}}" for name in names) + "]\n"
    sweep = parse_sweep(f"{head}builds: [{', '.join(builds)}]\n{text}", "f.yaml", Path("/m"))
    machine = options.pop("host", None) or host()
    offered: dict[str, Build | str] = {name: BENCH if name == "bench" else CPU for name in builds}
    return make_plan(sweep, [machine], known, "run-1", builds={machine.host_uid: offered}, **options)


def blocks(made: Plan) -> list[str]:
    """Return each group of the plan as its model, build and round."""
    found = []
    for group in groups(made.jobs):
        (one,) = {(job.model.spec[3], job.build, job.replica) for job in group}
        found.append(f"{one[0]} {one[1]} {one[2]}")
    return found


def test_builds_alternate_in_blocks_of_a_process_each() -> None:
    made = plan(f"across: builds\n{LONG}", builds=("default", "last"))
    assert blocks(made) == ["a default 0", "a last 0", "a last 1", "a default 1"]
    assert {job.across for job in made.jobs} == {"builds"}
    assert (made.n_jobs, made.n_asked, len({job.job_uid for job in made.jobs})) == (12, 12, 12)
    assert [job.test.name for job in made.jobs[:3]] == ["pp512", "pp1024", "tg256"]
    assert made.notes == ("Each job comes 2 times: builds alternate in blocks, a process each (A B B A).",)
    text = "\n".join(render_plan(made))
    assert "round=2 build=last" in text
    assert made.notes[0] in text


def test_models_alternate_within_each_build_and_builds_within_each_model() -> None:
    two = ("default", "last")
    models = plan(f"across: models\nrounds: 3\n{LONG}", models=2, builds=two)
    assert blocks(models) == [
        f"{model} {build} {number}" for build in two for model, number in zip("abbaab", "001122", strict=True)
    ]
    builds = plan(f"across: builds\n{LONG}", models=2, builds=two)
    assert [block[:-2] for block in blocks(builds)] == [
        f"{model} {build}" for model in "ab" for build in ("default", "last", "last", "default")
    ]
    both = plan(f"across: [builds, models]\n{LONG}", models=2, builds=two)
    assert [block[:-2] for block in blocks(both)][:4] == ["a default", "b default", "a last", "b last"]
    assert [block[:-2] for block in blocks(both)][4:] == ["b last", "a last", "b default", "a default"]
    assert {job.across for job in both.jobs} == {"models+builds"}


def test_blocks_that_differ_in_what_is_loaded_alternate_each_for_itself() -> None:
    made = plan(f"across: builds\nparams: {{mmap: [on, off]}}\n{LONG}", builds=("default", "last"))
    parts = groups(made.jobs)
    assert [(part[0].settings.load_mode, part[0].build, part[0].replica) for part in parts] == [
        (mode, build, number)
        for mode in ("mmap", "none")
        for build, number in (("default", 0), ("last", 0), ("last", 1), ("default", 1))
    ]


def test_one_build_alone_is_measured_against_itself_in_new_processes() -> None:
    made = plan(f"across: builds\nrounds: 4\n{LONG}")
    assert blocks(made) == ["a default 0", "a default 1", "a default 2", "a default 3"]


def test_where_loading_again_is_too_dear_the_rounds_follow_one_another_and_the_plan_says_so() -> None:
    made = plan("across: builds\ntests: {n_prompt: 8}\nrepeat: 1\n", builds=("default", "last"))
    assert [(job.build, job.replica, job.across) for job in made.jobs] == [
        ("default", 0, None),
        ("default", 1, None),
        ("last", 0, None),
        ("last", 1, None),
    ]
    assert [len(group) for group in groups(made.jobs)] == [2, 2]
    (note,) = made.notes
    assert note.startswith("box-a, /m/a.gguf: builds do not alternate but follow one another, since loading again")
    text = "\n".join(render_plan(made))
    assert "% of the measured time; each job comes 2 times all the same." in text


def test_alternating_costs_a_load_for_each_round_and_the_estimate_knows() -> None:
    once = plan(LONG, builds=("default", "last"))
    twice = plan(f"across: builds\n{LONG}", builds=("default", "last"))
    assert twice.seconds == pytest.approx(2 * once.seconds)
    cheap = "tests: {n_prompt: 8}\nrepeat: 1\n"
    assert plan(f"across: builds\n{cheap}").seconds < 2 * plan(cheap).seconds


def test_what_is_skipped_is_counted_for_each_round() -> None:
    made = plan(f"across: builds\nrounds: 3\n{LONG}", builds=("default", "last"), job_limit=None)
    short = plan("across: builds\nrounds: 3\ntests: {n_gen: 8, n_depth: [0, 200000]}\n", builds=("default", "last"))
    assert (made.n_asked, made.n_jobs) == (18, 18)
    assert short.n_asked == short.n_jobs + sum(item.n_jobs for item in short.skipped) == 12


def test_only_the_count_is_made_above_the_limit() -> None:
    made = plan(f"across: builds\n{LONG}", builds=("default", "last"), job_limit=11)
    assert (made.n_jobs, made.jobs, made.is_complete) == (12, (), False)


def cost(build: str, model: str = "m", measured: float = 100.0, load: float = 10.0) -> Cost:
    return Cost(host_uid="h", model=model, build=build, measured_seconds=measured, load_seconds=load)


def test_loading_is_too_dear_above_a_fifth_of_what_a_family_measures() -> None:
    shared = family("h", "m", "", ["builds"])
    assert too_dear([cost("a"), cost("b", load=30.0)], ["builds"]) == {}
    assert too_dear([cost("a"), cost("b", load=31.0)], ["builds"]) == {shared: 0.205}
    assert too_dear([cost("a", measured=0.0, load=0.0)], ["builds"]) == {}
    apart = too_dear([cost("a", "m"), cost("b", "n", load=50.0)], ["builds"])
    assert list(apart) == [family("h", "n", "", ["builds"])]


def test_a_family_that_is_too_dear_does_not_keep_others_from_alternating() -> None:
    jobs = [
        (make_job(model=ModelRef(source="path", spec=name, identity=name), build=build), 1.0)
        for name in ("m", "n")
        for build in ("a", "b")
    ]
    made = in_rounds(jobs, ["builds"], 2, {family("host-1", "m", "", ["builds"])})
    assert [(job.model.spec, job.build, job.replica, job.across) for job, _ in made] == [
        ("m", "a", 0, None),
        ("m", "a", 1, None),
        ("m", "b", 0, None),
        ("m", "b", 1, None),
        ("n", "a", 0, "builds"),
        ("n", "b", 0, "builds"),
        ("n", "b", 1, "builds"),
        ("n", "a", 1, "builds"),
    ]


def test_rounds_do_not_change_what_is_compared() -> None:
    job = make_job()
    again = replace(job, replica=1, across="builds", interleaved=True)
    assert again.config_key == job.config_key
    assert again.job_uid != job.job_uid
    assert replace(job, interleaved=True).job_uid == job.job_uid


def test_interleaved_jobs_say_so_and_the_plan_too() -> None:
    made = plan(f"order: interleaved\nparams: {{flash_attn: [on, off]}}\n{LONG}")
    assert {job.interleaved for job in made.jobs} == {True}
    assert made.notes == ("Jobs of one process take their repetitions in turn.",)
    assert {job.interleaved for job in plan(LONG).jobs} == {False}


def test_a_llama_bench_takes_no_turns() -> None:
    made = plan(f"order: interleaved\n{LONG}", builds=("default", "bench"))
    assert {(job.build, job.interleaved) for job in made.jobs} == {("default", True), ("bench", False)}
    assert any("build bench is a llama-bench, which does all repetitions" in note for note in made.notes)


def test_contexts_that_do_not_fit_beside_each_other_are_made_one_after_another() -> None:
    tests = "order: interleaved\ntests: {n_gen: 8, n_depth: [0, 16000]}\nparams: {n_threads: [1, 2, 3, 4, 5]}\n"
    small, large = plan(tests, host=host(memory_gib=4)), plan(tests, host=host(memory_gib=64))
    assert {job.interleaved for job in large.jobs} == {True}
    assert small.n_jobs == large.n_jobs
    assert {job.interleaved for job in small.jobs} == {False}
    assert any("contexts of 8 jobs beside each other may need" in note for note in small.notes)


def jobs_of(n: int, **fields: Any) -> list[Job]:
    return [make_job(test=Test(n_prompt=n + 1, n_gen=0), settings=Settings(), **fields) for n in range(n)]


def test_jobs_that_take_turns_are_not_cut_apart_by_the_clock_before_a_turn_is_full() -> None:
    jobs = jobs_of(2 * ROUND_JOBS + 1, interleaved=True)
    slow = {job.job_uid: 400.0 for job in jobs}
    assert [len(group) for group in groups(jobs, slow)] == [ROUND_JOBS, ROUND_JOBS, 1]
    many = jobs_of(60, interleaved=True)
    assert [len(group) for group in groups(many)] == [48, 12]
