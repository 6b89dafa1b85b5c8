"""The verdict on a record: its own threads, its own device, and the notes that it came with."""

from pathlib import Path
from typing import Any

import pytest

from schema.job import Test
from schema.record import Effective, Record
from tests.factories import make_fingerprint, make_hardware, make_job, make_record, make_samples
from tests.fakes import FakeClock
from tests.trees import write
from worker.conditions.meters import Meters
from worker.conditions.watch import Watch
from worker.judging import given_to, judged

PREFILL, DECODE = Test(n_prompt=8, n_gen=0), Test(n_prompt=0, n_gen=8)
CPU_ONLY = make_fingerprint(hardware=make_hardware(gpus=(), gpu_status="none"))


def record(test: Test = DECODE, **fields: Any) -> Record:
    return make_record(
        make_job(test=test),
        samples=make_samples(test, 10**9, 10**9),
        conditions=None,
        quality=None,
        latency=None,
        **fields,
    )


def test_a_prefill_is_judged_by_the_threads_that_read_prompts() -> None:
    resolved = {"n_threads": 4, "n_threads_batch": 8}
    assert given_to(record(PREFILL, resolved=resolved), CPU_ONLY, PREFILL).n_threads == 8
    assert given_to(record(DECODE, resolved=resolved), CPU_ONLY, DECODE).n_threads == 4
    assert given_to(record(PREFILL, resolved={"n_threads": 4}), CPU_ONLY, PREFILL).n_threads == 4


@pytest.mark.parametrize(
    ("in_effect", "asked", "on_gpu"),
    [(0, 99, False), (29, 99, True), ("all", "all", True), (None, 99, True), (None, 0, False)],
)
def test_a_gpu_computes_where_layers_are_on_it_and_where_nothing_tells_if_they_were_asked_for(
    in_effect: int | str | None, asked: int, on_gpu: bool
) -> None:
    told = {} if in_effect is None else {"n_gpu_layers": Effective(value=in_effect, source="log")}
    measured = record(in_effect=told, resolved={"n_threads": 1, "n_gpu_layers": asked})
    assert given_to(measured, make_fingerprint(), DECODE).on_gpu is on_gpu
    assert given_to(measured, CPU_ONLY, DECODE).on_gpu is (on_gpu and in_effect is not None)


def test_a_record_without_threads_is_none() -> None:
    with pytest.raises(KeyError):
        given_to(record(resolved={}), CPU_ONLY, DECODE)


def test_without_a_watch_the_figures_alone_are_judged_and_the_quality_is_unknown() -> None:
    uneven = make_samples(DECODE, *(round(1e9 / rate) for rate in (70.0, 69.9, 50.0, 70.1)))
    found = judged(record(quality_reasons=("a note",)), None, CPU_ONLY, DECODE)
    assert (found.quality, found.quality_reasons) == (None, ("a note",))
    odd = judged(make_record(make_job(test=DECODE), samples=uneven, quality=None), None, CPU_ONLY, DECODE)
    assert odd.quality_reasons == ("repetition 3 was 29% slower than the median",)


def test_what_was_watched_becomes_conditions_a_verdict_and_joules(tmp_path: Path) -> None:
    cap = "sys/class/powercap/intel-rapl:0"
    write(tmp_path, {f"{cap}/name": "package-0", f"{cap}/energy_uj": 0, f"{cap}/max_energy_range_uj": 10**9})
    write(tmp_path, {"proc/7/task/7/schedstat": "0 0 1\n", "proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\n"})
    clock = FakeClock()
    watch = Watch(7, Meters.find(tmp_path), clock)
    watch.begin()
    clock.now += 2 * 10**9
    write(tmp_path, {"proc/7/task/7/schedstat": f"{15 * 10**8} {5 * 10**8} 9\n", f"{cap}/energy_uj": 32 * 10**6})
    watch.end()
    resolved = {"n_threads": 1, "n_gpu_layers": 0}
    found = judged(record(resolved=resolved, quality_reasons=("a note",)), watch, CPU_ONLY, DECODE)
    assert (found.quality, found.quality_reasons) == (
        "contended",
        ("threads waited 25% of the time for a CPU", "a note"),
    )
    assert found.conditions is not None
    assert found.conditions.energy is not None
    assert found.conditions.energy.joules_per_decoded_token == 2.0
