"""What makes a measured rate doubtful by itself: repetitions that drift or differ, settings that were not heeded."""

import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations

from schema.record import Effective, Sample, Value

DRIFT_SHARE = 0.05
ORDERED_SHARE = 0.8
ODD_SHARE = 0.10
LEAST_REPETITIONS = 3
LOADED_SHARE = 1.5


def unsteady(samples: Sequence[Sample]) -> tuple[str, ...]:
    """Return why the repetitions do not look like one rate with chance around it; nothing where they do.

    They drift where nearly all pairs of them are in the same order and the trend (Theil and Sen: the median
    of the slopes of all pairs) comes to 5 %, or where the first was more than a tenth faster than
    the median of the others, as before a machine is hot. Any other repetition a tenth off the median is odd.
    """
    rates = [sample.n_tokens / sample.elapsed_ns for sample in samples]
    if len(rates) < LEAST_REPETITIONS:
        return ()
    drift = None if _cold_start(rates) else _trend(rates) or _hot_start(rates)
    return (drift,) if drift else _odd(rates)


def _trend(rates: Sequence[float]) -> str | None:
    slopes = [(later - earlier) / (j - i) for (i, earlier), (j, later) in combinations(enumerate(rates), 2)]
    order = sum((slope > 0) - (slope < 0) for slope in slopes) / len(slopes)
    change = statistics.median(slopes) * (len(rates) - 1) / statistics.median(rates)
    if abs(order) < ORDERED_SHARE or abs(change) < DRIFT_SHARE:
        return None
    return f"drifts: the rate {'fell' if change < 0 else 'rose'} by {abs(change):.0%} over {len(rates)} repetitions"


def _hot_start(rates: Sequence[float]) -> str | None:
    ahead = rates[0] / statistics.median(rates[1:]) - 1
    return f"drifts: the first repetition was {ahead:.0%} faster than the later ones" if ahead > ODD_SHARE else None


def _cold_start(rates: Sequence[float]) -> bool:
    """Return whether the first repetition alone was slow: the others agree."""
    rest = rates[1:]
    return rates[0] < min(rest) and max(rest) - min(rest) < DRIFT_SHARE * min(rest)


def _odd(rates: Sequence[float]) -> tuple[str, ...]:
    median = statistics.median(rates)
    index = max(range(len(rates)), key=lambda i: abs(rates[i] - median))
    off = rates[index] / median - 1
    if abs(off) <= ODD_SHARE:
        return ()
    return (f"repetition {index + 1} was {abs(off):.0%} {'faster' if off > 0 else 'slower'} than the median",)


def loaded(load1_before: float | None, n_cores: int | None) -> tuple[str, ...]:
    """Return whether the machine was under load when it began: half as much again as what one full benchmark leaves."""
    if load1_before is None or not n_cores or load1_before <= LOADED_SHARE * n_cores:
        return ()
    return (f"begun under load: {load1_before:.1f} processes wanted {n_cores} CPUs in the minute before",)


def unheeded(asked: Mapping[str, Value], in_effect: Mapping[str, Effective], has_gpu: bool) -> tuple[str, ...]:
    """Return what of `asked` llama.cpp passed over in silence: layers for a GPU that its build cannot use."""
    layers, found = asked.get("n_gpu_layers"), in_effect.get("n_gpu_layers")
    if has_gpu and layers not in (None, 0, "0") and found is not None and found.value == 0:
        return (f"n_gpu_layers {layers} was asked for and 0 are on the GPU: this is a rate of the CPU",)
    return ()
