"""A fingerprint as groups of facts for people; pure.

A fact that is absent is "none", one that could not be had is "not known": two answers that look alike as data.
"""

from collections.abc import Iterator
from typing import Any

from schema.host import Cache, CoreType, Fingerprint, Gpu, MemoryModules

Fact = tuple[str, str, str | None]
"""What it is called, its value in words, and where it was read."""

UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
NOT_KNOWN, NONE = "not known", "none"


def groups(found: Fingerprint) -> Iterator[tuple[str, list[Fact]]]:
    """Yield the title of each group and its facts, in the order in which a person asks for them."""
    yield "host", list(_host(found))
    yield "machine", list(_machine(found))
    yield "processor", list(_processor(found))
    yield "memory", list(_memory(found))
    yield "graphics", list(_graphics(found))
    yield "allowed here", list(_allocation(found))
    yield "environment", list(_environment(found))
    yield "at this moment", list(_state(found))
    yield "llama.cpp", list(_build(found))
    yield "ids", list(_ids(found))


def size(count: int | None) -> str | None:
    """Return a number of bytes with four digits, in the largest unit that leaves at least 1."""
    if count is None:
        return None
    unit, name = next(((unit, name) for unit, name in UNITS if count >= unit), (1, "B"))
    return f"{count / unit:.4g} {name}"


def _fact(found: Fingerprint, label: str, name: str, value: Any) -> Fact:
    """Return the fact of the field `name`; absent and unknown are told apart by whether it has a source."""
    source = found.sources.get(name)
    words = (NONE if source else NOT_KNOWN) if value in (None, "", ()) else str(value)
    return label, words, source


def _plain(label: str, value: Any) -> Fact:
    return label, NOT_KNOWN if value in (None, "", ()) else str(value), None


def _host(found: Fingerprint) -> Iterator[Fact]:
    yield _plain("name", found.hostname)
    yield "id", f"{found.host_uid} ({found.uid_source})", found.sources.get("host_uid")
    yield _plain("taken at", found.taken_at)
    if found.cloned_from:
        yield _plain("cloned from", found.cloned_from)
    if found.probable_same_as:
        yield _plain("probably the same as", found.probable_same_as)


def _machine(found: Fingerprint) -> Iterator[Fact]:
    yield _fact(found, "product", "product_name", found.hardware.product_name)
    yield _fact(found, "case", "chassis", found.hardware.chassis)
    yield _fact(found, "hypervisor", "hypervisor", found.hardware.hypervisor)
    yield _fact(found, "container", "container", found.allocation.container)
    yield _fact(found, "BIOS version", "bios_version", found.environment.bios_version)


def _processor(found: Fingerprint) -> Iterator[Fact]:
    hardware = found.hardware
    yield _fact(found, "name", "cpu_name", hardware.cpu_name)
    yield _fact(found, "vendor", "cpu_vendor", hardware.cpu_vendor)
    yield _fact(found, "architecture", "arch", hardware.arch)
    yield _fact(found, "packages", "n_packages", hardware.n_packages)
    yield _fact(found, "cores", "n_cores_physical", hardware.n_cores_physical)
    yield _fact(found, "threads", "n_cores_logical", hardware.n_cores_logical)
    for core_type in hardware.core_types:
        yield _fact(found, f"{core_type.kind or 'core'} type", "core_types", _core_type(core_type))
    yield _fact(found, "instruction sets", "isa", " ".join(hardware.isa))
    for cache in hardware.caches:
        yield _fact(found, f"L{cache.level} {cache.kind}", "caches", _cache(cache))
    for node in hardware.numa:
        memory = NOT_KNOWN if node.memory_gib is None else f"{node.memory_gib} GiB"
        yield _fact(found, "NUMA node", "numa", f"{node.n_cpus} CPUs, {memory}")


def _core_type(core_type: CoreType) -> str:
    cores = NOT_KNOWN if core_type.n_cores is None else str(core_type.n_cores)
    threads = f", {core_type.threads_per_core} threads each" if (core_type.threads_per_core or 1) > 1 else ""
    return f"{cores} × {core_type.name or core_type.key or 'unnamed'}{threads}"


def _cache(cache: Cache) -> str:
    return f"{cache.instances} × {size(cache.size_bytes)}"


def _memory(found: Fingerprint) -> Iterator[Fact]:
    yield _fact(found, "installed", "memory_bytes", size(found.hardware.memory_bytes))
    modules = found.memory_modules
    if modules is None:
        yield _plain("modules", None)
        return
    yield _fact(found, "modules", "memory_modules", _modules(modules))
    yield _fact(found, "type", "memory_modules", modules.kind or NOT_KNOWN)
    bandwidth = modules.theoretical_bandwidth_bytes_per_second
    speed = f"{modules.configured_mts} MT/s" if modules.configured_mts else NOT_KNOWN
    theory = f"{bandwidth / 1e9:.1f} GB/s" if bandwidth else NOT_KNOWN
    yield _fact(found, "configured speed", "memory_modules", speed)
    yield _fact(found, "channels", "memory_modules", modules.n_channels or NOT_KNOWN)
    yield _fact(found, "bandwidth in theory", "memory_modules", theory)


def _modules(modules: MemoryModules) -> str:
    counted = {each: modules.module_bytes.count(each) for each in modules.module_bytes}
    sizes = " + ".join(f"{count} × {size(each)}" for each, count in counted.items())
    return f"{sizes} in {modules.n_slots} slots" if modules.n_slots and modules.n_modules else sizes


def _graphics(found: Fingerprint) -> Iterator[Fact]:
    yield _fact(found, "GPUs", "gpus", found.hardware.gpu_status)
    for gpu in found.hardware.gpus:
        yield _fact(found, "GPU", "gpus", _gpu(gpu))
    if found.hardware.gpu_status == "none":
        return
    yield _fact(found, "driver", "gpu_driver", found.environment.gpu_driver)
    yield _fact(found, "runtime", "gpu_runtime", found.environment.gpu_runtime)
    yield _fact(found, "settings", "gpu_settings", found.environment.gpu_settings)


def _gpu(gpu: Gpu) -> str:
    """Return name, memory, bandwidth in theory, architecture and link; what is not known is left out."""
    bandwidth = gpu.theoretical_bandwidth_bytes_per_second
    parts = (
        gpu.name,
        f"{size(gpu.vram_bytes)}{' of the machine' if gpu.unified else ''}" if gpu.vram_bytes else None,
        f"{size(gpu.usable_bytes)} of it usable" if gpu.usable_bytes else None,
        f"{bandwidth / 1e9:.0f} GB/s" if bandwidth else None,
        gpu.architecture,
        gpu.pcie_max,
        gpu.mig_profile,
    )
    return ", ".join(part for part in parts if part)


def _allocation(found: Fingerprint) -> Iterator[Fact]:
    allowed = found.allocation
    yield _fact(found, "CPUs", "n_cpus", allowed.n_cpus)
    if len(allowed.cpus_by_type) > 1:
        for name, count in allowed.cpus_by_type.items():
            yield _fact(found, f"of type {name}", "cpus_by_type", count)
    quota = None if allowed.cpu_quota_cores is None else f"{allowed.cpu_quota_cores:g} cores"
    yield _fact(found, "CPU quota", "cpu_quota_cores", quota)
    yield _fact(found, "memory limit", "memory_limit_bytes", size(allowed.memory_limit_bytes))
    yield _fact(found, "NUMA nodes", "n_numa_nodes", allowed.n_numa_nodes)
    yield _fact(found, "GPUs", "gpus" if allowed.n_gpus is not None else "", allowed.n_gpus)


def _environment(found: Fingerprint) -> Iterator[Fact]:
    now = found.environment
    limit = None if now.power_limit_watts is None else f"{now.power_limit_watts:g} W"
    yield _fact(found, "system", "os", now.os)
    yield _fact(found, "kernel", "kernel", now.kernel)
    yield _fact(found, "C library", "libc", now.libc)
    yield _plain("Python", now.python)
    yield _fact(found, "microcode", "microcode", now.microcode)
    yield _fact(found, "frequency driver", "scaling_driver", now.scaling_driver)
    yield _fact(found, "governor", "governor", now.governor)
    yield _fact(found, "energy preference", "energy_preference", now.energy_preference)
    yield _fact(found, "turbo", "turbo", now.turbo)
    yield _fact(found, "SMT", "smt", now.smt)
    yield _fact(found, "power limit", "power_limit_watts", limit)
    yield _fact(found, "page size", "page_bytes", size(now.page_bytes))
    yield _fact(found, "huge pages", "huge_pages", now.huge_pages)
    for weakness in (now.mitigations or "").split("; "):
        yield _fact(found, "mitigation", "mitigations", weakness)


def _state(found: Fingerprint) -> Iterator[Fact]:
    state = found.state
    if state is None:
        return
    loads = [f"{load:g}" for load in (state.load1, state.load5, state.load15) if load is not None]
    yield _plain("load", " ".join(loads))
    for label, percent in (
        ("waiting for CPU", state.cpu_pressure_percent),
        ("waiting for memory", state.memory_pressure_percent),
        ("waiting for disk", state.io_pressure_percent),
    ):
        yield _plain(label, None if percent is None else f"{percent:g} % of the last 10 s")
    yield _plain("memory available", size(state.available_bytes))
    yield _plain("swap used", size(state.swap_used_bytes))
    yield _plain("running for", None if state.uptime_seconds is None else f"{state.uptime_seconds / 3600:.1f} h")
    power = None if state.on_battery is None else "battery" if state.on_battery else "mains"
    yield _plain("power", power)
    yield _plain("power profile", state.power_profile)
    hottest = state.hottest_celsius
    yield _plain("hottest sensor", None if hottest is None else f"{hottest:.0f} °C")


def _build(found: Fingerprint) -> Iterator[Fact]:
    build = found.build
    if build is None:
        yield _plain("build", None)
        return
    yield _plain("method", build.method)
    yield _plain("binding", build.binding)
    yield _plain("commit", build.llama_cpp_commit)
    yield _plain("compiler", build.compiler)
    yield _plain("CMake arguments", build.cmake_args)
    yield _plain("back ends", " ".join(build.backends))
    yield _plain("devices", "; ".join(build.devices))
    yield _plain("system info", build.system_info)


def _ids(found: Fingerprint) -> Iterator[Fact]:
    yield _plain("hardware", found.hardware.hardware_id)
    yield _plain("allocation", found.allocation.allocation_id)
    yield _plain("environment", found.environment.environment_id)
    if found.build:
        yield _plain("build", found.build.build_id)
