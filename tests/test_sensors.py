"""Clocks, heat, what holds a processor back, and its source of power, from trees of real layouts."""

from pathlib import Path

import pytest

from tests.trees import write
from worker.conditions.looks import Looks
from worker.conditions.sensors import Sensors
from worker.conditions.watch import throttled

CPUS = "sys/devices/system/cpu"
THERMAL = "sys/class/thermal"
POWER = "sys/class/power_supply"


def test_a_machine_without_sensors_tells_nothing(tmp_path: Path) -> None:
    found = Sensors.find(tmp_path)
    assert (found.clocks_hz([0, 1]), found.throttled()) == ([], {})
    assert (found.temperature_c(), found.cooling_share(), found.firmware_flags(), found.on_battery()) == (None,) * 4


def test_clocks_are_of_the_cpus_asked_for_and_garbage_is_left_out(tmp_path: Path) -> None:
    clocks = {0: "3100000", 1: "800000", 2: "", 3: "<unknown>"}
    write(tmp_path, {f"{CPUS}/cpu{n}/cpufreq/scaling_cur_freq": f"{khz}\n" for n, khz in clocks.items()})
    assert Sensors.find(tmp_path).clocks_hz([3, 0, 0, 2, 9]) == [3_100_000_000]
    assert Sensors.find(tmp_path).clocks_hz([0, 1]) == [3_100_000_000, 800_000_000]


def test_the_temperature_is_that_of_the_hottest_part_that_computes(tmp_path: Path) -> None:
    zones = [
        ("x86_pkg_temp", 61_000),
        ("iwlwifi_1", 99_000),
        ("PMIC-Die", 100_000),
        ("cpu-thermal", -5_000),
        ("soc", 0),
    ]
    files: dict[str, str | int] = {}
    for number, (kind, temperature) in enumerate(zones):
        files |= {f"{THERMAL}/thermal_zone{number}/type": kind, f"{THERMAL}/thermal_zone{number}/temp": temperature}
    files |= {"sys/class/hwmon/hwmon0/name": "nvme\n", "sys/class/hwmon/hwmon0/temp1_input": 88_000}
    files |= {"sys/class/hwmon/hwmon1/name": "k10temp\n", "sys/class/hwmon/hwmon1/temp1_input": 72_500}
    files |= {"sys/class/hwmon/hwmon1/temp1_max": 70_000, "sys/class/hwmon/hwmon1/temp3_input": 255_000}
    assert Sensors.find(write(tmp_path, files)).temperature_c() == 72.5


def test_cooling_counts_where_it_slows_computing_and_a_fan_does_not(tmp_path: Path) -> None:
    devices = [("Processor", 0, 10), ("Fan", 1, 1), ("thermal-cpufreq-0", 3, 12), ("Processor", 1, 0)]
    files: dict[str, str | int] = {}
    for number, (kind, state, most) in enumerate(devices):
        place = f"{THERMAL}/cooling_device{number}"
        files |= {f"{place}/type": kind, f"{place}/cur_state": state, f"{place}/max_state": most}
    sensors = Sensors.find(write(tmp_path, files))
    assert sensors.cooling_share() == 0.25
    write(tmp_path, {f"{THERMAL}/cooling_device2/cur_state": 0})
    assert sensors.cooling_share() == 0.0


def test_throttling_of_a_package_counts_once_and_that_of_cores_each(tmp_path: Path) -> None:
    counts = {0: (10, 100, 40), 1: (3, 100, 30)}

    def files(more: int) -> dict[str, str | int]:
        told: dict[str, str | int] = {}
        for cpu, (core, package, ms) in counts.items():
            place = f"{CPUS}/cpu{cpu}/thermal_throttle"
            told |= {f"{place}/core_throttle_count": core + more, f"{place}/package_throttle_count": package + 5 * more}
            told |= {f"{place}/core_throttle_total_time_ms": ms + 250 * more}
        return told

    sensors = Sensors.find(write(tmp_path, files(0)))
    before = sensors.throttled()
    write(tmp_path, files(2))
    after = sensors.throttled()
    grown = {name: after[name] - before[name] for name in after}
    assert throttled(grown) == {
        "thermal_throttles": 2 + 2 + 10,
        "thermal_throttled_seconds": 0.5,
        "power_limit_throttles": None,
    }
    assert set(throttled({}).values()) == {None}


@pytest.mark.parametrize(
    ("supplies", "answer"),
    [
        ({"AC": ("Mains", "online", "1"), "BAT0": ("Battery", "status", "Discharging")}, False),
        ({"AC": ("Mains", "online", "0"), "BAT0": ("Battery", "status", "Discharging")}, True),
        ({"AC": ("Mains", "online", "0"), "BAT0": ("Battery", "status", "Unknown")}, True),
        ({"BAT0": ("Battery", "status", "Full")}, False),
        ({"BAT0": ("Battery", "status", "Discharging")}, True),
        ({}, False),
    ],
)
def test_a_battery_in_use_is_told_from_one_that_is_full(
    tmp_path: Path, supplies: dict[str, tuple[str, str, str]], answer: bool
) -> None:
    (tmp_path / POWER).mkdir(parents=True)
    for name, (kind, what, value) in supplies.items():
        write(tmp_path, {f"{POWER}/{name}/type": f"{kind}\n", f"{POWER}/{name}/{what}": f"{value}\n"})
    write(tmp_path, {f"{POWER}/mouse/type": "Battery\n", f"{POWER}/mouse/scope": "Device\n"})
    write(tmp_path, {f"{POWER}/mouse/status": "Discharging\n"})
    assert Sensors.find(tmp_path).on_battery() is answer


FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"


def running(root: Path, pid: int, state: str, cpu: int) -> None:
    fields = [state, *["0"] * 35, str(cpu), *["0"] * 13]
    write(root, {f"proc/{pid}/task/{pid}/stat": f"{pid} (python) {' '.join(fields)}\n"})


def test_looks_keep_the_first_the_least_and_the_mean_clock_and_the_most_heat(tmp_path: Path) -> None:
    clock, zone = f"{CPUS}/cpu3/cpufreq/scaling_cur_freq", f"{THERMAL}/thermal_zone0"
    write(tmp_path, {clock: 3_000_000, f"{zone}/type": "cpu\n", f"{zone}/temp": 60_000, FIRMWARE: "50000\n"})
    looks = Looks(Sensors.find(tmp_path), 42)
    for khz, temperature, flags, state in ((3_000_000, 60_000, "50000", "R"), (2_400_000, 83_000, "50004", "R")):
        write(tmp_path, {clock: khz, f"{zone}/temp": temperature, FIRMWARE: f"{flags}\n"})
        running(tmp_path, 42, state, 3)
        looks.add()
    running(tmp_path, 42, "T", 3)
    write(tmp_path, {clock: 400_000, FIRMWARE: "50000\n"})
    looks.add()
    assert (looks.n, looks.n_stopped, looks.n_clocks) == (3, 1, 2)
    assert (looks.clock_start_hz, looks.clock_mean_hz, looks.clock_min_hz) == (3.0e9, 2.7e9, 2.4e9)
    assert (looks.temperature_max_c, looks.firmware_flags) == (83.0, 4)


def test_a_process_that_is_gone_is_looked_at_without_harm(tmp_path: Path) -> None:
    looks = Looks(Sensors.find(tmp_path), 42)
    looks.add()
    assert (looks.n, looks.n_stopped, looks.clock_mean_hz, looks.firmware_flags) == (1, 0, None, None)
