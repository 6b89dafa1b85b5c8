"""How the system lets the processor clock: driver, governor, preference, turbo and power limit. A policy, no clock."""

import re
from pathlib import Path

from worker.fingerprint import evidence
from worker.fingerprint.evidence import Notes

CPUS = Path("sys/devices/system/cpu")
POWER_CAP = Path("sys/class/powercap")


def governor(root: Path, notes: Notes) -> str | None:
    """Return the governor, or several joined by `+` where CPUs differ."""
    return _of_all(root, notes, "governor", "scaling_governor")


def scaling_driver(root: Path, notes: Notes) -> str | None:
    """Return the driver that sets the clock, such as intel_pstate."""
    return _of_all(root, notes, "scaling_driver", "scaling_driver")


def energy_preference(root: Path, notes: Notes) -> str | None:
    """Return what the processor is told to prefer, such as balance_performance."""
    return _of_all(root, notes, "energy_preference", "energy_performance_preference")


def turbo(root: Path, notes: Notes) -> str | None:
    """Return "on" or "off": whether clocks above the nominal one are allowed."""
    for place, means_on in (("intel_pstate/no_turbo", 0), ("cpufreq/boost", 1)):
        answer = evidence.number(root / CPUS / place)
        if answer in (0, 1):
            notes.found("turbo", f"/{CPUS / place}")
            return "on" if answer == means_on else "off"
    boosts = {evidence.number(place / "boost") for place in _policies(root)} & {0, 1}
    if boosts:
        notes.found("turbo", f"/{CPUS}/cpufreq")
        return "+".join(sorted("on" if boost else "off" for boost in boosts))
    notes.missing("turbo", "the kernel does not tell whether turbo clocks are allowed")
    return None


def power_limit_watts(root: Path, notes: Notes) -> float | None:
    """Return the long-term power limit of all packages together, as RAPL enforces it."""
    limits = []
    for zone in evidence.entries(root / POWER_CAP, "intel-rapl:[0-9]*"):
        is_package = re.fullmatch(r"package-\d+", evidence.text(zone / "name") or "")
        limit = evidence.number(zone / "constraint_0_power_limit_uw")
        if is_package and limit and evidence.text(zone / "constraint_0_name") == "long_term":
            limits.append(limit)
    if not limits:
        notes.missing("power_limit_watts", "no package under /sys/class/powercap tells its limit")
        return None
    notes.found("power_limit_watts", "/sys/class/powercap")
    return sum(limits) / 1e6


def _of_all(root: Path, notes: Notes, name: str, file: str) -> str | None:
    """Return what all CPUs say in `file`, their different answers joined by `+`."""
    answers = {evidence.line(place / file) for place in _policies(root)} - {None}
    if not answers:
        notes.missing(name, "the kernel shows no frequency scaling, as in most virtual machines")
        return None
    notes.found(name, f"/{CPUS}/cpufreq")
    return evidence.short("+".join(sorted(str(answer) for answer in answers)))


def _policies(root: Path) -> list[Path]:
    policies = evidence.entries(root / CPUS / "cpufreq", "policy[0-9]*")
    return policies or [cpu / "cpufreq" for cpu in evidence.entries(root / CPUS, "cpu[0-9]*")]
