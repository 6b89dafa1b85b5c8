"""How the machine is at this moment: its load, pressure, memory, warmth and source of power."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from schema.host import State
from worker import system
from worker.conditions import sensors
from worker.fingerprint import evidence

LARGEST_CELSIUS = 150
SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")


def read(root: Path) -> State:
    """Return the state of the machine at `root` now; what it does not tell is None."""
    load1, load5, load15 = _loads(root)
    memory = _memory(root)
    return State(
        load1=load1,
        load5=load5,
        load15=load15,
        cpu_pressure_percent=_pressure(root, "cpu"),
        memory_pressure_percent=_pressure(root, "memory"),
        io_pressure_percent=_pressure(root, "io"),
        available_bytes=memory.get("MemAvailable"),
        swap_used_bytes=_swap_used(memory),
        uptime_seconds=_uptime_seconds(root),
        on_battery=_on_battery(root),
        power_profile=evidence.line(root / "sys/firmware/acpi/platform_profile"),
        hottest_celsius=max(_temperatures(root), default=None),
    )


def _loads(root: Path) -> tuple[float | None, float | None, float | None]:
    match = re.match(r"(\d+\.\d+) (\d+\.\d+) (\d+\.\d+)", evidence.text(root / "proc/loadavg") or "")
    if match:
        return float(match[1]), float(match[2]), float(match[3])
    try:
        return os.getloadavg() if evidence.is_live(root) else (None, None, None)
    except OSError:
        return None, None, None


def _pressure(root: Path, what: str) -> float | None:
    """Return PSI's share of the last ten seconds in which some task waited."""
    match = re.search(r"^some avg10=(\d{1,3}\.\d+)", evidence.text(root / "proc/pressure" / what) or "", re.M)
    return float(match[1]) if match else None


def _memory(root: Path) -> dict[str, int]:
    """Return the lines of /proc/meminfo in bytes; where there is none, what psutil knows of them."""
    content = evidence.text(root / "proc/meminfo")
    if content is None and evidence.is_live(root):
        available, swap = system.available_bytes(), system.swap_bytes()
        told = {} if available is None else {"MemAvailable": available}
        return told if swap is None else {**told, "SwapTotal": swap[0], "SwapFree": swap[1]}
    found = re.findall(r"^(\w+):\s*(\d{1,15}) kB$", content or "", re.M)
    return {name: int(size) * 1024 for name, size in found}


def _swap_used(memory: dict[str, int]) -> int | None:
    total, free = memory.get("SwapTotal"), memory.get("SwapFree")
    return None if total is None or free is None else max(0, total - free)


def _uptime_seconds(root: Path) -> float | None:
    match = re.match(r"\d{1,12}\.\d+", evidence.text(root / "proc/uptime") or "")
    return float(match[0]) if match else None


def _on_battery(root: Path) -> bool | None:
    """Return whether no mains supply is connected; False where the machine has neither mains nor battery."""
    supplies = sensors.supplies(root)
    if supplies is None and evidence.is_live(root) and sys.platform == "darwin":
        mains = system.has_mains()
        return None if mains is None else not mains
    return sensors.Sensors(root=root, supplies=supplies).on_battery()


def _temperatures(root: Path) -> Iterator[float]:
    """Yield the temperatures of zones and processors in °C, but for those that no machine survives.

    Other sensors are left alone: asking a device that sleeps may wake it.
    """
    zones = (zone / "temp" for zone in evidence.entries(root / "sys/class/thermal", "thermal_zone[0-9]*"))
    chips = (chip for chip in evidence.entries(root / "sys/class/hwmon") if evidence.text(chip / "name") in SENSORS)
    sensors = (path for chip in chips for path in evidence.entries(chip, "temp*_input"))
    for path in (*zones, *sensors):
        degrees = (evidence.number(path) or 0) / 1000
        if 0 < degrees < LARGEST_CELSIUS:
            yield degrees
