"""A test made ready: the context filled to its depth once, and all tokens in batches before any clock runs."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schema.job import VERIFY_PASSES, Test
from worker.seam import Batches, Clock, Engine, EngineError, Entry


@dataclass(slots=True)
class Filled:
    """The deepest context that was filled so far with the same settings, for the tests that go on from there."""

    depth: int = 0
    state: Any = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """The tokens of one test, ready to be submitted again and again: the prompt at once, then step by step.

    `wake` is one token, for an empty context.
    """

    test: Test
    prompt: Batches
    steps: Batches
    stamps: array[int]
    wake: Batches
    depth_state: Any = None


def random_tokens(engine: Engine, n: int, seed: int, first_is_bos: bool) -> list[int]:
    """Return `n` token ids drawn uniformly from the vocabulary; the first is BOS where the vocabulary has one."""
    rng = random.Random(seed)
    tokens = [rng.randrange(engine.n_vocab) for _ in range(n)]
    if tokens and first_is_bos and engine.bos is not None:
        tokens[0] = engine.bos
    return tokens


def fill(
    engine: Engine, test: Test, seed: int, clock: Clock, stage: Callable[[str], None], filled: Filled
) -> tuple[Any, float | None]:
    """Fill the context to the test's depth once, untimed; return its state and the seconds it took (None at depth 0).

    Goes on from `filled` where that is less deep. `stage` hears of every batch, so that a
    fill that takes an hour is known to be alive.
    """
    if test.n_depth == 0:
        return None, None
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
    return filled.state, (clock() - begun) / 1e9


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


def prepare(engine: Engine, test: Test, seed: int, depth_state: Any) -> Prepared:
    """Return the test's prompt and steps as batches that `engine` takes, of token ids drawn with `seed`."""
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
        wake=engine.prepare(random_tokens(engine, 1, seed + 4, True), 1),
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
