"""The verdict on an attempt: what its conditions and its figures pass of the table of thresholds, in words (pure)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from schema.record import Conditions
from worker import gpu_conditions
from worker.conditions.counters import TICKS_PER_SECOND
from worker.conditions.thresholds import QUALITIES, THRESHOLDS

Measures = dict[str, Any]
"""Numbers by the name that thresholds know them by, and what their words say besides; None where unknown."""

CROWD_SHARE = 0.05
HOT_C, WARMED_C = 80.0, 10.0
FEIGNED_TICKS = 2
FIRMWARE = ("under-voltage", "a capped clock", "throttling", "the soft temperature limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the measurement was given to run with; `on_gpu` where a GPU computes and the threads wait for it."""

    n_threads: int
    n_cpus: int | None = None
    quota_cores: float | None = None
    on_gpu: bool = False


def judge(conditions: Conditions, given: Given, doubts: Mapping[str, Any] | None = None) -> tuple[str, tuple[str, ...]]:
    """Return the quality and its reasons in words, worst first; `doubts` are measures of the figures themselves.

    Every reason is given, the worst names the quality. What nothing tells of is no sign: then it is `clean`.
    """
    found = passed({**measures(conditions, given), **(doubts or {})})
    return (found[0][0] if found else "clean"), tuple(words for _, words in found)


def passed(numbers: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (quality, reason in words) of every threshold that `numbers` pass, worst first."""
    found, subjects = [], set()
    for threshold in THRESHOLDS:
        number = numbers.get(threshold.measure)
        if number is not None and number > threshold.limit and threshold.subject not in subjects:
            subjects |= {threshold.subject} - {""}
            found.append((threshold.quality, threshold.words.format(**numbers)))
    return sorted(found, key=lambda each: QUALITIES.index(each[0]))


def measures(conditions: Conditions, given: Given) -> Measures:
    """Return what the thresholds of conditions are held against: the conditions and what follows from them."""
    known = {name: value for name, value in asdict(conditions).items() if value is not None}
    return {
        **known,
        **asdict(given),
        **_waiting(conditions, given),
        **_others(conditions, given),
        **_allocation(conditions, given),
        **_heat(conditions),
        **_gpus(conditions, given),
    }


def _waiting(conditions: Conditions, given: Given) -> Measures:
    share, delay = conditions.cpu_share, conditions.run_delay_share
    told: Measures = {"asleep_share": None if given.on_gpu else conditions.blocked_share}
    fits = given.n_cpus is not None and given.n_threads <= given.n_cpus
    if delay is None and fits:
        told["pressure_share"] = conditions.cpu_pressure_share
    # A low share alone says less: threads also sleep for a GPU or a disk.
    if share is not None and not given.on_gpu:
        if given.quota_cores is None and delay is None:
            told["lost_share"] = 1 - share
        if given.quota_cores is not None and conditions.quota_throttles is None:
            told["lost_under_quota"] = 1 - share
    return told


def _others(conditions: Conditions, given: Given) -> Measures:
    """Return what others used: `excess_cores` beyond the CPUs that our threads leave, `crowd_cores` what counts."""
    others = conditions.others_busy_cores
    if others is None or given.n_cpus is None:
        return {}
    if conditions.watched_seconds:
        others = max(0.0, others - FEIGNED_TICKS / TICKS_PER_SECOND / conditions.watched_seconds)
    excess = max(0.0, others - max(0, given.n_cpus - given.n_threads))
    many = others > CROWD_SHARE * given.n_cpus
    return {"excess_cores": excess, "crowd_cores": max(excess, others if many else 0.0)}


def _allocation(conditions: Conditions, given: Given) -> Measures:
    return {
        "threads_over_cpus": None if given.n_cpus is None else given.n_threads - given.n_cpus,
        "threads_over_quota": None if given.quota_cores is None else given.n_threads - given.quota_cores,
        "quota_seconds": conditions.quota_throttled_seconds or 0.0,
    }


def _heat(conditions: Conditions) -> Measures:
    told: Measures = {"firmware_words": _firmware_words(conditions.firmware_flags or 0)}
    start, mean, hottest = conditions.clock_start_hz, conditions.clock_mean_hz, conditions.temperature_max_c
    if not start or mean is None:
        return told
    told["clock_fall"] = 1 - mean / start
    if hottest is not None and (hottest >= HOT_C or warmed(conditions) >= WARMED_C):
        told["hot_clock_fall"] = told["clock_fall"]
    return told


def _gpus(conditions: Conditions, given: Given) -> Measures:
    """Return what the drivers say of the GPUs, where one of them computed."""
    if not given.on_gpu:
        return {}
    found = gpu_conditions.judge(conditions.gpu)
    throttled, contended = found["throttled"], found["contended"]
    return {
        "gpu_throttles": len(throttled),
        "gpu_throttle_words": "; ".join(throttled),
        "gpu_others": len(contended),
        "gpu_other_words": "; ".join(contended),
    }


def warmed(conditions: Conditions) -> float:
    """Return by how many degrees the hottest sensor rose; 0 where that is not known."""
    before, most = conditions.temperature_before_c, conditions.temperature_max_c
    return 0.0 if before is None or most is None else max(0.0, most - before)


def _firmware_words(flags: int) -> str:
    return " and ".join(words for bit, words in enumerate(FIRMWARE) if flags >> bit & 1)
