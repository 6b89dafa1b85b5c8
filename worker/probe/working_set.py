"""How much memory a probe reads: more than all caches together hold, less than would push others out."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from schema.host import Cache
from worker import system
from worker.fingerprint import evidence
from worker.fingerprint.cgroups import NO_LIMIT_BYTES, groups

MIB = 1 << 20
TIMES_CACHES = 4
LEAST, MOST = 256 * MIB, 2048 * MIB
FLOOR = 64 * MIB
SHARE_OF_FREE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingSet:
    """The memory to read, the most that it may be doubled to, and the caches that it has to exceed."""

    n_bytes: int
    most_bytes: int
    caches_bytes: int

    @property
    def doubtful(self) -> bool:
        """Whether the caches hold half of it or more: memory is short, or the caches are huge."""
        return self.n_bytes < 2 * self.caches_bytes


def choose(caches: Iterable[Cache], free_bytes: int | None) -> WorkingSet:
    """Return four times the caches, 256 MiB to 2 GiB, but at most a quarter of what is free and at least 64 MiB."""
    whole = last_level_bytes(caches)
    most = max(FLOOR, int(SHARE_OF_FREE * free_bytes)) if free_bytes is not None else LEAST
    n_bytes = min(most, max(LEAST, min(MOST, TIMES_CACHES * whole)))
    return WorkingSet(n_bytes=n_bytes, most_bytes=min(most, 4 * n_bytes), caches_bytes=whole)


def last_level_bytes(caches: Iterable[Cache]) -> int:
    """Return what all instances of the level that holds most have together: usually the third, or the second."""
    by_level: dict[int, int] = {}
    for cache in caches:
        if cache.kind != "instruction":
            by_level[cache.level] = by_level.get(cache.level, 0) + cache.size_bytes * cache.instances
    return max(by_level.values(), default=0)


def free_bytes(root: Path) -> int | None:
    """Return how much memory can be taken without pushing anything out: the machine's, and our control groups'."""
    return min((amount for amount in (_available(root), *_headrooms(root)) if amount is not None), default=None)


def _available(root: Path) -> int | None:
    match = re.search(r"^MemAvailable:\s*(\d{1,15}) kB", evidence.text(root / "proc/meminfo") or "", re.M)
    if match:
        return int(match[1]) * 1024
    return system.available_bytes() if evidence.is_live(root) else None


def _headrooms(root: Path) -> Iterator[int]:
    """Yield limit less use of each group that has a limit; files kept in memory only for now do not count as use."""
    for group in groups(root, "memory").directories:
        for limit_name, use_name, idle in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, use = evidence.number(group / limit_name), evidence.number(group / use_name)
            if limit is None or use is None or not 0 < limit < NO_LIMIT_BYTES:
                continue
            match = re.search(rf"^{idle} (\d{{1,18}})$", evidence.text(group / "memory.stat") or "", re.M)
            yield max(0, limit - use + (int(match[1]) if match else 0))
