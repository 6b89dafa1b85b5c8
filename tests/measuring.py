"""A whole measurement in this process, as the measuring process takes it when a job is alone."""

from collections.abc import Callable

from schema.job import Test
from schema.record import Sample
from worker.measure import Measured, start
from worker.prepared import Filled
from worker.seam import Clock, Engine


def measure(
    engine: Engine,
    test: Test,
    repetitions: int,
    seed: int,
    clock: Clock,
    stage: Callable[[str], None],
    keep: Callable[[Sample], None],
    cpu_clock: Clock,
    n_threads: int,
    filled: Filled | None = None,
) -> Measured:
    """Measure `test` as `start` begins it, handing each sample to `keep` between the timed windows; return the rest."""
    ready = start(engine, test, seed, clock, stage, cpu_clock, n_threads, filled)
    stage(ready.stage)
    for repetition in range(1, repetitions + 1):
        keep(ready.repeat(repetition))
    return ready.found
