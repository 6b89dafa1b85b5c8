"""What is seen of a measuring process and its machine at a few moments while it measures, in a bounded summary."""

import re
from dataclasses import dataclass
from pathlib import Path

from worker.conditions.counters import text, thread_ids
from worker.conditions.sensors import MOST_CLOCKS, Sensors

STOPPED = ("T", "t")
"""States of a process that a signal or a debugger has stopped."""

FIRMWARE_BITS = 0xF


@dataclass(slots=True)
class Looks:
    """The summary: `n` moments; the clocks are the mean of the CPUs that the process ran on at each."""

    sensors: Sensors
    pid: int
    n: int = 0
    n_stopped: int = 0
    n_clocks: int = 0
    clock_sum_hz: float = 0.0
    clock_start_hz: float | None = None
    clock_min_hz: float | None = None
    temperature_max_c: float | None = None
    cooling_share: float | None = None
    firmware_flags: int | None = None

    def add(self) -> None:
        """Look once."""
        self.n += 1
        state, cpus = _running(self.sensors.root, self.pid)
        self.n_stopped += state in STOPPED
        clocks = self.sensors.clocks_hz(cpus)
        if clocks:
            self._add_clock(sum(clocks) / len(clocks))
        self.add_heat()

    def add_heat(self) -> None:
        """Look at temperatures and what the machine does about them, without a word of the process."""
        self.temperature_max_c = _highest(self.temperature_max_c, self.sensors.temperature_c())
        self.cooling_share = _highest(self.cooling_share, self.sensors.cooling_share())
        flags = self.sensors.firmware_flags()
        if flags is not None:
            self.firmware_flags = (self.firmware_flags or 0) | flags & FIRMWARE_BITS

    def _add_clock(self, clock_hz: float) -> None:
        if self.clock_start_hz is None:
            self.clock_start_hz = clock_hz
        self.n_clocks += 1
        self.clock_sum_hz += clock_hz
        self.clock_min_hz = clock_hz if self.clock_min_hz is None else min(self.clock_min_hz, clock_hz)

    @property
    def clock_mean_hz(self) -> float | None:
        """The mean of all moments."""
        return self.clock_sum_hz / self.n_clocks if self.n_clocks else None


def _highest(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


def _running(root: Path, pid: int) -> tuple[str, list[int]]:
    """Return the state of the process's main thread, and the CPUs on which its threads run now.

    Of a process with many threads the first are looked at: they compute alike.
    """
    state, cpus = "", []
    for thread in thread_ids(root, pid)[: 2 * MOST_CLOCKS]:
        fields = text(root, f"proc/{pid}/task/{thread}/stat").rpartition(")")[2].split()
        if thread == str(pid) and fields:
            state = fields[0]
        if len(fields) > 36 and fields[0] == "R" and re.fullmatch(r"\d{1,5}", fields[36]):
            cpus.append(int(fields[36]))
    return state, cpus
