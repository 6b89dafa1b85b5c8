"""The measuring process: a group of assignments in, events out. Imports only the standard library and llama_cpp."""

from __future__ import annotations

import math
import os
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from schema.job import ROUND_JOBS, Assignment, Job
from schema.record import Latency
from schema.settings import Settings
from worker.measure import Measured, Ready, start
from worker.prepared import Filled
from worker.seam import EngineError
from worker.variables import in_force

Emit = Callable[[dict[str, Any]], None]
HISTOGRAM_BINS = 64


def run(spec: dict[str, Any], assignments: list[Assignment], emit: Emit, engine: Any = None) -> None:
    """Measure `assignments` with one loaded model; stop after the first that fails.

    They are measured one after another, but those that are `interleaved` in turn: a repetition of each, then
    the next of each, back and forth.
    `spec` holds `path`, `n_threads` (what each symbol means on this host). Every fact leaves
    through `emit` as it is known: `attempt_start`, `stage`, `sample`, `attempt_end`. `engine` has what
    `worker.engine` has, and stands in for it.
    """
    process = Process(spec, emit, engine)
    with suppress(FailedError):
        for turn in turns(assignments):
            _measure([Begun(process, assignment, alone=len(turn) == 1) for assignment in turn])


def turns(assignments: list[Assignment]) -> Iterator[list[Assignment]]:
    """Yield what is measured in turn: up to ROUND_JOBS interleaved ones, parts of about the same size; others alone."""
    waiting = list(assignments)
    while waiting:
        n = next((n for n, each in enumerate(waiting) if not each.job.interleaved), len(waiting))
        size = math.ceil(n / math.ceil(n / ROUND_JOBS)) if n else 1
        yield waiting[:size]
        del waiting[:size]


def _measure(begun: list[Begun]) -> None:
    for each in begun:
        each.begin()
    for repetition in range(1, max(each.repetitions for each in begun) + 1):
        for each in begun if repetition % 2 else reversed(begun):
            if repetition <= each.repetitions:
                each.repeat(repetition)


class FailedError(Exception):
    """An attempt has failed, and has told so."""


class Process:
    """What the jobs of this process share: the model, loaded when the first needs it, and what was filled last."""

    def __init__(self, spec: dict[str, Any], emit: Emit, engine: Any) -> None:
        self.spec, self.emit, self.engine = spec, emit, engine
        self.model: Any = None
        self.load_seconds = 0.0
        self.shared = Shared()

    def load(self, settings: Settings) -> None:
        """Load the model; EngineError in llama.cpp's words where it cannot."""
        begun = time.perf_counter()
        self.engine = self.engine or _llama_cpp()
        self.model = self.engine.Model(Path(self.spec["path"]), settings, self.engine.start())
        self.load_seconds = time.perf_counter() - begun


class Begun:
    """One attempt in this process; a step that fails ends it, says so, and raises FailedError.

    Where it is not `alone`, other contexts are made before its end, and with them the log begins anew:
    what is in effect is read as soon as it is warm.
    """

    _ready: Ready

    def __init__(self, process: Process, assignment: Assignment, alone: bool) -> None:
        self._process, self._job, self._uid, self._alone = process, assignment.job, assignment.attempt_uid, alone
        self._context: Any = None
        self._told: dict[str, Any] = {}

    @property
    def repetitions(self) -> int:
        """How many repetitions it has."""
        return self._job.repetitions

    def begin(self) -> None:
        """Load the model where that is still to do, make a context, fill it and warm it up."""
        self._emit("attempt_start")
        with self._telling():
            if self._process.model is None:
                self._stage("load")
                self._process.load(self._job.settings)
            self._ready = self._warm()
            if not self._alone:
                self._told = self._facts()

    def repeat(self, repetition: int) -> None:
        """Time one repetition and hand it over; after the last, the attempt ends."""
        ready = self._ready
        with self._telling():
            if repetition == 1 or not self._alone:
                self._stage(ready.stage, repetition=repetition)
            if not self._alone:
                ready.wake()
            self._emit("sample", sample=asdict(ready.repeat(repetition)))
            if repetition < self.repetitions:
                return
            self._stage("end")
            told = (self._told or self._facts()) | _figures(ready.found)
            self._close()
        self._emit("attempt_end", load_seconds=self._process.load_seconds, **told)

    def _warm(self) -> Ready:
        job, process = self._job, self._process
        n_threads, n_threads_batch = _resolve_threads(job.settings, process.spec["n_threads"])
        self._stage("context")
        self._context = process.engine.Context(
            process.model, job.settings, n_threads, job.test.n_ctx, n_threads_batch, job.test.n_parallel
        )
        return start(
            self._context,
            job.test,
            job.seed,
            time.perf_counter_ns,
            self._stage,
            time.process_time_ns,
            n_threads if job.test.n_gen or job.test.n_verify else n_threads_batch,
            process.shared.filled(job),
        )

    def _facts(self) -> dict[str, Any]:
        """Return what is known of the context once it has processed something."""
        model, context, settings = self._process.model, self._context, self._job.settings
        n_threads, n_threads_batch = _resolve_threads(settings, self._process.spec["n_threads"])
        in_effect = model.load_in_effect | context.settings_in_effect()
        return {
            "resolved": asdict(settings) | {"n_threads": n_threads, "n_threads_batch": n_threads_batch},
            "in_effect": {name: asdict(value) for name, value in in_effect.items()},
            "model": model.facts(),
            "memory": asdict(context.memory()),
            "env": in_force(os.environ),
            "tokenize_ts": model.tokenize_ts,
            "notes": context.notes(),
        }

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (EngineError, MemoryError) as error:
            with suppress(EngineError):
                self._close()
            self._emit("attempt_end", error=_say(error))
            raise FailedError from error

    def _close(self) -> None:
        context, self._context = self._context, None
        if context is not None:
            context.close()

    def _stage(self, stage: str, **more: Any) -> None:
        self._emit("stage", stage=stage, **more)

    def _emit(self, event: str, **more: Any) -> None:
        self._process.emit({"event": event, "attempt_uid": self._uid, **more})


def _llama_cpp() -> Any:
    from worker import engine

    return engine


def _say(error: Exception) -> str:
    return str(error) if isinstance(error, EngineError) else "Python could get no more memory (MemoryError)"


class Shared:
    """The filled context that one job leaves to the next of the same settings and seed."""

    def __init__(self) -> None:
        self._key: tuple[Settings, int, int] | None = None
        self._filled = Filled()

    def filled(self, job: Job) -> Filled:
        """Return what the jobs before have filled for jobs like this, nothing where they were different."""
        key = (job.settings, job.seed, job.test.n_parallel)
        if key != self._key or job.test.n_depth < self._filled.depth:
            self._key, self._filled = key, Filled()
        return self._filled


def _resolve_threads(settings: Settings, symbols: dict[str, int]) -> tuple[int, int]:
    """Return the numbers of threads for one token and for many at once."""
    n, n_batch = settings.n_threads, settings.n_threads_batch
    n_threads = symbols[n] if isinstance(n, str) else n
    if n_batch == "same":
        return n_threads, n_threads
    return n_threads, symbols[n_batch] if isinstance(n_batch, str) else n_batch


def _figures(found: Measured) -> dict[str, Any]:
    """Return what the repetitions came to besides their samples."""
    return {
        "latency": asdict(latency(found.token_ns)) if found.token_ns else None,
        "first_token_ns": round(statistics.median(found.first_token_ns)) if found.first_token_ns else None,
        "fill_seconds": found.fill_seconds,
        "warmup_seconds": found.warmup_seconds,
        "warmup_passes": found.warmup_passes,
    }


def latency(token_ns: array[int]) -> Latency:
    """Return percentiles (nearest rank) and the histogram of decode latencies in ns."""
    ordered = sorted(token_ns)
    bins = [0] * HISTOGRAM_BINS
    for ns in ordered:
        bins[_bin(ns)] += 1

    def percentile(p: int) -> int:
        return ordered[max(0, -(-p * len(ordered) // 100) - 1)]

    return Latency(
        p50_ns=percentile(50), p95_ns=percentile(95), p99_ns=percentile(99), max_ns=ordered[-1], histogram=tuple(bins)
    )


def _bin(ns: int) -> int:
    """Return i such that ns lies in [2^(i/2), 2^((i+1)/2)) microseconds: from ns² in whole numbers, so exactly."""
    square_us = (ns * ns) // 1_000_000
    return min(max(square_us.bit_length() - 1, 0), HISTOGRAM_BINS - 1)
