"""The timing loop: warm up, fill the context, repeat, keep every sample. Works on any `Engine` and any clock."""

from __future__ import annotations

import gc
import math
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from schema.job import Test
from schema.record import Sample
from worker.prepared import Filled, Prepared, fill, prepare
from worker.seam import Batches, Clock, Engine, EngineError

WARMUP_PASSES = 3
WARMUP_NS = 300_000_000
WARMUP_STEPS = 8
WARMUP_SETTLED = 0.02


@dataclass(slots=True)
class Measured:
    """What the loop found besides the samples: `token_ns` holds one latency per decoded token or verifying pass.

    `first_token_ns` has, for each repetition with a prompt and a decode, the time until the first token was there.
    """

    fill_seconds: float | None = None
    warmup_seconds: float = 0.0
    warmup_passes: int = 0
    token_ns: array[int] | None = None
    first_token_ns: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Ready:
    """A test whose context is filled and warm: its repetitions can be timed, one by one, whenever it is their turn."""

    engine: Engine
    prepared: Prepared
    clock: Clock
    cpu_clock: Clock
    n_threads: int
    found: Measured

    @property
    def stage(self) -> str:
        """The stage in which a repetition is."""
        return {"pp": "prefill", "pg": "prefill", "tg": "decode", "verify": "verify"}[self.prepared.test.kind]

    def wake(self) -> None:
        """Process a token untimed, so that the threads are this context's again after another one's turn."""
        self.engine.clear()
        for batch in self.prepared.wake.items:
            self.engine.process(batch)
        self.engine.synchronize()

    def repeat(self, repetition: int) -> Sample:
        """Time one repetition; raises EngineError when llama.cpp refuses something."""
        test, found = self.prepared.test, self.found
        busy = self.cpu_clock()
        timed = _repeat_verifying if test.n_verify else _repeat
        start, middle, end = timed(self.engine, self.prepared, self.clock)
        busy = self.cpu_clock() - busy
        if found.token_ns is not None:
            _collect_latencies(found.token_ns, self.prepared.stamps, middle)
        if test.kind == "pg":
            found.first_token_ns.append(self.prepared.stamps[0] - start)
        return _sample(test, repetition, start, middle, end, busy / self.n_threads)


def start(
    engine: Engine,
    test: Test,
    seed: int,
    clock: Clock,
    stage: Callable[[str], None],
    cpu_clock: Clock,
    n_threads: int,
    filled: Filled | None = None,
) -> Ready:
    """Fill the context to the test's depth, make its batches, warm it up, and return what repeats it.

    `filled` is what earlier tests of the same settings left of their depth; it is brought up to this
    test's. Raises EngineError when llama.cpp refuses something, or when its answer is not a model's:
    logits that are not finite or all equal. `cpu_clock` counts the CPU time of all `n_threads`.
    """
    found = Measured(token_ns=array("q") if test.n_gen or test.n_verify else None)
    depth_state, found.fill_seconds = fill(engine, test, seed, clock, stage, filled or Filled())
    prepared = prepare(engine, test, seed, depth_state)
    stage("warmup")
    _warm_up(engine, prepared, clock, found)
    return Ready(engine, prepared, clock, cpu_clock, n_threads, found)


def _submit(engine: Engine, batches: Batches) -> None:
    for batch in batches.items:
        engine.process(batch)
    engine.synchronize()


def _reset(engine: Engine, prepared: Prepared) -> None:
    """Bring every sequence of the context to the test's depth, and prove that nothing else is in it."""
    engine.clear()
    if prepared.depth_state is not None:
        for sequence in range(prepared.test.n_parallel):
            engine.restore(prepared.depth_state, sequence)
    _expect(engine, prepared.test, prepared.test.n_depth)


def _expect(engine: Engine, test: Test, n_tokens: int) -> None:
    for sequence in range(test.n_parallel):
        if engine.n_past(sequence) != n_tokens:
            raise EngineError(f"the context holds {engine.n_past(sequence)} tokens where the test needs {n_tokens}")


def _warm_up(engine: Engine, prepared: Prepared, clock: Clock, found: Measured) -> None:
    """Run the test's own shape until two passes agree within 2 %, at most 3 passes or, after the first, 0.3 seconds.

    Of the decode a pass has the first 8 tokens: all of them are alike. A pass that takes long has warmed
    everything; many short ones are what a fast device needs.
    """
    begun = clock()
    previous = 0
    while found.warmup_passes < WARMUP_PASSES:
        _reset(engine, prepared)
        start = clock()
        _submit(engine, prepared.prompt)
        for batch in prepared.steps.items[:WARMUP_STEPS]:
            engine.process(batch)
            engine.synchronize()
            if prepared.test.n_verify:
                engine.take_back(prepared.test.n_depth)
            if clock() - begun > WARMUP_NS:
                break
        elapsed = clock() - start
        found.warmup_passes += 1
        if found.warmup_passes == 1:
            _check_logits(engine.logits())
        if clock() - begun > WARMUP_NS or abs(elapsed - previous) <= WARMUP_SETTLED * elapsed:
            break
        previous = elapsed
    found.warmup_seconds = (clock() - begun) / 1e9


def _check_logits(logits: list[float]) -> None:
    if not all(map(math.isfinite, logits)):
        raise EngineError("the model's logits are not finite: the file is damaged or does not fit this build")
    if min(logits) == max(logits):
        raise EngineError("the model's logits are all equal: the file holds no usable weights")


def _repeat(engine: Engine, prepared: Prepared, clock: Clock) -> tuple[int, int, int]:
    """Time one repetition: clock readings before it, after the prompt, and after the last token."""
    _reset(engine, prepared)
    process, synchronize, stamps = engine.process, engine.synchronize, prepared.stamps
    prompt, steps = prepared.prompt.items, prepared.steps.items
    with _no_garbage_collection():
        start = middle = clock()
        if prompt:
            for batch in prompt:
                process(batch)
            synchronize()
            middle = clock()
        end = middle
        for index, batch in enumerate(steps):
            process(batch)
            synchronize()
            end = stamps[index] = clock()
    test = prepared.test
    _expect(engine, test, test.n_depth + test.n_prompt + test.n_gen)
    return start, middle, end


def _repeat_verifying(engine: Engine, prepared: Prepared, clock: Clock) -> tuple[int, int, int]:
    """Time the passes of one repetition; taking the tokens back between them is outside the time that counts."""
    _reset(engine, prepared)
    n_depth, stamps, spent = prepared.test.n_depth, prepared.stamps, 0
    with _no_garbage_collection():
        for index, batch in enumerate(prepared.steps.items):
            start = clock()
            engine.process(batch)
            engine.synchronize()
            spent += clock() - start
            stamps[index] = spent
            engine.take_back(n_depth)
    _expect(engine, prepared.test, n_depth)
    return 0, 0, spent


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _collect_latencies(token_ns: array[int], stamps: array[int], middle: int) -> None:
    previous = middle
    for stamp in stamps:
        if stamp <= previous:
            raise EngineError("the clock did not advance during a token: it is too coarse, or it was set back")
        token_ns.append(stamp - previous)
        previous = stamp


def _sample(test: Test, repetition: int, start: int, middle: int, end: int, busy_ns: float) -> Sample:
    parts = ((start, middle, test.n_prompt), (middle, end, test.n_gen or test.n_verify))
    if end <= start or any(later <= earlier for earlier, later, n_tokens in parts if n_tokens):
        raise EngineError(f"the clock did not advance during repetition {repetition}")
    return Sample(
        repetition=repetition,
        n_tokens=test.n_tokens,
        elapsed_ns=end - start,
        prompt_ns=middle - start if test.n_prompt else None,
        gen_ns=end - middle if test.n_gen or test.n_verify else None,
        cpu_share=busy_ns / (end - start),
    )
