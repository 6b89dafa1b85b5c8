"""The graphics processors that can compute, of all makers: the door to the readers of this room.

The answer is one of four: `present`, `none`, `not visible` (the machine has one, but we cannot use it: no driver, a
container without it, a variable that hides it, lost to its driver) and `unknown`.
"""

import contextlib
import importlib.util
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from schema.host import Gpu
from worker.fingerprint import amd, amd_smi, apple_gpu, evidence, intel, memory, nvidia, nvidia_smi, program, visible
from worker.fingerprint.evidence import Notes
from worker.fingerprint.gpu_found import Found, Told

VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
DISPLAY, ACCELERATOR = "0x03", "0x12"
"""First digits of a PCI class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs that a program started from here can use, and the answer in one word.

    `n_visible` is how many of them variables leave to it. `driver` and `runtime` name versions, `settings` what an
    administrator has set. `uuids` are the makers' numbers of the specimens: only a keyed digest of them may leave
    this machine.
    """

    gpus: tuple[Gpu, ...] = ()
    status: str = "unknown"
    n_visible: int | None = None
    uuids: tuple[str, ...] = ()
    driver: str | None = None
    runtime: str | None = None
    settings: tuple[str, ...] = ()


def read(root: Path, notes: Notes, environ: Mapping[str, str], nvml: ModuleType | None = None) -> Gpus:
    """Return the GPUs of the machine at `root`; `nvml` is the module pynvml where it may be asked."""
    tellers = _tell(root, notes, nvml)
    for told in tellers:
        for reason in told.unusable:
            notes.missing("gpus", reason)
    found = [one for told in tellers for one in told.found]
    usable, n_visible = _usable(root, found, notes, environ)
    if usable:
        notes.found("gpus", ", ".join(dict.fromkeys(told.source for told in tellers if told.found)))
        return _answer(usable, tellers, "present", n_visible)
    signs = shown(root)
    if found or signs or any(told.unusable for told in tellers):
        notes.missing("gpus", "there is a GPU that cannot be used from here: " + ", ".join(signs or ("hidden",)))
        return _answer((), tellers, "not visible", 0)
    if (root / "sys/bus").is_dir():
        notes.found("gpus", "/sys/bus/pci")
        return Gpus(status="none", n_visible=0)
    notes.missing("gpus", "this system shows no devices")
    return Gpus()


def read_capture(text: str) -> Gpus:
    """Return what a captured output tells: of nvidia-smi, amd-smi, rocm-smi or a Mac's system_profiler.

    Anything else, and a text cut short, is `unknown`.
    """
    told = nvidia_smi.read(text)
    if told is None:
        parsed = _json(text)
        told = amd_smi.read(parsed) or apple_gpu.read(parsed)
    if told is None:
        return Gpus()
    return _answer(told.found, [told], "present" if told.found else "unknown", None)


def shown(root: Path) -> tuple[str, ...]:
    """Return the signs of a GPU that need no driver: on the PCI bus, in /proc, /dev or the device tree."""
    signs = []
    for device in evidence.entries(root / "sys/bus/pci/devices"):
        vendor = VENDORS.get(evidence.text(device / "vendor") or "")
        # Intel's accelerators of that class are no GPUs.
        kinds = (DISPLAY,) if vendor == "Intel" else (DISPLAY, ACCELERATOR)
        if vendor and (evidence.text(device / "class") or "").startswith(kinds):
            signs.append(f"{vendor} device {device.name} on the PCI bus")
    return (*signs, *nvidia.shown(root))


def cache_key(root: Path, environ: Mapping[str, str]) -> list[object]:
    """Return everything cheap on which the answer depends, so that a driver loaded later is noticed."""
    nodes = [path.name for path in (*evidence.entries(root / "dev", "nvidia*"), *evidence.entries(root / "dev/dri"))]
    variables = [environ.get(name) for names in visible.VARIABLES.values() for name in names]
    version = evidence.text(root / "proc/driver/nvidia/version")
    compute = (root / "dev/kfd").exists()
    return [list(shown(root)), nodes, compute, variables, version, importlib.util.find_spec("pynvml") is not None]


def load_nvml(notes: Notes, root: Path = Path("/")) -> ModuleType | None:
    """Return the module pynvml of nvidia-ml-py; None where nothing speaks for a GPU of NVIDIA, else with a note."""
    if not any(sign.startswith(("NVIDIA", "/proc", "/dev")) for sign in shown(root)):
        return None
    try:
        import pynvml
    except ImportError:
        notes.missing("nvml", "nvidia-ml-py is not installed; pip install 'tokfleet[nvidia]' lets us ask the driver")
        return None
    module: ModuleType = pynvml
    return module


def _tell(root: Path, notes: Notes, nvml: ModuleType | None) -> list[Told]:
    machine = memory.installed_bytes(root, Notes())
    tellers = [nvidia.read(root, notes, nvml, machine)]
    told = amd.read(root, memory.total_bytes(root))
    if told.found and evidence.is_live(root) and any(":" in one.gpu.name for one in told.found):
        told = _better_named(told, program.output(amd_smi.COMMAND, notes))
    tellers += [told, intel.read(root, machine)]
    if evidence.is_live(root) and sys.platform == "darwin":
        tellers += _macs(notes)
    return tellers


def _better_named(told: Told, printed: str | None) -> Told:
    """Return the cards of /sys with the names that amd-smi has for those in the same places."""
    listed = amd_smi.read(_json(printed)) if printed else None
    names = {one.bus_id: one.gpu.name for one in listed.found if one.bus_id} if listed else {}
    named = (replace(one, gpu=replace(one.gpu, name=names.get(one.bus_id or "", one.gpu.name))) for one in told.found)
    return replace(told, found=tuple(named))


def _macs(notes: Notes) -> Iterable[Told]:
    printed = program.output(apple_gpu.COMMAND, notes)
    told = apple_gpu.read(_json(printed), program.output(apple_gpu.SYSCTL, notes) or "") if printed else None
    if told:
        yield told


def _usable(root: Path, found: list[Found], notes: Notes, environ: Mapping[str, str]) -> tuple[list[Found], int]:
    """Return the GPUs of makers of which a variable leaves some, and how many all variables leave."""
    usable: list[Found] = []
    n_visible = 0
    for vendor in dict.fromkeys(one.gpu.vendor for one in found):
        own = [one for one in found if one.gpu.vendor == vendor]
        if vendor in ("AMD", "Intel") and _kept_out(root):
            notes.missing("gpus", f"/dev has no node for the GPU of {vendor} that /sys shows, as in a container")
            continue
        left = len(own)
        for name, number in visible.hiding(vendor, environ, [one.uuid for one in own]).items():
            what = f"leaves {number} of {len(own)}" if number else "hides them all"
            notes.missing("gpus", f"{name}={environ[name]} {what}")
            left = min(left, number)
        usable += own if left else []
        n_visible += left
    return usable, n_visible


def _kept_out(root: Path) -> bool:
    """Return whether this system has device nodes, and none of a GPU: /sys is the same inside every container."""
    return bool(evidence.entries(root / "dev")) and not any((root / place).exists() for place in ("dev/dri", "dev/kfd"))


def _answer(found: Iterable[Found], tellers: Iterable[Told], status: str, n_visible: int | None) -> Gpus:
    ordered = sorted(found, key=lambda one: repr(one.gpu))
    told = [(teller.driver, teller.runtime) for teller in tellers]
    return Gpus(
        gpus=tuple(one.gpu for one in ordered),
        status=status,
        n_visible=n_visible,
        uuids=tuple(sorted(one.uuid for one in ordered if one.uuid)),
        driver=" + ".join(driver for driver, _ in told if driver) or None,
        runtime=" + ".join(runtime for _, runtime in told if runtime) or None,
        settings=tuple(sorted({f"{one.gpu.name}: {one.settings}" for one in ordered if one.settings})),
    )


def _json(text: str | None) -> Any:
    """Return the JSON object or list that the text holds, after warnings printed before it; None where it has none."""
    decoder = json.JSONDecoder()
    starts = sorted(place for place in ((text or "").find("{"), (text or "").find("[")) if place >= 0)
    for start in starts:
        with contextlib.suppress(ValueError, RecursionError):
            return decoder.raw_decode(text or "", start)[0]
    return None
