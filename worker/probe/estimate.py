"""From what each thread timed to bandwidths, and what a curve over thread counts says (pure, stdlib only).

Each thread takes its own times. Timed from outside, a stretch would begin when the one who waits was given
a CPU, not when the threads began; and whole passes over the memory would measure the scheduler as soon as
anything else runs. So bytes are counted in bins of 2 ms across all threads, and a high percentile of the bins is the
estimate: bins in which a thread had no CPU lie below it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schema.probe import Point

BIN_NS = 2_000_000
TOP_SHARE = 0.02
SATURATED_GAIN = 0.10
CORE_LIMITED_SHARE = 0.80
SAME_SHARE = 0.95
"""Twice the memory may read slower by so much and count as no slower: that is within what one stretch differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """What one thread did: pieces of `piece_bytes` one after another from `start_ns` on, each over at its end.

    `cpu_ns` is the time it spent on a CPU meanwhile, None where no clock tells.
    """

    start_ns: int
    ends_ns: Sequence[int]
    piece_bytes: int
    cpu_ns: int | None = None

    @property
    def wall_ns(self) -> int:
        """From its start to its last end."""
        return self.ends_ns[-1] - self.start_ns


def point(tracks: Sequence[Track], kernel: str, working_set_bytes: int, bin_ns: int = BIN_NS) -> Point:
    """Return the figures of one stretch; `tracks` holds every thread's, each with at least one piece."""
    rates = sorted(binned(tracks, bin_ns))
    begin, end = min(track.start_ns for track in tracks), max(track.ends_ns[-1] for track in tracks)
    n_bytes = sum(len(track.ends_ns) * track.piece_bytes for track in tracks)
    n_top = max(1, math.ceil(TOP_SHARE * len(rates)))
    shares = [track.cpu_ns / max(1, track.wall_ns) for track in tracks if track.cpu_ns is not None]
    return Point(
        n_threads=len(tracks),
        kernel=kernel,
        working_set_bytes=working_set_bytes,
        seconds=(end - begin) / 1e9,
        p95_bytes_per_s=percentile(rates, 0.95),
        max_bytes_per_s=rates[-1],
        top_bytes_per_s=sum(rates[-n_top:]) / n_top,
        median_bytes_per_s=percentile(rates, 0.5),
        mean_bytes_per_s=1e9 * n_bytes / max(1, end - begin),
        min_cpu_share=min(1.0, min(shares)) if shares else None,
    )


def binned(tracks: Sequence[Track], bin_ns: int = BIN_NS) -> list[float]:
    """Return bytes per second, over all threads, in each whole bin of the time when every thread was at work.

    A piece that reaches over several bins is spread over them evenly. Where not even one bin is whole, the
    time that all threads share is the only bin; where they share none, their whole time is.
    """
    begin = max(track.start_ns for track in tracks)
    end = min(track.ends_ns[-1] for track in tracks)
    if end <= begin:
        begin, end = min(track.start_ns for track in tracks), max(track.ends_ns[-1] for track in tracks)
    width = min(bin_ns, max(1, end - begin))
    bins = [0.0] * max(1, (end - begin) // width)
    for track in tracks:
        since = track.start_ns - begin
        for end_ns in track.ends_ns:
            until = end_ns - begin
            _spread(bins, width, since, until, track.piece_bytes)
            since = until
    return [1e9 * n_bytes / width for n_bytes in bins]


def _spread(bins: list[float], width: int, since: int, until: int, n_bytes: int) -> None:
    """Add a piece to the bins that it lies in; what of it lies before or behind them all is left out."""
    if until <= since:  # quicker than the clock ticks
        until = since + 1
    per_ns = n_bytes / (until - since)
    for index in range(max(0, since // width), min(len(bins) - 1, (until - 1) // width) + 1):
        inside = min(until, (index + 1) * width) - max(since, index * width)
        bins[index] += per_ns * inside


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values in ascending order do not exceed (nearest rank)."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def saturated(curve: Mapping[int, float]) -> bool | None:
    """Return whether the last step of the curve gained less than 10 % for each doubling of the threads.

    None for a curve of one point: nothing was doubled.
    """
    counts = sorted(curve)
    if len(counts) < 2:
        return None
    before, last = counts[-2:]
    return curve[last] / curve[before] - 1 < SATURATED_GAIN * math.log2(last / before)


def core_limited(curve: Mapping[int, float], n_cores: int | None) -> bool | None:
    """Return whether threads up to one per physical core add up to at least 80 % of as many single ones.

    Then it is not the memory but each core that can take no more. None where one thread, or only one core, was tried.
    """
    counts = [n for n in curve if n_cores is None or n <= n_cores]
    if 1 not in counts or len(counts) < 2:
        return None
    most = max(counts)
    return curve[most] >= CORE_LIMITED_SHARE * most * curve[1]


def cache_suspect(points: Sequence[Point], n_threads: int) -> bool | None:
    """Return whether more memory read slower, so that the working set was still helped by a cache.

    Of two larger sets both must be slower than the best of the smallest. None where only one size was
    tried, leaving out disturbed stretches.
    """
    best: dict[int, float] = {}
    for each in points:
        if each.n_threads == n_threads and not each.contended:
            best[each.working_set_bytes] = max(each.bytes_per_s, best.get(each.working_set_bytes, 0.0))
    if len(best) < 2:
        return None
    smallest = min(best)
    return all(best[size] < SAME_SHARE * best[smallest] for size in best if size > smallest)
