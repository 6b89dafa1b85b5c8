"""Which CPUs are online, and which share a core and a package: from /sys, else /proc/cpuinfo, else psutil."""

import re
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from worker import system
from worker.fingerprint import arm, cpuinfo, evidence
from worker.fingerprint.cpuinfo import Block
from worker.fingerprint.evidence import Notes

CPUS = Path("sys/devices/system/cpu")
HYBRID = tuple(Path(f"sys/devices/{name}/cpus") for name in ("cpu_core", "cpu_atom", "cpu_lowpower"))
CORE = ("core_cpus", "thread_siblings", "core_cpus_list", "thread_siblings_list")
PACKAGE = ("package_cpus", "core_siblings", "package_cpus_list", "core_siblings_list")
SHARING = ("shared_cpu_map", "shared_cpu_list")
ABOVE_PACKAGES = ("drawer_id", "book_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The CPUs that are online, by the kernel's numbers, and how many there are of what; None where nothing tells.

    `core_of` holds, for each CPU, all CPUs of its core; it is empty where only counts are known.
    """

    cpus: frozenset[int] = frozenset()
    core_of: Mapping[int, frozenset[int]] = field(default_factory=dict)
    n_packages: int | None = None
    n_cores: int | None = None
    n_threads: int | None = None


def read(root: Path, notes: Notes, blocks: list[Block], cpus: frozenset[int] | None = None) -> Topology:
    """Return the topology of the machine at `root`; `blocks` are those of its /proc/cpuinfo.

    `cpus` are those to look at, all that are online if it is None.
    """
    cpus = online(root, blocks) if cpus is None else cpus
    if any(_place(root, cpu).is_dir() for cpu in cpus):
        found, source = _from_sys(root, cpus), "/sys/devices/system/cpu/cpu*/topology"
    else:
        found, source = _from_cpuinfo(blocks, cpus), "/proc/cpuinfo" if blocks else "/sys/devices/system/cpu"
    if evidence.is_live(root) and (found.n_cores is None or found.n_threads is None):
        found, source = _with_psutil(found), "psutil"
    for name, count in (
        ("n_packages", found.n_packages),
        ("n_cores_physical", found.n_cores),
        ("n_cores_logical", found.n_threads),
    ):
        notes.told(name, count, source, "neither /sys nor /proc/cpuinfo tells")
    return found


def online(root: Path, blocks: list[Block]) -> frozenset[int]:
    """Return the CPUs that the kernel runs on: those it lists, else those that show any sign of it."""
    names = (re.fullmatch(r"cpu(\d{1,6})", path.name) for path in evidence.entries(root / CPUS, "cpu[0-9]*"))
    present = frozenset(int(match[1]) for match in names if match)
    listed = evidence.cpu_list(evidence.text(root / CPUS / "online"))
    if listed:
        return listed & present or listed
    on = frozenset(cpu for cpu in present if evidence.text(root / CPUS / f"cpu{cpu}/online") != "0")
    with_topology = frozenset(cpu for cpu in on if _place(root, cpu).is_dir())
    hybrid = frozenset[int]().union(*(evidence.cpu_list(evidence.text(root / path)) for path in HYBRID))
    # A kernel for one ARM CPU alone gives it no number.
    single = frozenset({0} if arm.of_block(cpuinfo.shared(blocks)) else ())
    return with_topology or frozenset(cpuinfo.by_cpu(blocks)) or on or hybrid or single


def siblings(place: Path, names: tuple[str, ...]) -> frozenset[int]:
    """Return the CPUs of the first of the kernel's files in `place` that holds any, masks and `..._list` alike."""
    for name in names:
        content = evidence.text(place / name)
        cpus = evidence.cpu_list(content) if name.endswith("_list") else evidence.cpu_mask(content)
        if cpus:
            return cpus
    return frozenset()


def _place(root: Path, cpu: int) -> Path:
    return root / CPUS / f"cpu{cpu}/topology"


def _from_sys(root: Path, cpus: frozenset[int]) -> Topology:
    core_of: dict[int, frozenset[int]] = {}
    packages: set[Hashable] = set()
    above = tuple(name for name in ABOVE_PACKAGES if (_place(root, min(cpus)) / name).exists())
    for cpu in cpus:
        place = _place(root, cpu)
        core = siblings(place, CORE) & cpus
        core_of[cpu] = core if cpu in core else frozenset({cpu})
        packages.add(_package(place, above))
    return Topology(
        cpus=cpus,
        core_of=core_of,
        n_packages=len(packages - {None}) or None,
        n_cores=len(set(core_of.values())),
        n_threads=len(cpus),
    )


def _package(place: Path, above: tuple[str, ...]) -> Hashable:
    """Return what tells the CPU's package from others.

    Its number does, with that of the book it is in on a mainframe; siblings do where the number is -1.
    Siblings alone do not: a kernel with several NUMA nodes per package may list those of the node.
    """
    number = evidence.number(place / "physical_package_id")
    if number is not None and number >= 0:
        return number, *(evidence.number(place / name) for name in above)
    return siblings(place, PACKAGE) or None


def _from_cpuinfo(blocks: list[Block], cpus: frozenset[int]) -> Topology:
    own = {cpu: block for cpu, block in cpuinfo.by_cpu(blocks).items() if cpu in cpus}
    n_threads = len(cpus) or None
    midrs = [midr for block in blocks for midr in arm.of_block(block)]
    if midrs and not any(midr.may_thread for midr in midrs):
        return Topology(
            cpus=cpus, core_of={cpu: frozenset({cpu}) for cpu in cpus}, n_cores=n_threads, n_threads=n_threads
        )
    places = {cpu: (b["physical id"], b["core id"]) for cpu, b in own.items() if {"physical id", "core id"} <= b.keys()}
    packages = {package for package, _ in places.values()}
    core_of = {cpu: frozenset(other for other, at in places.items() if at == place) for cpu, place in places.items()}
    whole = len(places) == len(cpus)
    return Topology(
        cpus=cpus,
        core_of=core_of if whole else {},
        n_packages=len(packages) or None,
        n_cores=len(set(places.values())) or _cores_by_count(own.values()) or None,
        n_threads=n_threads,
    )


def _cores_by_count(blocks: Iterable[Block]) -> int:
    """Return the sum of `cpu cores` over packages; 0 where the text has no such count."""
    per_package: dict[str, int] = {}
    for block in blocks:
        count = re.fullmatch(r"\d{1,5}", block.get("cpu cores", ""))
        if count:
            per_package[block.get("physical id", "")] = int(count[0])
    return sum(per_package.values())


def _with_psutil(counts: Topology) -> Topology:
    return replace(
        counts,
        n_cores=counts.n_cores or system.n_cores(),
        n_threads=counts.n_threads or system.n_cpus(),
    )
