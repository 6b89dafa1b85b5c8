"""Which of llama.cpp's devices are one GPU: a build with two back ends lists it under two names (stdlib only)."""

import re
from collections.abc import Sequence

from schema.gpu_name import same_gpu
from schema.host import Device, Fingerprint


def one_each(devices: Sequence[Device]) -> list[tuple[Device, ...]]:
    """Return the devices grouped by GPU, in the order of their first mention.

    Places on the PCI bus decide where both tell theirs, then names. A name that any GPU could have ("AMD Radeon
    Graphics") is taken for the only one that another back end lists.
    """
    groups: list[list[Device]] = []
    for device in devices:
        group = next((group for group in groups if all(_same(device, other, devices) for other in group)), None)
        if group is None:
            groups.append([device])
        else:
            group.append(device)
    return [tuple(group) for group in groups]


def gpu_memory_bytes(fingerprint: Fingerprint) -> tuple[int, int]:
    """Return the bytes that all GPUs together have of their own, and how many of the machine's they may take.

    That is what the engine's devices report, each GPU counted once, where the build lists any with its memory; else
    what the drivers tell. A device of another machine (RPC) is not counted.
    """
    devices = [device for device in _listed(fingerprint) if not device.name.startswith("RPC")]
    if devices and all(device.memory_bytes for device in devices):
        sizes = [
            (max(device.memory_bytes or 0 for device in group), any(device.unified for device in group))
            for group in one_each(devices)
        ]
    else:
        gpus = fingerprint.hardware.gpus
        sizes = [(gpu.usable_bytes or gpu.vram_bytes or 0, gpu.unified) for gpu in gpus]
    own = sum(size for size, unified in sizes if not unified)
    return own, max((size for size, unified in sizes if unified), default=0)


def _listed(fingerprint: Fingerprint) -> tuple[Device, ...]:
    return fingerprint.build.offload_devices if fingerprint.build else ()


def _same(one: Device, other: Device, devices: Sequence[Device]) -> bool:
    if back_end(one.name) == back_end(other.name):
        return False
    if one.bus_id and other.bus_id:
        return one.bus_id == other.bus_id
    told = same_gpu(one.description, other.description)
    if told is not None:
        return told
    counts = [sum(back_end(device.name) == back_end(known.name) for device in devices) for known in (one, other)]
    return counts == [1, 1]


def back_end(name: str) -> str:
    """Return the back end of llama.cpp that has the device of this name: `CUDA` for `CUDA0`."""
    return re.sub(r"\d+(\[.*\])?$", "", name)
