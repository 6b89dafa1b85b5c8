"""How much memory the machine has, and how much of it and of the CPUs this process may use."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import psutil

from schema.host import Allocation
from worker.fingerprint import evidence
from worker.fingerprint.evidence import Notes

GIB = 1 << 30
BLOCKS = Path("sys/devices/system/memory")


def installed_gib(root: Path, notes: Notes) -> int | None:
    """Return the memory in GiB, rounded up: kernels keep different amounts of the same memory for themselves.

    The kernel's memory blocks are counted where it shows them; MemTotal stands in.
    """
    block_size = evidence.text(root / BLOCKS / "block_size_bytes")
    if block_size and re.fullmatch(r"[0-9a-fA-F]{1,15}", block_size):
        blocks = len(evidence.entries(root / BLOCKS, "memory[0-9]*"))
        if blocks:
            notes.found("memory_gib", "/sys/devices/system/memory")
            return -(-blocks * int(block_size, 16) // GIB)
    total = _mem_total(root)
    if total is None:
        notes.missing("memory_gib", "neither memory blocks in /sys nor MemTotal can be read")
        return None
    notes.found("memory_gib", "MemTotal")
    return -(-total // GIB)


def allocation(root: Path, notes: Notes) -> Allocation:
    """Return the CPUs in this process's affinity mask and the limits of its control groups, all ancestors included."""
    total = _mem_total(root)
    limits = [limit for limit in _memory_limits(root) if total is None or limit < total]
    return Allocation(
        n_cpus=_allowed_cpus(root, notes),
        cpu_quota_cores=min(_cpu_quotas(root), default=None),
        memory_limit_bytes=min(limits, default=None),
        container=_container(root),
    )


def _mem_total(root: Path) -> int | None:
    match = re.search(r"^MemTotal:\s*(\d+) kB", evidence.text(root / "proc/meminfo") or "", re.M)
    if match:
        return int(match[1]) * 1024
    return psutil.virtual_memory().total if evidence.is_live(root) else None


def _allowed_cpus(root: Path, notes: Notes) -> int | None:
    if evidence.is_live(root) and hasattr(os, "sched_getaffinity"):
        notes.found("n_cpus", "sched_getaffinity")
        return len(os.sched_getaffinity(0))
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", evidence.text(root / "proc/self/status") or "", re.M)
    allowed = len(evidence.cpu_list(match[1])) if match else 0
    if allowed:
        notes.found("n_cpus", "/proc/self/status")
        return allowed
    if evidence.is_live(root):
        notes.found("n_cpus", "psutil")
        return psutil.cpu_count()
    notes.missing("n_cpus", "no affinity mask can be read")
    return None


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield the directories of this process's control group and all its ancestors that we can see.

    Version 2 is one hierarchy; in version 1 each controller has its own. Inside a container the
    group's path may lie outside what is mounted: then the mount itself is the group.
    """
    places = dict(_own_groups(root))
    for mounted, mount_point, controllers in _mounts(root):
        own = places.get("" if controllers is None else controller)
        if own is None or (controllers is not None and controller not in controllers):
            continue
        top = root / mount_point.lstrip("/")
        below = own.removeprefix(mounted.rstrip("/")) if (own + "/").startswith(mounted.rstrip("/") + "/") else ""
        parts = [part for part in below.split("/") if part not in ("", ".", "..")]
        for depth in range(len(parts), -1, -1):
            yield top.joinpath(*parts[:depth])


def _own_groups(root: Path) -> Iterator[tuple[str, str]]:
    """Yield controller (`` for version 2) and path of each line of /proc/self/cgroup."""
    for line in (evidence.text(root / "proc/self/cgroup") or "").splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3:
            yield from ((controller, fields[2]) for controller in fields[1].split(","))


def _mounts(root: Path) -> Iterator[tuple[str, str, tuple[str, ...] | None]]:
    """Yield root, mount point and controllers (None for version 2) of each mounted control group hierarchy."""
    for line in (evidence.text(root / "proc/self/mountinfo") or "").splitlines():
        place, _, device = line.partition(" - ")
        fields, kind = place.split(), device.split()
        if len(fields) >= 5 and len(kind) >= 3 and kind[0] in ("cgroup", "cgroup2"):
            yield fields[3], fields[4], None if kind[0] == "cgroup2" else tuple(kind[2].split(","))


def _memory_limits(root: Path) -> Iterator[int]:
    for group in _groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            limit = evidence.number(group / name)
            # Version 1 says "no limit" with a number near 2^63.
            if limit is not None and 0 < limit < 1 << 60:
                yield limit


def _cpu_quotas(root: Path) -> Iterator[float]:
    """Yield quota ÷ period, in cores, of every group that has one."""
    for group in _groups(root, "cpu"):
        match = re.fullmatch(r"(\d{1,15}) (\d{1,15})", evidence.text(group / "cpu.max") or "")
        quota, period = (int(match[1]), int(match[2])) if match else (None, None)
        if quota is None:
            quota, period = evidence.number(group / "cpu.cfs_quota_us"), evidence.number(group / "cpu.cfs_period_us")
        if quota and period and quota > 0 and period > 0:
            yield quota / period


def _container(root: Path) -> str | None:
    if (root / "run/.containerenv").exists():
        return "podman"
    named = evidence.text(root / "run/systemd/container")
    group = evidence.text(root / "proc/self/cgroup") or ""
    if "kubepods" in group:
        return "kubernetes"
    if (root / ".dockerenv").exists():
        return "docker"
    known = next((kind for kind in ("docker", "lxc", "libpod") if f"/{kind}" in group), None)
    return named or known
