"""Watches one attempt: counters before and after each repetition, a look at the sensors now and then in between.

Snapshots are taken while the measuring process waits for leave to go on, so never inside a timed window; what
happens between two repetitions (journal, network) does not count. Looks come twice a second, from a process
that sleeps otherwise.
"""

import contextlib
import math
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from schema.record import Conditions
from worker import gpu_conditions
from worker.conditions import cgroup, counters
from worker.conditions.counters import Counters, text
from worker.conditions.looks import FIRMWARE_BITS, Looks
from worker.conditions.meters import Meters
from worker.conditions.rapl import Joules
from worker.conditions.shares import shares

Clock = Callable[[], int]

_CHANGED = getattr(os, "WSTOPPED", 0) | getattr(os, "WCONTINUED", 0) | getattr(os, "WNOHANG", 0)
FIRST_LOOK_NS = 100_000_000
LOOK_NS = 500_000_000
SETTLE_NS = 50_000_000
"""A repetition is not looked at in its first moments: clocks are still rising."""

JOULES_LOOKS = 120
"""An energy counter may come around within ten minutes of one repetition."""


class Watch:
    """Counts for one attempt of the process `pid`, with the `meters` of its machine; `clock` gives monotonic ns."""

    def __init__(self, pid: int, meters: Meters, clock: Clock = time.monotonic_ns) -> None:
        """Take the state of now, before the first repetition."""
        sensors = meters.sensors
        self._pid, self._sensors, self._clock = pid, sensors, clock
        self._root = sensors.root
        self._live = self._root == Path("/")
        self._groups, self._groups_text = cgroup.groups(self._root, pid), self._own_groups()
        self._looks = Looks(sensors, pid)
        self._load1, self._available = _load1(self._root), _available_bytes(self._root)
        self._temperature = sensors.temperature_c()
        self._throttled, self._battery = sensors.throttled(), sensors.on_battery()
        self._flags = sensors.firmware_flags()
        self._total: Counters | None = None
        self._watched_ns = self._suspended_ns = self._times_stopped = 0
        self._opened: tuple[int, int, Counters] | None = None
        self._look_at = 0
        self._joules, self.idle = Joules(meters.rapl), meters.idle
        self._gpus = gpu_conditions.before(pid, self._root)

    def begin(self) -> None:
        """A repetition is about to begin: the process waits for leave."""
        self._stops()
        self._joules.begin()
        opened = self._counters()
        now = self._clock()
        self._look_at = max(self._look_at, now + SETTLE_NS) if self._look_at else now + FIRST_LOOK_NS
        self._opened = now, self._asleep_ns(), opened

    def end(self) -> None:
        """A repetition is over and the process waits: what passed since `begin` counts."""
        if self._opened is None:
            return
        now, asleep, closed = self._clock(), self._asleep_ns(), self._counters()
        begun, asleep_before, opened = self._opened
        self._opened = None
        self._joules.add()
        self._watched_ns += now - begun
        self._suspended_ns += max(0, asleep - asleep_before)
        self._times_stopped += self._stops()
        self._total = counters.add(self._total, counters.growth(opened, closed))

    def drop(self) -> None:
        """What began is no repetition: it does not count."""
        self._opened = None

    def look(self) -> float:
        """Look if it is time, and return the seconds until the next look; infinite between repetitions."""
        if self._opened is None:
            return math.inf
        left = self._look_at - self._clock()
        if left <= 0:
            self._looks.add()
            if self._looks.n % JOULES_LOOKS == 0:
                self._joules.add()
            left = LOOK_NS
            self._look_at = self._clock() + left
        return left / 1e9

    @property
    def joules(self) -> dict[str, float]:
        """What each energy counter added during the repetitions."""
        return self._joules.total

    def conditions(self, n_threads: int) -> Conditions:
        """Return how the repetitions went for the `n_threads` threads that worked most; to be asked for at the end."""
        self._looks.add_heat()
        told = {
            "load1_before": self._load1,
            "available_bytes_before": self._available,
            **self._sensed(),
            "looks": self._looks.n,
            "gpu": self._gpus.after() if self._gpus is not None else (),
        }
        if self._total is None or self._watched_ns <= 0 or n_threads < 1:
            return Conditions(**told)
        return Conditions(
            **told,
            **shares(self._total, self._pid, self._watched_ns / 1e9, n_threads),
            watched_seconds=self._watched_ns / 1e9,
            times_stopped=max(self._times_stopped, self._looks.n_stopped) if self._live else self._looks.n_stopped,
            suspended_seconds=round(self._suspended_ns / 1e9, 3),  # two clocks are not read at once
            swapped_out_bytes=_swapped_out_bytes(self._root, self._pid),
        )

    def _counters(self) -> Counters:
        told = self._own_groups()
        if told != self._groups_text:  # somebody put the process into another group
            self._groups_text = told
            self._groups = tuple(dict.fromkeys((*self._groups, *cgroup.groups(self._root, self._pid))))
        own = counters.of_process(self._root, self._pid)
        return {**own, **counters.of_machine(self._root), **cgroup.of_groups(self._root, self._groups)}

    def _own_groups(self) -> str:
        return text(self._root, f"proc/{self._pid}/cgroup")

    def _stops(self) -> int:
        """Return how many times the process has been stopped or continued since the last call, at least that.

        The kernel tells a parent so, once for any number of times, without ending its wait for the process's end.
        """
        if not self._live or not hasattr(os, "waitid"):
            return 0
        with contextlib.suppress(ChildProcessError):
            return sum(1 for _ in iter(lambda: os.waitid(os.P_PID, self._pid, _CHANGED), None))
        return 0

    def _asleep_ns(self) -> int:
        """Return how long the machine has slept so far: the clock that counts on in its sleep tells."""
        if not self._live or not hasattr(time, "CLOCK_BOOTTIME"):
            return 0
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def _sensed(self) -> dict[str, Any]:
        looks = self._looks
        flags = self._sensors.firmware_flags()
        if flags is not None and self._flags is not None:  # what happened between two looks stays set from bit 16 on
            looks.firmware_flags = (looks.firmware_flags or 0) | (flags & ~self._flags) >> 16 & FIRMWARE_BITS
        return {
            "clock_start_hz": looks.clock_start_hz,
            "clock_mean_hz": looks.clock_mean_hz,
            "clock_min_hz": looks.clock_min_hz,
            "temperature_before_c": self._temperature,
            "temperature_max_c": looks.temperature_max_c,
            "cooling_share": looks.cooling_share,
            "firmware_flags": looks.firmware_flags,
            "on_battery": _either(self._battery, self._sensors.on_battery()),
            **throttled(counters.growth(self._throttled, self._sensors.throttled())),
        }


def throttled(grown: Counters) -> dict[str, Any]:
    """Return fields of `Conditions` from what Intel's counters added: of cores the sum, of packages the greatest.

    Every CPU of a package counts the package's events.
    """

    def of(kind: str) -> int | None:
        cores = [value for name, value in grown.items() if name.startswith(f"core_{kind}@")]
        packages = [value for name, value in grown.items() if name.startswith(f"package_{kind}@")]
        return sum(cores) + max(packages, default=0) if cores or packages else None

    times = [value for name, value in grown.items() if "_total_time_ms@" in name]
    return {
        "thermal_throttles": of("throttle_count"),
        "thermal_throttled_seconds": max(times) / 1000 if times else None,
        "power_limit_throttles": of("power_limit_count"),
    }


def _either(one: bool | None, other: bool | None) -> bool | None:
    return None if one is None and other is None else bool(one or other)


def _load1(root: Path) -> float | None:
    match = re.match(r"\d{1,9}\.\d+", text(root, "proc/loadavg"))
    if match:
        return float(match[0])
    try:
        return os.getloadavg()[0] if root == Path("/") else None
    except OSError:
        return None


def _available_bytes(root: Path) -> int | None:
    match = re.search(r"^MemAvailable:\s*(\d{1,15}) kB", text(root, "proc/meminfo"), re.M)
    return int(match[1]) * 1024 if match else None


def _swapped_out_bytes(root: Path, pid: int) -> int | None:
    match = re.search(r"^VmSwap:\s*(\d{1,15}) kB", text(root, f"proc/{pid}/status"), re.M)
    return int(match[1]) * 1024 if match else None
