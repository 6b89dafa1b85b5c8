"""How quiet the machine was while an attempt measured, from the kernel's own counters, and the verdict on it.

A snapshot reads a few files of /proc: about half a millisecond, and never inside a timed window.
"""

import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from schema.record import Conditions

RUN_DELAY_NOISY = 0.02
RUN_DELAY_CONTENDED = 0.10
CPU_SHARE_CONTENDED = 0.90
CPU_SHARE_LIMITED = 0.90
STEAL_NOISY = 0.01
STEAL_CONTENDED = 0.05
OTHERS_NOISY_CORES = 0.05
OTHERS_NOISY_SHARE = 0.05
OTHERS_CONTENDED_CORES = 0.50
MAJOR_FAULTS_NOISY = 0
"""Beyond these values the verdict changes. They are first values: the raw numbers are stored to judge again."""

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The counters of one moment; `after` gives what changed since. Times in ticks unless named otherwise."""

    pid: int
    root: Path
    taken_ns: int
    own_ticks: int | None
    major_faults: int | None
    run_delay_ns: dict[str, int] | None
    busy_ticks: int | None
    steal_ticks: int | None
    all_ticks: int | None
    load1: float | None
    available_bytes: int | None

    def after(self, n_threads: int, now_ns: int | None = None) -> Conditions:
        """Return how the time since this snapshot went for the process's `n_threads` measuring threads.

        Shares are of wall time × threads. A counter that cannot be read now, or could not then, gives None.
        """
        now = before(self.pid, root=self.root, now_ns=now_ns)
        wall_seconds = (now.taken_ns - self.taken_ns) / 1e9
        if wall_seconds <= 0 or n_threads < 1:
            return Conditions(load1_before=self.load1, available_bytes_before=self.available_bytes)
        own = _seconds(_grown(self.own_ticks, now.own_ticks))
        busy = _seconds(_grown(self.busy_ticks, now.busy_ticks))
        delay = _run_delay_seconds(self.run_delay_ns, now.run_delay_ns)
        steal, total = _grown(self.steal_ticks, now.steal_ticks), _grown(self.all_ticks, now.all_ticks)
        return Conditions(
            cpu_share=None if own is None else own / (wall_seconds * n_threads),
            run_delay_share=None if delay is None else delay / (wall_seconds * n_threads),
            others_busy_cores=None if busy is None or own is None else max(0.0, busy - own) / wall_seconds,
            steal_share=None if steal is None or not total else steal / total,
            major_faults=_grown(self.major_faults, now.major_faults),
            load1_before=self.load1,
            available_bytes_before=self.available_bytes,
        )


def before(pid: int, root: Path = Path("/"), now_ns: int | None = None) -> Snapshot:
    """Return the counters of now for the process `pid`, all its threads together; what cannot be read is None.

    Take it after the warm-up, so that reading the model in is not counted against the measurement.
    """
    own_ticks, major_faults = _process(root, pid)
    busy, steal, total = _machine(root)
    return Snapshot(
        pid=pid,
        root=root,
        taken_ns=time.monotonic_ns() if now_ns is None else now_ns,
        own_ticks=own_ticks,
        major_faults=major_faults,
        run_delay_ns=_run_delays(root, pid),
        busy_ticks=busy,
        steal_ticks=steal,
        all_ticks=total,
        load1=_load1(root),
        available_bytes=_available_bytes(root),
    )


def judge(
    conditions: Conditions, n_threads: int, n_cpus: int | None, quota_cores: float | None = None
) -> tuple[str, tuple[str, ...]]:
    """Return the quality and its reasons, in words with the numbers.

    `contended`: others took CPUs that the measuring threads wanted. `limited`: our own allocation is
    smaller than the threads asked for. `noisy`: something else ran, perhaps without harm. `clean`: no
    sign of any. `throttled` needs evidence of clocks, which these conditions do not hold.
    """
    reasons = {
        "contended": _contended(conditions, n_threads, n_cpus, quota_cores),
        "limited": _limited(conditions, n_threads, n_cpus, quota_cores),
        "noisy": _noisy(conditions, n_threads, n_cpus),
    }
    quality = next((name for name, found in reasons.items() if found), "clean")
    return quality, tuple(reason for found in reasons.values() for reason in found)


def _contended(conditions: Conditions, n_threads: int, n_cpus: int | None, quota_cores: float | None) -> list[str]:
    reasons = []
    delay, share, steal = conditions.run_delay_share, conditions.cpu_share, conditions.steal_share
    if delay is not None and delay > RUN_DELAY_CONTENDED:
        reasons.append(f"threads waited {delay:.0%} of the time for a CPU")
    # A low share alone says less: threads also sleep for a GPU or a disk.
    if delay is None and quota_cores is None and share is not None and share < CPU_SHARE_CONTENDED:
        reasons.append(f"threads ran only {share:.0%} of the time")
    if steal is not None and steal > STEAL_CONTENDED:
        reasons.append(f"the hypervisor took {steal:.0%} of the CPU time")
    excess = _excess(conditions, n_threads, n_cpus)
    if excess > OTHERS_CONTENDED_CORES:
        reasons.append(f"other processes needed {excess:.2f} CPUs more than were free")
    return reasons


def _limited(conditions: Conditions, n_threads: int, n_cpus: int | None, quota_cores: float | None) -> list[str]:
    reasons = []
    if n_cpus is not None and n_threads > n_cpus:
        reasons.append(f"{n_threads} threads share {n_cpus} CPUs")
    share = conditions.cpu_share
    if quota_cores is not None and n_threads > quota_cores:
        reasons.append(f"{n_threads} threads have a quota of {quota_cores:g} CPUs")
    elif quota_cores is not None and share is not None and share < CPU_SHARE_LIMITED:
        reasons.append(f"threads ran only {share:.0%} of the time under a quota of {quota_cores:g} CPUs")
    return reasons


def _noisy(conditions: Conditions, n_threads: int, n_cpus: int | None) -> list[str]:
    reasons = []
    delay, steal, faults = conditions.run_delay_share, conditions.steal_share, conditions.major_faults
    if delay is not None and RUN_DELAY_NOISY < delay <= RUN_DELAY_CONTENDED:
        reasons.append(f"threads waited {delay:.1%} of the time for a CPU")
    if steal is not None and STEAL_NOISY < steal <= STEAL_CONTENDED:
        reasons.append(f"the hypervisor took {steal:.1%} of the CPU time")
    others = conditions.others_busy_cores or 0.0
    excess = _excess(conditions, n_threads, n_cpus)
    # With CPUs to spare, others still share the memory and the clock budget.
    many = others > max(OTHERS_NOISY_CORES, OTHERS_NOISY_SHARE * (n_cpus or 1))
    if OTHERS_NOISY_CORES < excess <= OTHERS_CONTENDED_CORES or (many and excess <= OTHERS_CONTENDED_CORES):
        reasons.append(f"other processes kept {others:.2f} CPUs busy")
    if faults is not None and faults > MAJOR_FAULTS_NOISY:
        reasons.append(f"{faults} pages had to be read from disk")
    return reasons


def _excess(conditions: Conditions, n_threads: int, n_cpus: int | None) -> float:
    """Return how many cores others used beyond those that the measuring threads leave free."""
    if conditions.others_busy_cores is None or n_cpus is None:
        return 0.0
    return max(0.0, conditions.others_busy_cores - max(0, n_cpus - n_threads))


def _grown(earlier: int | None, later: int | None) -> int | None:
    return None if earlier is None or later is None else max(0, later - earlier)


def _seconds(ticks: int | None) -> float | None:
    return None if ticks is None else ticks / TICKS_PER_SECOND


def _run_delay_seconds(earlier: dict[str, int] | None, later: dict[str, int] | None) -> float | None:
    """Sum over the threads that are there now; one that has just started counts from nothing."""
    if earlier is None or later is None:
        return None
    return sum(max(0, delay - earlier.get(thread, 0)) for thread, delay in later.items()) / 1e9


def _read(root: Path, name: str) -> str:
    """Return the first 8 KiB of a file, by the shortest way: a process may have hundreds of threads."""
    try:
        descriptor = os.open(f"{root}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 8192).decode("ascii", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def _process(root: Path, pid: int) -> tuple[int | None, int | None]:
    """Return user and system ticks together, and major faults; the counts include threads that have ended."""
    # The name in parentheses may hold blanks and parentheses: the fields follow the last one.
    fields = _read(root, f"proc/{pid}/stat").rpartition(")")[2].split()
    try:
        return int(fields[11]) + int(fields[12]), int(fields[9])
    except (IndexError, ValueError):
        return None, None


def _run_delays(root: Path, pid: int) -> dict[str, int] | None:
    """Return by thread the nanoseconds it was ready but had no CPU: field 2 of its schedstat."""
    delays = {}
    try:
        threads = os.listdir(root / f"proc/{pid}/task")
    except OSError:
        return None
    for thread in threads:
        fields = _read(root, f"proc/{pid}/task/{thread}/schedstat").split()
        if len(fields) == 3 and all(field.isdigit() for field in fields):
            delays[thread] = int(fields[1])
    return delays or None


def _machine(root: Path) -> tuple[int | None, int | None, int | None]:
    """Return busy, stolen and all ticks of all CPUs together; guests' time is part of `user` already."""
    match = re.match(r"cpu +((?:\d+ ?){8})", _read(root, "proc/stat"))
    if not match:
        return None, None, None
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, match[1].split())
    busy = user + nice + system + irq + softirq
    return busy, steal, busy + idle + iowait + steal


def _load1(root: Path) -> float | None:
    match = re.match(r"\d+\.\d+", _read(root, "proc/loadavg"))
    if match:
        return float(match[0])
    try:
        return os.getloadavg()[0] if root == Path("/") else None
    except OSError:
        return None


def _available_bytes(root: Path) -> int | None:
    match = re.search(r"^MemAvailable:\s*(\d+) kB", _read(root, "proc/meminfo"), re.M)
    return int(match[1]) * 1024 if match else None
