"""The memory nodes: how many CPUs and how much memory each has, those without CPUs included."""

import re
from pathlib import Path

from schema.host import Numa
from worker.fingerprint import evidence, memory
from worker.fingerprint.caches import NODES
from worker.fingerprint.evidence import Notes

NVIDIA = Path("proc/driver/nvidia/gpus")


def read(
    root: Path, notes: Notes, cpus: frozenset[int], n_cpus: int | None, memory_gib: int | None
) -> tuple[Numa, ...]:
    """Return the nodes in order of size, none where nothing is known of CPUs and memory.

    A kernel without nodes has one memory for all CPUs: that is a node with `n_cpus` and `memory_gib`, as it is
    where the kernel shows a single node. The memory of a GPU that the kernel shows as a node is the GPU's.
    """
    nodes = _nodes(root, cpus)
    if len(nodes) > 1:
        notes.found("numa", "/sys/devices/system/node")
        return tuple(sorted(nodes, key=_order))
    if n_cpus is None and memory_gib is None:
        notes.missing("numa", "neither /sys/devices/system/node nor the memory's size can be read")
        return ()
    notes.found("numa", "/sys/devices/system/node" if nodes else "no nodes: one memory for all CPUs")
    own = nodes[0].n_cpus if nodes else None
    return (Numa(n_cpus=own or n_cpus or 0, memory_gib=memory_gib),)


def _nodes(root: Path, cpus: frozenset[int]) -> list[Numa]:
    """Return the nodes that are memory of the machine.

    A CPU is on one node: firmware that lists the same CPUs on several has one memory. Where CPUs and memory are on
    nodes of their own, those of CPUs have no memory; nor has what only starts requests.
    """
    of_gpus = _of_gpus(root)
    places = [place for place in evidence.entries(root / NODES, "node[0-9]*") if _number(place) not in of_gpus]
    apart = {_cpus(place, cpus) or place: place for place in reversed(places)}
    nodes = [_node(place, cpus) for place in apart.values()]
    separate = any(node.memory_gib and not node.n_cpus for node in nodes)
    return [node for node in nodes if node.memory_gib != 0 or (node.n_cpus and not separate)]


def _order(node: Numa) -> tuple[int, int]:
    return -node.n_cpus, node.memory_gib or 0


def _number(place: Path) -> int | None:
    match = re.fullmatch(r"node(\d{1,6})", place.name)
    return int(match[1]) if match else None


def _node(place: Path, cpus: frozenset[int]) -> Numa:
    total = re.search(r"MemTotal:\s*(\d{1,15}) kB", evidence.text(place / "meminfo") or "")
    size = int(total[1]) * 1024 if total else None
    return Numa(n_cpus=len(_cpus(place, cpus)), memory_gib=memory.in_gib(size and memory.rounded_up(size)))


def _cpus(place: Path, cpus: frozenset[int]) -> frozenset[int]:
    """Return the node's CPUs that are among `cpus`, which may be empty where nobody knows them."""
    listed = evidence.cpu_list(evidence.text(place / "cpulist")) or evidence.cpu_mask(evidence.text(place / "cpumap"))
    return listed & cpus if cpus else listed


def _of_gpus(root: Path) -> frozenset[int]:
    """Return the nodes that NVIDIA's driver says are memory of its GPUs."""
    texts = (evidence.text(path) or "" for path in evidence.entries(root / NVIDIA, "*/numa_status"))
    listed = (re.search(r"^Node:\s*(\d{1,6})", content, re.M) for content in texts)
    return frozenset(int(match[1]) for match in listed if match)
