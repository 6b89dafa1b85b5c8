"""The limits of this process's control groups, of version 1 and 2, with all ancestors that can be seen."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from worker.fingerprint import evidence

NO_LIMIT_BYTES = 1 << 60
"""Version 1 says "no limit" with a number near 2^63."""
DEFAULT_PERIOD_US = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """The directories of a controller's groups, own group first in each hierarchy.

    `is_known` is False where nothing tells which groups they are; `hides_parents` tells that there are
    ancestors above what is mounted here, as in a container.
    """

    directories: tuple[Path, ...] = ()
    is_known: bool = False
    hides_parents: bool = False


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mounted hierarchy: the group that is its top, where it is, its controllers (None for version 2)."""

    top: str
    place: str
    controllers: tuple[str, ...] | None


def groups(root: Path, controller: str, pid: int | None = None) -> Groups:
    """Return the groups that limit this process, or `pid`, by `controller` ("cpu", "memory", "cpuset").

    Version 2 is one hierarchy; in version 1 each controller has its own, and both may be mounted at once.
    Inside a container the group's path may lie outside what is mounted: then the mount itself is the group.
    """
    own, mounts = dict(_own_groups(root, pid)), _mounts(root)
    found: list[Path] = []
    hides = False
    for is_second in (False, True):
        path = own.get("" if is_second else controller)
        holding = [mount for mount in mounts if _holds(mount, controller, is_second)]
        if path is None or not holding:
            continue
        placed = [(mount, below) for mount in holding if (below := _below(mount.top, path)) is not None]
        for mount, below in placed or [(holding[0], ())]:
            top = root / mount.place.lstrip("/")
            found.extend(top.joinpath(*below[:depth]) for depth in range(len(below), -1, -1))
            # The real root of version 2 has no type; that of version 1 is called "/".
            hides = hides or mount.top != "/" or (top / "cgroup.type").exists()
    known = tuple(path for path in dict.fromkeys(found) if path.is_dir())
    return Groups(directories=known, is_known=bool(known), hides_parents=hides)


def quota_cores(directories: Iterable[Path]) -> float | None:
    """Return the least of quota ÷ period, in cores; None where no group has a quota."""
    return min((quota for place in directories if (quota := _quota(place)) is not None), default=None)


def memory_bytes(directories: Iterable[Path]) -> int | None:
    """Return the least memory limit; None where no group has one.

    In version 1 `hierarchical_memory_limit` holds the ancestors that cannot be seen from here too.
    """
    limits = (limit for place in directories for limit in _memory_limits(place))
    return min((limit for limit in limits if 0 < limit < NO_LIMIT_BYTES), default=None)


def listed(directories: Iterable[Path], what: str) -> frozenset[int] | None:
    """Return the CPUs (`what` "cpus") or NUMA nodes ("mems") that all the groups allow; None where none tells."""
    allowed: frozenset[int] | None = None
    for place in directories:
        names = (f"cpuset.{what}.effective", f"cpuset.effective_{what}", f"cpuset.{what}", what)
        found = evidence.first_text(place / name for name in names)
        members = evidence.cpu_list(found[0]) if found else frozenset()
        if members:
            allowed = members if allowed is None else allowed & members
    return allowed


def _own_groups(root: Path, pid: int | None) -> Iterator[tuple[str, str]]:
    """Yield controller (`` for version 2) and path of each line of /proc/self/cgroup, or of that of `pid`.

    Where that is missing, /proc/self/cpuset names the group of that controller.
    """
    place = root / f"proc/{pid or 'self'}"
    lines, cpuset = evidence.text(place / "cgroup"), evidence.text(place / "cpuset")
    if lines is None and cpuset:
        yield from (("cpuset", cpuset), ("", cpuset))
    for line in (lines or "").splitlines():
        fields = line.split(":", 2)
        if len(fields) == 3:
            yield from ((controller, fields[2]) for controller in fields[1].split(","))


def _mounts(root: Path) -> tuple[_Mount, ...]:
    """Return the mounted hierarchies; of several at one place the last, which covers the others."""
    lines = (evidence.text(root / "proc/self/mountinfo") or "").splitlines()
    read = [mount for line in lines if (mount := _of_mountinfo(line))]
    if not lines:
        old = evidence.first_text([root / "proc/self/mounts", root / "proc/mounts"])
        read = [mount for line in (old[0].splitlines() if old else ()) if (mount := _of_mounts(line))]
    return tuple({mount.place: mount for mount in read}.values())


def _of_mountinfo(line: str) -> _Mount | None:
    place, _, device = line.partition(" - ")
    fields, kind = place.split(), device.split()
    if len(fields) < 5 or len(kind) < 3:
        return None
    return _mount(_plain(fields[3]), _plain(fields[4]), kind[0], kind[2])


def _of_mounts(line: str) -> _Mount | None:
    fields = line.split()
    return _mount("/", _plain(fields[1]), fields[2], fields[3]) if len(fields) >= 4 else None


def _mount(top: str, place: str, kind: str, options: str) -> _Mount | None:
    if kind not in ("cgroup", "cgroup2"):
        return None
    return _Mount(top, place, None if kind == "cgroup2" else tuple(options.split(",")))


def _plain(name: str) -> str:
    """Return the name with the kernel's octal escapes (of blanks and the like) undone."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), name)


def _holds(mount: _Mount, controller: str, is_second: bool) -> bool:
    if mount.controllers is None:
        return is_second
    return not is_second and controller in mount.controllers


def _below(top: str, path: str) -> tuple[str, ...] | None:
    """Return the steps from the group `top` down to the group `path`; None where that is not below it."""
    steps, start = ([step for step in name.split("/") if step] for name in (path, top))
    if ".." in steps or steps[: len(start)] != start:
        return None
    return tuple(steps[len(start) :])


def _quota(place: Path) -> float | None:
    match = re.fullmatch(r"(\d{1,15})(?: (\d{1,15}))?", evidence.text(place / "cpu.max") or "")
    if match:
        quota, period = int(match[1]), int(match[2] or DEFAULT_PERIOD_US)
    else:
        quota = evidence.number(place / "cpu.cfs_quota_us") or 0
        period = evidence.number(place / "cpu.cfs_period_us") or 0
    return quota / period if quota > 0 and period > 0 else None


def _memory_limits(place: Path) -> Iterator[int]:
    for name in ("memory.max", "memory.limit_in_bytes"):
        limit = evidence.number(place / name)
        if limit is not None:
            yield limit
    stat = evidence.text(place / "memory.stat") or ""
    yield from (int(limit) for limit in re.findall(r"^hierarchical_memory_limit (\d{1,19})$", stat, re.M))
