"""How long a job takes and how much memory it needs, guessed before it has run; pure and rough on purpose.

Decode reads all weights once a token, so its rate is read bandwidth ÷ bytes per token; prefill
computes 2 operations per weight and token. The speeds are guesses for the middle of what machines
do (a desktop of 2 channels, a mid-range GPU): right within a factor of three, enough to tell
minutes from days. A rate measured before replaces them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from schema.devices import gpu_memory_bytes
from schema.host import Fingerprint
from schema.job import VERIFY_PASSES, Test

GIB = 1 << 30
CPU_BYTES_PER_S_PER_THREAD = 10e9
CPU_BYTES_PER_S = 40e9
CPU_FLOPS_PER_THREAD = 50e9
GPU_BYTES_PER_S = 300e9
GPU_FLOPS = 20e12
LOAD_BYTES_PER_S = 1e9
PROCESS_START_SECONDS = 2.0
CONTEXT_SECONDS = 0.3
WARMUP_PASSES, WARMUP_SECONDS, WARMUP_STEPS = 3, 0.3, 8
MEMORY_MARGIN = 1.1
MEMORY_OVERHEAD_BYTES = 256 << 20

Rates = Mapping[tuple[str, str, str], float]
"""(host_uid, model identity, `pp` or `tg`) -> tokens per second measured before."""


class Sizes(Protocol):
    """What a plan must know of a model; what its file does not say is None."""

    @property
    def n_params(self) -> int:
        """Number of weights."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights in memory."""

    @property
    def bytes_per_token(self) -> int:
        """Bytes of weights read to decode one token."""

    @property
    def n_ctx_train(self) -> int | None:
        """Tokens of context that the model was trained for."""

    def kv_bytes(self, n_ctx: int, type_k: str, type_v: str) -> int | None:
        """Bytes of the KV cache for `n_ctx` tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Tokens per second expected on a host of a model; `bytes_per_s` is what reading the context runs at."""

    prefill: float
    decode: float
    bytes_per_s: float


def pace(fingerprint: Fingerprint, identity: str, sizes: Sizes, n_threads: int, on_gpu: bool, known: Rates) -> Pace:
    """Return the rates known of this host and model, or guesses in their place."""
    bytes_per_s = GPU_BYTES_PER_S if on_gpu else min(CPU_BYTES_PER_S_PER_THREAD * n_threads, CPU_BYTES_PER_S)
    flops = GPU_FLOPS if on_gpu else CPU_FLOPS_PER_THREAD * n_threads
    active = sizes.n_params * min(1.0, sizes.bytes_per_token / max(1, sizes.weight_bytes))
    prefill = known.get((fingerprint.host_uid, identity, "pp"))
    decode = known.get((fingerprint.host_uid, identity, "tg"))
    return Pace(
        prefill=prefill or flops / (2 * max(1.0, active)),
        decode=decode or bytes_per_s / max(1, sizes.bytes_per_token),
        bytes_per_s=bytes_per_s,
    )


def job_seconds(test: Test, repetitions: int, at: Pace, kv_bytes_per_token: float) -> float:
    """Return the expected seconds of one job in a loaded process: context, depth, warm-up and repetitions."""
    mean_context = test.n_depth + test.n_prompt + test.n_gen / 2
    decode_seconds = 1 / at.decode + mean_context * kv_bytes_per_token / at.bytes_per_s
    # Sequences side by side share the reading of the weights; a pass that verifies is a decode of one token.
    decodes = test.n_gen + VERIFY_PASSES * bool(test.n_verify)
    prompt_seconds = test.n_parallel * test.n_prompt / at.prefill
    one_pass = prompt_seconds + decodes * decode_seconds
    warm_pass = prompt_seconds + min(decodes, WARMUP_STEPS) * decode_seconds
    warmup = max(warm_pass, min(WARMUP_PASSES * warm_pass, WARMUP_SECONDS))
    return CONTEXT_SECONDS + test.n_depth / at.prefill + warmup + repetitions * one_pass


def load_seconds(sizes: Sizes) -> float:
    """Return the expected seconds to start a process and load the model into it."""
    return PROCESS_START_SECONDS + sizes.weight_bytes / LOAD_BYTES_PER_S


def memory_bytes(sizes: Sizes, test: Test, type_k: str, type_v: str) -> int:
    """Return the expected peak: weights and KV cache with a margin of a tenth, and buffers of 256 MiB."""
    cache = sizes.kv_bytes(test.n_ctx, type_k, type_v) or 0
    return int((sizes.weight_bytes + cache) * MEMORY_MARGIN) + MEMORY_OVERHEAD_BYTES


def capacity_bytes(fingerprint: Fingerprint, n_gpu_layers: int | str, on_gpu: bool) -> int | None:
    """Return how much memory the host has for a model loaded so; None where that is not known.

    On a GPU with all layers it is the memory of all GPUs; with some layers, that and the main memory together, but
    what GPUs share with the machine is counted once; else the main memory as far as we may use it.
    """
    gib, limit = fingerprint.hardware.memory_gib, fingerprint.allocation.memory_limit_bytes
    main = min((size for size in (gib * GIB if gib else None, limit) if size), default=None)
    own, shared = gpu_memory_bytes(fingerprint)
    if not on_gpu or not own + shared:
        return main
    if n_gpu_layers == "all":
        return own or shared  # llama.cpp passes over integrated GPUs where there is another
    return own + max(main, shared) if main else None


def has_gpu(fingerprint: Fingerprint) -> bool:
    """Return whether layers can be put on a GPU: the host has one and, where the build is known, it can use it."""
    devices = fingerprint.build.devices if fingerprint.build else ()
    seen = bool(fingerprint.hardware.gpus) or any(not name.startswith(("CPU", "BLAS")) for name in devices)
    return seen and (fingerprint.build is None or fingerprint.build.gpu_offload)
