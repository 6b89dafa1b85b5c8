"""What a model reads for each token, as a record tells it: parts from which any test's bytes follow (stdlib only)."""

from collections.abc import Collection
from typing import Any

from worker.facts import Facts

MOST = 2**62
"""A header may claim anything; beyond this no database takes a number, and it is taken for unknown."""


def traffic(found: Facts | None) -> dict[str, Any]:
    """Return the fields of `ModelFacts` that say what a token reads and computes; none where there is no header."""
    if found is None:
        return {}
    layers = range(len(found.key_widths or ()))
    everywhere = [layer for layer in layers if layer not in found.sliding_layers]
    told = {
        "weight_bytes_per_token": found.bytes_per_token,
        "expert_bytes": found.expert_bytes,
        "n_expert": found.experts.count if found.experts else None,
        "n_expert_used": found.experts.used if found.experts else None,
        "active_params": found.n_params_active,
        "prompt_params": found.n_params_prompt,
        "n_layer": found.n_layer,
        "kv_bytes_per_context_token": found.kv_bytes_per_token,
        "key_width": _sum(found.key_widths, everywhere),
        "value_width": _sum(found.value_widths, everywhere),
        "window_key_width": _sum(found.key_widths, found.sliding_layers),
        "window_value_width": _sum(found.value_widths, found.sliding_layers),
        "sliding_window": found.sliding_window if found.sliding_layers else None,
    }
    return {name: number if number is None or 0 <= number < MOST else None for name, number in told.items()}


def _sum(widths: tuple[int, ...] | None, layers: Collection[int]) -> int | None:
    return None if widths is None else sum(widths[layer] for layer in layers)
