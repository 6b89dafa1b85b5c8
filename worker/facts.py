"""What a plan must know of a model before anything is built or loaded (stdlib only)."""

import math
from dataclasses import dataclass

from schema.errors import ModelError
from worker.ggml import BY_NAME
from worker.gguf import Header, Tensor

CELL_PADDING = 256
"""llama.cpp rounds the cells of a KV cache up to this (llama-context.cpp, llama-kv-cache-iswa.cpp)."""

_SLIDING_PATTERN = {"gemma2": 2, "gemma3": 6}
"""Architectures whose window is in use in all layers but every n-th (src/models/gemma*.cpp)."""

_NOT_A_MODEL = {
    "adapter": "a LoRA adapter",
    "mmproj": "a multimodal projector",
    "imatrix": "an importance matrix",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Sizes of a model; what the file does not say is None.

    `weight_bytes` and `n_params` are llama.cpp's model size and number of parameters. `bytes_per_token`
    are the bytes of weights read to decode one token: all but the embedding rows not looked up (where
    embedding and output share one tensor, all of it is read as the output) and the experts not used.
    """

    architecture: str
    n_params: int
    weight_bytes: int
    bytes_per_token: int
    n_layer: int | None
    n_ctx_train: int | None
    key_widths: tuple[int, ...] | None
    value_widths: tuple[int, ...] | None
    sliding_window: int | None = None
    sliding_layers: frozenset[int] = frozenset()

    def kv_bytes(self, n_ctx: int, type_k: str, type_v: str, n_ubatch: int = 512) -> int | None:
        """Return the bytes of the KV cache for one sequence of `n_ctx` tokens; None where the file does not tell.

        Layers with a sliding window hold the window and one micro-batch, as llama-bench sets it up;
        of architectures whose windows are not known here, every layer counts whole: an upper bound.
        """
        if self.key_widths is None or self.value_widths is None:
            return None
        k, v = BY_NAME[type_k.upper()], BY_NAME[type_v.upper()]
        return sum(
            self._cells(layer, n_ctx, n_ubatch) * (k.row_bytes(key) + v.row_bytes(value))
            for layer, (key, value) in enumerate(zip(self.key_widths, self.value_widths, strict=True))
        )

    def _cells(self, layer: int, n_ctx: int, n_ubatch: int) -> int:
        cells = _padded(n_ctx)
        if layer in self.sliding_layers and self.sliding_window:
            cells = min(cells, _padded(self.sliding_window + n_ubatch))
        return cells


def facts(header: Header, name: str) -> Facts:
    """Return the facts that `header` tells; raises ModelError where it is no language model's (`name` says whose)."""
    architecture = header.metadata.get("general.architecture")
    kind = header.metadata.get("general.type")
    if kind in _NOT_A_MODEL or architecture == "clip":
        what = _NOT_A_MODEL.get(str(kind), "a multimodal projector")
        raise ModelError(f"{name} is {what}, not a language model. Name the model itself.")
    if not header.tensors:
        raise ModelError(f"{name} holds a vocabulary only, there is nothing to run. Name a file with weights.")
    if not isinstance(architecture, str):
        raise ModelError(f"{name} does not say its general.architecture, so llama.cpp cannot load it.")
    n_layer = header.integer(f"{architecture}.block_count")
    sliding_window = header.integer(f"{architecture}.attention.sliding_window")
    return Facts(
        architecture=architecture,
        n_params=sum(tensor.n_weights for tensor in header.tensors),
        weight_bytes=sum(tensor.n_bytes for tensor in header.tensors),
        bytes_per_token=_bytes_per_token(header, architecture),
        n_layer=n_layer,
        n_ctx_train=header.integer(f"{architecture}.context_length"),
        key_widths=_widths(header, architecture, n_layer, "key_length"),
        value_widths=_widths(header, architecture, n_layer, "value_length"),
        sliding_window=sliding_window,
        sliding_layers=_sliding_layers(header, architecture, n_layer or 0) if sliding_window else frozenset(),
    )


def _bytes_per_token(header: Header, architecture: str) -> int:
    tied = "output.weight" not in {tensor.name for tensor in header.tensors}
    n_expert = header.integer(f"{architecture}.expert_count")
    n_used = header.integer(f"{architecture}.expert_used_count")
    share = (n_used, n_expert) if n_used and n_expert and n_used <= n_expert else (1, 1)
    return sum(_read_per_token(tensor, tied, share) for tensor in header.tensors)


def _read_per_token(tensor: Tensor, tied: bool, experts: tuple[int, int]) -> int:
    if tensor.name == "per_layer_token_embd.weight" or (tensor.name == "token_embd.weight" and not tied):
        return tensor.type.row_bytes(tensor.shape[0])
    if "_exps." in tensor.name:
        return tensor.n_bytes * experts[0] // experts[1]
    return tensor.n_bytes


def _widths(header: Header, architecture: str, n_layer: int | None, which: str) -> tuple[int, ...] | None:
    """Return the width of a key (or value) of all heads together, for each layer."""
    heads = _per_layer(header, f"{architecture}.attention.head_count", n_layer)
    heads_kv = _per_layer(header, f"{architecture}.attention.head_count_kv", n_layer) or heads
    n_embd = header.integer(f"{architecture}.embedding_length")
    size = header.integer(f"{architecture}.attention.{which}")
    if size is None and n_embd and heads and max(heads):
        size = n_embd // max(heads)
    if heads_kv is None or size is None:
        return None
    return tuple(n * size for n in heads_kv)


def _per_layer(header: Header, key: str, n_layer: int | None) -> tuple[int, ...] | None:
    value = header.metadata.get(key)
    if n_layer is None or isinstance(value, bool):
        return None
    if isinstance(value, int):
        return (value,) * n_layer
    if isinstance(value, tuple) and len(value) >= n_layer and all(isinstance(item, int) for item in value):
        return tuple(int(item) for item in value[:n_layer])
    return None


def _sliding_layers(header: Header, architecture: str, n_layer: int) -> frozenset[int]:
    pattern = header.integer(f"{architecture}.attention.sliding_window_pattern")
    pattern = pattern or _SLIDING_PATTERN.get(architecture)
    if pattern is None:
        return frozenset()
    return frozenset(layer for layer in range(n_layer) if layer % pattern < pattern - 1)


def _padded(n_ctx: int) -> int:
    return math.ceil(n_ctx / CELL_PADDING) * CELL_PADDING
