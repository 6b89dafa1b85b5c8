"""Is a disturbed attempt called so, and a quiet one clean? And what does watching cost?

    python benchmarks/noise.py [--attempts 150] [--pairs 30] [--threads N] [--seed 1]

Attempts of tg32 with the 270M model go through the supervisor as in a sweep, half of them at random beside a CPU
hog, a memory hog, under a quota, or stopped and continued. Before and after each, one process on each CPU counts
for a tenth of a second: an undisturbed attempt is quiet where those counts are steady both times (least ÷ greatest
at least 0.95); where they are not, somebody else was at work, and it is counted nowhere. A disturbed attempt counts
where its rate fell by over 5 % against the median of the nearest quiet ones. Ctrl-C ends the first part early.

Goals: of those at least 95 % are not `clean`; of the quiet ones at most 5 % are not `clean`. Printed with Wilson's
95 % intervals. Then: CPU time of watching over the time of the attempts (goal at most 0.5 % of a core), looks per
second, and the rate with ÷ without, in pairs. Exit code: 0 all goals met, 1 one missed, 4 too few quiet attempts.
"""

import argparse
import math
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.disturbance import KINDS, STEADY, Calm, can_have_quota
from benchmarks.fidelity import interval, model_file
from schema.canonical import decode
from schema.job import Assignment, Group, Job, Test
from schema.record import Record
from schema.settings import Settings
from worker.attempt import Attempt
from worker.conditions.watch import Watch
from worker.fingerprint.take import take
from worker.models import reference
from worker.orphans import PROC
from worker.supervisor import Supervisor

TEST = Test(n_prompt=0, n_gen=32)
REPETITIONS = 3
FELL, NEAR, LEAST_QUIET = 0.05, 10, 20
NOT_CLEAN, FALSE_ALARM, COST = 0.95, 0.05, 0.005
Around = Callable[[str, int], AbstractContextManager[None]]


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One attempt: what disturbed it (`none`), how steady the CPUs were before and after, and what became of it."""

    kind: str
    steadiness: float
    record: Record

    @property
    def rate(self) -> float:
        """Mean rate of the repetitions."""
        return statistics.mean(1e9 * sample.n_tokens / sample.elapsed_ns for sample in self.record.samples)

    @property
    def is_quiet(self) -> bool:
        """Whether nobody seems to have disturbed it."""
        return self.kind == "none" and self.steadiness >= STEADY


def attempts(model: Path, kinds: list[str], n_threads: int, around: Around, calm: Calm) -> Iterator[Tried]:
    """Measure one attempt for each of `kinds` in one process, each inside the context that `around` gives for it."""
    with tempfile.TemporaryDirectory() as home:
        jobs = [
            Job(
                run_uid=f"run {number}",
                host_uid="here",
                model=reference("path", str(model), ROOT),
                test=TEST,
                settings=Settings(n_threads=n_threads),
                repetitions=REPETITIONS,
            )
            for number in range(len(kinds))
        ]
        assignments = tuple(Assignment(job=job, attempt_uid=str(number)) for number, job in enumerate(jobs))
        supervisor = Supervisor(
            group=Group(group_uid="noise", assignments=assignments),
            fingerprint=take(Path(home), None),
            home=Path(home),
            python=sys.executable,
        )
        yield from _tried(supervisor.run(), kinds, around, calm)


def _tried(events: Iterator[dict[str, Any]], kinds: list[str], around: Around, calm: Calm) -> Iterator[Tried]:
    context: AbstractContextManager[None] = nullcontext()
    before = 0.0
    for event in events:
        if event["event"] == "attempt_start":
            before = calm.steadiness()
            context = around(kinds[int(event["attempt_uid"])], _measuring_pid())
            context.__enter__()
        elif event["event"] == "attempt_end":
            context.__exit__(None, None, None)
            record = decode(Record, event["record"])
            if record.failure is not None:
                raise SystemExit(f"an attempt failed: {record.failure.message}")
            kind = kinds[int(record.attempt_uid)]
            yield Tried(kind=kind, steadiness=min(before, calm.steadiness()), record=record)


def _measuring_pid() -> int:
    """Return our child that runs `-m worker`."""
    children = Path(f"{PROC}/self/task/{os.getpid()}/children").read_text().split()
    found = [int(pid) for pid in children if b"--events" in Path(f"{PROC}/{pid}/cmdline").read_bytes()]
    return found[-1]


def wilson(n: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Return the bounds of Wilson's 95 % interval of `n` in `of`."""
    if of == 0:
        return 0.0, 1.0
    share, square = n / of, z * z / of
    middle = share + square / 2
    half = z * math.sqrt(share * (1 - share) / of + square / (4 * of))
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def _said(n: int, of: int) -> str:
    low, high = wilson(n, of)
    return f"{n} of {of} ({n / of if of else 0:.1%}, 95 % interval {low:.1%} to {high:.1%})"


def detection(model: Path, n: int, n_threads: int, rng: random.Random, calm: Calm) -> int:
    """Print how well disturbed and quiet attempts are told apart, and return the exit code."""
    possible = [kind for kind in KINDS if kind != "quota" or can_have_quota()]
    kinds = ["none" if rng.random() < 0.5 else rng.choice(possible) for _ in range(n)]
    if "quota" not in possible:
        print("no quota: this user may not make a control group with one; the tests replay it")

    def around(kind: str, pid: int) -> AbstractContextManager[None]:
        return nullcontext() if kind == "none" else KINDS[kind](pid, rng)

    done: list[Tried] = []
    with suppress(KeyboardInterrupt):
        for tried in attempts(model, kinds, n_threads, around, calm):
            done.append(tried)
            print(f"{len(done):4} {_line(tried)}", flush=True)
    return _detection(done)


def _line(tried: Tried) -> str:
    reasons = "; ".join(tried.record.quality_reasons)
    return f"{tried.kind:10} {tried.rate:7.1f} t/s  calm {tried.steadiness:.2f}  {tried.record.quality:9} {reasons}"


def _detection(done: list[Tried]) -> int:
    quiet = [number for number, tried in enumerate(done) if tried.is_quiet]
    unsure = sum(tried.kind == "none" and not tried.is_quiet for tried in done)
    if len(quiet) < LEAST_QUIET:
        print(f"can't tell here: {len(quiet)} quiet attempts, {unsure} undisturbed ones beside somebody else's work")
        return 4
    fallen = []
    for number, tried in enumerate(done):
        near = sorted(quiet, key=lambda other: abs(other - number))[:NEAR]
        usual = statistics.median(done[other].rate for other in near)
        if tried.kind != "none" and tried.rate < (1 - FELL) * usual:
            fallen.append((number, tried, tried.rate / usual))
    caught = sum(tried.record.quality != "clean" for _, tried, _ in fallen)
    alarms = [done[number] for number in quiet if done[number].record.quality != "clean"]
    for kind in KINDS:
        of_kind = [tried for _, tried, _ in fallen if tried.kind == kind]
        called = Counter(tried.record.quality for tried in of_kind)
        print(f"{kind}: {sum(tried.kind == kind for tried in done)}, {len(of_kind)} fell by over 5 %: {dict(called)}")
    for number, tried, share in fallen:
        if tried.record.quality == "clean":
            print(f"  missed: {number + 1}, {tried.kind}, at {share:.2f} of the usual rate, {tried.record.conditions}")
    for tried in alarms:
        print(f"  false alarm: {tried.record.quality_reasons}")
    print(f"disturbed, fell by over 5 %, not clean: {_said(caught, len(fallen))}; goal at least {NOT_CLEAN:.0%}")
    print(f"quiet, not clean: {_said(len(alarms), len(quiet))}; goal at most {FALSE_ALARM:.0%}; {unsure} left out")
    return int(caught < NOT_CLEAN * len(fallen) or len(alarms) > FALSE_ALARM * len(quiet))


class Cost:
    """CPU time and calls of each method of a watch; `off` leaves the watch away."""

    METHODS = ("__init__", "begin", "end", "look", "conditions")

    def __init__(self) -> None:
        """Put a clock around the methods."""
        self.ns: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.seconds = 0.0
        for name in self.METHODS:
            setattr(Watch, name, self._timed(name, getattr(Watch, name)))

    def _timed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            begun = time.thread_time_ns()
            try:
                return method(*arguments)
            finally:
                self.ns[name] += time.thread_time_ns() - begun
                self.calls[name] += 1

        return timed

    @staticmethod
    @contextmanager
    def off() -> Iterator[None]:
        """Watch nothing meanwhile."""
        attempt: Any = Attempt
        begin_watch = attempt._begin_watch
        attempt._begin_watch = lambda _: None
        try:
            yield
        finally:
            attempt._begin_watch = begin_watch


def cost(model: Path, n_pairs: int, n_threads: int, calm: Calm) -> int:
    """Print what watching costs, and return the exit code."""
    costs, kinds = Cost(), ["on", "off", "off", "on"] * -(-n_pairs // 2)

    @contextmanager
    def around(kind: str, _pid: int) -> Iterator[None]:
        begun = time.monotonic()
        with nullcontext() if kind == "on" else costs.off():
            yield
        costs.seconds += (time.monotonic() - begun) * (kind == "on")

    done = list(attempts(model, kinds, n_threads, around, calm))
    for name in costs.METHODS:
        mean_us = costs.ns[name] / max(1, costs.calls[name]) / 1000
        print(f"{name:10} {costs.calls[name]:6} calls, {mean_us:7.1f} µs of CPU time each")
    watched = [tried.record.conditions for tried in done if tried.record.conditions]
    looks = sum(each.looks or 0 for each in watched) / sum(each.watched_seconds or 0 for each in watched)
    share = sum(costs.ns.values()) / 1e9 / costs.seconds
    print(
        f"watching takes {share:.3%} of a core; goal at most {COST:.1%}; {looks:.1f} looks a second while it measures"
    )
    ratios = [
        one.rate / other.rate if one.kind == "on" else other.rate / one.rate
        for one, other in zip(done[::2], done[1::2], strict=True)
        if min(one.steadiness, other.steadiness) >= STEADY
    ]
    if ratios:
        middle, low, high = interval(ratios)
        print(
            f"rate with ÷ without: {middle:.4f} [{low:.4f}, {high:.4f}], {len(ratios)} of {len(done) // 2} pairs calm"
        )
    return int(share > COST)


def main() -> int:
    """Run both parts and return the worst exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=150)
    parser.add_argument("--pairs", type=int, default=30, help="pairs with and without watching")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    model, calm = model_file("gemma"), Calm()
    try:
        codes = [detection(model, options.attempts, options.threads, random.Random(options.seed), calm)]
        if options.pairs:
            codes.append(cost(model, options.pairs, options.threads, calm))
    finally:
        calm.close()
    return 1 if 1 in codes else max(codes)


if __name__ == "__main__":
    sys.exit(main())
