"""Take the fingerprint of this machine: every reader asked once, the slow ones once per boot."""

import math
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from schema import canonical
from schema.host import Build, Fingerprint, Hardware
from worker.fingerprint import board, cpu, environment, evidence, gpu, identity, memory
from worker.fingerprint.cache import BootCache
from worker.fingerprint.cpu import Cpu
from worker.fingerprint.evidence import Notes
from worker.fingerprint.gpu import Gpus

T = TypeVar("T")


def take(home: Path, build: Build | None, root: Path = Path("/")) -> Fingerprint:
    """Return everything known of the machine now; what could not be had is None and named in `errors`.

    Kept in `home` for this boot: the processor, while the same CPUs are online, and the GPUs, while the
    driver, the device nodes and the variables that hide them are the same. All else is read each time.
    `root` is the root of a recorded machine; system calls and programs are asked only for `/`.
    """
    notes = Notes()
    who = identity.read(home, root, notes)
    cache = BootCache(home, who.host_uid, root)
    processor = _cpu(root, notes, cache)
    found = _gpus(root, notes, cache)
    return Fingerprint(
        host_uid=who.host_uid,
        uid_source=who.uid_source,
        hostname=who.hostname,
        taken_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        hardware=_hardware(root, notes, processor, found),
        allocation=memory.allocation(root, notes),
        environment=environment.read(root, notes),
        build=build,
        sources=dict(notes.sources),
        errors=tuple(notes.errors),
    )


def n_threads_physical(fingerprint: Fingerprint) -> int:
    """Return what the symbol `physical` means here: one thread per physical core, as far as we may use them."""
    hardware = fingerprint.hardware
    return _capped(fingerprint, hardware.n_cores_physical or hardware.n_cores_logical)


def n_threads_all(fingerprint: Fingerprint) -> int:
    """Return what the symbol `all` means here: one thread per logical CPU, as far as we may use them."""
    return _capped(fingerprint, fingerprint.hardware.n_cores_logical)


def _capped(fingerprint: Fingerprint, n_cores: int | None) -> int:
    """Return the least of cores, affinity and quota, at least 1: more threads than that wait for each other."""
    allocation = fingerprint.allocation
    quota = math.floor(allocation.cpu_quota_cores) if allocation.cpu_quota_cores is not None else None
    return max(1, min((limit for limit in (n_cores, allocation.n_cpus, quota) if limit is not None), default=1))


def _hardware(root: Path, notes: Notes, processor: Cpu, found: Gpus) -> Hardware:
    return Hardware(
        arch=processor.arch,
        cpu_name=processor.name,
        cpu_vendor=processor.vendor,
        n_packages=processor.n_packages,
        n_cores_physical=processor.n_cores_physical,
        n_cores_logical=processor.n_cores_logical,
        isa=processor.isa,
        caches=processor.caches,
        memory_gib=memory.installed_gib(root, notes),
        gpus=found.gpus,
        gpu_status=found.status,
        product_name=board.product_name(root, notes),
        hypervisor=board.hypervisor(root, notes),
    )


def _cpu(root: Path, notes: Notes, cache: BootCache) -> Cpu:
    key = evidence.text(root / "sys/devices/system/cpu/online")
    kept = _restored(Cpu, cache.get("cpu", key), notes)
    if kept:
        return kept
    own = Notes()
    facts: dict[str, Any] = {}
    if evidence.is_live(root):
        facts = cpu.finish_pycpuinfo(cpu.start_pycpuinfo(), own)
    processor = cpu.read(root, own, facts)
    cache.put("cpu", key, {"fact": asdict(processor), "notes": asdict(own)})
    notes.add(own)
    return processor


def _gpus(root: Path, notes: Notes, cache: BootCache) -> Gpus:
    environ = gpu.current_environ() if evidence.is_live(root) else {}
    key = gpu.cache_key(root, environ)
    kept = _restored(Gpus, cache.get("gpu", key), notes)
    if kept:
        return kept
    own = Notes()
    nvml = gpu.load_nvml(own) if evidence.is_live(root) and gpu.shown(root) else None
    found = gpu.read(root, own, environ, nvml)
    if found.status in ("present", "none"):
        # Any other answer may be a driver that is still loading.
        cache.put("gpu", key, {"fact": asdict(found), "notes": asdict(own)})
    notes.add(own)
    return found


def _restored(cls: type[T], kept: Any, notes: Notes) -> T | None:
    """Return the kept fact and take over its notes; None where it is not whole."""
    if not isinstance(kept, dict):
        return None
    try:
        fact = canonical.decode(cls, kept["fact"])
        notes.add(canonical.decode(Notes, kept["notes"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    return fact
