"""The timing loop: warm up, fill the context, repeat, keep every sample. Works on any `Engine` and any clock."""

from __future__ import annotations

import gc
import math
import random
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from schema.job import VERIFY_PASSES, Test
from schema.record import Sample

WARMUP_PASSES = 3
WARMUP_NS = 5_000_000_000
WARMUP_SETTLED = 0.02

Clock = Callable[[], int]
"""Returns monotonic nanoseconds."""


class EngineError(Exception):
    """llama.cpp said no; the text is its reason in words."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One token of a batch that holds several sequences, or of which several answers are wanted."""

    token: int
    position: int
    sequence: int = 0
    wanted: bool = True


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

    def prepare_entries(self, entries: Sequence[Entry], size: int) -> Batches:
        """Return `entries` as batches of at most `size`."""

    def process(self, batch: Any) -> None:
        """Submit one batch."""

    def synchronize(self) -> None:
        """Wait until everything submitted has been computed."""

    def clear(self) -> None:
        """Empty the memory."""

    def n_past(self, sequence: int = 0) -> int:
        """Return how many tokens the memory holds of a sequence."""

    def take_back(self, n_past: int) -> None:
        """Remove the first sequence's tokens from position `n_past` on."""

    def save(self) -> Any:
        """Return what the memory holds of the first sequence."""

    def restore(self, state: Any, sequence: int = 0) -> None:
        """Bring back what `save` returned, as the content of `sequence`."""

    def logits(self) -> list[float]:
        """Return the logits of the last token processed."""


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
class Filled:
    """The deepest context that was filled so far with the same settings, for the tests that go on from there."""

    depth: int = 0
    state: Any = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The tokens of one test, ready to be submitted again and again: the prompt at once, then step by step."""

    test: Test
    prompt: Batches
    steps: Batches
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
    filled: Filled | None = None,
) -> Measured:
    """Measure `test`, handing each sample to `keep` between the timed windows; return the rest.

    `filled` is what earlier tests of the same settings left of their depth; it is brought up to this
    test's. Raises EngineError when llama.cpp refuses something, or when its answer is not a model's:
    logits that are not finite or all equal. `cpu_clock` counts the CPU time of all `n_threads`.
    """
    found = Measured(token_ns=array("q") if test.n_gen or test.n_verify else None)
    depth_state = _fill(engine, test, seed, clock, stage, found, filled or Filled())
    prepared = _prepare(engine, test, seed, depth_state)
    stage("warmup")
    _warm_up(engine, prepared, clock, found)
    stage({"pp": "prefill", "pg": "prefill", "tg": "decode", "verify": "verify"}[test.kind])
    for repetition in range(1, repetitions + 1):
        busy = cpu_clock()
        if test.n_verify:
            start, middle, end = _repeat_verifying(engine, prepared, clock)
        else:
            start, middle, end = _repeat(engine, prepared, clock)
        busy = cpu_clock() - busy
        if found.token_ns is not None:
            _collect_latencies(found.token_ns, prepared.stamps, middle)
        if test.kind == "pg":
            found.first_token_ns.append(prepared.stamps[0] - start)
        keep(_sample(test, repetition, start, middle, end, busy / n_threads))
    return found


def _fill(
    engine: Engine, test: Test, seed: int, clock: Clock, stage: Callable[[str], None], found: Measured, filled: Filled
) -> Any:
    """Fill the context to the test's depth once, untimed, and return its state (None at depth 0).

    Goes on from `filled` where that is less deep. `stage` hears of every batch, so that a
    fill that takes an hour is known to be alive.
    """
    if test.n_depth == 0:
        return None
    begun = clock()
    engine.clear()
    kept = _go_on_from(engine, filled, test.n_depth)
    if kept < test.n_depth:
        stage("fill")
        tokens = random_tokens(engine, test.n_depth, seed + 1, True)[kept:]
        batches = engine.prepare(tokens, engine.n_batch)  # owns the memory of its items
        for batch in batches.items:
            stage("fill")
            engine.process(batch)
            engine.synchronize()
        filled.state, filled.depth = engine.save(), test.n_depth
    found.fill_seconds = (clock() - begun) / 1e9
    return filled.state


def _go_on_from(engine: Engine, filled: Filled, n_depth: int) -> int:
    """Bring back what is filled already and return how many tokens that are; 0 where it is of no use here."""
    if not 0 < filled.depth <= n_depth:
        return 0
    try:
        engine.restore(filled.state)
    except EngineError:
        engine.clear()
        return 0
    return filled.depth


def _prepare(engine: Engine, test: Test, seed: int, depth_state: Any) -> Prepared:
    prompt = random_tokens(engine, test.n_prompt * test.n_parallel, seed + 2, test.n_depth == 0)
    n_steps = VERIFY_PASSES if test.n_verify else test.n_gen
    per_step = test.n_verify or test.n_parallel
    generated = random_tokens(engine, n_steps * per_step, seed + 3, test.n_depth == 0 and test.n_prompt == 0)
    if test.n_parallel > 1 or test.n_verify:
        prompt_batches = engine.prepare_entries(_side_by_side(prompt, test), engine.n_batch)
        steps = engine.prepare_entries(_steps(generated, test), per_step)
    else:
        prompt_batches, steps = engine.prepare(prompt, engine.n_batch), engine.prepare(generated, 1)
    return Prepared(
        test=test,
        prompt=prompt_batches,
        steps=steps,
        stamps=array("q", bytes(8 * n_steps)),
        depth_state=depth_state,
    )


def _side_by_side(prompt: list[int], test: Test) -> list[Entry]:
    """Return the prompts of all sequences, one after the other; an answer is wanted of each one's last token."""
    n = test.n_prompt
    return [
        Entry(token, test.n_depth + index % n, index // n, wanted=index % n == n - 1)
        for index, token in enumerate(prompt)
    ]


def _steps(tokens: list[int], test: Test) -> list[Entry]:
    """Return one token per sequence and step or, when verifying, the same few positions in each pass."""
    if test.n_verify:
        return [Entry(token, test.n_depth + index % test.n_verify) for index, token in enumerate(tokens)]
    first, side = test.n_depth + test.n_prompt, test.n_parallel
    return [Entry(token, first + index // side, index % side) for index, token in enumerate(tokens)]


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
    """Run the test's own shape until two passes agree within 2 %, at most 3 passes or 5 seconds."""
    begun = clock()
    previous = 0
    while found.warmup_passes < WARMUP_PASSES:
        _reset(engine, prepared)
        start = clock()
        _submit(engine, prepared.prompt)
        for batch in prepared.steps.items:
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
        gen_ns=end - middle if test.n_gen or test.n_verify else None,
        cpu_share=busy_ns / (end - start),
    )
