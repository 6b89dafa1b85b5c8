"""The timing loop: warm up, fill the context, repeat, keep every sample. Works on any `Engine` and any clock."""

from __future__ import annotations

import gc
import math
import random
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from schema.job import Test
from schema.record import Sample

WARMUP_PASSES = 3
WARMUP_NS = 5_000_000_000
WARMUP_SETTLED = 0.02

Clock = Callable[[], int]
"""Returns monotonic nanoseconds."""


class EngineError(Exception):
    """llama.cpp said no; the text is its reason in words."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches ready to be submitted; `keep` owns the memory they point into."""

    items: list[Any]
    keep: Any = None


class Engine(Protocol):
    """What the loop needs of a context of llama.cpp."""

    n_batch: int
    n_vocab: int
    bos: int | None

    def prepare(self, tokens: list[int], size: int) -> Batches:
        """Return `tokens` as batches of at most `size`."""

    def process(self, batch: Any) -> None:
        """Submit one batch."""

    def synchronize(self) -> None:
        """Wait until everything submitted has been computed."""

    def clear(self) -> None:
        """Empty the memory."""

    def n_past(self) -> int:
        """Return how many tokens the memory holds."""

    def save(self) -> Any:
        """Return the memory's content."""

    def restore(self, state: Any) -> None:
        """Bring back what `save` returned."""

    def logits(self) -> list[float]:
        """Return the logits of the last token processed."""


@dataclass(slots=True)
class Measured:
    """What the loop found besides the samples: `token_ns` holds one decode latency per generated token."""

    fill_seconds: float | None = None
    warmup_seconds: float = 0.0
    warmup_passes: int = 0
    token_ns: array[int] | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The tokens of one test, ready to be submitted again and again."""

    test: Test
    prompt: Batches
    generated: Batches
    stamps: array[int]
    depth_state: Any = None


def random_tokens(engine: Engine, n: int, seed: int, first_is_bos: bool) -> list[int]:
    """Return `n` token ids drawn uniformly from the vocabulary; the first is BOS where the vocabulary has one."""
    rng = random.Random(seed)
    tokens = [rng.randrange(engine.n_vocab) for _ in range(n)]
    if tokens and first_is_bos and engine.bos is not None:
        tokens[0] = engine.bos
    return tokens


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
) -> Measured:
    """Measure `test`, handing each sample to `keep` between the timed windows; return the rest.

    Raises EngineError when llama.cpp refuses something, or when its answer is not a model's:
    logits that are not finite or all equal. `cpu_clock` counts the CPU time of all `n_threads`.
    """
    found = Measured(token_ns=array("q") if test.n_gen else None)
    depth_state = _fill(engine, test, seed, clock, stage, found)
    prepared = _prepare(engine, test, seed, depth_state)
    stage("warmup")
    _warm_up(engine, prepared, clock, found)
    stage("prefill" if test.n_prompt else "decode")
    for repetition in range(1, repetitions + 1):
        busy = cpu_clock()
        start, middle, end = _repeat(engine, prepared, clock)
        busy = cpu_clock() - busy
        if found.token_ns is not None:
            _collect_latencies(found.token_ns, prepared.stamps, middle)
        keep(_sample(test, repetition, start, middle, end, busy / n_threads))
    return found


def _fill(engine: Engine, test: Test, seed: int, clock: Clock, stage: Callable[[str], None], found: Measured) -> Any:
    """Fill the context to the test's depth once, untimed, and return its state (None at depth 0)."""
    if test.n_depth == 0:
        return None
    stage("fill")
    begun = clock()
    engine.clear()
    _submit(engine, engine.prepare(random_tokens(engine, test.n_depth, seed + 1, True), engine.n_batch))
    state = engine.save()
    found.fill_seconds = (clock() - begun) / 1e9
    return state


def _prepare(engine: Engine, test: Test, seed: int, depth_state: Any) -> Prepared:
    prompt = random_tokens(engine, test.n_prompt, seed + 2, test.n_depth == 0)
    generated = random_tokens(engine, test.n_gen, seed + 3, test.n_depth == 0 and test.n_prompt == 0)
    return Prepared(
        test=test,
        prompt=engine.prepare(prompt, engine.n_batch),
        generated=engine.prepare(generated, 1),
        stamps=array("q", bytes(8 * test.n_gen)),
        depth_state=depth_state,
    )


def _submit(engine: Engine, batches: Batches) -> None:
    for batch in batches.items:
        engine.process(batch)
    engine.synchronize()


def _reset(engine: Engine, prepared: Prepared) -> None:
    """Bring the context to the test's depth, and prove that nothing else is in it."""
    engine.clear()
    if prepared.depth_state is not None:
        engine.restore(prepared.depth_state)
    _expect(engine, prepared.test.n_depth)


def _expect(engine: Engine, n_tokens: int) -> None:
    if engine.n_past() != n_tokens:
        raise EngineError(f"the context holds {engine.n_past()} tokens where the test needs {n_tokens}")


def _warm_up(engine: Engine, prepared: Prepared, clock: Clock, found: Measured) -> None:
    """Run the test's own shape until two passes agree within 2 %, at most 3 passes or 5 seconds."""
    begun = clock()
    previous = 0
    while found.warmup_passes < WARMUP_PASSES:
        _reset(engine, prepared)
        start = clock()
        _submit(engine, prepared.prompt)
        for batch in prepared.generated.items:
            engine.process(batch)
            engine.synchronize()
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
    prompt, generated = prepared.prompt.items, prepared.generated.items
    with _no_garbage_collection():
        start = middle = clock()
        if prompt:
            for batch in prompt:
                process(batch)
            synchronize()
            middle = clock()
        end = middle
        for index, batch in enumerate(generated):
            process(batch)
            synchronize()
            end = stamps[index] = clock()
    _expect(engine, prepared.test.n_depth + prepared.test.n_tokens)
    return start, middle, end


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
        token_ns.append(stamp - previous)
        previous = stamp


def _sample(test: Test, repetition: int, start: int, middle: int, end: int, busy_ns: float) -> Sample:
    if end <= start:
        raise EngineError(f"the clock did not advance during repetition {repetition}")
    return Sample(
        repetition=repetition,
        n_tokens=test.n_tokens,
        elapsed_ns=end - start,
        prompt_ns=middle - start if test.n_prompt else None,
        gen_ns=end - middle if test.n_gen else None,
        cpu_share=busy_ns / (end - start),
    )
