"""Waits, for a bounded time, until nobody else loads this machine's CPUs or GPUs. Nobody's process is ever touched."""

import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from worker import gpu_conditions
from worker.conditions import counters
from worker.conditions.counters import TICKS_PER_SECOND, Counters
from worker.conditions.verdict import CROWD_SHARE

Event = dict[str, Any]

LOOK_SECONDS = 2.0
QUIET_LOOKS = 3
"""So many looks in a row must be quiet: a compiler pauses between two files, too."""

LEAST_CORES = 0.1
TELL_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What others do on the machine: CPUs that they keep busy, None where it does not tell, and who is on a GPU."""

    busy_cores: float | None
    n_cpus: int
    on_gpus: tuple[str, ...] = ()

    @property
    def is_quiet(self) -> bool:
        """Whether it would leave a measurement alone, by the limit beyond which a rate is called noisy."""
        return not self.on_gpus and (self.busy_cores or 0.0) <= max(LEAST_CORES, CROWD_SHARE * self.n_cpus)

    def describe(self) -> str:
        """Return it in words."""
        busy = [] if self.busy_cores is None else [f"{self.busy_cores:.1f} of {self.n_cpus} CPUs are busy"]
        return "; ".join([*busy, *self.on_gpus])


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """How waiting went: whether it is quiet now, None where the machine does not tell, and the last load in words."""

    quiet: bool | None
    seconds: float
    load: str


class Meter:
    """Looks at the load of the machine at `root`: its CPUs from one look to the next, its GPUs at the moment."""

    def __init__(self, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._root, self._clock = root, clock
        self._n_cpus = os.cpu_count() or 1
        self._has_gpu = gpu_conditions.has_gpu(root)
        self._last, self._at = self._counters(), clock()

    def look(self) -> Load:
        """Return what went on since the last look; our own time does not count."""
        now, at = self._counters(), self._clock()
        grown, seconds = counters.growth(self._last, now), at - self._at
        self._last, self._at = now, at
        busy = grown.get("busy_ticks")
        own = grown.get("own_ticks", 0)
        cores = max(0, busy - own) / TICKS_PER_SECOND / seconds if busy is not None and seconds > 0 else None
        return Load(busy_cores=cores, n_cpus=self._n_cpus, on_gpus=self._on_gpus())

    def _counters(self) -> Counters:
        return {**counters.of_machine(self._root), **counters.of_process(self._root, os.getpid())}

    def _on_gpus(self) -> tuple[str, ...]:
        watch = gpu_conditions.before(os.getpid(), self._root) if self._has_gpu else None
        return gpu_conditions.judge(watch.after())["contended"] if watch is not None else ()


def wait_until_quiet(
    limit_seconds: float,
    look: Callable[[], Load] | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Generator[Event, None, Waited]:
    """Wait until QUIET_LOOKS looks in a row show nobody else at work, at most `limit_seconds`; yields `stage` events.

    Returns how it went: when the time is up the caller goes on, and the verdict on what it measures says what
    went on. A machine that does not tell how busy it is, is not waited for.
    """
    look = look or Meter().look
    begun, told_at = clock(), None
    quiet_looks = 0
    while True:
        sleep(LOOK_SECONDS)
        load = look()
        if load.busy_cores is None and not load.on_gpus:
            return Waited(quiet=None, seconds=clock() - begun, load="this machine does not tell how busy it is")
        quiet_looks = quiet_looks + 1 if load.is_quiet else 0
        now = clock()
        if quiet_looks >= QUIET_LOOKS:
            return Waited(quiet=True, seconds=now - begun, load=load.describe())
        if now - begun >= limit_seconds:
            return Waited(quiet=False, seconds=now - begun, load=load.describe())
        if not load.is_quiet and (told_at is None or now - told_at >= TELL_SECONDS):
            told_at = now
            yield {"event": "stage", "stage": "wait", "text": f"waiting until it is quiet: {load.describe()}"}
