"""The machine's own sensors: clocks, temperatures, what holds clocks down, and where the power comes from.

They are looked for once, since some machines have hundreds and some take milliseconds to answer; those are left
out. Each is read from /sys; a machine may have none of them, as most virtual ones do.
"""

import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from worker.conditions.counters import Counters, number, text

SLOW_SECONDS = 0.002
TRIES = 3
MOST_CLOCKS = 16
CPUS = "sys/devices/system/cpu"
SUPPLIES = "sys/class/power_supply"
CPU_CHIPS = ("coretemp", "k10temp", "k8temp", "zenpower", "via_cputemp", "cpu_thermal", "soc_thermal", "scpi_sensors")
NOT_COMPUTING = re.compile(r"(?i)wifi|wlan|nvme|bat|charg|skin|pmic|modem|int3400|usb")
"""Zones of other things than what computes; `PMIC-Die` of some boards always says 100 °C."""

CPU_COOLING = re.compile(r"(?i)processor|cpufreq|cpu|devfreq|intel_powerclamp")
"""Cooling devices that slow computing down; a fan does not."""

THROTTLE_FILES = (
    "core_throttle_count",
    "package_throttle_count",
    "core_throttle_total_time_ms",
    "package_throttle_total_time_ms",
    "core_power_limit_count",
    "package_power_limit_count",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensors:
    """Where this machine's sensors are, as names under `root`; `cooling` has each device's greatest state."""

    root: Path
    temperatures: tuple[str, ...] = ()
    cooling: tuple[tuple[str, int], ...] = ()
    throttling: tuple[str, ...] = ()
    firmware: str | None = None
    supplies: tuple[str, ...] | None = None
    has_clocks: bool = False

    @classmethod
    def find(cls, root: Path = Path("/")) -> "Sensors":
        """Return the sensors of the machine at `root`."""
        cpus = [name for name in _entries(root, CPUS) if re.fullmatch(r"cpu\d+", name)]
        return cls(
            root=root,
            temperatures=tuple(_quick(root, [*_zones(root), *_chips(root)])),
            cooling=tuple(_cooling(root)),
            throttling=tuple(f"{CPUS}/{cpu}/thermal_throttle" for cpu in cpus if _throttles(root, cpu)),
            firmware=next(_firmware(root), None),
            supplies=supplies(root),
            has_clocks=any(os.path.exists(f"{root}/{_clock(cpu)}") for cpu in cpus),
        )

    def clocks_hz(self, cpus: Iterable[int]) -> list[int]:
        """Return the present clock of each of `cpus`, of 16 at most."""
        if not self.has_clocks:
            return []
        found = (number(self.root, _clock(f"cpu{cpu}")) for cpu in sorted(set(cpus))[:MOST_CLOCKS])
        return [khz * 1000 for khz in found if khz and khz > 0]

    def temperature_c(self) -> float | None:
        """Return the highest temperature; 0 °C and less, or 150 and more, is a sensor's fault."""
        found = (number(self.root, name) for name in self.temperatures)
        return max((t / 1000 for t in found if t is not None and 0 < t < 150_000), default=None)

    def cooling_share(self) -> float | None:
        """Return how far the kernel holds computing back for heat: state ÷ greatest state of the device furthest on."""
        states = [(number(self.root, name), most) for name, most in self.cooling]
        return max((max(0, state) / most for state, most in states if state is not None), default=None)

    def firmware_flags(self) -> int | None:
        """Return Raspberry Pi's bits: 0 under-voltage, 1 clock capped, 2 throttled, 3 hot; from 16 on: once was."""
        found = text(self.root, self.firmware).strip().removeprefix("0x") if self.firmware else ""
        return int(found, 16) if re.fullmatch(r"[0-9a-fA-F]{1,8}", found) else None

    def throttled(self) -> Counters:
        """Return Intel's counters of thermal and power limits, by the name of their file and CPU."""
        names = ((name, f"{place}/{name}") for place in self.throttling for name in THROTTLE_FILES)
        found = ((f"{name}@{path}", number(self.root, path)) for name, path in names)
        return {name: value for name, value in found if value is not None and value >= 0}

    def on_battery(self) -> bool | None:
        """Return whether the machine runs on a battery; None where the kernel does not list power supplies."""
        kinds = [(text(self.root, f"{place}/type").strip(), place) for place in self.supplies or ()]
        plugged = [number(self.root, f"{place}/online") for kind, place in kinds if kind in ("Mains", "USB")]
        if any(plugged):
            return False
        states = [text(self.root, f"{place}/status").strip() for kind, place in kinds if kind == "Battery"]
        if any(state == "Discharging" for state in states):
            return True
        return None if self.supplies is None else bool(states and plugged)


def _entries(root: Path, place: str) -> list[str]:
    try:
        return sorted(os.listdir(f"{root}/{place}"))
    except OSError:
        return []


def _clock(cpu: str) -> str:
    return f"{CPUS}/{cpu}/cpufreq/scaling_cur_freq"


def _throttles(root: Path, cpu: str) -> bool:
    return os.path.isdir(f"{root}/{CPUS}/{cpu}/thermal_throttle")


def _zones(root: Path) -> Iterator[str]:
    for name in _entries(root, "sys/class/thermal"):
        kind = text(root, f"sys/class/thermal/{name}/type").strip()
        if name.startswith("thermal_zone") and not NOT_COMPUTING.search(kind):
            yield f"sys/class/thermal/{name}/temp"


def _chips(root: Path) -> Iterator[str]:
    for chip in _entries(root, "sys/class/hwmon"):
        place = f"sys/class/hwmon/{chip}"
        if text(root, f"{place}/name").strip() in CPU_CHIPS:
            files = [name for name in _entries(root, place) if re.fullmatch(r"temp\d+_input", name)]
            yield from (f"{place}/{name}" for name in files)


def _quick(root: Path, names: list[str]) -> Iterator[str]:
    return (name for name in names if any(_answers_quickly(root, name) for _ in range(TRIES)))


def _answers_quickly(root: Path, name: str) -> bool:
    begun = time.perf_counter()
    return number(root, name) is not None and time.perf_counter() - begun < SLOW_SECONDS


def _cooling(root: Path) -> Iterator[tuple[str, int]]:
    for name in _entries(root, "sys/class/thermal"):
        place = f"sys/class/thermal/{name}"
        most = number(root, f"{place}/max_state")
        if most and most > 0 and CPU_COOLING.search(text(root, f"{place}/type")):
            yield f"{place}/cur_state", most


def _firmware(root: Path) -> Iterator[str]:
    for place in ("sys/devices/platform/soc", "sys/devices/platform"):
        for name in _entries(root, place):
            path = f"{place}/{name}/get_throttled"
            if name.endswith("firmware") and os.path.exists(f"{root}/{path}"):
                yield path


def supplies(root: Path) -> tuple[str, ...] | None:
    """Return the machine's own power supplies; None where the kernel lists none of any kind."""
    return tuple(_supplies(root)) if os.path.isdir(f"{root}/{SUPPLIES}") else None


def _supplies(root: Path) -> Iterator[str]:
    """Yield the machine's own power supplies: a mouse has a battery too, of scope Device."""
    for name in _entries(root, SUPPLIES):
        place = f"{SUPPLIES}/{name}"
        if text(root, f"{place}/scope").strip() != "Device":
            yield place
