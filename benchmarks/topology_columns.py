"""Our values beside those that lscpu and lstopo gave, column by column."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.known_topology import Known, Sizes, human
from benchmarks.recorded_machine import Machine
from schema.host import Cache, Hardware
from worker.fingerprint import caches, core_types, cpuinfo, evidence, topology
from worker.fingerprint.evidence import Notes

COLUMNS = ("CPUs", "types", "sockets", "cores", "threads", "nodes", "caches")
KINDS = {"data": "d", "instruction": "i"}
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
PLAIN_CACHES = {
    "L1d": "l1_data_cache_size",
    "L1i": "l1_instruction_cache_size",
    "L2": "l2_cache_size",
    "L3": "l3_cache_size",
}


def ours(machine: Machine, one: Known) -> dict[str, Any]:
    """Return our values, of those CPUs that `one` shows where it shows a part of the machine.

    How many nodes that part has is then not asked: lstopo shows those whose memory it may use.
    """
    hardware, nodes = machine.hardware, len(machine.hardware.numa)
    blocks = cpuinfo.parse(evidence.text(machine.root / "proc/cpuinfo") or "")
    is_part = bool(one.shown) and one.shown < topology.online(machine.root, blocks)
    if is_part:
        hardware = _part(machine, blocks, one.shown)
    return {
        "CPUs": hardware.n_cores_logical,
        "types": tuple(sorted(_of_types(hardware, one))),
        "sockets": hardware.n_packages,
        "cores": hardware.n_cores_physical,
        "threads": max((kind.threads_per_core or 0 for kind in hardware.core_types), default=None),
        "nodes": None if is_part else nodes,
        "caches": hardware.caches,
    }


def _part(machine: Machine, blocks: list[dict[str, str]], cpus: frozenset[int]) -> Hardware:
    counts = topology.read(machine.root, Notes(), blocks, cpus)
    types, _ = core_types.read(machine.root, Notes(), counts, blocks)
    return replace(
        machine.hardware,
        n_packages=counts.n_packages,
        n_cores_physical=counts.n_cores,
        n_cores_logical=counts.n_threads,
        core_types=types,
        caches=caches.read(machine.root, Notes(), counts, blocks),
    )


def _of_types(hardware: Hardware, one: Known) -> list[int]:
    """Return the number of cores of each type, for lstopo that of its CPUs, which is what that counts."""
    per_core = [(kind.threads_per_core or 1) if one.cache_sums is None else 1 for kind in hardware.core_types]
    return [(kind.n_cores or 0) * n for kind, n in zip(hardware.core_types, per_core, strict=True)]


def expected(one: Known) -> dict[str, Any]:
    """Return what is known, by column, as far as it is told; caches are told as sums or as sizes."""
    values = (one.cpus, one.core_types, one.sockets, one.cores, one.threads, one.nodes)
    found = {name: value for name, value in zip(COLUMNS, values, strict=False) if value is not None}
    return found | {"caches": one.caches if one.cache_sums is None else one.cache_sums}


def wrong(one: Known, values: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known instead, by column, where our value is another or missing."""
    found: dict[str, str] = {}
    for name, value in expected(one).items():
        if name == "caches":
            found |= {name: problem} if (problem := cache_problem(one, values[name])) else {}
        elif value != values[name] and not (name == "nodes" and values[name] is None):
            found[name] = str(value)
    return found


def cache_problem(one: Known, found: tuple[Cache, ...]) -> str | None:
    """Return how our caches differ from what is known, None where they do not."""
    if one.cache_sums is None:
        known, mine = one.caches or Counter(), _mine(one, found)
        return None if mine == known else f"{_told(known)}, not {_told(mine)}"
    sums: dict[str, tuple[int, int]] = {}
    for cache in found:
        total, count = sums.get(_label(cache), (0, 0))
        sums[_label(cache)] = (total + cache.size_bytes * cache.instances, count + cache.instances)
    bad = [
        f"{name} {one.cache_sums.get(name, 'none')}, not {sums.get(name, 'none')}"
        for name in sorted(one.cache_sums.keys() | sums.keys())
        if not _agrees(one.cache_sums.get(name), sums.get(name))
    ]
    return "; ".join(bad) or None


def _mine(one: Known, found: tuple[Cache, ...]) -> Sizes:
    """Return our caches as lstopo counts them, without those that it was told not to list."""
    shown = {name for name, _ in one.caches or ()}
    mine: Sizes = Counter()
    for cache in found:
        name = _label(cache)
        is_hidden = one.no_caches or one.merged or (one.no_icaches and cache.kind == "instruction")
        if name in shown or not is_hidden:
            mine[name, human(cache.size_bytes)] += cache.instances
    return mine


def _label(cache: Cache) -> str:
    return "Mem" if cache.kind == "memory-side" else f"L{cache.level}{KINDS.get(cache.kind, '')}"


def _agrees(known: tuple[float, float, int | None] | None, mine: tuple[int, int] | None) -> bool:
    if known is None or mine is None:
        return False
    size, exact, count = known
    if count is None:
        return abs(size - mine[0] / mine[1]) <= exact
    return abs(size - mine[0]) <= exact and count == mine[1]


def _told(sizes: Mapping[tuple[str, str], int]) -> str:
    return " + ".join(f"{n}× {size} {name}" for (name, size), n in sorted(sizes.items())) or "none"


def plain_caches(one: Known, plain: Mapping[str, Any]) -> bool:
    """Return whether py-cpuinfo's sums are right of all caches that are known; it has no instances."""
    if one.cache_sums is not None:
        sums = {name: (size, exact) for name, (size, exact, _) in one.cache_sums.items()}
    else:
        sums = {}
        for (name, text), n in (one.caches or {}).items():
            size, unit = sums.get(name, (0.0, 0.0)), UNITS.get(text[-3:], 1 << 40)
            sums[name] = (size[0] + int(text[:-3]) * unit * n, size[1] + unit * n / 2)
    values = {name: plain.get(field) for name, field in PLAIN_CACHES.items()}
    shown = {name: value for name, value in values.items() if isinstance(value, int) and value}
    return shown.keys() == sums.keys() and all(abs(sums[n][0] - value) <= sums[n][1] for n, value in shown.items())
