"""How many packages, cores and threads there are, and their caches: from /sys, else /proc/cpuinfo, else psutil."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import psutil

from schema.host import Cache
from worker.fingerprint import evidence
from worker.fingerprint.evidence import Notes

CPUS = Path("sys/devices/system/cpu")
SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Counts over the CPUs that are online; None where nothing tells."""

    n_packages: int | None = None
    n_cores: int | None = None
    n_threads: int | None = None
    caches: tuple[Cache, ...] = ()


def read(root: Path, notes: Notes, blocks: list[dict[str, str]]) -> Topology:
    """Return the counts and caches of the machine at `root`; `blocks` are those of its /proc/cpuinfo."""
    online = _online(root)
    counts = _from_sys(root, online) or _from_cpuinfo(blocks)
    source = "/sys/devices/system/cpu/cpu*/topology" if _has_topology(root, online) else "/proc/cpuinfo"
    if evidence.is_live(root) and (counts.n_cores is None or counts.n_threads is None):
        counts, source = _with_psutil(counts), "psutil"
    for name, count in (
        ("n_packages", counts.n_packages),
        ("n_cores_physical", counts.n_cores),
        ("n_cores_logical", counts.n_threads),
    ):
        if count is None:
            notes.missing(name, "neither /sys nor /proc/cpuinfo tells")
        else:
            notes.found(name, source)
    caches = _caches(root, online)
    if caches:
        notes.found("caches", "/sys/devices/system/cpu/cpu*/cache")
    else:
        notes.missing("caches", "/sys/devices/system/cpu/cpu*/cache is absent or empty")
    return Topology(n_packages=counts.n_packages, n_cores=counts.n_cores, n_threads=counts.n_threads, caches=caches)


def _online(root: Path) -> frozenset[int]:
    """Return the CPUs that the kernel lists as online; without the list, those with a topology, else all."""
    listed = evidence.cpu_list(evidence.text(root / CPUS / "online"))
    if listed:
        return listed
    names = (re.fullmatch(r"cpu(\d+)", path.name) for path in evidence.entries(root / CPUS, "cpu[0-9]*"))
    present = frozenset(int(match[1]) for match in names if match)
    return frozenset(cpu for cpu in present if _place(root, cpu).is_dir()) or present


def _place(root: Path, cpu: int) -> Path:
    return root / CPUS / f"cpu{cpu}/topology"


def _has_topology(root: Path, online: frozenset[int]) -> bool:
    return any(_place(root, cpu).is_dir() for cpu in online)


def _from_sys(root: Path, online: frozenset[int]) -> Topology | None:
    """Count distinct sets of siblings: ids are -1 on some boards and repeat between packages."""
    if not _has_topology(root, online):
        return None
    packages: set[object] = set()
    cores: set[object] = set()
    for place, cpu in ((_place(root, cpu), cpu) for cpu in online):
        package = evidence.text(place / "physical_package_id")
        packages.add(_siblings(place, ("package_cpus", "core_siblings")) or package)
        cores.add(_siblings(place, ("core_cpus", "thread_siblings")) or cpu)
    return Topology(n_packages=len(packages - {None}) or None, n_cores=len(cores), n_threads=len(online))


def _siblings(place: Path, names: tuple[str, ...]) -> frozenset[int]:
    for name in names:
        cpus = evidence.cpu_list(evidence.text(place / f"{name}_list")) or evidence.cpu_mask(
            evidence.text(place / name)
        )
        if cpus:
            return cpus
    return frozenset()


def _from_cpuinfo(blocks: list[dict[str, str]]) -> Topology:
    cpus = [block for block in blocks if any(re.fullmatch(r"processor( \d+)?", key) for key in block)]
    places = {(block["physical id"], block["core id"]) for block in cpus if {"physical id", "core id"} <= block.keys()}
    packages = {package for package, _ in places}
    return Topology(n_packages=len(packages) or None, n_cores=len(places) or None, n_threads=len(cpus) or None)


def _with_psutil(counts: Topology) -> Topology:
    return Topology(
        n_packages=counts.n_packages,
        n_cores=counts.n_cores or psutil.cpu_count(logical=False),
        n_threads=counts.n_threads or psutil.cpu_count(),
    )


def _caches(root: Path, online: frozenset[int]) -> tuple[Cache, ...]:
    """Count a cache once however many CPUs share it; CPU numbering does not enter the result."""
    seen = set()
    for cpu in online:
        for index in evidence.entries(root / CPUS / f"cpu{cpu}/cache", "index[0-9]*"):
            level, size = evidence.number(index / "level"), _size(evidence.text(index / "size"))
            if level and size:
                kind = (evidence.text(index / "type") or "unknown").lower()
                seen.add((level, kind, size, _siblings(index, ("shared_cpu",)) or _shared(index, cpu)))
    counted = Counter((level, kind, size) for level, kind, size, _ in seen)
    return tuple(
        Cache(level=level, kind=kind, size_bytes=size, instances=instances)
        for (level, kind, size), instances in sorted(counted.items())
    )


def _shared(index: Path, cpu: int) -> frozenset[int]:
    return evidence.cpu_mask(evidence.text(index / "shared_cpu_map")) or frozenset({cpu})


def _size(content: str | None) -> int | None:
    match = re.fullmatch(r"(\d{1,12})([KMG]?)", content or "")
    return int(match[1]) * SIZE_UNITS[match[2]] if match else None
