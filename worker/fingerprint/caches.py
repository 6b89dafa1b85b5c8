"""The caches, each counted once however many CPUs share it: from /sys, the device tree or s390's /proc/cpuinfo."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from schema.host import Cache
from worker.fingerprint import cpuinfo, device_tree, evidence
from worker.fingerprint.cpuinfo import Block
from worker.fingerprint.evidence import Notes
from worker.fingerprint.topology import ABOVE_PACKAGES, CPUS, SHARING, Topology, siblings

NODES = Path("sys/devices/system/node")
SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
Kind = tuple[int, str, int]
"""Level, kind and size of a cache."""

KINDS = {"data", "instruction", "unified"}


def read(root: Path, notes: Notes, topology: Topology, blocks: list[Block]) -> tuple[Cache, ...]:
    """Return each level, kind and size with the number of its instances; the CPUs' numbers do not enter.

    Memory in front of slower memory is a cache of kind `memory-side`.
    """
    listed = Counter((level, kind, size) for level, kind, size, _ in set(_of_cpus(root, topology)))
    described = Counter[Kind]() if listed else Counter(device_tree.caches(root, topology))
    found = listed + described + Counter(_of_memory(root))
    for is_own, cache in _of_mainframe(root, topology, blocks):
        if not (is_own and listed):
            found[cache.level, cache.kind, cache.size_bytes] = cache.instances
    if found:
        notes.found("caches", "/sys" if listed else "device tree" if described else "/proc/cpuinfo")
    else:
        notes.missing("caches", "neither /sys nor the device tree shows any")
    return tuple(
        Cache(level=level, kind=kind, size_bytes=size, instances=instances)
        for (level, kind, size), instances in sorted(found.items())
    )


def _of_cpus(root: Path, topology: Topology) -> Iterator[tuple[int, str, int, frozenset[int]]]:
    """Yield level, kind, size and sharing CPUs of each cache; CPUs that share one list it under one number.

    A list of sharing CPUs that is empty, as on many Itaniums, means those of the core.
    """
    seen: set[tuple[int, str]] = set()
    for cpu in sorted(topology.cpus):
        core = topology.core_of.get(cpu, frozenset({cpu}))
        for index in evidence.entries(root / CPUS / f"cpu{cpu}/cache", "index[0-9]*"):
            if (cpu, index.name) in seen:
                continue
            level, size = evidence.number(index / "level"), _bytes(evidence.text(index / "size"))
            sharing = siblings(index, SHARING) & topology.cpus or core
            seen.update((other, index.name) for other in sharing)
            if level and size:
                yield level, _kind(evidence.text(index / "type")), size, sharing


def _of_memory(root: Path) -> Iterator[Kind]:
    """Yield the fast memory in front of each node's memory."""
    for index in evidence.entries(root / NODES, "node[0-9]*/memory_side_cache/index[0-9]*"):
        level, listed = re.search(r"\d{1,3}$", index.name), _bytes(evidence.text(index / "size"))
        if level and listed:
            yield int(level[0]), "memory-side", listed
    # Of a Xeon Phi only root can read it; hwloc's service writes it down at boot, for each node with CPUs.
    told = evidence.first_text([root / place / "hwloc/knl_memoryside_cache" for place in ("var/run", "run")])
    size = re.search(r"^cache_size: (\d{1,18})$", told[0] if told else "", re.M)
    if size and int(size[1]):
        lists = (evidence.text(node / "cpulist") for node in evidence.entries(root / NODES, "node[0-9]*"))
        yield from [(1, "memory-side", int(size[1]))] * (sum(1 for cpus in lists if cpus) or 1)


def _of_mainframe(root: Path, topology: Topology, blocks: list[Block]) -> Iterator[tuple[bool, Cache]]:
    """Yield the caches that an s390's /proc/cpuinfo describes once for all, with whether each is one CPU's own.

    The third level is a chip's, which is Linux's package, and the fourth is a book's.
    """
    lines = [line for key, line in cpuinfo.shared(blocks).items() if re.fullmatch(r"cache\d+", key)]
    shared = {3: topology.n_packages or 1, 4: _n_books(root, topology)} if lines else {}
    for line in lines:
        facts = dict(re.findall(r"(\w+)=(\w+)", line))
        level, size, is_own = facts.get("level", ""), _bytes(facts.get("size")), facts.get("scope") == "Private"
        if re.fullmatch(r"\d", level) and size:
            n = len(topology.cpus) if is_own else shared.get(int(level), 1)
            yield is_own, Cache(level=int(level), kind=_kind(facts.get("type")), size_bytes=size, instances=n)


def _n_books(root: Path, topology: Topology) -> int:
    places = (root / CPUS / f"cpu{cpu}/topology" for cpu in topology.cpus)
    return len({tuple(evidence.number(place / name) for name in ABOVE_PACKAGES) for place in places}) or 1


def _kind(content: str | None) -> str:
    kind = (content or "").lower()
    return kind if kind in KINDS else "unknown"


def _bytes(content: str | None) -> int | None:
    match = re.fullmatch(r"(\d{1,18})([KMG]?)B?", content or "")
    return int(match[1]) * SIZE_UNITS[match[2]] or None if match else None
