"""Fast and saving cores of one x86 package: which CPUs are which, and what their designs are called."""

from collections.abc import Mapping
from pathlib import Path

from worker.fingerprint import evidence
from worker.fingerprint.topology import CPUS, HYBRID, SHARING, Topology, siblings

PERFORMANCE, EFFICIENCY = "performance", "efficiency"

DESIGNS = {
    "6-138": ("Sunny Cove", "Tremont"),
    "6-151": ("Golden Cove", "Gracemont"),
    "6-154": ("Golden Cove", "Gracemont"),
    "6-181": ("Redwood Cove", "Crestmont"),
    "6-183": ("Raptor Cove", "Gracemont"),
    "6-186": ("Raptor Cove", "Gracemont"),
    "6-191": ("Golden Cove", "Gracemont"),
    "6-170": ("Redwood Cove", "Crestmont"),
    "6-172": ("Redwood Cove", "Crestmont"),
    "6-189": ("Lion Cove", "Skymont"),
    "6-197": ("Lion Cove", "Skymont"),
    "6-198": ("Lion Cove", "Skymont"),
    "6-204": ("Cougar Cove", "Darkmont"),
}
"""Names of the performance and the efficiency core by CPU family and model, as Intel publishes them."""


def kinds(root: Path, topology: Topology) -> dict[int, str]:
    """Return the kind of each CPU where there are two; empty where all cores are alike.

    Kernels from 5.13 on list both kinds. Before, the kinds differ in their second-level cache and in their
    highest clock, each of which alone also differs between equal cores: some are sold to boost higher,
    and a cache may be shared by cores that are off.
    """
    core, atom, low_power = (evidence.cpu_list(evidence.text(root / path)) & topology.cpus for path in HYBRID)
    if core or atom or low_power:
        return dict.fromkeys(core, PERFORMANCE) | dict.fromkeys(atom | low_power, EFFICIENCY)
    clocks = max_clocks(root, topology.cpus)
    if len(set(clocks.values())) < 2:
        return {}
    highest: dict[object, int] = {}
    place = {cpu: _second_level(root, cpu, topology) for cpu in topology.cpus}
    for cpu, cache in place.items():
        highest[cache] = max(highest.get(cache, 0), clocks[cpu])
    top = max(highest.values())
    found = {cpu: PERFORMANCE if highest[cache] == top else EFFICIENCY for cpu, cache in place.items()}
    return found if EFFICIENCY in found.values() else {}


def design_name(key: str | None, kind: str | None) -> str | None:
    """Return the name of the core of this kind in a processor with this `family-model-stepping`, if known."""
    names = DESIGNS.get((key or "").rpartition("-")[0])
    return names[kind == EFFICIENCY] if names and kind else None


def max_clocks(root: Path, cpus: frozenset[int]) -> Mapping[int, int]:
    """Return the highest clock of each CPU in kHz; empty unless every CPU tells its own."""
    clocks: dict[int, int] = {}
    for cpu in cpus:
        clock = evidence.number(root / CPUS / f"cpu{cpu}/cpufreq/cpuinfo_max_freq")
        if clock is None:
            return {}
        clocks[cpu] = clock
    return clocks


def _second_level(root: Path, cpu: int, topology: Topology) -> tuple[str | None, int]:
    """Return the size of the CPU's second-level cache and how many cores share it."""
    for index in evidence.entries(root / CPUS / f"cpu{cpu}/cache", "index[0-9]*"):
        if evidence.number(index / "level") == 2:
            sharing = siblings(index, SHARING)
            return evidence.text(index / "size"), len({topology.core_of.get(other) for other in sharing})
    return None, 0
