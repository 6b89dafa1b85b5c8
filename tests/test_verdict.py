"""The verdict: what passes which threshold, and that the documentation shows the same table."""

from string import Formatter
from typing import Any

import pytest

from schema.record import Conditions, GpuConditions
from scripts.thresholds import PAGE, page
from worker.conditions.thresholds import QUALITIES, THRESHOLDS, Threshold, limit_of
from worker.conditions.verdict import Given, judge, measures, passed

TWO = Given(n_threads=2, n_cpus=2)
QUIET: dict[str, Any] = {
    **{"cpu_share": 0.97, "run_delay_share": 0.004, "blocked_share": 0.01, "others_busy_cores": 0.02},
    **{"steal_share": 0.0, "major_faults": 0, "times_stopped": 0, "watched_seconds": 10.0, "swapped_in_pages": 3},
    **{"cpu_pressure_share": 0.3, "memory_pressure_share": 0.0, "quota_throttles": 0, "on_battery": False},
    **{"thermal_throttles": 0, "power_limit_throttles": 0, "cooling_share": 0.0, "firmware_flags": 0},
    **{"clock_start_hz": 3.0e9, "clock_mean_hz": 2.95e9, "temperature_before_c": 60.0, "temperature_max_c": 65.0},
}


@pytest.mark.parametrize(
    ("change", "quality", "reason"),
    [
        ({}, "clean", None),
        ({"run_delay_share": 0.03}, "noisy", "threads waited 3.0% of the time for a CPU"),
        ({"run_delay_share": 0.3}, "contended", "threads waited 30% of the time for a CPU"),
        ({"steal_share": 0.02}, "noisy", "the hypervisor took 2.0% of the CPU time"),
        ({"steal_share": 0.2}, "contended", "the hypervisor took 20% of the CPU time"),
        ({"others_busy_cores": 0.3}, "noisy", "other processes kept 0.30 CPUs busy"),
        ({"others_busy_cores": 1.5}, "contended", "other processes needed 1.50 CPUs more than were free"),
        ({"major_faults": 3}, "noisy", "3 pages had to be read from disk"),
        ({"swapped_in_pages": 999}, "noisy", "the machine took 999 pages back in from swap"),
        ({"cpu_share": 0.4}, "clean", None),
        ({"cpu_share": 0.4, "run_delay_share": None}, "contended", "threads ran only 40% of the time"),
        ({"run_delay_share": None}, "noisy", "some program waited for a CPU 30% of the time"),
        ({"times_stopped": 1}, "contended", "the measuring process was stopped meanwhile, by a signal or a debugger"),
        ({"blocked_share": 0.08}, "noisy", "the main thread neither ran nor waited for a CPU 8.0% of the time"),
        (
            {"blocked_share": 0.4},
            "contended",
            "the main thread neither ran nor waited for a CPU 40% of the time: stopped or asleep",
        ),
        ({"memory_pressure_share": 0.02}, "contended", "everything waited for memory 2.0% of the time"),
        ({"thermal_throttles": 212}, "throttled", "the processor throttled itself 212 times for heat"),
        (
            {"cooling_share": 0.25},
            "throttled",
            "the system held computing back for heat, by up to 25% of what it can",
        ),
        ({"firmware_flags": 0b101}, "throttled", "the firmware reported under-voltage and throttling"),
        (
            {"clock_mean_hz": 2.4e9, "temperature_max_c": 91.0},
            "throttled",
            "the clock fell by 20% while it was hot, up to 91 °C",
        ),
        ({"clock_mean_hz": 2.4e9}, "noisy", "the clock fell by 20% from where it began"),
        ({"power_limit_throttles": 4}, "limited", "the processor met its power limit 4 times"),
        (
            {"quota_throttles": 7, "quota_throttled_seconds": 1.25},
            "limited",
            "a control group's quota held the threads up 7 times, for 1.25 s in all",
        ),
        ({"on_battery": True}, "limited", "ran on battery"),
        ({"suspended_seconds": 3.0}, "noisy", "the machine slept for 3.0 s meanwhile"),
    ],
)
def test_the_verdict_follows_the_worst_sign(change: dict[str, Any], quality: str, reason: str | None) -> None:
    assert judge(Conditions(**{**QUIET, **change}), TWO) == (quality, (reason,) if reason else ())


def test_others_that_fit_beside_the_threads_do_not_contend() -> None:
    busy = Conditions(**{**QUIET, "others_busy_cores": 0.5})
    assert judge(busy, Given(n_threads=8, n_cpus=16))[0] == "clean"
    assert judge(busy, Given(n_threads=16, n_cpus=16))[0] == "noisy"


def test_one_cpu_taken_beside_few_threads_is_noise_since_memory_is_shared() -> None:
    busy = Conditions(**{**QUIET, "others_busy_cores": 1.0})
    assert judge(busy, Given(n_threads=1, n_cpus=2)) == ("noisy", ("other processes kept 1.00 CPUs busy",))


def test_what_the_kernels_ticks_could_feign_in_a_short_time_is_no_sign() -> None:
    brief = Conditions(**{**QUIET, "others_busy_cores": 0.09, "watched_seconds": 0.35})
    assert judge(brief, TWO) == ("clean", ())
    assert judge(Conditions(**{**QUIET, "others_busy_cores": 0.09}), TWO)[0] == "noisy"


def test_more_threads_than_we_may_use_are_limited_and_not_an_error() -> None:
    assert judge(Conditions(), Given(n_threads=8, n_cpus=4)) == ("limited", ("8 threads share 4 CPUs",))
    few = Given(n_threads=4, n_cpus=8, quota_cores=2.5)
    assert judge(Conditions(), few) == ("limited", ("4 threads have a quota of 2.5 CPUs",))
    slow = Conditions(cpu_share=0.5, run_delay_share=0.0)
    words = "threads ran only 50% of the time under a quota of 2.5 CPUs"
    assert judge(slow, Given(n_threads=2, n_cpus=8, quota_cores=2.5)) == ("limited", (words,))


def test_threads_that_wait_for_a_gpu_are_not_asleep_and_the_gpu_speaks_for_itself() -> None:
    gpu = GpuConditions(index=0, name="G", event_reasons=("hardware thermal slowdown",), others=("game (7)",))
    waiting = Conditions(**{**QUIET, "blocked_share": 0.9, "cpu_share": 0.1, "run_delay_share": None, "gpu": (gpu,)})
    quality, reasons = judge(waiting, Given(n_threads=1, n_cpus=2, on_gpu=True))
    assert quality == "contended"
    assert len(reasons) == 3
    assert any("game (7)" in reason for reason in reasons)
    assert not any("GPU" in reason for reason in judge(waiting, TWO)[1])


def test_every_reason_is_given_once_and_the_worst_names_the_quality() -> None:
    quality, reasons = judge(Conditions(run_delay_share=0.5, major_faults=9), Given(n_threads=4, n_cpus=2))
    assert quality == "contended"
    assert len(reasons) == 3


def test_conditions_that_nothing_tells_are_clean_for_want_of_any_sign() -> None:
    assert judge(Conditions(), Given(n_threads=4)) == ("clean", ())
    assert judge(Conditions(), Given(n_threads=4, n_cpus=4), {"n": 3, "heat": ""}) == ("clean", ())


def everything(threshold: Threshold) -> dict[str, Any]:
    """Return whatever the words of any threshold may need, with its own measure just beyond the limit."""
    names = {name for each in THRESHOLDS for _, name, _, _ in Formatter().parse(each.words) if name}
    texts = {"fell_or_rose", "heat", "odd_way", "firmware_words", "gpu_throttle_words", "gpu_other_words"}
    told: dict[str, Any] = {name: "" if name in texts else 0 for name in names}
    return {**told, threshold.measure: threshold.limit + 1}


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=lambda each: f"{each.measure} {each.limit}")
def test_every_threshold_can_be_passed_and_says_so(threshold: Threshold) -> None:
    found = passed(everything(threshold))
    worst = next(each for each in THRESHOLDS if each.measure == threshold.measure)
    assert [quality for quality, _ in found] == [worst.quality]
    assert threshold.quality in QUALITIES
    assert threshold.why.endswith(".")
    assert passed({threshold.measure: limit_of(threshold.measure)}) == []


def test_every_measure_of_conditions_is_one_that_can_be_computed() -> None:
    known = measures(Conditions(**{**QUIET, "suspended_seconds": 0.0}), Given(n_threads=1, n_cpus=1, on_gpu=True))
    other = measures(Conditions(cpu_share=0.5, cpu_pressure_share=0.5), Given(n_threads=1, n_cpus=1))
    quota = measures(Conditions(cpu_share=0.5), Given(n_threads=1, n_cpus=1, quota_cores=1.0))
    hot = measures(Conditions(**{**QUIET, "temperature_max_c": 99.0}), TWO)
    figures = {"load_per_cpu", "first_slow", "two_speeds", "trend", "first_fast", "odd", "stalls"}
    assert {threshold.measure for threshold in THRESHOLDS} <= {*known, *other, *quota, *hot, *figures}


def test_the_page_shows_the_table_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it anew: python -m scripts.thresholds"
