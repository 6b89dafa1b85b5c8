"""What GPUs tell of one moment: clocks, power, heat, limits and who is on them; through NVML and /sys.

A look costs a few calls or file reads per GPU. A sensor never raises: what it cannot read is None.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Protocol

from worker.fingerprint import amd, evidence, intel, pci
from worker.fingerprint.evidence import Notes
from worker.fingerprint.nvml import Nvml, bus_id

EVENT_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
    0x100: "display clock",
    0x200: "board limit",
    0x400: "reliability",
}
"""Bits of `nvmlClocksEventReasons` in words."""

IDLE = "idle"
POLICIES = {"power": 0, "thermal": 1, "board limit": 3, "reliability": 5}
"""Values of `nvmlPerfPolicyType_t` whose violations are counted."""

CORE_CLOCK, MEMORY_CLOCK, TEMPERATURE = 1, 2, 0
"""NVML_CLOCK_SM, NVML_CLOCK_MEM and NVML_TEMPERATURE_GPU."""

DESKTOP_BYTES = 1 << 30
"""A process that only draws, and holds less than this, is a desktop and no competitor."""

INTEL_REASONS = {
    "pl1": "software power cap",
    "pl2": "software power cap",
    "pl4": "hardware power brake",
    "thermal": "hardware thermal slowdown",
    "prochot": "hardware slowdown",
    "ratl": "hardware thermal slowdown",
    "vr_thermalert": "hardware thermal slowdown",
    "vr_tdc": "hardware power brake",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One GPU at one moment while something runs."""

    core_clock_hz: int | None = None
    memory_clock_hz: int | None = None
    power_watts: float | None = None
    temperature_c: float | None = None
    memory_used_bytes: int | None = None
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What is compared from one end to the other; `pids` are the processes that compute on the GPU now."""

    energy_joules: float | None = None
    violation_ns: dict[str, int] = field(default_factory=dict)
    performance_state: str | None = None
    pids: tuple[int, ...] = ()


class Sensor(Protocol):
    """One GPU that can be looked at."""

    index: int
    name: str
    bus_id: str | None

    def look(self) -> Look:
        """Return how it is now."""

    def counters(self) -> Counters:
        """Return its counters now."""


class NvmlSensor:
    """A GPU of NVIDIA. What it does not support is not asked a second time."""

    def __init__(self, nvml: Nvml, handle: object, index: int) -> None:
        self._nvml, self._handle, self.index = nvml, handle, index
        self._refused: set[str] = set()
        self.name = nvml.text("DeviceGetName", handle) or "unnamed NVIDIA GPU"
        self.bus_id = bus_id(getattr(nvml.ask("DeviceGetPciInfo", handle), "busId", None))

    def look(self) -> Look:
        """Return how it is now."""
        clock, memory = self._number("DeviceGetClockInfo", CORE_CLOCK), self._number("DeviceGetClockInfo", MEMORY_CLOCK)
        power = self._number("DeviceGetPowerUsage")
        used = getattr(self._ask("DeviceGetMemoryInfo"), "used", None)
        return Look(
            core_clock_hz=None if clock is None else clock * 1_000_000,
            memory_clock_hz=None if memory is None else memory * 1_000_000,
            power_watts=None if power is None else power / 1000,
            temperature_c=self._number("DeviceGetTemperature", TEMPERATURE),
            memory_used_bytes=used if isinstance(used, int) else None,
            reasons=self._reasons(),
        )

    def counters(self) -> Counters:
        """Return its counters now."""
        energy = self._number("DeviceGetTotalEnergyConsumption")
        violations = {name: self._violation(policy) for name, policy in POLICIES.items()}
        state = self._number("DeviceGetPerformanceState")
        return Counters(
            energy_joules=None if energy is None else energy / 1000,
            violation_ns={name: value for name, value in violations.items() if value is not None},
            # 32 is NVML's "unknown".
            performance_state=f"P{state}" if state is not None and state < 16 else None,
            pids=tuple(sorted({*self._pids("Compute"), *self._pids("Graphics")})),
        )

    def _ask(self, name: str, *arguments: object) -> object:
        key = f"{name}{arguments}"
        if key in self._refused:
            return None
        answer = self._nvml.ask(name, self._handle, *arguments)
        if answer is None:
            self._refused.add(key)
        return answer

    def _number(self, name: str, *arguments: object) -> int | None:
        answer = self._ask(name, *arguments)
        return answer if type(answer) is int and answer >= 0 else None

    def _reasons(self) -> tuple[str, ...]:
        bits = self._number("DeviceGetCurrentClocksEventReasons")
        if bits is None:  # named so before driver 535
            bits = self._number("DeviceGetCurrentClocksThrottleReasons")
        return in_words(bits or 0)

    def _violation(self, policy: int) -> int | None:
        time = getattr(self._ask("DeviceGetViolationStatus", policy), "violationTime", None)
        return time if type(time) is int else None

    def _pids(self, kind: str) -> list[int]:
        answer = self._ask(f"DeviceGet{kind}RunningProcesses")
        pids = []
        for process in answer if isinstance(answer, list | tuple) else ():
            used = getattr(process, "usedGpuMemory", None)
            small = kind == "Graphics" and not (isinstance(used, int) and used >= DESKTOP_BYTES)
            if isinstance(getattr(process, "pid", None), int) and not small:
                pids.append(process.pid)
        return pids


class AmdSensor:
    """A GPU of AMD, by the files of its driver."""

    def __init__(self, device: Path, index: int, root: Path) -> None:
        self._device, self.index, self._root = device, index, root
        number = pci.number(device)
        self.name = evidence.text(device / "product_name") or f"AMD GPU 1002:{number}"
        self.bus_id = pci.place(device)
        self._hwmon = next(iter(evidence.entries(device / "hwmon", "hwmon*")), device / "hwmon/hwmon0")

    def look(self) -> Look:
        """Return how it is now; a card that sleeps is not woken up by it."""
        if _sleeps(self._device):
            return Look(reasons=(IDLE,))
        power = _number_of(self._hwmon, "power1_average", "power1_input")
        return Look(
            core_clock_hz=_number_of(self._hwmon, "freq1_input") or _active(self._device / "pp_dpm_sclk"),
            memory_clock_hz=_number_of(self._hwmon, "freq2_input") or _active(self._device / "pp_dpm_mclk"),
            power_watts=None if power is None else power / 1e6,
            temperature_c=_hottest_c(self._hwmon),
            memory_used_bytes=evidence.number(self._device / "mem_info_vram_used"),
            reasons=() if evidence.number(self._device / "gpu_busy_percent") != 0 else (IDLE,),
        )

    def counters(self) -> Counters:
        """Return its counters now; the compute driver lists the processes of all cards together."""
        processes = evidence.entries(self._root / "sys/class/kfd/kfd/proc", "[0-9]*")
        return Counters(
            energy_joules=_joules(self._hwmon),
            performance_state=evidence.text(self._device / "power_dpm_force_performance_level"),
            pids=tuple(int(path.name) for path in processes if path.name.isdigit()),
        )


class IntelSensor:
    """A GPU of Intel, by the files of i915 or xe."""

    def __init__(self, card: Path, index: int) -> None:
        self._card, self.index = card, index
        number = pci.number(card / "device")
        self.name = f"Intel {intel.DISCRETE[number]}" if number in intel.DISCRETE else f"Intel GPU 8086:{number}"
        self.bus_id = pci.place(card / "device")
        self._hwmon = next(iter(evidence.entries(card / "device/hwmon", "hwmon*")), card / "device/hwmon/hwmon0")
        self._frequency = card / "device/tile0/gt0/freq0"

    def look(self) -> Look:
        """Return how it is now; a card that sleeps is not woken up by it."""
        if _sleeps(self._card / "device"):
            return Look(reasons=(IDLE,))
        clock = evidence.number(self._frequency / "act_freq") or _number_of(
            self._card, "gt/gt0/rps_act_freq_mhz", "gt_act_freq_mhz"
        )
        # Clocks of 0 are those of a part that is switched off between two pieces of work.
        return Look(
            core_clock_hz=clock * 1_000_000 if clock else None,
            temperature_c=_hottest_c(self._hwmon),
            reasons=self._reasons(),
        )

    def counters(self) -> Counters:
        """Return its counters now."""
        return Counters(energy_joules=_joules(self._hwmon))

    def _reasons(self) -> tuple[str, ...]:
        places = ((self._frequency / "throttle", "reason_"), (self._card / "gt/gt0", "throttle_reason_"))
        words = (
            word
            for directory, prefix in places
            for name, word in INTEL_REASONS.items()
            if evidence.number(directory / f"{prefix}{name}") == 1
        )
        return tuple(dict.fromkeys(words))


def _hottest_c(hwmon: Path) -> float | None:
    heat = (evidence.number(path) for path in evidence.entries(hwmon, "temp*_input"))
    return max((value / 1000 for value in heat if value is not None), default=None)


def _joules(hwmon: Path) -> float | None:
    microjoules = evidence.number(hwmon / "energy1_input")
    return None if microjoules is None else microjoules / 1e6


def in_words(bits: int) -> tuple[str, ...]:
    """Return NVML's reasons in words, those without a word as a number."""
    words = [word for bit, word in EVENT_REASONS.items() if bits & bit]
    left = bits & ~sum(EVENT_REASONS)
    return (*words, f"reason {left:#x}") if left else tuple(words)


def of_nvml(module: ModuleType) -> tuple[list[Sensor], Callable[[], object]]:
    """Return a sensor for each GPU that NVML lets us ask, and what ends the asking."""
    nvml = Nvml(module, Notes())
    nvml.ask("Init")
    if nvml.last_failed:
        return [], lambda: None
    sensors: list[Sensor] = []
    for index in range(min(nvml.number("DeviceGetCount") or 0, 64)):
        handle = nvml.ask("DeviceGetHandleByIndex", index)
        if handle is not None:
            sensors.append(NvmlSensor(nvml, handle, index))
    return sensors, lambda: nvml.ask("Shutdown")


def of_files(root: Path) -> list[Sensor]:
    """Return a sensor for each GPU of AMD and Intel that the driver shows below `root`."""
    sensors: list[Sensor] = []
    for card in evidence.entries(root / "sys/class/drm", "card[0-9]*"):
        vendor = evidence.text(card / "device/vendor")
        if "-" in card.name:
            continue
        if vendor == amd.VENDOR and evidence.number(card / "device/mem_info_vram_total") is not None:
            sensors.append(AmdSensor(card / "device", len(sensors), root))
        elif vendor == intel.VENDOR and pci.driver(card / "device") in intel.DRIVERS:
            sensors.append(IntelSensor(card, len(sensors)))
    return sensors


def process_name(root: Path, pid: int) -> str:
    """Return `NAME (PID)`, at most 40 characters; the number alone where the name cannot be read."""
    name = "".join(c for c in (evidence.text(root / f"proc/{pid}/comm") or "") if c.isprintable())[:24]
    return f"{name} ({pid})" if name else f"process {pid}"


def _sleeps(device: Path) -> bool:
    return evidence.text(device / "power/runtime_status") == "suspended"


def _number_of(directory: Path, *names: str) -> int | None:
    values = (evidence.number(directory / name) for name in names)
    return next((value for value in values if value is not None and value >= 0), None)


def _active(path: Path) -> int | None:
    """Return the level that a pp_dpm file marks, such as `1: 495Mhz *`, in Hz."""
    match = re.search(r"^\s*\w+:\s*(\d{1,6})\s*Mhz\s*\*", evidence.text(path) or "", re.M | re.I)
    return int(match[1]) * 1_000_000 if match else None


def grown(earlier: Mapping[str, int], later: Mapping[str, int]) -> dict[str, int]:
    """Return by how much each counter grew; one that went back, as after a reset of the driver, is left out."""
    return {name: later[name] - value for name, value in earlier.items() if name in later and later[name] >= value}
