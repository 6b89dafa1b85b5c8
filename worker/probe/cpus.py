"""Which CPUs the threads of a probe are pinned to, in which order, and which thread counts make a curve.

Fast cores come first, and every core once before any second thread of a core.
"""

import math
import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.fingerprint import evidence

CPUS = Path("sys/devices/system/cpu")
FAST_SHARE = 0.9
"""Cores of one type differ by some percent in what the kernel says of them, cores of two types by more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """One logical CPU that may be used: its place among the threads of its core, and whether that is a fast one."""

    number: int
    node: int = 0
    thread: int = 0
    fast: bool = True


def allowed() -> frozenset[int]:
    """Return the CPUs in this process's affinity mask; none where the system has no such mask."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


def ordered(root: Path, usable: Collection[int]) -> tuple[Cpu, ...]:
    """Return the `usable` CPUs of the machine at `root` in the order in which threads take them."""
    fast, nodes = _fast(root, usable), _nodes(root)
    cpus = [
        Cpu(number=number, node=nodes.get(number, 0), thread=_thread(root, number, usable), fast=number in fast)
        for number in sorted(usable)
    ]
    return tuple(sorted(cpus, key=lambda cpu: (cpu.thread, not cpu.fast, cpu.number)))


def counts(cpus: Sequence[Cpu], quota_cores: float | None) -> tuple[int, ...]:
    """Return the thread counts of a curve: one, the fast cores, all cores, all CPUs; none above the quota."""
    cores = [cpu for cpu in cpus if cpu.thread == 0]
    found = {1, sum(cpu.fast for cpu in cores), len(cores), len(cpus)}
    return capped(found, len(cpus), quota_cores)


def capped(wanted: Collection[int], n_cpus: int, quota_cores: float | None) -> tuple[int, ...]:
    """Return the `wanted` counts, in ascending order, none above the CPUs or the whole cores of the quota."""
    most = max(1, min(n_cpus, math.floor(quota_cores) if quota_cores is not None else n_cpus))
    return tuple(sorted({min(most, max(1, count)) for count in wanted} or {1}))


def _thread(root: Path, number: int, usable: Collection[int]) -> int:
    """Return how many usable CPUs of the same core come before this one."""
    topology = root / CPUS / f"cpu{number}/topology"
    siblings = evidence.cpu_list(
        evidence.text(topology / "core_cpus_list") or evidence.text(topology / "thread_siblings_list")
    )
    return sum(other < number and other in usable for other in siblings) if number in siblings else 0


def _fast(root: Path, usable: Collection[int]) -> frozenset[int]:
    """Return the CPUs of the fastest type: as the kernel names it, else by capacity, else by the highest clock."""
    named = evidence.cpu_list(evidence.text(root / "sys/devices/cpu_core/cpus")) & frozenset(usable)
    if named:
        return named
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        speeds = dict(_speeds(root, usable, name))
        if len(speeds) == len(usable):
            return frozenset(number for number, speed in speeds.items() if speed >= FAST_SHARE * max(speeds.values()))
    return frozenset(usable)


def _speeds(root: Path, usable: Collection[int], name: str) -> Iterator[tuple[int, int]]:
    for number in usable:
        speed = evidence.number(root / CPUS / f"cpu{number}" / name)
        if speed and speed > 0:
            yield number, speed


def _nodes(root: Path) -> dict[int, int]:
    """Return the memory node of each CPU."""
    found: dict[int, int] = {}
    for node in evidence.entries(root / "sys/devices/system/node", "node[0-9]*"):
        if node.name[4:].isdecimal():
            found |= dict.fromkeys(evidence.cpu_list(evidence.text(node / "cpulist")), int(node.name[4:]))
    return found
