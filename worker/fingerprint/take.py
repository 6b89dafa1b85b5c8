"""Take the fingerprint of this machine: every reader asked once, the slow ones once per boot."""

import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from schema import canonical
from schema.errors import HostError
from schema.host import Build, Fingerprint, Hardware
from worker.fingerprint import (
    allocation,
    apple,
    board,
    cpu,
    environment,
    evidence,
    gpu,
    identity,
    marks,
    memory,
    modules,
    numa,
    pycpuinfo,
    state,
)
from worker.fingerprint.cache import BootCache
from worker.fingerprint.cpu import Cpu
from worker.fingerprint.evidence import Notes
from worker.fingerprint.gpu import Gpus
from worker.lock import HostLock

T = TypeVar("T")

PYCPUINFO_SECONDS = 2.5
"""How long py-cpuinfo may take, so that all together take three seconds at most; it needs about 1.3."""


def take(home: Path, build: Build | None, root: Path = Path("/"), holds_lock: bool = False) -> Fingerprint:
    """Return everything known of the machine now; what could not be had is None and named in `errors`.

    Kept in `home` for this boot: the processor, while the same CPUs are online, and the GPUs, while the
    driver, the device nodes and the variables that hide them are the same. All else is read each time.
    `root` is the root of a recorded machine; system calls and programs are asked only for `/`. Who holds the
    machine's benchmark lock says so; while another one holds it, py-cpuinfo is not asked, since it keeps a core busy.
    """
    notes = Notes()
    cache = BootCache(home, identity.system_name(root), root)
    processor, found = _slow(root, notes, cache, holds_lock)
    hardware = _hardware(root, notes, processor, found)
    members = {name: frozenset(cpus) for name, cpus in processor.cpus_by_type.items()}
    allowed = allocation.read(root, notes, hardware.memory_bytes, members, found.n_visible)
    # A container is given now this GPU, now that one, of the same machine.
    uuids = found.uuids if allowed.container in (None, "none") else ()
    now = datetime.now(UTC)
    unique = marks.read(root, now, uuids, _platform_properties(root, notes))
    who = identity.read(home, root, notes, unique, hardware.hardware_id)
    return Fingerprint(
        host_uid=who.host_uid,
        uid_source=who.uid_source,
        hostname=who.hostname,
        taken_at=now.isoformat(timespec="seconds").replace("+00:00", "Z"),
        hardware=hardware,
        allocation=allowed,
        environment=environment.read(root, notes, found.driver, found.runtime, "; ".join(found.settings) or None),
        build=build,
        sources=dict(notes.sources),
        errors=tuple(notes.errors),
        state=state.read(root),
        memory_modules=modules.read(root, notes, is_virtual=hardware.hypervisor not in (None, "none")),
        evidence=unique,
        cloned_from=who.cloned_from,
        probable_same_as=who.probable_same_as,
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
    allowed = fingerprint.allocation
    quota = math.floor(allowed.cpu_quota_cores) if allowed.cpu_quota_cores is not None else None
    return max(1, min((limit for limit in (n_cores, allowed.n_cpus, quota) if limit is not None), default=1))


def _hardware(root: Path, notes: Notes, processor: Cpu, found: Gpus) -> Hardware:
    size = memory.installed_bytes(root, notes)
    gib = memory.in_gib(size)
    cpus = frozenset(cpu for those in processor.cpus_by_type.values() for cpu in those)
    return Hardware(
        arch=processor.arch,
        cpu_name=processor.name,
        cpu_vendor=processor.vendor,
        n_packages=processor.n_packages,
        n_cores_physical=processor.n_cores_physical,
        n_cores_logical=processor.n_cores_logical,
        isa=processor.isa,
        caches=processor.caches,
        core_types=processor.core_types,
        numa=numa.read(root, notes, cpus, processor.n_cores_logical, gib),
        memory_gib=gib,
        memory_bytes=size,
        gpus=found.gpus,
        gpu_status=found.status,
        product_name=board.product_name(root, notes),
        hypervisor=board.hypervisor(root, notes),
        chassis=board.chassis(root, notes),
    )


def _slow(root: Path, notes: Notes, cache: BootCache, holds_lock: bool) -> tuple[Cpu, Gpus]:
    """Return the processor and the GPUs, as kept or asked anew, both at once."""
    key = evidence.text(root / "sys/devices/system/cpu/online")
    kept = _restored(Cpu, cache.get("cpu", key), notes)
    if kept:
        return kept, _gpus(root, notes, cache)
    own = Notes()
    with _asked(root, own, holds_lock) as answers:
        found = _gpus(root, notes, cache)
        told = answers()
        processor = cpu.read(root, own, told or {}, _sysctl(root, own))
    if told is not None:
        cache.put("cpu", key, {"fact": asdict(processor), "notes": asdict(own)})
    notes.add(own)
    return processor, found


@contextlib.contextmanager
def _asked(root: Path, notes: Notes, holds_lock: bool) -> Iterator[Callable[[], Mapping[str, Any] | None]]:
    """Ask py-cpuinfo, and give a function that waits for its answers: None where somebody measures here now.

    It keeps a core busy, so nobody may start to measure meanwhile. Of a recorded machine it knows nothing.
    """
    if not evidence.is_live(root):
        yield dict
        return
    with contextlib.ExitStack() as stack:
        if not holds_lock and not _is_quiet(stack, notes):
            yield lambda: None
            return
        process = pycpuinfo.start()
        yield lambda: pycpuinfo.finish(process, notes, PYCPUINFO_SECONDS)


def _is_quiet(stack: contextlib.ExitStack, notes: Notes) -> bool:
    """Return whether nobody measures; then nobody can until `stack` is left."""
    lock = HostLock(what="tokfleet fingerprint")
    try:
        holder = lock.try_acquire()
    except HostError:
        # Without a lock file nobody can tell; those who measure say so themselves.
        return True
    if holder is None:
        stack.enter_context(lock)
        return True
    notes.found("pycpuinfo", f"not asked, because the machine is in use by {holder.describe()}")
    return False


def _gpus(root: Path, notes: Notes, cache: BootCache) -> Gpus:
    environ = os.environ if evidence.is_live(root) else {}
    key = gpu.cache_key(root, environ)
    kept = _restored(Gpus, cache.get("gpu", key), notes)
    if kept:
        return kept
    own = Notes()
    nvml = gpu.load_nvml(own) if evidence.is_live(root) else None
    found = gpu.read(root, own, environ, nvml)
    if found.status in ("present", "none"):
        # Any other answer may be a driver that is still loading.
        cache.put("gpu", key, {"fact": asdict(found), "notes": asdict(own)})
    notes.add(own)
    return found


def _sysctl(root: Path, notes: Notes) -> str | None:
    return apple.ask(notes) if _is_mac(root) else None


def _platform_properties(root: Path, notes: Notes) -> str:
    return marks.platform_properties(notes) if _is_mac(root) else ""


def _is_mac(root: Path) -> bool:
    return evidence.is_live(root) and sys.platform == "darwin"


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
