"""Caches as a device tree describes them, for kernels that do not show them in /sys."""

from collections.abc import Iterator
from pathlib import Path

from worker.fingerprint import evidence
from worker.fingerprint.board import DEVICE_TREES
from worker.fingerprint.topology import Topology

PHANDLES = ("phandle", "linux,phandle", "ibm,phandle")
NEXT_LEVEL = ("next-level-cache", "l2-cache")
MAX_LEVELS = 8


def caches(root: Path, topology: Topology) -> list[tuple[int, str, int]]:
    """Return level, kind and bytes of every cache of the CPUs that are online, one entry per instance.

    It is empty where the tree has not one node for each core, since then nothing tells which of them run.
    """
    nodes = _cpu_nodes(root, topology)
    if topology.n_cores is None or len(nodes) != topology.n_cores:
        return []
    places = _by_phandle(nodes[0].parent)
    seen = {place: cache for node in nodes for place, cache in _of_node(node, places)}
    return list(seen.values())


def _cpu_nodes(root: Path, topology: Topology) -> list[Path]:
    """Return the nodes of the cores that run; a node of POWER lists the CPUs of its threads."""
    for tree in DEVICE_TREES:
        nodes = [
            node for node in evidence.entries(root / tree / "cpus") if evidence.text(node / "device_type") == "cpu"
        ]
        threads = {node: _cells(node / "ibm,ppc-interrupt-server#s") for node in nodes}
        if nodes:
            return [node for node in nodes if not threads[node] or topology.cpus.intersection(threads[node])]
    return []


def _of_node(node: Path, places: dict[int, Path]) -> Iterator[tuple[tuple[Path, str], tuple[int, str, int]]]:
    """Yield place and facts of each cache of a core, the shared ones of further levels included."""
    level = 1
    seen: set[Path] = set()
    while node not in seen and level <= MAX_LEVELS:
        seen.add(node)
        for kind, size in _sizes(node):
            yield (node, kind), (level, kind, size)
        following = next((cells[0] for name in NEXT_LEVEL if (cells := _cells(node / name))), None)
        if following is None or following not in places:
            return
        node, level = places[following], level + 1


def _sizes(node: Path) -> Iterator[tuple[str, int]]:
    """Yield kind and bytes of a node's caches; for a unified one both sizes are the same cache's."""
    sizes = {name: next(iter(_cells(node / f"{name}-size")), 0) for name in ("cache", "d-cache", "i-cache")}
    unified = (node / "cache-unified").exists() or sizes["cache"]
    if unified:
        size = sizes["cache"] or sizes["d-cache"] or sizes["i-cache"]
        yield from [("unified", size)] if size else []
        return
    for kind, name in (("data", "d-cache"), ("instruction", "i-cache")):
        if sizes[name]:
            yield kind, sizes[name]


def _by_phandle(cpus: Path) -> dict[int, Path]:
    """Return the nodes beside and below the CPUs' by the number that others refer to them with."""
    nodes = [*evidence.entries(cpus), *evidence.entries(cpus, "*/*"), *evidence.entries(cpus.parent)]
    return {cells[0]: node for node in reversed(nodes) for name in PHANDLES if (cells := _cells(node / name))}


def _cells(path: Path) -> list[int]:
    """Return the 32-bit big-endian numbers that are the file's whole content; none where it is no such file."""
    try:
        content = path.read_bytes()[:4096]
    except (OSError, ValueError):
        return []
    if len(content) % 4:
        return []
    return [int.from_bytes(content[at : at + 4], "big") for at in range(0, len(content), 4)]
