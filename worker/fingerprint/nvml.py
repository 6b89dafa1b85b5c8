"""NVIDIA's GPUs as the driver's library tells them, through the module pynvml of nvidia-ml-py.

Any call may be refused: by the device, the driver, a hypervisor or an old binding. Each is caught by itself.
"""

import re
import threading
from types import ModuleType
from typing import Any

from schema.host import Gpu
from worker.fingerprint.evidence import Notes
from worker.fingerprint.gpu_found import MIB, Found, Told, lanes, name_of, settings, slice_of, whole_gib

SECONDS = 5.0
NOT_SUPPORTED, LOST = 3, 15
"""Values of `enum nvmlReturn_enum`."""

MEMORY_CLOCK, VIRTUAL_GPU = 2, 2
"""NVML_CLOCK_MEM and NVML_GPU_VIRTUALIZATION_MODE_VGPU."""


class Nvml:
    """The library with its calls wrapped: an answer, or None and a note.

    `last_failed` says whether the last call was refused, `last_error` with which of NVML's codes.
    """

    def __init__(self, module: ModuleType, notes: Notes) -> None:
        self._module, self._notes = module, notes
        self.last_error: int | None = None
        self.last_failed = False

    def ask(self, name: str, *arguments: object, quiet: bool = False) -> Any:
        """Return what `nvml` + `name` answers, else None."""
        self.last_error, self.last_failed = None, False
        try:
            return getattr(self._module, f"nvml{name}")(*arguments)
        except Exception as error:
            code = getattr(error, "value", None)
            self.last_error, self.last_failed = code if isinstance(code, int) else None, True
            if not quiet:
                self._notes.missing("nvml", f"nvml{name}: {_shown(error)}")
            return None

    def number(self, name: str, *arguments: object, quiet: bool = False) -> int | None:
        """Return the answer where it is a whole number, not negative."""
        answer = self.ask(name, *arguments, quiet=quiet)
        return answer if type(answer) is int and answer >= 0 else None

    def text(self, name: str, *arguments: object, quiet: bool = False) -> str | None:
        """Return the answer where it is a text; old bindings give bytes."""
        answer = self.ask(name, *arguments, quiet=quiet)
        decoded = answer.decode("utf-8", "replace") if isinstance(answer, bytes) else answer
        return decoded.strip()[:100] or None if isinstance(decoded, str) else None


def read(module: ModuleType, notes: Notes, machine_memory: int | None, seconds: float | None = None) -> Told | None:
    """Return what NVML tells, asked on a thread of its own: a driver in trouble is known to answer never.

    None, with a note, where the library cannot be used. `machine_memory` stands for the memory of GPUs that have
    none of their own.
    """
    limit = SECONDS if seconds is None else seconds
    answers: list[Told | None] = []
    own = Notes()
    thread = threading.Thread(target=lambda: answers.append(_tell(module, own, machine_memory)), daemon=True)
    thread.start()
    thread.join(limit)
    if not answers:
        notes.missing("nvml", f"the driver did not answer within {limit:g} s")
        return Told(unusable=("NVIDIA's driver does not answer",))
    notes.add(own)
    return answers[0]


def _tell(module: ModuleType, notes: Notes, machine_memory: int | None) -> Told | None:
    nvml = Nvml(module, notes)
    nvml.ask("Init")
    if nvml.last_failed:
        return None
    found: list[Found] = []
    unusable: list[str] = []
    for index in range(min(nvml.number("DeviceGetCount") or 0, 64)):
        handle = nvml.ask("DeviceGetHandleByIndex", index)
        if handle is not None:
            found += _device(nvml, handle, index, machine_memory, unusable)
        elif nvml.last_error == LOST:
            unusable.append(f"GPU {index} is lost to its driver")
    version = nvml.text("SystemGetDriverVersion")
    told = Told(
        source="NVML",
        found=tuple(found),
        driver=f"nvidia {version}" if version else None,
        runtime=_cuda(nvml.number("SystemGetCudaDriverVersion_v2")),
        unusable=tuple(unusable),
    )
    nvml.ask("Shutdown")
    return told


def _device(nvml: Nvml, handle: object, index: int, machine_memory: int | None, unusable: list[str]) -> list[Found]:
    """Return the GPU, or the MIG slices that it is cut into; none of one that is lost: `unusable` then says so."""
    name = nvml.text("DeviceGetName", handle)
    if nvml.last_error == LOST:
        unusable.append(f"GPU {index} is lost to its driver")
        return []
    whole = _whole(nvml, handle, name_of(name, "NVIDIA"), machine_memory)
    mode = nvml.ask("DeviceGetMigMode", handle, quiet=True)
    if not isinstance(mode, list | tuple) or not mode or mode[0] != 1:
        return [whole]
    slices = _slices(nvml, handle, whole)
    if not slices:
        unusable.append(f"GPU {index} is in MIG mode and has no instance")
    return slices


def _whole(nvml: Nvml, handle: object, name: str, machine_memory: int | None) -> Found:
    total = getattr(nvml.ask("DeviceGetMemoryInfo", handle), "total", None)
    unified = nvml.last_error == NOT_SUPPORTED and not _is_virtual(nvml, handle)
    pci = nvml.ask("DeviceGetPciInfo", handle)
    device, bus = getattr(pci, "pciDeviceId", None), getattr(pci, "busId", None)
    clock = nvml.number("DeviceGetMaxClockInfo", handle, MEMORY_CLOCK)
    generation = nvml.number("DeviceGetMaxPcieLinkGeneration", handle)
    return Found(
        gpu=Gpu(
            vendor="NVIDIA",
            name=name,
            vram_bytes=machine_memory if unified else whole_gib(total) if isinstance(total, int) else None,
            # NVML packs the device's number above the vendor's.
            pci_id=f"{device & 0xFFFF:04x}:{device >> 16 & 0xFFFF:04x}" if isinstance(device, int) and device else None,
            unified=unified,
            memory_bus_bits=nvml.number("DeviceGetMemoryBusWidth", handle) or None,
            max_memory_clock_hz=clock * 1_000_000 if clock else None,
            architecture=_compute_capability(nvml.ask("DeviceGetCudaComputeCapability", handle)),
            pcie_max=lanes(generation, nvml.number("DeviceGetMaxPcieLinkWidth", handle)),
            n_cores=nvml.number("DeviceGetNumGpuCores", handle) or None,
        ),
        bus_id=bus_id(bus),
        uuid=nvml.text("DeviceGetUUID", handle),
        settings=_settings(nvml, handle),
    )


def _is_virtual(nvml: Nvml, handle: object) -> bool:
    """Return whether a hypervisor shares the GPU out: its memory is then hidden, and not the machine's."""
    return nvml.number("DeviceGetVirtualizationMode", handle, quiet=True) == VIRTUAL_GPU


def _slices(nvml: Nvml, handle: object, whole: Found) -> list[Found]:
    slices = []
    for index in range(min(nvml.number("DeviceGetMaxMigDeviceCount", handle) or 0, 16)):
        part = nvml.ask("DeviceGetMigDeviceHandleByIndex", handle, index, quiet=True)
        if part is None:
            continue
        total = getattr(nvml.ask("DeviceGetMemoryInfo", part), "total", None)
        told = re.search(r"MIG (\S+)", nvml.text("DeviceGetName", part, quiet=True) or "")
        profile = told[1] if told else _profile(nvml.ask("DeviceGetAttributes_v2", part, quiet=True))
        uuid = nvml.text("DeviceGetUUID", part, quiet=True)
        slices.append(slice_of(whole, profile, total if isinstance(total, int) else None, uuid))
    return slices


def _profile(attributes: object) -> str | None:
    """Return the profile such as `1g.5gb`, or `1c.2g.10gb` where the instance is shared, from a slice's attributes."""
    names = ("gpuInstanceSliceCount", "computeInstanceSliceCount", "memorySizeMB")
    values = [getattr(attributes, name, None) for name in names]
    if not all(type(value) is int and value > 0 for value in values):
        return None
    instance, compute, mebibytes = (int(value) for value in values if value is not None)
    shared = f"{compute}c." if compute < instance else ""
    return f"{shared}{instance}g.{-(-mebibytes * MIB // (1 << 30))}gb"


def bus_id(text: object) -> str | None:
    """Return a place on the PCI bus as /sys and llama.cpp write it, `0000:07:00.0`; NVML's domain has 8 digits."""
    decoded = text.decode("ascii", "replace") if isinstance(text, bytes) else text
    match = re.fullmatch(r"([0-9a-f]{4,8}):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])", str(decoded).strip("\0 ").lower())
    return f"{int(match[1], 16):04x}:{match[2]}" if match else None


def _compute_capability(answer: object) -> str | None:
    if isinstance(answer, list | tuple) and len(answer) == 2 and all(type(part) is int for part in answer):
        return f"{answer[0]}.{answer[1]}"
    return None


def _settings(nvml: Nvml, handle: object) -> str | None:
    """Return what an administrator can set and what changes rates, in words."""
    limit = nvml.number("DeviceGetEnforcedPowerLimit", handle, quiet=True)
    correction = nvml.ask("DeviceGetEccMode", handle, quiet=True)
    persistence = nvml.number("DeviceGetPersistenceMode", handle, quiet=True)
    known = isinstance(correction, list | tuple) and correction and correction[0] in (0, 1)
    return settings(
        limit / 1000 if limit else None,
        bool(correction[0]) if known else None,
        None if persistence is None else bool(persistence),
    )


def _cuda(version: int | None) -> str | None:
    """Return `12.2` for NVML's 12020."""
    return f"CUDA {version // 1000}.{version % 1000 // 10}" if version else None


def _shown(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
