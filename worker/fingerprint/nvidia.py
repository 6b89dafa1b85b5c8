"""NVIDIA's GPUs: asked of NVML, else of nvidia-smi, else read in /proc and, on a Jetson, in the device tree."""

import re
from pathlib import Path
from types import ModuleType

from schema.host import Gpu
from worker.fingerprint import evidence, nvidia_smi, nvml, program
from worker.fingerprint.evidence import Notes
from worker.fingerprint.gpu_found import Found, Told, name_of

TEGRA = {
    "tegra210": ("Tegra X1", "5.3"),
    "tegra186": ("Tegra X2", "6.2"),
    "tegra194": ("Xavier", "7.2"),
    "tegra234": ("Orin", "8.7"),
    "tegra264": ("Thor", "11.0"),
}
"""Chip in the device tree → what its GPU is called, and its compute capability."""

TEGRA_NODES = ("dev/nvhost-gpu", "dev/nvhost-ctrl-gpu", "dev/nvgpu")


def read(root: Path, notes: Notes, module: ModuleType | None, machine_memory: int | None) -> Told:
    """Return NVIDIA's GPUs of the machine at `root`; `module` is pynvml where the driver may be asked."""
    told = nvml.read(module, notes, machine_memory) if module else None
    if told and (told.found or told.unusable):
        return told
    if evidence.is_live(root) and shown(root):
        printed = program.output(nvidia_smi.COMMAND, notes, search=nvidia_smi.WINDOWS_SUBSYSTEM)
        answer = nvidia_smi.read(printed) if printed else None
        if answer and answer.found:
            return answer
    listed = _from_proc(root) or _tegra(root, machine_memory)
    runtime = told.runtime if told else None
    return Told(source="/proc", found=tuple(listed), driver=kernel_driver(root), runtime=runtime)


def shown(root: Path) -> list[str]:
    """Return the signs of NVIDIA's driver or chip that need no library."""
    places = ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg")
    signs = [f"/{place}" for place in places if (root / place).exists()]
    if "nvidia,tegra" in (evidence.text(root / "proc/device-tree/compatible") or ""):
        signs.append("NVIDIA Tegra in the device tree")
    return signs


def kernel_driver(root: Path) -> str | None:
    """Return the version of the kernel's module."""
    told = evidence.text(root / "proc/driver/nvidia/version") or ""
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", told)
    return f"nvidia {match[1]}" if match else None


def _from_proc(root: Path) -> list[Found]:
    """List what the driver lists, where a device node lets us use it: /proc shows it inside every container."""
    if not evidence.entries(root / "dev", "nvidia[0-9]*"):
        return []
    found = []
    for place in evidence.entries(root / "proc/driver/nvidia/gpus"):
        told = evidence.text(place / "information") or ""
        model, uuid = (re.search(rf"^{label}:\s*(\S.*)$", told, re.M) for label in ("Model", "GPU UUID"))
        gpu = Gpu(
            vendor="NVIDIA",
            name=name_of(model[1] if model else None, "NVIDIA"),
            pci_id=_pci_id(root / "sys/bus/pci/devices" / place.name),
        )
        known = uuid and re.fullmatch(r"GPU-[0-9a-f-]{36}", uuid[1].strip())
        found.append(Found(gpu=gpu, bus_id=nvml.bus_id(place.name), uuid=known[0] if known else None))
    return found


def _tegra(root: Path, machine_memory: int | None) -> list[Found]:
    """Return a Jetson's GPU: older systems have no NVML for it, and it has no memory of its own."""
    compatible = evidence.text(root / "proc/device-tree/compatible") or ""
    chip = next((chip for chip in TEGRA if f"nvidia,{chip}" in compatible), None)
    if chip is None or not any((root / node).exists() for node in TEGRA_NODES):
        return []
    name, capability = TEGRA[chip]
    gpu = Gpu(vendor="NVIDIA", name=f"NVIDIA {name}", vram_bytes=machine_memory, unified=True, architecture=capability)
    return [Found(gpu=gpu)]


def _pci_id(device: Path) -> str | None:
    vendor, number = evidence.text(device / "vendor"), evidence.text(device / "device")
    return f"{vendor.removeprefix('0x')}:{number.removeprefix('0x')}" if vendor and number else None
