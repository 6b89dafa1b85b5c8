"""What the processor is: its architecture, name, vendor and instruction sets, with core types and caches."""

import platform
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schema.host import Cache, CoreType
from worker.fingerprint import apple, arm, caches, core_types, cpuinfo, design, evidence, pycpuinfo, topology
from worker.fingerprint.cpuinfo import Block
from worker.fingerprint.evidence import Notes

ISA = (
    *("avx", "avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni"),
    *("amx_tile", "amx_int8", "amx_bf16"),
    *("neon", "asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2", "sme", "sme2"),
    *("rvv", "vsx", "mma", "lsx", "lasx", "vx", "vxe"),
)
"""The instruction sets that enter a hardware id. Fixed: a kernel that names new flags must not move an id."""

ALIASES = {"avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16", "simd": "asimd"}
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "i386": "x86", "i486": "x86", "i586": "x86", "i686": "x86"}
NAMED_32_BIT = {"x86_64": "x86", "aarch64": "armv8l"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor's part of schema.host.Hardware; `cpus_by_type` holds the kernel's CPUs by core type's name."""

    arch: str
    name: str | None = None
    vendor: str | None = None
    isa: tuple[str, ...] = ()
    n_packages: int | None = None
    n_cores_physical: int | None = None
    n_cores_logical: int | None = None
    caches: tuple[Cache, ...] = ()
    core_types: tuple[CoreType, ...] = ()
    cpus_by_type: dict[str, tuple[int, ...]] = field(default_factory=dict)


def read(root: Path, notes: Notes, answers: Mapping[str, Any], sysctl: str | None = None) -> Cpu:
    """Return what is known of the processor of the machine at `root`.

    `answers` are py-cpuinfo's and may be empty: where it answers, an x86's name, vendor, family, model, stepping
    and flags are its. `sysctl` is the text of that program on a Mac, which has no /proc.
    """
    told = apple.parse(sysctl or "")
    if apple.is_apple(told):
        return _of_mac(notes, told)
    content = evidence.text(root / "proc/cpuinfo")
    if content is None:
        notes.missing("cpuinfo", "/proc/cpuinfo cannot be read")
    own = cpuinfo.parse(content or "")
    blocks, answered = pycpuinfo.told(own, answers)
    counts = topology.read(root, notes, own)
    types, members = core_types.read(root, notes, counts, blocks)
    if answered and types:
        notes.found("core_types", "py-cpuinfo and /sys")
    return Cpu(
        arch=_arch(root, notes, own),
        name=_name(notes, blocks, answered, types, members),
        vendor=_vendor(notes, blocks, answered, types),
        isa=_isa(notes, own, answers),
        # Kernels without ACPI call each cluster of a big.LITTLE chip a package; no machine mixes cores over sockets.
        n_packages=1 if core_types.is_mixed_arm(types) else counts.n_packages,
        n_cores_physical=counts.n_cores,
        n_cores_logical=counts.n_threads,
        caches=caches.read(root, notes, counts, own),
        core_types=types,
        cpus_by_type={name: tuple(sorted(cpus)) for name, cpus in members.items()},
    )


def _of_mac(notes: Notes, told: dict[str, str]) -> Cpu:
    types = apple.core_types(told)
    found = Cpu(
        arch=apple.arch(told),
        name=design.tidy(told.get("machdep.cpu.brand_string")),
        vendor=types[0].vendor,
        isa=tuple(flag for flag in ISA if flag in apple.flags(told)),
        n_packages=apple.number(told, "hw.packages"),
        n_cores_physical=apple.n_cores(told),
        n_cores_logical=apple.n_threads(told),
        caches=apple.caches(told),
        core_types=types,
    )
    for name, value in (("cpu_name", found.name), ("core_types", types), ("caches", found.caches), ("isa", found.isa)):
        if value:
            notes.found(name, "sysctl")
        else:
            notes.missing(name, "sysctl does not tell")
    return found


def _arch(root: Path, notes: Notes, blocks: list[Block]) -> str:
    if evidence.is_live(root) and platform.machine():
        machine = platform.machine().lower()
        arch = ARCHITECTURES.get(machine, machine)
        notes.found("arch", "uname")
        return NAMED_32_BIT.get(arch, arch) if struct.calcsize("P") == 4 else arch
    guess = cpuinfo.architecture(blocks)
    if guess:
        notes.found("arch", "cpuinfo")
        return guess
    notes.missing("arch", "nothing names the architecture")
    return "unknown"


def _name(
    notes: Notes,
    blocks: list[Block],
    answered: frozenset[str],
    types: tuple[CoreType, ...],
    members: Mapping[str, frozenset[int]],
) -> str | None:
    """Return one name for all cores; where they differ, each name with the number of its CPUs."""
    listed = {name for block in blocks if (name := design.brand(block))}
    candidates = (
        ("MIDR in /proc/cpuinfo and /sys", _arm_name(types, members)),
        ("py-cpuinfo" if "model name" in answered else "/proc/cpuinfo", " + ".join(sorted(listed))),
    )
    for source, name in candidates:
        if name:
            notes.found("cpu_name", source)
            return name
    notes.missing("cpu_name", "neither /proc/cpuinfo nor py-cpuinfo gives a name")
    return None


def _arm_name(types: tuple[CoreType, ...], members: Mapping[str, frozenset[int]]) -> str | None:
    if not types or not arm.is_key(types[0].key or ""):
        return None
    if len(members) == 1:
        return next(iter(members))
    return " + ".join(f"{len(cpus)}× {name}" for name, cpus in sorted(members.items()))


def _vendor(
    notes: Notes,
    blocks: list[Block],
    answered: frozenset[str],
    types: tuple[CoreType, ...],
) -> str | None:
    listed = [one.vendor for one in types] + [design.vendor(block) for block in blocks]
    vendor = next((name for name in listed if name), None)
    if vendor:
        notes.found("cpu_vendor", "py-cpuinfo" if "vendor_id" in answered else "/proc/cpuinfo")
        return vendor
    notes.missing("cpu_vendor", "neither /proc/cpuinfo nor py-cpuinfo names one")
    return None


def _isa(notes: Notes, blocks: list[Block], answers: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what every core can do, since a program may run on any of them.

    py-cpuinfo also reads the processor's registers, where a flag may be that the kernel has switched off, so of
    its flags those hold that /proc/cpuinfo confirms.
    """
    listed = [_flags(block) for block in blocks if any(key.lower() in ("flags", "features", "isa") for key in block)]
    kernel, asked = _named(set.intersection(*listed) if listed else set()), _named(set(answers.get("flags", [])))
    source = "py-cpuinfo" if asked and kernel <= asked else "/proc/cpuinfo"
    found = kernel if listed else asked
    if listed or asked:
        notes.found("isa", source)
    else:
        notes.missing("isa", "neither /proc/cpuinfo nor py-cpuinfo lists flags")
    return tuple(flag for flag in ISA if flag in found)


def _named(flags: set[str]) -> set[str]:
    return {ALIASES.get(flag, flag) for flag in flags}.intersection(ISA)


def _flags(block: Block) -> set[str]:
    flags: set[str] = set()
    for key, value in block.items():
        if key.lower() in ("flags", "features"):
            flags.update(value.split())
        elif key == "isa" and re.match(r"rv(32|64)[a-z]*v", value.split("_")[0]):
            flags.add("rvv")
        elif key == "isa":
            flags.add(value.split("_")[0])
    return flags
