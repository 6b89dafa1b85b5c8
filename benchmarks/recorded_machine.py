"""A recorded machine with what we, py-cpuinfo and others say of it."""

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import plain_pycpuinfo
from benchmarks.known_topology import Known, known
from schema.host import Hardware
from worker.fingerprint import arm, cpu, cpuinfo, design, evidence, gpu, pycpuinfo
from worker.fingerprint.cpu import Cpu
from worker.fingerprint.evidence import Notes
from worker.fingerprint.take import take
from worker.fingerprint.topology import CPUS

CAPTURES = ("nvidia-smi*", "rocm-smi*", "amd-smi*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was found of a machine, how long that took, and what others say.

    `differences` are the fields of the processor that are other ones with py-cpuinfo's answers. `n_gpus` counts the
    GPUs in each captured output of a GPU's tool.
    """

    name: str
    root: Path
    hardware: Hardware
    seconds: float
    known: tuple[Known, ...] = ()
    plain: Mapping[str, Any]
    differences: tuple[str, ...] = ()
    n_gpus: tuple[int, ...] = ()
    holds_name: bool = False
    problem: str | None = None


def read(place: Path, home: Path) -> Machine:
    """Return the machine in the directory `place`, read as a worker would read its own; a failure is told in it."""
    root = place / "fsroot" if (place / "fsroot").is_dir() else place
    start = time.perf_counter()
    try:
        found = take(home / place.name, None, root=root).hardware
        seconds = time.perf_counter() - start
        found = _of_mac(place, found)
        plain = plain_pycpuinfo.answers(root, found.arch, found.n_cores_logical)
        return Machine(
            name=place.name,
            root=root,
            hardware=found,
            seconds=seconds,
            known=tuple(known(place)) if (root / CPUS).is_dir() else (),
            plain=plain,
            differences=_differences(root, plain),
            n_gpus=tuple(len(gpu.read_capture(text).gpus) for text in _captured(place, CAPTURES)),
            holds_name=_holds_name(place, root),
        )
    except Exception:
        seconds, problem = time.perf_counter() - start, traceback.format_exc(limit=-3)
        nothing = Hardware(arch="unknown")
        return Machine(name=place.name, root=root, hardware=nothing, seconds=seconds, plain={}, problem=problem)


def _captured(place: Path, patterns: tuple[str, ...]) -> list[str]:
    paths = [path for pattern in patterns for path in sorted(place.glob(f"cmd/{pattern}"))]
    return [path.read_text("utf-8", "replace") for path in paths]


def _of_mac(place: Path, found: Hardware) -> Hardware:
    """Return the hardware with the processor that a captured sysctl tells, on a Mac; else as it is."""
    told = [cpu.read(Path("/nonexistent"), Notes(), {}, text) for text in _captured(place, ("*sysctl*",))]
    if not told or told[0] == Cpu(arch="unknown"):
        return found
    names = {"name": "cpu_name", "vendor": "cpu_vendor"}
    values = {names.get(name, name): getattr(told[0], name) for name in Cpu.__slots__ if name != "cpus_by_type"}
    return replace(found, **values)


def _differences(root: Path, plain: Mapping[str, Any]) -> tuple[str, ...]:
    asked = cpu.read(root, Notes(), {key: value for key, value in plain.items() if key in pycpuinfo.FIELDS})
    not_asked = cpu.read(root, Notes(), {})
    return tuple(name for name in Cpu.__slots__ if getattr(asked, name) != getattr(not_asked, name))


def _holds_name(place: Path, root: Path) -> bool:
    """Return whether the files have a name, or the numbers that stand for one on ARM and mainframes."""
    blocks = cpuinfo.parse(evidence.text(root / "proc/cpuinfo") or "")
    lines = (line for text in _captured(place, ("*sysctl*",)) for line in text.splitlines())
    brands = (line.partition(":")[2] for line in lines if line.startswith("machdep.cpu.brand_string"))
    told = any(design.tidy(brand) for brand in brands)
    return told or any(arm.of_block(block) or design.brand(block) for block in blocks)
