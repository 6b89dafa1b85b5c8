"""What disturbs a measuring process on purpose: busy or memory-hungry neighbours, a quota, a stop; and a calm check."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from worker.fingerprint.cgroups import groups
from worker.orphans import die_with_parent

PERIOD_US = 100_000
DUTIES = (0.2, 0.35, 0.5)
SPIN_SECONDS = 0.02
SPINS = 5
STEADY = 0.95

Disturbance = Callable[[int, random.Random], AbstractContextManager[None]]
"""Disturbs the process with this id for as long as the context lasts."""

HOG = """
import time
while True:
    end = time.perf_counter() + 0.01 * {duty}
    while time.perf_counter() < end:
        pass
    time.sleep(0.01 * (1 - {duty}))
"""
MEMORY_HOG = """
import time
import numpy as np
a, b = np.ones(8 << 20), np.ones(8 << 20)
while True:
    begun = time.perf_counter()
    np.copyto(a, b)
    time.sleep((time.perf_counter() - begun) * (1 / {duty} - 1))
"""
SPINNER = """
import os, sys, time
os.sched_setaffinity(0, [int(sys.argv[1])])
def count():
    n, end = 0, time.perf_counter() + {seconds}
    while time.perf_counter() < end:
        n += 1
    return n
count()
for _ in sys.stdin:
    print(*[count() for _ in range({spins})], flush=True)
"""


@contextmanager
def cpu_hog(_pid: int, rng: random.Random) -> Iterator[None]:
    """Keep a CPU busy for a part of the time: beside one that never sleeps, two threads on two CPUs hardly get on."""
    with program(HOG.format(duty=rng.choice(DUTIES))):
        yield


@contextmanager
def memory_hog(_pid: int, rng: random.Random) -> Iterator[None]:
    """Copy 64 MiB again and again, for a part of the time."""
    with program(MEMORY_HOG.format(duty=rng.choice(DUTIES))):
        yield


@contextmanager
def program(text: str) -> Iterator[None]:
    """Run a Python program for the length of the block."""
    command = [sys.executable, "-c", text]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def stopped(pid: int, rng: random.Random) -> Iterator[None]:
    """Stop the process now and then, for 30 to 300 ms each time, and continue it."""
    over = threading.Event()

    def stop_and_continue() -> None:
        while not over.wait(rng.uniform(0.1, 0.4)):
            os.kill(pid, signal.SIGSTOP)
            time.sleep(rng.uniform(0.03, 0.3))
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=stop_and_continue)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def quota(pid: int, rng: random.Random) -> Iterator[None]:
    """Give the process 40 to 90 % of all CPUs, through a control group of its own."""
    own = groups(Path("/"), "cpu", pid).directories[0]
    group = own / f"tokfleet-noise-{os.getpid()}"
    group.mkdir()
    try:
        _limit(group, round(PERIOD_US * (os.cpu_count() or 1) * rng.uniform(0.4, 0.9)))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        (own / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def _limit(group: Path, us: int) -> None:
    if (group / "cpu.max").exists():
        (group / "cpu.max").write_text(f"{us} {PERIOD_US}")
    else:
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(us))


def can_have_quota() -> bool:
    """Return whether this user may make a control group with a quota here."""
    try:
        with quota(os.getpid(), random.Random(0)):
            return True
    except (OSError, IndexError):
        return False


KINDS: dict[str, Disturbance] = {"cpu hog": cpu_hog, "memory hog": memory_hog, "quota": quota, "stopped": stopped}


class Calm:
    """Tells whether the machine is calm: a process bound to each CPU counts to the same number again and again."""

    def __init__(self) -> None:
        """Start the processes, which sleep."""
        text = SPINNER.format(seconds=SPIN_SECONDS, spins=SPINS)
        command = [sys.executable, "-c", text]
        self._spinners = [
            subprocess.Popen([*command, str(cpu)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
            for cpu in sorted(os.sched_getaffinity(0))
        ]
        self.steadiness()

    def steadiness(self) -> float:
        """Return least ÷ greatest count of a tenth of a second, of the least steady CPU."""
        for spinner in self._spinners:
            assert spinner.stdin is not None
            spinner.stdin.write("go\n")
        found = []
        for spinner in self._spinners:
            assert spinner.stdout is not None
            counts = [int(count) for count in spinner.stdout.readline().split()]
            found.append(min(counts) / max(counts))
        return min(found)

    def close(self) -> None:
        """End them."""
        for spinner in self._spinners:
            spinner.communicate()
