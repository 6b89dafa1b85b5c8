"""Shapes of well-known models, as in their published GGUF files, without weights (stdlib only).

Sources: the header of the published gemma-3-270m GGUF; for the others the model's own config.json as
llama.cpp's converter writes it (conversion/{gemma,llama,mistral,phi,qwen}.py).
"""

import difflib
from dataclasses import dataclass, replace
from typing import Literal

from schema.errors import ModelError

QUANTISATIONS = ("Q4_K_M", "Q5_K_M", "Q8_0", "F16", "BF16", "Q6_K", "Q4_0", "IQ4_NL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Hyper-parameters of one model; sizes in weights, tokens or layers, as named in GGUF metadata."""

    name: str
    title: str
    architecture: Literal["gemma3", "llama", "phi3", "qwen2", "qwen3", "qwen3moe"]
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
    rope_scale: float | None = None
    n_expert: int = 0
    n_expert_used: int = 0
    n_ff_expert: int = 0
    published: bool = True


# The "llama3" rope scaling (factor 32 for 3.2, 8 for 3.1; low 1, high 4; 8192 tokens before it), one number for each
# pair of a head's values.
_LLAMA_3_2_1B = (
    *(1.0,) * 15,
    1.6513292789459229,
    3.292262077331543,
    9.666728973388672,
    *(32.0,) * 14,
)
_LLAMA_3_2_3B = (
    *(1.0,) * 29,
    1.234937071800232,
    1.6513292789459229,
    2.2766594886779785,
    3.2922627925872803,
    5.171597003936768,
    9.666727066040039,
    *(32.0,) * 29,
)
_LLAMA_3_1 = (
    *(1.0,) * 29,
    1.2074838876724243,
    1.5534145832061768,
    2.026313066482544,
    2.6945300102233887,
    3.684253215789795,
    5.257326126098633,
    *(8.0,) * 29,
)

_GEMMA_3 = Shape(
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
    rope_freq_base=1000000.0,
    tied=True,
    sliding_window=512,
)
_QWEN_2_5 = Shape(
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
    rope_freq_base=1000000.0,
    tied=True,
)
_QWEN_3 = Shape(
    name="qwen3-0.6b",
    title="Qwen3 0.6B",
    architecture="qwen3",
    n_layer=28,
    n_embd=1024,
    n_ff=3072,
    n_head=16,
    n_head_kv=8,
    head_size=128,
    n_vocab=151936,
    n_ctx_train=40960,
    rms_eps=1e-6,
    rope_freq_base=1000000.0,
    tied=True,
)
_LLAMA_3 = Shape(
    name="llama-3.1-8b",
    title="Llama 3.1 8B",
    architecture="llama",
    n_layer=32,
    n_embd=4096,
    n_ff=14336,
    n_head=32,
    n_head_kv=8,
    head_size=128,
    n_vocab=128256,
    n_ctx_train=131072,
    rms_eps=1e-5,
    rope_freq_base=500000.0,
    tied=False,
    rope_factors=_LLAMA_3_1,
)

SHAPES = (
    _GEMMA_3,
    replace(_GEMMA_3, name="gemma-3-1b", title="Gemma 3 1B", n_layer=26, n_embd=1152, n_ff=6912),
    replace(
        _GEMMA_3,
        name="gemma-3-4b",
        title="Gemma 3 4B",
        n_layer=34,
        n_embd=2560,
        n_ff=10240,
        n_head=8,
        n_head_kv=4,
        n_vocab=262208,
        n_ctx_train=131072,
        sliding_window=1024,
        rope_scale=8.0,
    ),
    _QWEN_2_5,
    replace(
        _QWEN_2_5,
        name="qwen2.5-1.5b",
        title="Qwen2.5 1.5B",
        n_layer=28,
        n_embd=1536,
        n_ff=8960,
        n_head=12,
        head_size=128,
    ),
    replace(
        _QWEN_2_5, name="qwen2.5-3b", title="Qwen2.5 3B", n_layer=36, n_embd=2048, n_ff=11008, n_head=16, head_size=128
    ),
    replace(
        _QWEN_2_5,
        name="qwen2.5-7b",
        title="Qwen2.5 7B",
        n_layer=28,
        n_embd=3584,
        n_ff=18944,
        n_head=28,
        n_head_kv=4,
        head_size=128,
        n_vocab=152064,
        tied=False,
    ),
    replace(
        _QWEN_2_5,
        name="qwen2.5-14b",
        title="Qwen2.5 14B",
        n_layer=48,
        n_embd=5120,
        n_ff=13824,
        n_head=40,
        n_head_kv=8,
        head_size=128,
        n_vocab=152064,
        tied=False,
    ),
    replace(
        _QWEN_2_5,
        name="qwen2.5-32b",
        title="Qwen2.5 32B",
        n_layer=64,
        n_embd=5120,
        n_ff=27648,
        n_head=40,
        n_head_kv=8,
        head_size=128,
        n_vocab=152064,
        tied=False,
    ),
    _QWEN_3,
    replace(_QWEN_3, name="qwen3-1.7b", title="Qwen3 1.7B", n_embd=2048, n_ff=6144),
    replace(_QWEN_3, name="qwen3-4b", title="Qwen3 4B", n_layer=36, n_embd=2560, n_ff=9728, n_head=32),
    replace(_QWEN_3, name="qwen3-8b", title="Qwen3 8B", n_layer=36, n_embd=4096, n_ff=12288, n_head=32, tied=False),
    replace(_QWEN_3, name="qwen3-14b", title="Qwen3 14B", n_layer=40, n_embd=5120, n_ff=17408, n_head=40, tied=False),
    replace(_QWEN_3, name="qwen3-32b", title="Qwen3 32B", n_layer=64, n_embd=5120, n_ff=25600, n_head=64, tied=False),
    replace(
        _QWEN_3,
        name="qwen3-30b-a3b",
        title="Qwen3 30B-A3B",
        architecture="qwen3moe",
        n_layer=48,
        n_embd=2048,
        n_ff=6144,
        n_head=32,
        n_head_kv=4,
        tied=False,
        n_expert=128,
        n_expert_used=8,
        n_ff_expert=768,
    ),
    replace(
        _LLAMA_3,
        name="llama-3.2-1b",
        title="Llama 3.2 1B",
        n_layer=16,
        n_embd=2048,
        n_ff=8192,
        head_size=64,
        tied=True,
        rope_factors=_LLAMA_3_2_1B,
    ),
    replace(
        _LLAMA_3,
        name="llama-3.2-3b",
        title="Llama 3.2 3B",
        n_layer=28,
        n_embd=3072,
        n_ff=8192,
        n_head=24,
        tied=True,
        rope_factors=_LLAMA_3_2_3B,
    ),
    _LLAMA_3,
    replace(
        _LLAMA_3,
        name="llama-3.1-70b",
        title="Llama 3.1 70B (3.3 70B has the same shape)",
        n_layer=80,
        n_embd=8192,
        n_ff=28672,
        n_head=64,
    ),
    replace(
        _LLAMA_3,
        name="mistral-7b",
        title="Mistral 7B v0.3",
        n_vocab=32768,
        n_ctx_train=32768,
        rope_freq_base=1000000.0,
        rope_factors=(),
    ),
    replace(
        _LLAMA_3,
        name="tinyllama-1.1b",
        title="TinyLlama 1.1B",
        n_layer=22,
        n_embd=2048,
        n_ff=5632,
        n_head_kv=4,
        head_size=64,
        n_vocab=32000,
        n_ctx_train=2048,
        rope_freq_base=10000.0,
        rope_factors=(),
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
    replace(
        _LLAMA_3,
        name="test-tiny",
        title="test-tiny (not a published model: for tests and first tries)",
        n_layer=2,
        n_embd=256,
        n_ff=768,
        n_head=4,
        n_head_kv=2,
        head_size=64,
        n_vocab=2048,
        n_ctx_train=4096,
        rope_freq_base=10000.0,
        rope_factors=(),
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
