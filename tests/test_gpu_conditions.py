"""Replays what GPUs tell while something runs; there was no GPU here."""

import gc
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from schema.canonical import decode
from schema.record import GpuConditions
from tests.recorded_nvml import LOST_GPU, RecordedNvml, Refused, running
from worker import gpu_conditions, gpu_sensors
from worker.gpu_sensors import Counters, Look, Sensor

OURS = 4242
GIB = 1 << 30


class Replayed:
    """A GPU whose looks and counters are given; it shows its last ones for ever."""

    def __init__(self, looks: Sequence[Look], counters: Sequence[Counters]) -> None:
        self.index, self.name = 0, "Tesla T4"
        self.bus_id: str | None = "0000:00:1e.0"
        self._looks, self._counters = list(looks), list(counters)
        self.looked = threading.Event()

    def look(self) -> Look:
        if len(self._looks) == 1:
            self.looked.set()
            return self._looks[0]
        return self._looks.pop(0)

    def counters(self) -> Counters:
        return self._counters.pop(0) if len(self._counters) > 1 else self._counters[0]


def gone_through(root: Path, looks: Sequence[Look], counters: Sequence[Counters]) -> GpuConditions:
    sensor = Replayed(looks, counters)
    watch = gpu_conditions.Watch(lambda: ([sensor], lambda: None), OURS, root, seconds=0.001)
    assert sensor.looked.wait(5)
    (found,) = watch.after()
    return found


BUSY = Look(core_clock_hz=1_590_000_000, memory_clock_hz=5_001_000_000, power_watts=68.0, temperature_c=70)


def test_clocks_power_heat_and_energy_of_an_attempt(tmp_path: Path) -> None:
    slower = Look(core_clock_hz=1_200_000_000, power_watts=60.0, temperature_c=74.0, memory_used_bytes=3 * GIB)
    found = gone_through(
        tmp_path,
        [BUSY, slower],
        [Counters(energy_joules=100.0, performance_state="P8"), Counters(energy_joules=130.5, performance_state="P0")],
    )

    assert found.sm_clock_hz_min == 1_200_000_000
    assert found.sm_clock_hz_mean is not None
    assert 1_200_000_000 <= found.sm_clock_hz_mean < 1_590_000_000
    assert (found.memory_clock_hz, found.temperature_max_c) == (5_001_000_000, 74.0)
    assert (found.energy_joules, found.energy_method) == (30.5, "counter")
    assert (found.performance_state, found.memory_used_bytes_max) == ("P0", 3 * GIB)
    assert found.n_looks is not None
    assert found.n_looks >= 2


def test_without_a_counter_energy_is_power_times_time(tmp_path: Path) -> None:
    found = gone_through(tmp_path, [BUSY], [Counters()])

    assert found.seconds is not None
    assert found.energy_joules == pytest.approx(68.0 * found.seconds)
    assert (found.energy_method, found.power_watts_mean) == ("power × time", 68.0)


def test_a_counter_that_went_back_is_not_believed(tmp_path: Path) -> None:
    ends = [
        Counters(energy_joules=100.0, violation_ns={"thermal": 5, "power": 1}),
        Counters(energy_joules=3.0, violation_ns={"thermal": 2, "power": 9}),
    ]
    found = gone_through(tmp_path, [Look()], ends)

    assert (found.energy_joules, found.violation_ns) == (None, {"power": 8})


def test_a_rest_between_repetitions_is_no_low_clock(tmp_path: Path) -> None:
    resting = Look(core_clock_hz=300_000_000, reasons=("idle",))
    found = gone_through(tmp_path, [BUSY, resting, BUSY], [Counters()])

    assert (found.sm_clock_hz_min, found.event_reasons) == (1_590_000_000, ())


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("hardware slowdown", "throttled"),
        ("software thermal slowdown", "throttled"),
        ("hardware thermal slowdown", "throttled"),
        ("hardware power brake", "throttled"),
        ("software power cap", "notes"),
        ("application clocks", None),
        ("reliability", None),
    ],
)
def test_heat_and_power_brakes_throttle_and_the_power_limit_is_a_note(reason: str, verdict: str | None) -> None:
    judged = gpu_conditions.judge([GpuConditions(index=1, name="Tesla T4", event_reasons=(reason,))])

    assert [name for name, reasons in judged.items() if reasons] == ([verdict] if verdict else [])
    assert all("GPU 1 (Tesla T4)" in text for reasons in judged.values() for text in reasons)


def test_time_held_down_by_heat_throttles_though_no_look_saw_it() -> None:
    hot = GpuConditions(index=0, name="x", seconds=2.0, violation_ns={"thermal": 100_000_000, "power": 2_000_000_000})
    cool = GpuConditions(index=0, name="x", seconds=2.0, violation_ns={"thermal": 1_000_000})

    assert gpu_conditions.judge([hot])["throttled"] == ("GPU 0 (x) was held down by heat for 5% of the time",)
    assert gpu_conditions.judge([cool])["throttled"] == ()


def with_processes(root: Path, parents: dict[int, int]) -> Path:
    for pid, parent in parents.items():
        (root / f"proc/{pid}").mkdir(parents=True)
        (root / f"proc/{pid}/comm").write_text(f"name{pid}\n")
        (root / f"proc/{pid}/stat").write_text(f"{pid} (a b) c) S {parent} 1 1 0\n")
    return root


def test_processes_that_are_ours_or_our_childrens_are_not_others(tmp_path: Path) -> None:
    root = with_processes(tmp_path, {OURS: 1, 5000: OURS, 5001: 5000, 6000: 1})
    found = gone_through(root, [BUSY], [Counters(pids=(OURS, 5001)), Counters(pids=(OURS, 5001, 6000))])

    assert found.others == ("name6000 (6000)",)
    assert gpu_conditions.judge([found])["contended"] == ("GPU 0 (Tesla T4) was also used by name6000 (6000)",)


def test_in_a_container_one_process_of_elsewhere_is_taken_for_ours(tmp_path: Path) -> None:
    root = with_processes(tmp_path, {OURS: 1})

    assert gone_through(root, [BUSY], [Counters(pids=(777_777,))]).others == ()
    assert gone_through(root, [BUSY], [Counters(pids=(777_777, 888_888))]).others == ("process 888888",)


def test_a_crowd_is_counted_and_not_listed(tmp_path: Path) -> None:
    found = gone_through(tmp_path, [BUSY], [Counters(pids=(OURS, *range(100_000, 100_020)))])

    assert (len(found.others), found.others[-1]) == (9, "12 more")


def test_a_gpu_that_is_lost_on_the_way_tells_what_it_told_before(tmp_path: Path) -> None:
    calls = iter(range(10))

    def power() -> int:
        if next(calls) > 0:
            raise Refused(15)
        return 50_000

    looked = threading.Event()

    def heat(_sensor: int) -> int:
        looked.set()
        return 60

    nvml = running(DeviceGetPowerUsage=power, DeviceGetTemperature=heat, DeviceGetTotalEnergyConsumption=None)
    watch = gpu_conditions.Watch(lambda: gpu_sensors.of_nvml(nvml), OURS, tmp_path, seconds=0.001)
    assert looked.wait(5)
    (found,) = watch.after()

    assert (found.power_watts_mean, found.temperature_max_c) == (50.0, 60)


def test_a_gpu_lost_before_is_looked_at_without_effect(tmp_path: Path) -> None:
    watch = gpu_conditions.Watch(lambda: gpu_sensors.of_nvml(RecordedNvml(LOST_GPU)), OURS, tmp_path, seconds=0.001)
    (found,) = watch.after()

    assert (found.name, found.sm_clock_hz_mean, found.event_reasons) == ("unnamed NVIDIA GPU", None, ())


def test_a_driver_that_never_answers_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(gpu_conditions, "FIRST_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(gpu_conditions, "LAST_LOOK_SECONDS", 0.02)

    def open_sensors() -> tuple[Sequence[Sensor], Any]:
        never.wait()
        return [], lambda: None

    watch = gpu_conditions.Watch(open_sensors, OURS, tmp_path, seconds=0.001)
    found = watch.after()
    never.set()

    assert found == ()


def test_a_driver_that_stops_answering_is_told_of_as_far_as_it_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_conditions, "LAST_LOOK_SECONDS", 0.02)
    never, stuck = threading.Event(), threading.Event()

    def looks() -> Iterator[Look]:
        yield BUSY
        stuck.set()
        never.wait()
        yield BUSY

    sensor = Replayed([BUSY], [Counters(energy_joules=1.0)])
    coming = looks()
    monkeypatch.setattr(sensor, "look", lambda: next(coming))
    watch = gpu_conditions.Watch(lambda: ([sensor], lambda: None), OURS, tmp_path, seconds=0.001)
    assert stuck.wait(5)
    (found,) = watch.after()
    never.set()

    assert (found.n_looks, found.seconds, found.energy_joules) == (1, None, None)


def test_a_watch_that_is_dropped_stops_looking(tmp_path: Path) -> None:
    closed = threading.Event()
    sensor = Replayed([BUSY], [Counters()])
    watch = gpu_conditions.Watch(lambda: ([sensor], closed.set), OURS, tmp_path, seconds=0.001)
    assert watch is not None
    del watch
    gc.collect()

    assert closed.wait(5)


def test_a_machine_without_a_gpu_is_not_watched(tmp_path: Path) -> None:
    before = threading.active_count()

    assert gpu_conditions.before(OURS, tmp_path) is None
    assert threading.active_count() == before


def test_conditions_go_through_the_spool_unchanged(tmp_path: Path) -> None:
    found = gone_through(tmp_path, [BUSY], [Counters(pids=(99_999, 99_998))])

    assert decode(GpuConditions, json.loads(json.dumps(asdict(found)))) == found
