"""Threads that start together, each on its own CPU, each with its own clock (standard library only)."""

import itertools
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from worker.probe.estimate import Track
from worker.probe.kernels import Piece, pin

T = TypeVar("T")
MEET_SECONDS = 10.0


def together(works: Sequence[Callable[[Callable[[], None]], T]], cpus: Sequence[int]) -> list[T]:
    """Return what each work returns, one thread each, the i-th pinned to the i-th of `cpus` where there is one.

    Each is given a function to call when it is ready: that returns when all are. Raises what a work raises;
    the others then get a threading.BrokenBarrierError instead of waiting for it.
    """
    barrier = threading.Barrier(len(works))

    def run(index: int) -> T:
        if index < len(cpus):
            pin(cpus[index])
        try:
            return works[index](lambda: _meet(barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(run, index) for index in range(len(works))]
    errors = [error for error in (future.exception() for future in futures) if error is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    return [future.result() for future in futures]


def _meet(barrier: threading.Barrier) -> None:
    barrier.wait(MEET_SECONDS)


def repeating(
    function: Callable[..., object],
    pieces: Sequence[Piece],
    piece_bytes: int,
    seconds: float,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Callable[[Callable[[], None]], Track]:
    """Return a work that calls `function` with one piece after another, round and round, for `seconds`."""

    def work(ready: Callable[[], None]) -> Track:
        ends = array("q")
        ready()
        cpu = time.thread_time_ns()
        start = clock()
        until = start + int(seconds * 1e9)
        for piece in itertools.cycle(pieces):
            function(*piece)
            now = clock()
            ends.append(now)
            if now >= until:
                break
        cpu = time.thread_time_ns() - cpu
        return Track(start_ns=start, ends_ns=ends, piece_bytes=piece_bytes, cpu_ns=cpu)

    return work


def best_of(
    call: Callable[[], object], seconds: float, clock: Callable[[], int] = time.perf_counter_ns
) -> Callable[[Callable[[], None]], int]:
    """Return a work that calls `call` for `seconds`, at least once, and returns its shortest time in ns."""

    def work(ready: Callable[[], None]) -> int:
        ready()
        begun = now = clock()
        best = 1 << 62
        while True:
            call()
            since, now = now, clock()
            best = min(best, max(1, now - since))
            if now - begun >= int(seconds * 1e9):
                return best

    return work
