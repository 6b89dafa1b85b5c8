from pathlib import Path

import pytest

from schema.host import State
from tests.trees import write
from worker.fingerprint import state

POWER = "sys/class/power_supply"
MEMINFO = (
    "MemTotal:       16000000 kB\nMemAvailable:   12000000 kB\n"
    "SwapTotal:       2000000 kB\nSwapFree:        1500000 kB\nHugePages_Total:       0\n"
)


def supply(name: str, kind: str, **facts: str | int) -> dict[str, str | int]:
    return {f"{POWER}/{name}/type": f"{kind}\n", **{f"{POWER}/{name}/{key}": value for key, value in facts.items()}}


def test_the_moment_is_read(tmp_path: Path) -> None:
    files: dict[str, str | int] = {
        "proc/loadavg": "11.80 4.02 1.10 2/345 6789\n",
        "proc/pressure/cpu": "some avg10=12.50 avg60=6.59 avg300=2.09 total=5394\nfull avg10=0.00 total=0\n",
        "proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\n",
        "proc/meminfo": MEMINFO,
        "proc/uptime": "25345.40 17211.29\n",
        "sys/firmware/acpi/platform_profile": "balanced\n",
        "sys/class/thermal/thermal_zone0/temp": 47_500,
        "sys/class/hwmon/hwmon1/name": "k10temp\n",
        "sys/class/hwmon/hwmon1/temp1_input": 61_250,
        "sys/class/hwmon/hwmon2/name": "amdgpu\n",
        "sys/class/hwmon/hwmon2/temp1_input": 90_000,
        **supply("AC", "Mains", online=1),
    }

    assert state.read(write(tmp_path, files)) == State(
        load1=11.8,
        load5=4.02,
        load15=1.1,
        cpu_pressure_percent=12.5,
        memory_pressure_percent=0.0,
        io_pressure_percent=None,
        available_bytes=12_000_000 * 1024,
        swap_used_bytes=500_000 * 1024,
        uptime_seconds=25345.4,
        on_battery=False,
        power_profile="balanced",
        hottest_celsius=61.25,
    )


def test_a_machine_that_shows_nothing_has_no_state(tmp_path: Path) -> None:
    assert state.read(tmp_path) == State()


@pytest.mark.parametrize(
    ("files", "on_battery"),
    [
        ({f"{POWER}/.keep": ""}, False),
        (supply("AC", "Mains", online=0) | supply("BAT0", "Battery", status="Discharging\n"), True),
        (supply("AC", "Mains", online=1) | supply("BAT0", "Battery", status="Charging\n"), False),
        (supply("AC", "Mains", online=0) | supply("BAT0", "Battery", status="Not charging\n"), True),
        (supply("BAT0", "Battery", status="Discharging\n"), True),
        (supply("BAT0", "Battery", status="Full\n"), False),
        (supply("hid-mouse", "Battery", status="Discharging\n", scope="Device\n"), False),
        (supply("ucsi", "USB", online=1) | supply("AC", "Mains", online=0) | supply("BAT0", "Battery"), False),
        ({}, None),
    ],
)
def test_mains_battery_and_unknown_are_told_apart(
    tmp_path: Path, files: dict[str, str | int], on_battery: bool | None
) -> None:
    assert state.read(write(tmp_path, files)).on_battery is on_battery


@pytest.mark.parametrize("degrees", [-40_000, 0, 255_000, 2_147_483_647])
def test_a_temperature_that_no_machine_has_is_left_out(tmp_path: Path, degrees: int) -> None:
    root = write(tmp_path, {"sys/class/thermal/thermal_zone0/temp": degrees})

    assert state.read(root).hottest_celsius is None


def test_odd_contents_are_survived(tmp_path: Path) -> None:
    names = ("proc/loadavg", "proc/meminfo", "proc/uptime", "proc/pressure/cpu")
    files = dict.fromkeys(names, "garbage\0\n")

    assert state.read(write(tmp_path, files)) == State()


def test_this_machine_tells_its_load_and_memory() -> None:
    found = state.read(Path("/"))

    assert found.load1 is not None
    assert found.available_bytes
