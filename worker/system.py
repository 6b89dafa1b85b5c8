"""What psutil knows of this machine, for where the kernel has no file that says it; None where psutil is not installed.

A host of a cluster has it. One that is reached through a launcher, or measures a bundle, need not.
"""

import importlib
import os
from typing import Any


def _psutil() -> Any:
    try:
        return importlib.import_module("psutil")
    except ImportError:
        return None


def memory_bytes() -> int | None:
    """Return the machine's main memory."""
    psutil = _psutil()
    return None if psutil is None else int(psutil.virtual_memory().total)


def available_bytes() -> int | None:
    """Return how much memory can be taken without pushing anything out."""
    psutil = _psutil()
    return None if psutil is None else int(psutil.virtual_memory().available)


def swap_bytes() -> tuple[int, int] | None:
    """Return the size of swap, and what of it is free."""
    psutil = _psutil()
    if psutil is None:
        return None
    swap = psutil.swap_memory()
    return int(swap.total), int(swap.free)


def n_cpus() -> int | None:
    """Return how many logical CPUs there are."""
    psutil = _psutil()
    return os.cpu_count() if psutil is None else psutil.cpu_count()


def n_cores() -> int | None:
    """Return how many physical cores there are."""
    psutil = _psutil()
    return None if psutil is None else psutil.cpu_count(logical=False)


def has_mains() -> bool | None:
    """Return whether a machine with a battery has mains power, None where it has no battery."""
    psutil = _psutil()
    battery = None if psutil is None else psutil.sensors_battery()
    return None if battery is None else bool(battery.power_plugged)
