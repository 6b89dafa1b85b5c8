"""How much memory is installed: one size, however much of it each kernel keeps for itself."""

import os
import re
import sys
from pathlib import Path

from worker import system
from worker.fingerprint import evidence
from worker.fingerprint.evidence import Notes

MIB = 1 << 20
GIB = 1 << 30
BLOCKS = Path("sys/devices/system/memory")


def installed_bytes(root: Path, notes: Notes) -> int | None:
    """Return the size of the memory: the kernel's memory blocks, else MemTotal up to the next size that is built.

    Blocks that hold less than MemTotal are not all of them, as in a part of /sys; they are passed over.
    """
    total, blocks = total_bytes(root), _blocks_bytes(root)
    if blocks and blocks >= (total or 0):
        notes.found("memory_bytes", "/sys/devices/system/memory")
        return blocks
    if total is None:
        notes.missing("memory_bytes", "neither memory blocks in /sys nor MemTotal can be read")
        return None
    if evidence.is_live(root) and sys.platform == "darwin":
        # macOS tells the size itself; there are Macs with 18 and 36 GiB.
        notes.found("memory_bytes", "hw.memsize")
        return total
    notes.found("memory_bytes", "MemTotal")
    return rounded_up(total)


def rounded_up(total: int) -> int:
    """Return the smallest of 1, 1¼, 1½ and 1¾ times a power of two, from 1 MiB on, that holds `total` bytes.

    These are the sizes that memory is built in. Kernels have been seen to keep up to 6 % for themselves; the
    next smaller size is at least 12 % away.
    """
    power = MIB
    while power * 2 < total:
        power *= 2
    return next(size for size in (power, power * 5 // 4, power * 3 // 2, power * 7 // 4, power * 2) if size >= total)


def in_gib(size: int | None) -> int | None:
    """Return `size` in GiB, rounded up."""
    return None if size is None else -(-size // GIB)


def total_bytes(root: Path) -> int | None:
    """Return what the kernel has to give: MemTotal."""
    match = re.search(r"^MemTotal:\s*(\d{1,15}) kB", evidence.text(root / "proc/meminfo") or "", re.M)
    if match:
        return int(match[1]) * 1024
    return system.memory_bytes() if evidence.is_live(root) else None


def _blocks_bytes(root: Path) -> int | None:
    size = evidence.text(root / BLOCKS / "block_size_bytes")
    if not size or not re.fullmatch(r"[0-9a-fA-F]{1,15}", size):
        return None
    try:
        names = os.listdir(root / BLOCKS)
    except OSError:
        return None
    return sum(1 for name in names if re.fullmatch(r"memory\d+", name)) * int(size, 16) or None
