"""GPUs of a Mac from what `system_profiler SPDisplaysDataType -json` and `sysctl` printed."""

import re
from collections.abc import Mapping
from typing import Any

from schema.host import Gpu
from worker.fingerprint.gpu_found import MIB, Found, Told, count, mebibytes, name_of, whole_gib

COMMAND = ("system_profiler", "SPDisplaysDataType", "-json")
SYSCTL = ("sysctl", "hw.memsize", "iogpu.wired_limit_mb")
BUILT_IN = "Apple"


def read(parsed: Any, sysctl: str = "") -> Told | None:
    """Return what the parsed JSON tells, with the memory that `sysctl` tells; None where it is no such JSON.

    Apple's own GPUs compute from the machine's memory. Programs may wire as much of it as the setting
    iogpu.wired_limit_mb says; 0 leaves that to the system, and the engine's device tells how much it is.
    """
    displays = parsed.get("SPDisplaysDataType") if isinstance(parsed, dict) else None
    if not isinstance(displays, list):
        return None
    gpus = [_gpu(display, sysctl) for display in displays if isinstance(display, dict)]
    return Told(source="system_profiler", found=tuple(Found(gpu=gpu) for gpu in gpus if gpu))


def _gpu(display: Mapping[str, Any], sysctl: str) -> Gpu | None:
    name = _text(display, "sppci_model", "_name")
    if name is None:
        return None
    vendor = _vendor(display, name)
    unified = vendor == BUILT_IN
    limit = _number(sysctl, "iogpu.wired_limit_mb")
    own = mebibytes(_text(display, "spdisplays_vram", "_spdisplays_vram"))
    return Gpu(
        vendor=vendor,
        name=name_of(name, vendor),
        vram_bytes=_number(sysctl, "hw.memsize") if unified else whole_gib(own),
        unified=unified or "spdisplays_vram_shared" in display,
        usable_bytes=limit * MIB if unified and limit else None,
        n_cores=count(_text(display, "sppci_cores"), 5),
    )


def _vendor(display: Mapping[str, Any], name: str) -> str:
    told = f"{_text(display, 'spdisplays_vendor', 'sppci_vendor') or ''} {name}".lower()
    words = {
        "apple": "Apple",
        "nvidia": "NVIDIA",
        "0x10de": "NVIDIA",
        "amd": "AMD",
        "0x1002": "AMD",
        "intel": "Intel",
    }
    return next((vendor for word, vendor in words.items() if word in told), "unknown")


def _text(display: Mapping[str, Any], *names: str) -> str | None:
    values = (display.get(name) for name in names)
    return next((value.strip() for value in values if isinstance(value, str) and value.strip()), None)


def _number(sysctl: str, name: str) -> int | None:
    match = re.search(rf"^{re.escape(name)}\s*[:=]\s*(\d{{1,18}})\s*$", sysctl, re.M)
    return int(match[1]) or None if match else None
