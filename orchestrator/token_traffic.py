"""The bytes that decoding a token reads: weights once a pass, and the keys and values of its context (pure)."""

from dataclasses import dataclass

from schema.job import Test
from schema.record import ModelFacts
from worker.ggml import BY_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes that decoding one token reads, in the mean over the tokens of a test.

    `weights` is one token's part of what a pass reads for all `n_together` tokens of it; `cache` are keys and
    values, None where the header does not tell their size: then the sum is a little too small.
    """

    weights: float
    cache: float | None
    n_together: int

    @property
    def total(self) -> float:
        """Bytes for one token, as far as known."""
        return self.weights + (self.cache or 0.0)


def decode_traffic(model: ModelFacts, test: Test, type_k: str, type_v: str) -> Traffic | None:
    """Return what one decoded token of the test reads; None for a test without decode, or of an unknown model.

    Sequences side by side share one reading of the weights; each has its own keys and values. A pass that
    verifies tokens of one sequence reads both once for all of them.
    """
    together = test.n_verify or (test.n_parallel if test.n_gen else 0)
    weights = pass_bytes(model, together) if together else None
    if not weights:
        return None
    cache = kv_bytes(model, test, type_k, type_v)
    if cache is not None and test.n_verify:
        cache /= test.n_verify
    return Traffic(weights=weights / together, cache=cache, n_together=together)


def pass_bytes(model: ModelFacts, n_tokens: int) -> float | None:
    """Return the bytes of weights that one pass over `n_tokens` reads; None where the header was not read.

    All of them once, and of the experts those that any of the tokens chooses. Where each token takes `used` of
    `count` at random, one is left out by all n tokens with probability (1 − used ÷ count)^n.
    """
    whole, count, used = model.weight_bytes_per_token, model.n_expert, model.n_expert_used
    if whole is None or not model.expert_bytes or not count or not used or used >= count:
        return whole
    share = used / count
    return whole + model.expert_bytes * (1 - (1 - share) ** n_tokens - share)


def kv_bytes(model: ModelFacts, test: Test, type_k: str, type_v: str) -> float | None:
    """Return the bytes of keys and values that one pass reads for one sequence, in the mean over the test's passes.

    None where the header does not tell how wide they are, or for a type that ggml does not know.
    """
    k, v = BY_NAME.get(type_k.upper()), BY_NAME.get(type_v.upper())
    if k is None or v is None or model.key_width is None or model.value_width is None:
        return None
    each_key, each_value = k.block_bytes / k.block_weights, v.block_bytes / v.block_weights
    whole = each_key * model.key_width + each_value * model.value_width
    windowed = each_key * (model.window_key_width or 0) + each_value * (model.window_value_width or 0)
    return whole * mean_context(test) + windowed * mean_context(test, model.sliding_window)


def mean_context(test: Test, window: int | None = None) -> float:
    """Return how many tokens a decoded token sees of its own sequence, itself included, in the mean over the test.

    At most `window` where there is one. A verifying pass sees its depth and the tokens that it verifies.
    """
    n = test.n_gen or 1
    first = test.n_depth + test.n_prompt + (test.n_verify or 1)
    last = first + n - 1
    if window is None or last <= window:
        return (first + last) / 2
    if first >= window:
        return float(window)
    n_growing = window - first
    return ((first + window - 1) * n_growing / 2 + window * (n - n_growing)) / n
