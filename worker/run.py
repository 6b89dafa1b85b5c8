"""The measuring process: a group of assignments in, events out. Imports only the standard library and llama_cpp."""

from __future__ import annotations

import os
import statistics
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from schema.job import Assignment, Job
from schema.record import Latency, Sample
from schema.settings import Settings
from worker.measure import Measured, measure
from worker.prepared import Filled
from worker.seam import EngineError
from worker.variables import in_force

Emit = Callable[[dict[str, Any]], None]
HISTOGRAM_BINS = 64


def run(spec: dict[str, Any], assignments: list[Assignment], emit: Emit, engine: Any = None) -> None:
    """Measure `assignments` one after another with one loaded model; stop after the first that fails.

    `spec` holds `path`, `n_threads` (what each symbol means on this host). Every fact leaves
    through `emit` as it is known: `attempt_start`, `stage`, `sample`, `attempt_end`. `engine` has what
    `worker.engine` has, and stands in for it.
    """
    model: Any = None
    load_seconds = 0.0
    shared = Shared()
    for assignment in assignments:
        emit({"event": "attempt_start", "attempt_uid": assignment.attempt_uid})
        try:
            if model is None:
                emit({"event": "stage", "stage": "load"})
                begun = time.perf_counter()
                engine = engine or _llama_cpp()
                model = engine.Model(Path(spec["path"]), assignment.job.settings, engine.start())
                load_seconds = time.perf_counter() - begun
            end = _attempt(engine, model, spec, assignment, shared.filled(assignment.job), emit)
        except (EngineError, MemoryError) as error:
            emit({"event": "attempt_end", "attempt_uid": assignment.attempt_uid, "error": _say(error)})
            return
        emit({"event": "attempt_end", "attempt_uid": assignment.attempt_uid, "load_seconds": load_seconds, **end})


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


def _attempt(
    engine: Any, model: Any, spec: dict[str, Any], assignment: Assignment, filled: Filled, emit: Emit
) -> dict[str, Any]:
    """Measure one assignment in a fresh context and return what `attempt_end` tells of it."""
    job = assignment.job
    n_threads, n_threads_batch = _resolve_threads(job.settings, spec["n_threads"])
    emit({"event": "stage", "stage": "context"})
    context = engine.Context(model, job.settings, n_threads, job.test.n_ctx, n_threads_batch, job.test.n_parallel)
    try:
        found = measure(
            context,
            job.test,
            job.repetitions,
            job.seed,
            time.perf_counter_ns,
            lambda stage: emit({"event": "stage", "stage": stage}),
            lambda sample: emit(_sample_event(assignment.attempt_uid, sample)),
            time.process_time_ns,
            n_threads if job.test.n_gen or job.test.n_verify else n_threads_batch,
            filled,
        )
        emit({"event": "stage", "stage": "end"})
        resolved = asdict(job.settings) | {"n_threads": n_threads, "n_threads_batch": n_threads_batch}
        return _end(model, context, resolved, found)
    finally:
        context.close()


def _resolve_threads(settings: Settings, symbols: dict[str, int]) -> tuple[int, int]:
    """Return the numbers of threads for one token and for many at once."""
    n, n_batch = settings.n_threads, settings.n_threads_batch
    n_threads = symbols[n] if isinstance(n, str) else n
    if n_batch == "same":
        return n_threads, n_threads
    return n_threads, symbols[n_batch] if isinstance(n_batch, str) else n_batch


def _sample_event(attempt_uid: str, sample: Sample) -> dict[str, Any]:
    return {"event": "sample", "attempt_uid": attempt_uid, "sample": asdict(sample)}


def _end(model: Any, context: Any, resolved: dict[str, Any], found: Measured) -> dict[str, Any]:
    in_effect = model.load_in_effect | context.settings_in_effect()
    return {
        "resolved": resolved,
        "in_effect": {name: asdict(value) for name, value in in_effect.items()},
        "model": model.facts(),
        "memory": asdict(context.memory()),
        "env": in_force(os.environ),
        "tokenize_ts": model.tokenize_ts,
        "latency": asdict(latency(found.token_ns)) if found.token_ns else None,
        "first_token_ns": round(statistics.median(found.first_token_ns)) if found.first_token_ns else None,
        "fill_seconds": found.fill_seconds,
        "warmup_seconds": found.warmup_seconds,
        "warmup_passes": found.warmup_passes,
        "notes": context.notes(),
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
