"""What the counters of an attempt come to: shares of the time that its threads had (pure)."""

from typing import Any

from worker.conditions.counters import TICKS_PER_SECOND, Counters


def shares(total: Counters, pid: int, seconds: float, n_threads: int) -> dict[str, Any]:
    """Return fields of `Conditions`: what `total` of process `pid` comes to in `seconds`, None where it cannot be told.

    The threads that worked most are the measuring ones: a process has others, which sleep.
    """
    busiest = _busiest(total, n_threads)
    own = _own_seconds(total)
    busy = _per(total.get("busy_ticks"), TICKS_PER_SECOND)
    steal, ticks = total.get("steal_ticks"), total.get("all_ticks")
    return {
        "cpu_share": None if own is None else own / (seconds * n_threads),
        "run_delay_share": _share(total, "delay", busiest, seconds * n_threads),
        "blocked_share": _blocked(total, pid, seconds),
        "others_busy_cores": None if busy is None or own is None else max(0.0, busy - own) / seconds,
        "steal_share": None if steal is None or not ticks else steal / ticks,
        "major_faults": total.get("major_faults"),
        "cpu_pressure_share": _per(total.get("cpu_pressure_us"), 1e6 * seconds),
        "memory_pressure_share": _per(total.get("memory_pressure_us"), 1e6 * seconds),
        "io_pressure_share": _per(total.get("io_pressure_us"), 1e6 * seconds),
        "swapped_in_pages": total.get("swapped_in_pages"),
        "quota_throttles": _sum(total, "throttles:"),
        "quota_throttled_seconds": _per(_sum(total, "throttled_us:"), 1e6),
    }


def _busiest(total: Counters, n_threads: int) -> list[str]:
    """Return the ids of the threads that ran longest."""
    ran = {name.removeprefix("cpu:"): ns for name, ns in total.items() if name.startswith("cpu:")}
    return sorted(ran, key=lambda thread: -ran[thread])[:n_threads]


def _share(total: Counters, kind: str, threads: list[str], seconds: float) -> float | None:
    return sum(total.get(f"{kind}:{thread}", 0) for thread in threads) / 1e9 / seconds if threads else None


def _blocked(total: Counters, pid: int, seconds: float) -> float | None:
    """Return how much of the time the main thread neither ran nor was ready to: it computes from end to end."""
    if f"cpu:{pid}" not in total:
        return None
    active = (total[f"cpu:{pid}"] + total.get(f"delay:{pid}", 0)) / 1e9
    return max(0.0, 1 - active / seconds)


def _own_seconds(total: Counters) -> float | None:
    """Return the CPU time of all threads, from the ticks where the kernel counts no nanoseconds by thread."""
    in_ns = _sum(total, "cpu:")
    return _per(in_ns, 1e9) if in_ns is not None else _per(total.get("own_ticks"), TICKS_PER_SECOND)


def _sum(total: Counters, prefix: str) -> int | None:
    return sum(found) if (found := [value for name, value in total.items() if name.startswith(prefix)]) else None


def _per(count: int | None, unit: float) -> float | None:
    return None if count is None else count / unit
