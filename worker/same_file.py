"""Which file on which disk a path leads to, so that several hosts can tell that they see the same (stdlib only)."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from schema.canonical import digest

NETWORK = re.compile(r"nfs\d?|cifs|smb3|smbfs|9p|ceph|lustre|glusterfs|beegfs|afs|virtiofs|fuse(\..+)?")
"""Kinds of file systems that several machines mount from one place, by the kernel's names."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of mountinfo: where it lies, which part of which file system it shows, and of what kind from where."""

    device: str
    root: str
    point: str
    kind: str
    source: str


def place_of(path: Path, root: Path = Path("/")) -> str | None:
    """Return a digest that two hosts share only where `path` leads both to one file that has not changed since.

    On a file system of the network: its kind, source and the file's path in it; else the device of this kernel since
    it started. With it the file's number and the time of its last change. None where this cannot be told.
    """
    try:
        real = path.resolve(strict=True)
        status = real.stat()
    except (OSError, RuntimeError):
        return None
    device = f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    where = _where(str(real), device, root)
    if where is None:
        return None
    return digest(["place", 1, where, status.st_ino, status.st_size, status.st_mtime_ns])[:32]


def _where(path: str, device: str, root: Path) -> list[str] | None:
    found = [mount for mount in _mounts(root) if _lies_in(path, mount.point)]
    mount = max(found, key=lambda each: (len(each.point), each.device == device), default=None)
    if mount is not None and NETWORK.fullmatch(mount.kind):
        inside = path.removeprefix(mount.point.rstrip("/"))
        return [mount.kind, mount.source, f"{mount.root.rstrip('/')}{inside}"]
    try:
        boot = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return ["boot", boot, device]


def _lies_in(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(f"{point}/")


def _mounts(root: Path) -> Iterator[Mount]:
    """Yield the mounts that this process sees, later ones, which hide earlier ones, first."""
    try:
        lines = (root / "proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in reversed(lines):
        own, _, of_kind = line.partition(" - ")
        first, second = own.split(" "), of_kind.split(" ")
        if len(first) > 4 and len(second) > 1:
            yield Mount(first[2], _unescaped(first[3]), _unescaped(first[4]), second[0], _unescaped(second[1]))


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)
