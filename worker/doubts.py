"""What makes a measured rate doubtful by itself: repetitions that drift or differ, settings that were not heeded."""

import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from schema.record import Conditions, Effective, Latency, Sample, Value
from worker.conditions.thresholds import limit_of
from worker.conditions.verdict import passed, warmed

ORDERED_SHARE = 0.8
LEAST_REPETITIONS = 3
LEAST_OF_A_SPEED = 2
APART = 3.0
WARMED_C = 5.0


def measures(
    samples: Sequence[Sample],
    latency: Latency | None = None,
    conditions: Conditions | None = None,
    n_cores: int | None = None,
) -> dict[str, Any]:
    """Return what the thresholds of figures are held against, and what their words say of it."""
    found = unevenness([sample.n_tokens / sample.elapsed_ns for sample in samples])
    return {**found, **_stalls(samples, latency), **_load(conditions, n_cores), "heat": _heat(conditions)}


def unsteady(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Return why the repetitions do not look like one rate with chance around it; nothing where they do."""
    return tuple(words for _, words in passed(measures(samples)))


def unevenness(rates: Sequence[float]) -> dict[str, Any]:
    """Return in which way three and more repetitions differ: the measures of the first way that says it.

    `first_slow`: the first alone was slower than the others, which agree. `two_speeds`: there are two groups.
    `trend`: nearly all pairs are in the same order, and the median of the slopes of all pairs (Theil and Sen)
    comes to so much. `first_fast`: so much faster than the median of the others was the first. `odd`: so far
    from the median was one of them.
    """
    if len(rates) < LEAST_REPETITIONS:
        return {}
    ways = (_first_slow, _two_speeds, _trend, _first_fast, _odd)
    found = (way(rates) for way in ways)
    return {"n": len(rates), **next((told for told in found if passed({**told, "n": len(rates), "heat": ""})), {})}


def _first_slow(rates: Sequence[float]) -> dict[str, Any]:
    rest = rates[1:]
    agree = rates[0] < min(rest) and max(rest) - min(rest) < limit_of("trend") * min(rest)
    return {"first_slow": 1 - rates[0] / statistics.median(rest)} if agree else {}


def _two_speeds(rates: Sequence[float]) -> dict[str, Any]:
    """Split at the widest gap between neighbours in size."""
    ordered = sorted(rates)
    gap, n_slow = max((ordered[i] - ordered[i - 1], i) for i in range(1, len(ordered)))
    slow, fast = ordered[:n_slow], ordered[n_slow:]
    widest = max(slow[-1] - slow[0], fast[-1] - fast[0])
    if min(len(slow), len(fast)) < LEAST_OF_A_SPEED or gap < APART * widest or abs(_order(rates)) >= ORDERED_SHARE:
        return {}
    return {"two_speeds": 1 - statistics.median(slow) / statistics.median(fast), "n_slow": n_slow}


def _slopes(rates: Sequence[float]) -> list[float]:
    return [(later - earlier) / (j - i) for (i, earlier), (j, later) in combinations(enumerate(rates), 2)]


def _order(rates: Sequence[float]) -> float:
    """Return the share of pairs that rise less that of those that fall."""
    slopes = _slopes(rates)
    return sum((slope > 0) - (slope < 0) for slope in slopes) / len(slopes)


def _trend(rates: Sequence[float]) -> dict[str, Any]:
    change = statistics.median(_slopes(rates)) * (len(rates) - 1) / statistics.median(rates)
    if abs(_order(rates)) < ORDERED_SHARE:
        return {}
    return {"trend": abs(change), "fell_or_rose": "fell" if change < 0 else "rose"}


def _first_fast(rates: Sequence[float]) -> dict[str, Any]:
    return {"first_fast": rates[0] / statistics.median(rates[1:]) - 1}


def _odd(rates: Sequence[float]) -> dict[str, Any]:
    median = statistics.median(rates)
    index = max(range(len(rates)), key=lambda i: abs(rates[i] - median))
    off = rates[index] / median - 1
    return {"odd": abs(off), "odd_number": index + 1, "odd_way": "faster" if off > 0 else "slower"}


def _stalls(samples: Sequence[Sample], latency: Latency | None) -> dict[str, Any]:
    """Return how much of the decode's time single slow tokens cost: where all are alike, median and mean are equal."""
    times = [sample.gen_ns for sample in samples if sample.gen_ns is not None]
    n_tokens = sum(latency.histogram) if latency else 0
    if latency is None or not times or not n_tokens:
        return {}
    mean_ns = sum(times) / n_tokens
    return {"stalls": 1 - latency.p50_ns / mean_ns, "longest_ms": latency.max_ns / 1e6}


def _load(conditions: Conditions | None, n_cores: int | None) -> dict[str, Any]:
    """Return how many processes wanted a CPU in the minute before, by CPU."""
    load1 = conditions.load1_before if conditions else None
    return {"load_per_cpu": load1 / n_cores, "load1": load1, "n_cores": n_cores} if load1 and n_cores else {}


def _heat(conditions: Conditions | None) -> str:
    if conditions is None or warmed(conditions) < WARMED_C:
        return ""
    return f", while it warmed from {conditions.temperature_before_c:.0f} to {conditions.temperature_max_c:.0f} °C"


def unheeded(asked: Mapping[str, Value], in_effect: Mapping[str, Effective], has_gpu: bool) -> tuple[str, ...]:
    """Return what of `asked` was passed over in silence: layers for a GPU that llama.cpp cannot use, host settings."""
    notes = []
    layers, found = asked.get("n_gpu_layers"), in_effect.get("n_gpu_layers")
    if has_gpu and layers not in (None, 0, "0") and found is not None and found.value == 0:
        notes.append(f"n_gpu_layers {layers} was asked for and 0 are on the GPU: this is a rate of the CPU")
    of_host, wanted = in_effect.get("host_settings"), asked.get("host_settings")
    if of_host is not None and of_host.value != wanted:
        notes.append(f"host_settings {wanted} was asked for and {of_host.value} was in force")
    return tuple(notes)
