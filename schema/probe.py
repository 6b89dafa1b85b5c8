"""What one probe of a machine found: memory bandwidth by thread count, and computing power (stdlib only)."""

from dataclasses import dataclass, field
from typing import Literal

from schema.record import Value

Kind = Literal["memory_read", "memory_copy", "gemm_f32", "gpu_memory"]
SHARE_FREE = 0.9
"""Below this share of its time on a CPU, a thread was disturbed by others (or by a quota)."""

CHANGE_NOISY = 0.10
"""Bandwidths before and after a series that are further apart than this make the series unsteady."""

CHANGE_DISTURBED = 0.20
"""The same where threads lacked CPUs meanwhile: what can be read then is known to 20 % at best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One measured stretch of time with `n_threads` pinned threads, all figures over bins of 2 ms across threads.

    `top_bytes_per_s` is the mean of the fastest 2 % of the bins: what is left to read where others took CPUs.
    `min_cpu_share` is that of the thread which ran least, None where no clock tells.
    """

    n_threads: int
    kernel: str
    working_set_bytes: int
    seconds: float
    p95_bytes_per_s: float
    max_bytes_per_s: float
    top_bytes_per_s: float
    median_bytes_per_s: float
    mean_bytes_per_s: float
    min_cpu_share: float | None = None

    @property
    def contended(self) -> bool:
        """Whether some thread lacked a CPU for more than a tenth of the time."""
        return self.min_cpu_share is not None and self.min_cpu_share < SHARE_FREE

    @property
    def bytes_per_s(self) -> float:
        """The estimate: the 95th percentile of the bins; of a disturbed stretch the mean of its fastest ones."""
        return self.top_bytes_per_s if self.contended else self.p95_bytes_per_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One figure of a machine at one moment, and how it was had. It enters no id.

    `value` is in bytes per second, of `gemm_f32` in FLOP per second; None where it could not be had, and
    `errors` says why. `n_threads` is the number that gave it. `theoretical` figures were computed, not measured.
    A probe of the short form belongs to the series `series_uid`, `before` or `after` its attempts.

    `saturated`: the last doubling of threads gained under 10 %, so the memory is the limit. `core_limited`:
    threads add up almost fully, so the cores are. `cache_suspect`: twice the working set read slower, so a
    cache that is not shown took part. Each is None where it was not tried, or other work disturbed it.
    """

    probe_uid: str
    host_uid: str
    taken_at: str
    kind: Kind
    method: str
    version: int
    value: float | None = None
    n_threads: int | None = None
    hardware_id: str | None = None
    allocation_id: str | None = None
    environment_id: str | None = None
    series_uid: str | None = None
    moment: Literal["before", "after"] | None = None
    device: str | None = None
    theoretical: bool = False
    points: tuple[Point, ...] = ()
    saturated: bool | None = None
    core_limited: bool | None = None
    contended: bool | None = None
    cache_suspect: bool | None = None
    details: dict[str, Value] = field(default_factory=dict)
    errors: tuple[str, ...] = ()

    def curve(self) -> dict[int, float]:
        """Return the best estimate in bytes per second for each number of threads, fewest first.

        Where a stretch of a number of threads was undisturbed, disturbed ones of it do not count; where a cache
        is suspected, only those with most memory do.
        """
        found: dict[int, float] = {}
        for n_threads in sorted({point.n_threads for point in self.points}):
            points = [point for point in self.points if point.n_threads == n_threads]
            if self.cache_suspect:
                largest = max(point.working_set_bytes for point in points)
                points = [point for point in points if point.working_set_bytes == largest]
            free = [point for point in points if not point.contended]
            found[n_threads] = max(point.bytes_per_s for point in free or points)
        return found

    def at(self, n_threads: int) -> float | None:
        """Return bytes per second for `n_threads`: measured, else on the line between the numbers beside it.

        Beyond the largest number measured it is what that gave; None where nothing was measured.
        """
        curve = self.curve()
        if not curve or n_threads < 1:
            return None
        below = max((n for n in curve if n <= n_threads), default=0)
        above = min((n for n in curve if n >= n_threads), default=below)
        if above == below:
            return curve[below]
        low = curve.get(below, 0.0)
        return low + (curve[above] - low) * (n_threads - below) / (above - below)


def change(before: Probe, after: Probe) -> str | None:
    """Return the reason against a series between these two probes, None where the memory was as fast as before.

    They are compared at the largest number of threads that both have. What other processes took away meanwhile is
    no change of the memory: where `contended` says that they did, more of it is allowed.
    """
    first, last = before.curve(), after.curve()
    common = first.keys() & last.keys()
    if not common:
        return None
    a, b = first[max(common)], last[max(common)]
    allowed = CHANGE_DISTURBED if before.contended or after.contended else CHANGE_NOISY
    if abs(a - b) <= allowed * max(a, b):
        return None
    return f"the memory bandwidth of this machine changed from {a / 1e9:.1f} to {b / 1e9:.1f} GB/s around this series"
