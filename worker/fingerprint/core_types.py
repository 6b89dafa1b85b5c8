"""The kinds of cores that a machine has: of each its design, its name and how many there are."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from schema.host import CoreType
from worker.fingerprint import arm, cpuinfo, design, evidence, hybrid
from worker.fingerprint.arm import Midr
from worker.fingerprint.cpuinfo import Block
from worker.fingerprint.design import Design
from worker.fingerprint.evidence import Notes
from worker.fingerprint.topology import CPUS, Topology

MIDR_REGISTER = "regs/identification/midr_el1"


def read(
    root: Path, notes: Notes, topology: Topology, blocks: list[Block]
) -> tuple[tuple[CoreType, ...], dict[str, frozenset[int]]]:
    """Return the types of the cores that are online, the fast ones first, and the CPUs of each by its name.

    `blocks` are those of /proc/cpuinfo, with what py-cpuinfo told of them.
    """
    midrs = _midrs(root, notes, topology, blocks)
    if midrs:
        designs, source = _arm_designs(root, topology, midrs), "MIDR in /proc/cpuinfo and /sys"
    else:
        designs, source = _other_designs(root, topology, blocks), "/proc/cpuinfo and /sys"
    if set(designs.values()) <= {Design()}:
        notes.missing("core_types", "neither /proc/cpuinfo nor /sys describes the cores, which are only counted")
    else:
        notes.found("core_types", source)
    return tuple(sorted(_counted(topology, designs), key=_order)), _by_name(designs)


def is_mixed_arm(types: Iterable[CoreType]) -> bool:
    """Return whether these are ARM cores of two designs or more."""
    return len({one.key.rpartition("-")[0] for one in types if one.key and arm.is_key(one.key)}) > 1


def _by_name(designs: Mapping[int, Design]) -> dict[str, frozenset[int]]:
    members: dict[str, set[int]] = defaultdict(set)
    for cpu, one in designs.items():
        members[one.name or (f"{one.kind} core" if one.kind else one.key or "unknown")].add(cpu)
    return {name: frozenset(cpus) for name, cpus in sorted(members.items())}


def _order(core_type: CoreType) -> tuple[bool, str, str, int]:
    return (
        core_type.kind == hybrid.EFFICIENCY,
        core_type.name or "",
        core_type.key or "",
        core_type.n_cores or 0,
    )


def _counted(topology: Topology, designs: Mapping[int, Design]) -> list[CoreType]:
    members: dict[Design, list[int]] = defaultdict(list)
    for cpu, one in designs.items():
        members[one].append(cpu)
    types = []
    for one, cpus in members.items():
        n_cores = _n_cores(topology, one, members)
        types.append(
            CoreType(
                vendor=one.vendor,
                key=one.key,
                name=one.name,
                kind=one.kind,
                n_cores=n_cores,
                threads_per_core=_threads_per_core(topology, cpus, n_cores),
            )
        )
    return types


def _n_cores(topology: Topology, one: Design, members: Mapping[Design, list[int]]) -> int | None:
    if topology.core_of:
        return len({topology.core_of[cpu] for cpu in members[one]})
    if len(members) == 1:
        return topology.n_cores
    # No efficiency core of any x86 runs two threads, so the other type's count follows from the sum.
    saving = [len(cpus) for other, cpus in members.items() if other.kind == hybrid.EFFICIENCY]
    if one.kind == hybrid.EFFICIENCY:
        return len(members[one])
    if topology.n_cores is None or len(members) != 2 or len(saving) != 1:
        return None
    return max(topology.n_cores - saving[0], 0) or None


def _threads_per_core(topology: Topology, cpus: list[int], n_cores: int | None) -> int | None:
    if topology.core_of:
        return max(Counter(topology.core_of[cpu] for cpu in cpus).values())
    return len(cpus) // n_cores or None if n_cores else None


def _midrs(root: Path, notes: Notes, topology: Topology, blocks: list[Block]) -> dict[int, Midr]:
    """Return the design of each ARM CPU that is online; empty where none is one."""
    own, common = cpuinfo.by_cpu(blocks), arm.of_block(cpuinfo.shared(blocks))
    has_registers = any((root / CPUS / f"cpu{cpu}" / MIDR_REGISTER).exists() for cpu in sorted(topology.cpus)[:1])
    found: dict[int, Midr] = {}
    for cpu in topology.cpus:
        midrs = arm.of_block(own.get(cpu, {})) or (_register(root, cpu) if has_registers else []) or common
        if midrs:
            found[cpu] = midrs[0]
    if common and len(found) > 1:
        notes.missing("core_types", "/proc/cpuinfo describes one core for all, other cores may be of another type")
    elif found and len(found) < len(topology.cpus):
        notes.missing("core_types", f"{len(topology.cpus) - len(found)} CPUs are described nowhere")
    return found


def _register(root: Path, cpu: int) -> list[Midr]:
    midr = arm.of_register(evidence.text(root / CPUS / f"cpu{cpu}" / MIDR_REGISTER))
    return [midr] if midr else []


def _arm_designs(root: Path, topology: Topology, midrs: Mapping[int, Midr]) -> dict[int, Design]:
    kinds = _arm_kinds(root, topology, midrs)
    return {
        cpu: Design(vendor=midr.vendor, key=midr.key, name=midr.name, kind=kinds.get(midr))
        for cpu, midr in midrs.items()
    }


def _arm_kinds(root: Path, topology: Topology, midrs: Mapping[int, Midr]) -> dict[Midr, str]:
    """Tell kinds by what the designs are made for, where that is unknown or equal by their highest clock.

    Never by cpu_capacity, which differs between equal cores of one machine too.
    """
    ranks = {midr: midr.rank for midr in midrs.values()}
    speeds: dict[Midr, int] = {midr: rank for midr, rank in ranks.items() if rank is not None}
    if len(speeds) < len(ranks) or len(set(speeds.values())) == 1:
        clocks = hybrid.max_clocks(root, topology.cpus)
        speeds = {midr: max(clocks.get(cpu, 0) for cpu, own in midrs.items() if own == midr) for midr in ranks}
    slowest = min(speeds.values())
    if max(speeds.values()) == slowest:
        return {}
    return {midr: hybrid.EFFICIENCY if speed == slowest else hybrid.PERFORMANCE for midr, speed in speeds.items()}


def _other_designs(root: Path, topology: Topology, blocks: list[Block]) -> dict[int, Design]:
    own, common = cpuinfo.by_cpu(blocks), cpuinfo.shared(blocks)
    first = own[min(own)] if own else {}
    is_x86 = "flags" in (common | first)
    kinds = hybrid.kinds(root, topology) if is_x86 or not blocks else {}
    return {cpu: _with_kind(design.of_block(common | own.get(cpu, first)), kinds.get(cpu)) for cpu in topology.cpus}


def _with_kind(one: Design, kind: str | None) -> Design:
    if kind is None:
        return one
    own_name = hybrid.design_name(one.key, kind)
    return replace(one, kind=kind, name=own_name or (one.name and f"{one.name} {kind} core"))
