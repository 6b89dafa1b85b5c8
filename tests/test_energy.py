"""Joules from the processor's counters, replayed: which count, when they come around, and when they say nothing."""

from pathlib import Path

import pytest

from schema.job import Test
from schema.record import Conditions, GpuConditions, Sample
from tests.factories import make_samples
from tests.trees import write
from worker.conditions.counters import TICKS_PER_SECOND
from worker.conditions.energy import Idle, energy, measure_idle
from worker.conditions.rapl import Joules, Rapl
from worker.conditions.verdict import Given

CAP = "sys/class/powercap"
RANGE = 262_143_328_850
ALONE = Given(n_threads=2, n_cpus=2)
QUIET = Conditions(others_busy_cores=0.0, watched_seconds=2.0)
PREFILL, DECODE = Test(n_prompt=100, n_gen=0), Test(n_prompt=0, n_gen=32)


def zone(place: str, name: str, uj: int) -> dict[str, str | int]:
    """Return the files of one counter."""
    return {f"{place}/name": name, f"{place}/energy_uj": uj, f"{place}/max_energy_range_uj": RANGE}


def machine(root: Path, package: int = 0, dram: int = 0) -> Rapl:
    files: dict[str, str | int] = {
        **zone(f"{CAP}/intel-rapl:0", "package-0", package),
        **zone(f"{CAP}/intel-rapl:0/intel-rapl:0:0", "core", 10 * package),
        **zone(f"{CAP}/intel-rapl:0/intel-rapl:0:1", "dram", dram),
        **zone(f"{CAP}/intel-rapl:1", "psys", 20 * package),
        **zone(f"{CAP}/intel-rapl-mmio:0", "package-0", package),
    }
    return Rapl.find(write(root, files))


def test_packages_and_their_memory_count_and_what_is_in_them_does_not(tmp_path: Path) -> None:
    assert machine(tmp_path, 5, 7).read() == {"package-0": 5, "dram of package-0": 7}


def test_a_machine_without_counters_or_the_right_to_read_them_has_none(tmp_path: Path) -> None:
    assert Rapl.find(tmp_path).domains == ()
    write(tmp_path, {f"{CAP}/intel-rapl:0/name": "package-0", f"{CAP}/intel-rapl:0/max_energy_range_uj": RANGE})
    assert Rapl.find(tmp_path).domains == ()
    assert measure_idle(Rapl.find(tmp_path), sleep=lambda _: pytest.fail("slept for nothing")) == Idle()


def test_only_what_was_counted_adds_up_and_a_counter_comes_around(tmp_path: Path) -> None:
    joules = Joules(machine(tmp_path, RANGE - 1_000_000))
    joules.begin()
    machine(tmp_path, 2_000_000, 500_000)
    joules.add()
    machine(tmp_path, 50_000_000, 50_000_000)
    joules.begin()
    machine(tmp_path, 51_000_000, 50_000_000)
    joules.add()
    assert joules.total == {"package-0": pytest.approx(4.0), "dram of package-0": pytest.approx(0.5)}


def test_a_counter_that_falls_silent_is_left_out_of_the_sum(tmp_path: Path) -> None:
    joules = Joules(machine(tmp_path))
    joules.begin()
    machine(tmp_path, 1_000_000, 1_000_000)
    joules.add()
    (tmp_path / f"{CAP}/intel-rapl:0/intel-rapl:0:1/energy_uj").write_text("")
    joules.add()
    assert joules.total == {"package-0": pytest.approx(1.0)}


def idling(root: Path, busy_seconds: float) -> Idle:
    rapl = machine(root)
    write(root, {"proc/stat": "cpu  0 0 0 0 0 0 0 0 0 0\n"})
    moments = iter([0.0, 0.5])

    def sleep(_: float) -> None:
        machine(root, 6_000_000, 1_000_000)
        write(root, {"proc/stat": f"cpu  {round(busy_seconds * TICKS_PER_SECOND)} 0 0 50 0 0 0 0 0 0\n"})

    return measure_idle(rapl, sleep, lambda: next(moments))


def test_what_idling_takes_is_measured_where_nothing_else_runs(tmp_path: Path) -> None:
    assert idling(tmp_path, 0.01).watts == {"package-0": pytest.approx(12.0), "dram of package-0": pytest.approx(2.0)}
    assert idling(tmp_path, 0.4) == Idle()


def samples(test: Test) -> tuple[Sample, ...]:
    return make_samples(test, 960_000_000, 990_000_000)


def test_joules_per_token_are_of_the_phase_that_was_timed() -> None:
    parts, idle = {"package-0": 90.0, "dram of package-0": 10.0}, Idle({"package-0": 12.0, "dram of package-0": 2.0})
    prefill = energy(parts, idle, samples(PREFILL), PREFILL, QUIET, ALONE)
    decode = energy(parts, Idle(), samples(DECODE), DECODE, QUIET, ALONE)
    assert prefill is not None
    assert decode is not None
    assert (prefill.joules_total, prefill.joules_idle, prefill.seconds) == (100.0, 28.0, 2.0)
    assert (prefill.joules_per_prefill_token, prefill.joules_per_decoded_token) == (0.5, None)
    assert (decode.joules_per_decoded_token, decode.joules_idle) == (100.0 / 64, None)
    assert (prefill.method, prefill.valid, prefill.reason) == ("rapl", True, None)


def test_both_phases_in_one_reading_have_no_figure_each() -> None:
    both = Test(n_prompt=8, n_gen=4)
    found = energy({"package-0": 1.0}, Idle(), samples(both), both, QUIET, ALONE)
    assert found is not None
    assert (found.joules_per_prefill_token, found.joules_per_decoded_token) == (None, None)


def test_nothing_that_counts_is_no_energy() -> None:
    assert energy({}, Idle(), samples(DECODE), DECODE, QUIET, ALONE) is None
    assert energy({"package-0": 1.0}, Idle(), samples(DECODE), DECODE, Conditions(), ALONE) is None


@pytest.mark.parametrize(
    ("conditions", "given", "reason"),
    [
        (Conditions(others_busy_cores=0.6, watched_seconds=2.0), ALONE, "other processes were at work"),
        (Conditions(watched_seconds=2.0), ALONE, "what other processes did is unknown"),
        (
            Conditions(others_busy_cores=0.0, watched_seconds=4.0),
            ALONE,
            "only 49% of the time that was counted was timed",
        ),
        (Conditions(others_busy_cores=0.0, watched_seconds=0.02), ALONE, "0.020 s are too short"),
        (QUIET, Given(n_threads=2, n_cpus=2, on_gpu=True), "the GPU that computed has no counter"),
    ],
)
def test_figures_that_do_not_stand_for_the_test_say_why(conditions: Conditions, given: Given, reason: str) -> None:
    found = energy({"package-0": 1.0}, Idle(), samples(DECODE), DECODE, conditions, given)
    assert found is not None
    assert found.valid is False
    assert reason in (found.reason or "")


def test_a_gpu_with_a_counter_is_a_part() -> None:
    gpu = GpuConditions(index=0, name="a GPU", energy_joules=50.0)
    conditions = Conditions(others_busy_cores=0.0, watched_seconds=2.0, gpu=(gpu,))
    found = energy(
        {"package-0": 10.0}, Idle(), samples(DECODE), DECODE, conditions, Given(n_threads=1, on_gpu=True, n_cpus=2)
    )
    assert found is not None
    assert (found.method, found.parts, found.valid) == ("rapl+gpu", {"package-0": 10.0, "gpu 0": 50.0}, True)
