"""Shapes of well-known models, as in their published GGUF files, without weights (stdlib only).

Sources: the header of the published gemma-3-270m GGUF; for the others the model's own config.json as
llama.cpp's converter writes it (conversion/{llama,qwen,phi}.py).
"""

import difflib
from dataclasses import dataclass
from typing import Literal

from schema.errors import ModelError

QUANTISATIONS = ("Q4_K_M", "Q5_K_M", "Q8_0", "F16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Hyper-parameters of one model; sizes in weights, tokens or layers, as named in GGUF metadata."""

    name: str
    title: str
    architecture: Literal["gemma3", "llama", "phi3", "qwen2"]
    n_layer: int
    n_embd: int
    n_ff: int
    n_head: int
    n_head_kv: int
    head_size: int
    n_vocab: int
    n_ctx_train: int
    rms_eps: float
    rope_freq_base: float
    tied: bool
    sliding_window: int | None = None
    rope_factors: tuple[float, ...] = ()
    published: bool = True


SHAPES = (
    Shape(
        name="gemma-3-270m",
        title="Gemma 3 270M",
        architecture="gemma3",
        n_layer=18,
        n_embd=640,
        n_ff=2048,
        n_head=4,
        n_head_kv=1,
        head_size=256,
        n_vocab=262144,
        n_ctx_train=32768,
        rms_eps=1e-6,
        rope_freq_base=1e6,
        tied=True,
        sliding_window=512,
    ),
    Shape(
        name="qwen2.5-0.5b",
        title="Qwen2.5 0.5B",
        architecture="qwen2",
        n_layer=24,
        n_embd=896,
        n_ff=4864,
        n_head=14,
        n_head_kv=2,
        head_size=64,
        n_vocab=151936,
        n_ctx_train=32768,
        rms_eps=1e-6,
        rope_freq_base=1e6,
        tied=True,
    ),
    Shape(
        name="llama-3.2-1b",
        title="Llama 3.2 1B",
        architecture="llama",
        n_layer=16,
        n_embd=2048,
        n_ff=8192,
        n_head=32,
        n_head_kv=8,
        head_size=64,
        n_vocab=128256,
        n_ctx_train=131072,
        rms_eps=1e-5,
        rope_freq_base=500000.0,
        tied=True,
        # The "llama3" rope scaling: factor 32, low 1, high 4, 8192 tokens before it.
        rope_factors=(1.0,) * 15 + (1.6513292789459229, 3.292262077331543, 9.666728973388672) + (32.0,) * 14,
    ),
    Shape(
        name="phi-3-mini",
        title="Phi-3 mini 4k (3.8B)",
        architecture="phi3",
        n_layer=32,
        n_embd=3072,
        n_ff=8192,
        n_head=32,
        n_head_kv=32,
        head_size=96,
        n_vocab=32064,
        n_ctx_train=4096,
        rms_eps=1e-5,
        rope_freq_base=10000.0,
        tied=False,
        sliding_window=2047,
    ),
    Shape(
        name="test-tiny",
        title="test-tiny (not a published model: for tests and first tries)",
        architecture="llama",
        n_layer=2,
        n_embd=256,
        n_ff=768,
        n_head=4,
        n_head_kv=2,
        head_size=64,
        n_vocab=2048,
        n_ctx_train=4096,
        rms_eps=1e-5,
        rope_freq_base=10000.0,
        tied=False,
        published=False,
    ),
)


def find_shape(name: str) -> Shape:
    """Return the shape called `name`; raises ModelError with the nearest name and the list."""
    for shape in SHAPES:
        if shape.name == name.lower():
            return shape
    raise ModelError(_unknown("shape of a synthetic model", name, [shape.name for shape in SHAPES]))


def find_quantisation(name: str) -> str:
    """Return `name` as it is written in QUANTISATIONS; raises ModelError with the nearest one and the list."""
    if name.upper() in QUANTISATIONS:
        return name.upper()
    raise ModelError(_unknown("quantisation of a synthetic model", name, list(QUANTISATIONS)))


def _unknown(what: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name.lower(), [entry.lower() for entry in known], n=1, cutoff=0.4)
    meant = next((entry for entry in known if near and entry.lower() == near[0]), None)
    hint = f" Did you mean {meant}?" if meant else ""
    return f"{name!r} is no known {what}.{hint} Known: {', '.join(known)}."
