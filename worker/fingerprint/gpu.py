"""The graphics processors that can compute: NVIDIA through NVML or /proc, AMD through /sys.

The answer is one of four: `present`, `none`, `not visible` (the machine has one, but we cannot use
it: no driver, a container without it, a variable that hides it) and `unknown`.
"""

import importlib.util
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from schema.host import Gpu
from worker.fingerprint import evidence
from worker.fingerprint.evidence import Notes

NVML_SECONDS = 5.0
GIB = 1 << 30
VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD"}
HIDING = {
    "NVIDIA": ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    "AMD": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
}
NOTHING = ("", "-1", "void", "none", "nodevfiles")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs that a program started from here can use, and the answer in one word."""

    gpus: tuple[Gpu, ...] = ()
    status: str = "unknown"


def read(root: Path, notes: Notes, environ: Mapping[str, str], nvml: ModuleType | None = None) -> Gpus:
    """Return the GPUs of the machine at `root`; `nvml` is the module pynvml where it may be asked."""
    found = tuple(sorted((*_nvidia(root, notes, nvml), *_amd(root)), key=repr))
    signs = shown(root)
    usable = tuple(gpu for gpu in found if not _hidden(gpu.vendor, notes, environ))
    if usable:
        notes.found("gpus", "NVML" if nvml else "/proc/driver/nvidia and /sys/class/drm")
        return Gpus(gpus=usable, status="present")
    if found or signs:
        notes.missing("gpus", "there is a GPU that cannot be used from here: " + ", ".join(signs or ("hidden",)))
        return Gpus(status="not visible")
    if (root / "sys/bus").is_dir():
        notes.found("gpus", "/sys/bus/pci")
        return Gpus(status="none")
    notes.missing("gpus", "this system shows no devices")
    return Gpus()


def shown(root: Path) -> tuple[str, ...]:
    """Return the signs of a GPU that need no driver: on the PCI bus, in /proc, /dev or the device tree."""
    signs = []
    for device in evidence.entries(root / "sys/bus/pci/devices"):
        vendor, kind = VENDORS.get(evidence.text(device / "vendor") or ""), evidence.text(device / "class") or ""
        if vendor and kind.startswith(("0x03", "0x12")):
            signs.append(f"{vendor} device {device.name} on the PCI bus")
    for place in ("proc/driver/nvidia/version", "dev/nvidiactl", "dev/dxg"):
        if (root / place).exists():
            signs.append(f"/{place}")
    if "nvidia,tegra" in (evidence.text(root / "proc/device-tree/compatible") or ""):
        signs.append("NVIDIA Tegra in the device tree")
    return tuple(signs)


def cache_key(root: Path, environ: Mapping[str, str]) -> list[object]:
    """Return everything cheap on which the answer depends, so that a driver loaded later is noticed."""
    nodes = [path.name for path in (*evidence.entries(root / "dev", "nvidia*"), *evidence.entries(root / "dev/dri"))]
    variables = [environ.get(name) for names in HIDING.values() for name in names]
    version = evidence.text(root / "proc/driver/nvidia/version")
    return [list(shown(root)), nodes, variables, version, importlib.util.find_spec("pynvml") is not None]


def load_nvml(notes: Notes) -> ModuleType | None:
    """Return the module pynvml of nvidia-ml-py, else None with a note."""
    try:
        import pynvml
    except ImportError:
        notes.missing("nvml", "nvidia-ml-py is not installed; pip install 'tokfleet[nvidia]' lets us ask the driver")
        return None
    module: ModuleType = pynvml
    return module


def current_environ() -> Mapping[str, str]:
    """Return this process's variables, with which the measuring process starts too."""
    return os.environ


def _nvidia(root: Path, notes: Notes, nvml: ModuleType | None) -> list[Gpu]:
    return (_ask_in_time(nvml, notes) if nvml else []) or _nvidia_from_proc(root)


def _ask_in_time(nvml: ModuleType, notes: Notes) -> list[Gpu]:
    """Ask on a thread of its own: a driver in trouble is known to answer never."""
    answers: list[list[Gpu]] = []
    thread = threading.Thread(target=lambda: answers.append(_nvidia_from_nvml(nvml, notes)), daemon=True)
    thread.start()
    thread.join(NVML_SECONDS)
    if not answers:
        notes.missing("nvml", f"the driver did not answer within {NVML_SECONDS:g} s")
        return []
    return answers[0]


def _nvidia_from_nvml(nvml: ModuleType, notes: Notes) -> list[Gpu]:
    if _call(nvml, notes, "nvmlInit") is _FAILED:
        return []
    count = _call(nvml, notes, "nvmlDeviceGetCount")
    handles = [_call(nvml, notes, "nvmlDeviceGetHandleByIndex", i) for i in range(count if type(count) is int else 0)]
    gpus = [_nvml_gpu(nvml, notes, handle) for handle in handles if handle is not _FAILED]
    _call(nvml, notes, "nvmlShutdown")
    return gpus


_FAILED = object()


def _call(nvml: ModuleType, notes: Notes, name: str, *args: object) -> Any:
    """Return NVML's answer or `_FAILED`: any call may be unsupported by a device, driver or binding."""
    try:
        return getattr(nvml, name)(*args)
    except Exception as error:
        notes.missing("nvml", f"{name}: {error}")
        return _FAILED


def _nvml_gpu(nvml: ModuleType, notes: Notes, handle: object) -> Gpu:
    name = _call(nvml, notes, "nvmlDeviceGetName", handle)
    total = getattr(_call(nvml, notes, "nvmlDeviceGetMemoryInfo", handle), "total", None)
    pci = getattr(_call(nvml, notes, "nvmlDeviceGetPciInfo", handle), "pciDeviceId", None)
    named = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
    return Gpu(
        vendor="NVIDIA",
        name=" ".join(named.split()) if isinstance(named, str) else "unnamed NVIDIA GPU",
        vram_bytes=_rounded(total) if isinstance(total, int) else None,
        # NVML packs the device's number above the vendor's.
        pci_id=f"{pci & 0xFFFF:04x}:{pci >> 16:04x}" if isinstance(pci, int) else None,
    )


def _rounded(total: int) -> int:
    """Return the memory up to the next GiB: drivers keep different amounts, with ECC or without, for themselves."""
    return -(-total // GIB) * GIB


def _nvidia_from_proc(root: Path) -> list[Gpu]:
    """List what the driver lists, where a device node lets us use it: /proc shows it inside every container."""
    if not evidence.entries(root / "dev", "nvidia[0-9]*"):
        return []
    gpus = []
    for place in evidence.entries(root / "proc/driver/nvidia/gpus"):
        model = re.search(r"^Model:\s*(.+)$", evidence.text(place / "information") or "", re.M)
        name = " ".join(model[1].split()) if model else "unnamed NVIDIA GPU"
        gpus.append(Gpu(vendor="NVIDIA", name=name, pci_id=_pci_id(root / "sys/bus/pci/devices" / place.name)))
    return gpus


def _amd(root: Path) -> list[Gpu]:
    gpus = []
    for card in evidence.entries(root / "sys/class/drm", "card[0-9]*"):
        device = card / "device"
        total = evidence.number(device / "mem_info_vram_total")
        if "-" in card.name or evidence.text(device / "vendor") != "0x1002" or total is None:
            continue
        pci_id = _pci_id(device)
        name = evidence.text(device / "product_name") or f"AMD GPU {pci_id}"
        gpus.append(Gpu(vendor="AMD", name=" ".join(name.split()), vram_bytes=_rounded(total), pci_id=pci_id))
    return gpus


def _pci_id(device: Path) -> str | None:
    vendor, number = evidence.text(device / "vendor"), evidence.text(device / "device")
    return f"{vendor.removeprefix('0x')}:{number.removeprefix('0x')}" if vendor and number else None


def _hidden(vendor: str, notes: Notes, environ: Mapping[str, str]) -> bool:
    """Return whether a variable hides every GPU of the vendor; one that hides some is noted."""
    hidden = False
    for name in HIDING[vendor]:
        value = environ.get(name)
        first = value.split(",")[0].strip().lower() if value is not None else None
        if first in NOTHING and not (name.startswith("NVIDIA_") and first == ""):
            notes.missing("gpus", f"{name}={value} hides them all")
            hidden = True
        elif value and first != "all":
            notes.missing("gpus", f"{name}={value} may hide some of them from llama.cpp")
    return hidden
