"""How the GPUs went while an attempt measured, and what of that makes its rate doubtful.

A thread of the process that supervises looks at each GPU twice a second, and only where the machine has one. It asks
the driver on that thread alone, so that a driver that never answers holds up nobody.
"""

import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from schema.record import GpuConditions
from worker import gpu_sensors
from worker.fingerprint import evidence
from worker.fingerprint.evidence import Notes
from worker.fingerprint.gpu import load_nvml
from worker.gpu_sensors import IDLE, Counters, Look, Sensor

SECONDS_BETWEEN_LOOKS = 0.5
FIRST_LOOK_SECONDS = 2.0
LAST_LOOK_SECONDS = 2.0
MAX_LOOKS = 20_000
MAX_OTHERS = 8

THROTTLING = ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown", "hardware power brake")
"""Reasons that say a rate is not the GPU's own. The "software power cap" is how most GPUs run under full load."""

HEAT_THROTTLED_SHARE = 0.01
"""Held down by heat for a larger share of the time, a GPU was throttled; the other limits are part of normal work."""

Opened = tuple[Sequence[Sensor], Callable[[], object]]


@dataclass(slots=True)
class _Course:
    """What the thread has seen of one GPU so far."""

    sensor: Sensor
    first: Counters
    first_ns: int
    looks: list[Look] = field(default_factory=list)
    last: Counters | None = None
    last_ns: int | None = None


class Watch:
    """GPUs being looked at, from `before` until `after`; one that is dropped stops by itself."""

    def __init__(self, open_sensors: Callable[[], Opened], pid: int, root: Path, seconds: float) -> None:
        """Start the thread and wait, for a bounded time, until it has had its first look."""
        self._pid, self._root = pid, root
        self._courses: list[_Course] = []
        self._stop, self._begun, self._ended = threading.Event(), threading.Event(), threading.Event()
        events = (self._stop, self._begun, self._ended)
        # The thread must not hold the watch itself: dropping that is what ends it.
        threading.Thread(target=_look_on, args=(open_sensors, self._courses, *events, seconds), daemon=True).start()
        weakref.finalize(self, self._stop.set)
        self._begun.wait(FIRST_LOOK_SECONDS)

    def after(self, own: Collection[int] = ()) -> tuple[GpuConditions, ...]:
        """Stop looking and return how each GPU went; of a driver that has stopped answering what it said before.

        `own` are process ids that are ours besides the measuring one.
        """
        self._stop.set()
        self._ended.wait(LAST_LOOK_SECONDS)
        ours = {self._pid, *own}
        return tuple(_conditions(course, ours, self._root) for course in list(self._courses))


def before(pid: int, root: Path = Path("/"), open_sensors: Callable[[], Opened] | None = None) -> Watch | None:
    """Start to look at this machine's GPUs while the process `pid` measures; None where it has none to look at.

    Take it after the warm-up, beside `conditions.before`.
    """
    if open_sensors is None:
        if not has_gpu(root):
            return None
        open_sensors = _opener(root)
    return Watch(open_sensors, pid, root, SECONDS_BETWEEN_LOOKS)


def has_gpu(root: Path = Path("/")) -> bool:
    """Return whether a driver shows a GPU that can be looked at."""
    nodes = evidence.entries(root / "dev", "nvidia[0-9]*")
    return bool(nodes) or (root / "dev/dxg").exists() or bool(gpu_sensors.of_files(root))


def judge(conditions: Iterable[GpuConditions]) -> dict[str, tuple[str, ...]]:
    """Return by quality (`throttled`, `contended`) the reasons in words, and under `notes` what is worth knowing."""
    throttled: list[str] = []
    contended: list[str] = []
    notes: list[str] = []
    for one in conditions:
        named = f"GPU {one.index} ({one.name})"
        reasons = [reason for reason in one.event_reasons if reason in THROTTLING]
        throttled += [f"{named} was slowed down: {', '.join(reasons)}"] if reasons else []
        hot = one.violation_ns.get("thermal", 0) / 1e9 / one.seconds if one.seconds else 0.0
        throttled += [f"{named} was held down by heat for {hot:.0%} of the time"] if hot > HEAT_THROTTLED_SHARE else []
        contended += [f"{named} was also used by {', '.join(one.others)}"] if one.others else []
        if "software power cap" in one.event_reasons:
            notes.append(f"{named} ran at its power limit")
    return {"throttled": tuple(throttled), "contended": tuple(contended), "notes": tuple(notes)}


def _opener(root: Path) -> Callable[[], Opened]:
    def open_sensors() -> Opened:
        nvml = load_nvml(Notes()) if evidence.is_live(root) else None
        asked, close = gpu_sensors.of_nvml(nvml) if nvml else ([], lambda: None)
        return [*asked, *gpu_sensors.of_files(root)], close

    return open_sensors


def _look_on(
    open_sensors: Callable[[], Opened],
    courses: list[_Course],
    stop: threading.Event,
    begun: threading.Event,
    ended: threading.Event,
    seconds: float,
) -> None:
    try:
        sensors, close = open_sensors()
        courses += [_Course(sensor, sensor.counters(), time.monotonic_ns(), [sensor.look()]) for sensor in sensors]
        begun.set()
        while courses and not stop.wait(seconds):
            for course in courses:
                if len(course.looks) < MAX_LOOKS:
                    course.looks.append(course.sensor.look())
        for course in courses:
            course.last, course.last_ns = course.sensor.counters(), time.monotonic_ns()
        close()
    finally:
        begun.set()
        ended.set()


def _conditions(course: _Course, ours: Collection[int], root: Path) -> GpuConditions:
    looks = list(course.looks)
    # Between two repetitions a GPU may rest, and its clocks with it.
    awake = [look for look in looks if IDLE not in look.reasons] or looks
    cores = [look.core_clock_hz for look in awake if look.core_clock_hz is not None]
    memory = [look.memory_clock_hz for look in awake if look.memory_clock_hz is not None]
    powers = [look.power_watts for look in looks if look.power_watts is not None]
    seconds = None if course.last_ns is None else (course.last_ns - course.first_ns) / 1e9
    power = sum(powers) / len(powers) if powers else None
    energy, method = _energy(course, power, seconds)
    reasons = dict.fromkeys(reason for look in looks for reason in look.reasons if reason != IDLE)
    last = course.last or course.first
    return GpuConditions(
        index=course.sensor.index,
        name=course.sensor.name,
        bus_id=course.sensor.bus_id,
        seconds=seconds,
        n_looks=len(looks),
        sm_clock_hz_mean=sum(cores) / len(cores) if cores else None,
        sm_clock_hz_min=min(cores, default=None),
        memory_clock_hz=max(memory, default=None),
        power_watts_mean=energy / seconds if method == "counter" and energy is not None and seconds else power,
        energy_joules=energy,
        energy_method=method,
        temperature_max_c=max((t for look in looks if (t := look.temperature_c) is not None), default=None),
        memory_used_bytes_max=max((u for look in looks if (u := look.memory_used_bytes) is not None), default=None),
        event_reasons=tuple(reasons),
        violation_ns=gpu_sensors.grown(course.first.violation_ns, last.violation_ns) if course.last else {},
        others=_others({*course.first.pids, *last.pids}, ours, root),
        performance_state=last.performance_state,
    )


def _energy(course: _Course, power: float | None, seconds: float | None) -> tuple[float | None, str | None]:
    """Return the joules and how they were had: the counter's difference, else mean power × time."""
    first, last = course.first.energy_joules, course.last.energy_joules if course.last else None
    # A counter that stands still over a second is not one.
    if first is not None and last is not None and last > first:
        return last - first, "counter"
    if power is not None and seconds:
        return power * seconds, "power × time"
    return None, None


def _others(pids: Collection[int], ours: Collection[int], root: Path) -> tuple[str, ...]:
    """Return the processes that are not ours, nor descend from ours.

    Inside a container the driver tells process ids of the host. Then ours cannot be told by its id: one process
    that is not here is taken for ours, as long as ours is not listed.
    """
    family = {pid for pid in pids if _descends(pid, ours, root)}
    strangers = sorted(set(pids) - family)
    elsewhere = [pid for pid in strangers if not (root / f"proc/{pid}").exists()]
    if not family and elsewhere:
        strangers.remove(elsewhere[0])
    names = [gpu_sensors.process_name(root, pid) for pid in strangers]
    left_out = len(names) - MAX_OTHERS
    return (*names[:MAX_OTHERS], f"{left_out} more") if left_out > 0 else tuple(names)


def _descends(pid: int, ours: Collection[int], root: Path) -> bool:
    for _ in range(16):
        if pid in ours:
            return True
        fields = (evidence.text(root / f"proc/{pid}/stat") or "").rpartition(")")[2].split()
        if len(fields) < 2 or not fields[1].isdigit() or int(fields[1]) <= 1:
            return False
        pid = int(fields[1])
    return False
