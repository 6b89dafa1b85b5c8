"""How much of the machine this process may use: CPUs, memory, NUMA nodes and GPUs, by every limit that is set."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from schema.host import Allocation
from worker import system
from worker.fingerprint import cgroups, container, evidence
from worker.fingerprint.cgroups import Groups
from worker.fingerprint.evidence import Notes

STATUS = Path("proc/self/status")
SYSTEM = Path("sys/devices/system")


def read(
    root: Path,
    notes: Notes,
    installed_bytes: int | None = None,
    core_types: Mapping[str, frozenset[int]] | None = None,
    n_gpus: int | None = None,
) -> Allocation:
    """Return what this process may use, the tightest of its own limits and those of all its control groups.

    `installed_bytes` is the memory of the machine: a limit from there on limits nothing. `core_types` holds the
    CPUs of each core type by its name, `n_gpus` is how many GPUs can be used from here (None: not known).
    """
    cpusets = cgroups.groups(root, "cpuset")
    allowed = _cpus(root, cpusets)
    return Allocation(
        n_cpus=_n_cpus(root, notes, allowed),
        cpu_quota_cores=_quota(root, notes),
        memory_limit_bytes=_memory(root, notes, installed_bytes),
        container=container.read(root, notes),
        cpus_by_type=_by_type(notes, allowed, core_types or {}),
        n_numa_nodes=_numa_nodes(root, notes, cpusets),
        n_gpus=n_gpus,
    )


def _cpus(root: Path, cpusets: Groups) -> frozenset[int]:
    """Return the CPUs in the affinity mask and all cpusets, as far as they are online; empty where nothing tells."""
    if evidence.is_live(root) and hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    grouped = cgroups.listed(cpusets.directories, "cpus")
    allowed = evidence.cpu_list(_status(root, "Cpus_allowed_list")) or grouped or frozenset()
    # The mask in `status` may name CPUs that could be plugged in, hence what is online too.
    online = evidence.cpu_list(evidence.text(root / SYSTEM / "cpu/online"))
    return _common(allowed, online, grouped)


def _common(members: frozenset[int], *limits: frozenset[int] | None) -> frozenset[int]:
    """Return what all of them allow; a limit that would leave nothing is of another machine, or damaged."""
    for limit in limits:
        members = members & limit if limit and members & limit else members
    return members


def _status(root: Path, name: str) -> str | None:
    match = re.search(rf"^{name}:\s*(\S+)", evidence.text(root / STATUS) or "", re.M)
    return match[1] if match else None


def _n_cpus(root: Path, notes: Notes, allowed: frozenset[int]) -> int | None:
    if allowed:
        notes.found("n_cpus", "sched_getaffinity" if evidence.is_live(root) else "/proc/self/status and cpusets")
        return len(allowed)
    if evidence.is_live(root):
        notes.found("n_cpus", "psutil")
        return system.n_cpus()
    notes.missing("n_cpus", "neither an affinity mask nor a cpuset can be read")
    return None


def _by_type(notes: Notes, allowed: frozenset[int], core_types: Mapping[str, frozenset[int]]) -> dict[str, int]:
    counted = {name: len(allowed & cpus) for name, cpus in core_types.items()}
    if sum(counted.values()) == len(allowed) > 0:
        notes.found("cpus_by_type", "the CPUs allowed and their core types")
        return counted
    notes.missing("cpus_by_type", "the core type of each CPU that may be used is not known")
    return {}


def _quota(root: Path, notes: Notes) -> float | None:
    found = cgroups.groups(root, "cpu")
    quota = cgroups.quota_cores(found.directories)
    _tell(root, notes, "cpu_quota_cores", found, quota)
    return quota


def _memory(root: Path, notes: Notes, installed_bytes: int | None) -> int | None:
    found = cgroups.groups(root, "memory")
    limit = cgroups.memory_bytes(found.directories)
    limits = limit is not None and (installed_bytes is None or limit < installed_bytes)
    _tell(root, notes, "memory_limit_bytes", found, limit if limits else None)
    return limit if limits else None


def _tell(root: Path, notes: Notes, name: str, found: Groups, limit: float | None) -> None:
    """Note who set the limit, or that there is none, or that it cannot be known: three answers."""
    if limit is not None:
        notes.found(name, "control groups")
    elif not found.is_known and evidence.is_live(root) and sys.platform != "linux":
        notes.found(name, "this system has no control groups")
    elif not found.is_known:
        notes.missing(name, "this process's control groups cannot be read")
    elif found.hides_parents:
        notes.found(name, "no control group that is visible from here limits it")
    else:
        notes.found(name, "no control group limits it")


def _numa_nodes(root: Path, notes: Notes, cpusets: Groups) -> int | None:
    """Count the nodes with memory that this process may take it from."""
    grouped = cgroups.listed(cpusets.directories, "mems")
    allowed = evidence.cpu_list(_status(root, "Mems_allowed_list")) or grouped or frozenset()
    nodes = root / SYSTEM / "node"
    filled = evidence.first_text([nodes / "has_memory", nodes / "has_normal_memory", nodes / "online"])
    present = evidence.cpu_list(filled[0]) if filled else None
    count = len(_common(allowed, present, grouped))
    if not count:
        notes.missing("n_numa_nodes", "/proc/self/status does not tell which may be used")
        return None
    notes.found("n_numa_nodes", "/proc/self/status and cpusets")
    return count
