"""What the processor is: its architecture, name, vendor and instruction sets, with topology and caches."""

import contextlib
import json
import os
import platform
import re
import signal
import struct
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schema.host import Cache
from worker.fingerprint import arm, evidence, topology
from worker.fingerprint.evidence import Notes

PYCPUINFO_SECONDS = 10.0
PYCPUINFO_FIELDS = ("arch", "bits", "vendor_id_raw", "brand_raw", "flags")
"""All that is used of py-cpuinfo: its clock, cache sizes and count are often wrong, so /sys tells those."""

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
PYCPUINFO_ARCHITECTURES = {"X86_64": "x86_64", "X86_32": "x86", "ARM_8": "aarch64", "ARM_7": "armv7l"}
NO_NAMES = re.compile(
    r"(-|0+|cpu|intel\(r\)|amd|unknown|virtual|generic|armv\d.*|aarch64 processor.*|arm.* processor rev.*)?", re.I
)
NAME_KEYS = ("model name", "Model Name", "cpu model", "uarch", "cpu", "family", "Processor")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processor's part of schema.host.Hardware."""

    arch: str
    name: str | None = None
    vendor: str | None = None
    isa: tuple[str, ...] = ()
    n_packages: int | None = None
    n_cores_physical: int | None = None
    n_cores_logical: int | None = None
    caches: tuple[Cache, ...] = ()


def read(root: Path, notes: Notes, pycpuinfo: dict[str, Any]) -> Cpu:
    """Return what is known of the processor of the machine at `root`; `pycpuinfo` may be empty."""
    content = evidence.text(root / "proc/cpuinfo")
    if content is None:
        notes.missing("cpuinfo", "/proc/cpuinfo cannot be read")
    blocks = parse(content or "")
    counts = topology.read(root, notes, blocks)
    return Cpu(
        arch=_arch(root, notes, blocks, pycpuinfo),
        name=_name(notes, blocks, pycpuinfo),
        vendor=_vendor(notes, blocks, pycpuinfo),
        isa=_isa(notes, blocks, pycpuinfo),
        # Kernels without ACPI call each cluster of a big.LITTLE chip a package; no machine mixes cores over sockets.
        n_packages=1 if len(set(_arm_cores(blocks))) > 1 else counts.n_packages,
        n_cores_physical=counts.n_cores,
        n_cores_logical=counts.n_threads,
        caches=counts.caches,
    )


def parse(content: str) -> list[dict[str, str]]:
    """Return the blocks of a /proc/cpuinfo; s390's one line per processor is a block of its own."""
    blocks: list[dict[str, str]] = [{}]
    for line in content.splitlines():
        key, colon, value = line.partition(":")
        if not line.strip() or re.match(r"processor \d", line):
            blocks.append({})
        if colon:
            blocks[-1].setdefault(key.strip(), value.strip())
    return [block for block in blocks if block]


def start_pycpuinfo() -> subprocess.Popen[bytes] | None:
    """Return `python -m cpuinfo --json`, just started in a session of its own; None where it cannot start.

    It is a process of its own because it keeps a core busy for a second, and has been seen to hang.
    """
    command = [sys.executable, "-P", "-m", "cpuinfo", "--json"]
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None


def finish_pycpuinfo(
    process: subprocess.Popen[bytes] | None, notes: Notes, seconds: float = PYCPUINFO_SECONDS
) -> dict[str, Any]:
    """Return the fields we use of what py-cpuinfo printed; empty, with a note, where it failed or took too long."""
    if process is None:
        notes.missing("pycpuinfo", "python -m cpuinfo could not be started")
        return {}
    with process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            # Its own child holds the pipe too, so the whole session is ended.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            notes.missing("pycpuinfo", f"python -m cpuinfo did not end within {seconds:g} s")
            return {}
    return used_fields(output.decode("utf-8", "replace"), notes)


def used_fields(output: str, notes: Notes) -> dict[str, Any]:
    """Return the fields we use of py-cpuinfo's JSON text, dropping those of the wrong type."""
    try:
        parsed = json.loads(output)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not parsed:
        notes.missing("pycpuinfo", "python -m cpuinfo --json printed no facts")
        return {}
    fields = {key: parsed[key] for key in PYCPUINFO_FIELDS if isinstance(parsed.get(key), str | int | list)}
    if not isinstance(fields.get("flags", []), list):
        del fields["flags"]
    return fields


def _arch(root: Path, notes: Notes, blocks: list[dict[str, str]], pycpuinfo: dict[str, Any]) -> str:
    if evidence.is_live(root) and platform.machine():
        machine = platform.machine().lower()
        arch = ARCHITECTURES.get(machine, machine)
        notes.found("arch", "uname")
        return NAMED_32_BIT.get(arch, arch) if struct.calcsize("P") == 4 else arch
    guess = _arch_of_cpuinfo(blocks) or PYCPUINFO_ARCHITECTURES.get(str(pycpuinfo.get("arch")))
    if guess:
        notes.found("arch", "cpuinfo")
        return guess
    notes.missing("arch", "nothing names the architecture")
    return "unknown"


def _arch_of_cpuinfo(blocks: list[dict[str, str]]) -> str | None:
    """Guess from the words that each architecture alone uses."""
    facts = {key.lower(): value for block in reversed(blocks) for key, value in block.items()}
    signs = (
        ("x86_64", "flags" in facts and " lm " in f" {facts['flags']} "),
        ("x86", "flags" in facts),
        ("aarch64", facts.get("cpu architecture") in ("8", "AArch64")),
        ("armv7l", "cpu implementer" in facts or "arm" in facts.get("processor", "").lower()),
        ("s390x", facts.get("vendor_id") == "IBM/S390"),
        ("loongarch64", "loongarch64" in facts.get("isa", "")),
        (facts.get("isa", "")[:4].replace("rv", "riscv"), facts.get("isa", "").startswith("rv")),
        ("mips", "mips" in facts.get("isa", "") or "MIPS" in facts.get("cpu model", "")),
        ("ppc64" if "POWER" in facts.get("cpu", "") else "ppc", "pvr" in facts.get("revision", "")),
        ("ia64", facts.get("arch") == "IA-64"),
        ("sparc", "sparc" in facts.get("cpu", "").lower()),
    )
    return next((arch for arch, holds in signs if holds), None)


def _name(notes: Notes, blocks: list[dict[str, str]], pycpuinfo: dict[str, Any]) -> str | None:
    """Prefer what never depends on py-cpuinfo's luck, so that one timeout cannot give a machine a second name."""
    candidates: list[tuple[str, str | None]] = [
        ("MIDR in /proc/cpuinfo", _arm_name(blocks)),
        ("py-cpuinfo", _tidy(pycpuinfo.get("brand_raw"))),
    ]
    for key in NAME_KEYS:
        candidates.append(("/proc/cpuinfo", next((_tidy(block[key]) for block in blocks if key in block), None)))
    candidates.append(("/proc/cpuinfo", _s390_name(blocks)))
    for source, name in candidates:
        if name:
            notes.found("cpu_name", source)
            return name
    notes.missing("cpu_name", "neither /proc/cpuinfo nor py-cpuinfo gives a name")
    return None


def _tidy(name: object) -> str | None:
    """Return the name with single blanks; None where it is one that any machine could have."""
    tidy = " ".join(name.split()) if isinstance(name, str) else ""
    return None if NO_NAMES.fullmatch(tidy) else tidy


def _arm_cores(blocks: list[dict[str, str]]) -> list[tuple[int, int]]:
    """Return implementer and part of every core that /proc/cpuinfo lists, old one-block texts included."""
    cores = []
    for block in blocks:
        implementer = re.match(r"0x[0-9a-fA-F]+", block.get("CPU implementer", ""))
        for part in re.findall(r"0x[0-9a-fA-F]+", block.get("CPU part", "")) if implementer else ():
            cores.append((int(implementer[0], 16), int(part, 16)))  # type: ignore[index]
    return cores


def _arm_name(blocks: list[dict[str, str]]) -> str | None:
    counted = Counter(arm.core_name(*core) for core in _arm_cores(blocks))
    if len(counted) == 1:
        return next(iter(counted))
    return " + ".join(f"{n}× {name}" for name, n in sorted(counted.items())) or None


def _s390_name(blocks: list[dict[str, str]]) -> str | None:
    machines = (re.search(r"machine = (\w+)", value) for block in blocks for value in block.values())
    return next((f"IBM/S390 machine {match[1]}" for match in machines if match), None)


def _vendor(notes: Notes, blocks: list[dict[str, str]], pycpuinfo: dict[str, Any]) -> str | None:
    cores = _arm_cores(blocks)
    given = next((block[key] for block in blocks for key in ("vendor_id", "mvendorid") if block.get(key)), None)
    vendor = arm.vendor_name(min(cores)[0]) if cores else given or pycpuinfo.get("vendor_id_raw")
    if not isinstance(vendor, str) or not vendor.strip():
        notes.missing("cpu_vendor", "neither /proc/cpuinfo nor py-cpuinfo names one")
        return None
    notes.found("cpu_vendor", "/proc/cpuinfo" if cores or given else "py-cpuinfo")
    return vendor.strip()


def _isa(notes: Notes, blocks: list[dict[str, str]], pycpuinfo: dict[str, Any]) -> tuple[str, ...]:
    """Return what every core can do: a program may run on any of them."""
    listed = [_flags(block) for block in blocks if any(key.lower() in ("flags", "features", "isa") for key in block)]
    common = set.intersection(*listed) if listed else {str(flag) for flag in pycpuinfo.get("flags", [])}
    if common:
        notes.found("isa", "/proc/cpuinfo" if listed else "py-cpuinfo")
    else:
        notes.missing("isa", "neither /proc/cpuinfo nor py-cpuinfo lists flags")
    named = {ALIASES.get(flag, flag) for flag in common}
    return tuple(flag for flag in ISA if flag in named)


def _flags(block: dict[str, str]) -> set[str]:
    flags: set[str] = set()
    for key, value in block.items():
        if key.lower() in ("flags", "features"):
            flags.update(value.split())
        elif key == "isa" and re.match(r"rv(32|64)[a-z]*v", value.split("_")[0]):
            flags.add("rvv")
        elif key == "isa":
            flags.add(value.split("_")[0])
    return flags
