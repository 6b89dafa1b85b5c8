"""What a plan must know of a model before anything is built or loaded (stdlib only)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from schema.errors import ModelError
from worker.experts import Experts, experts, is_routed
from worker.ggml import BY_NAME
from worker.gguf import Header, Tensor
from worker.refusal import MAX_LAYERS, refused_by_all, unknown

CELL_PADDING = 256
"""llama.cpp rounds the cells of a KV cache up to this (llama-context.cpp, llama-kv-cache-iswa.cpp)."""

_SLIDING_PATTERN = {"gemma2": 2, "gemma3": 6}
"""Architectures whose window is in use in all layers but every n-th (src/models/gemma*.cpp)."""

_EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight")
"""Tables of which a token looks up one row; the first also serves as the output where there is no `output.weight`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Sizes of a model; what the file does not say is None.

    `weight_bytes` and `n_params` are llama.cpp's model size and number of parameters. `bytes_per_token`
    are the bytes of weights read to decode one token: all but the embedding rows not looked up (where
    embedding and output share one tensor, all of it is read as the output) and the experts not used;
    `n_params_active` are all parameters but those of the experts not used. Where the file does not say
    how many experts are used, both count all of them. `n_params_prompt` are those active ones that every
    token of a prompt is multiplied with: its embedding is looked up, and only its last token needs the
    output. `expert_bytes` are the weights of all routed experts together, 0 where there are none. `unknown` says
    what of the file is not known here, as the rest of a sentence; what has an unknown type counts with its bytes there.
    """

    architecture: str
    n_params: int
    n_params_active: int
    weight_bytes: int
    bytes_per_token: int
    n_layer: int | None
    n_ctx_train: int | None
    key_widths: tuple[int, ...] | None
    value_widths: tuple[int, ...] | None
    sliding_window: int | None = None
    sliding_layers: frozenset[int] = frozenset()
    experts: Experts | None = None
    n_params_prompt: int = 0
    expert_bytes: int = 0
    unknown: str | None = None

    def kv_bytes(self, n_ctx: int, type_k: str, type_v: str, n_ubatch: int = 512) -> int | None:
        """Return the bytes of the KV cache for one sequence of `n_ctx` tokens; None where the file does not tell.

        None as well where a layer's width is no whole number of a cache type's blocks.
        Layers with a sliding window hold the window and one micro-batch, as llama-bench sets it up;
        of architectures whose windows are not known here, every layer counts whole: an upper bound.
        """
        if self.key_widths is None or self.value_widths is None:
            return None
        k, v = BY_NAME[type_k.upper()], BY_NAME[type_v.upper()]
        uneven = any(width % k.block_weights for width in self.key_widths)
        if uneven or any(width % v.block_weights for width in self.value_widths):
            return None
        return sum(
            self._cells(layer, n_ctx, n_ubatch) * (k.row_bytes(key) + v.row_bytes(value))
            for layer, (key, value) in enumerate(zip(self.key_widths, self.value_widths, strict=True))
        )

    @property
    def kv_bytes_per_token(self) -> int | None:
        """Bytes that one more token of context takes in an F16 cache, as long as no sliding window is full."""
        return self._bytes_of_a_cell(range(len(self.key_widths or ())))

    @property
    def kv_bytes_per_token_beyond_window(self) -> int | None:
        """The same once all windows are full; None where there are none."""
        if not self.sliding_layers:
            return None
        return self._bytes_of_a_cell(set(range(len(self.key_widths or ()))) - self.sliding_layers)

    def _bytes_of_a_cell(self, layers: Iterable[int]) -> int | None:
        if self.key_widths is None or self.value_widths is None:
            return None
        return sum(2 * (self.key_widths[layer] + self.value_widths[layer]) for layer in layers)

    def _cells(self, layer: int, n_ctx: int, n_ubatch: int) -> int:
        cells = _padded(n_ctx)
        if layer in self.sliding_layers and self.sliding_window:
            cells = min(cells, _padded(self.sliding_window + n_ubatch))
        return cells


def facts(header: Header, name: str) -> Facts:
    """Return the facts that `header` tells, `unknown` among them: what only a build of one's own may know.

    Raises ModelError where no llama.cpp can run it; `name` says whose header it is.
    """
    reason = refused_by_all(header)
    if reason:
        raise ModelError(f"{name} {reason}")
    return replace(sizes(header), unknown=unknown(header))


def sizes(header: Header) -> Facts:
    """Return what `header` tells, of any GGUF; the architecture is "" where it names none."""
    named = header.metadata.get("general.architecture")
    architecture = named if isinstance(named, str) else ""
    n_layer = header.count(f"{architecture}.block_count", MAX_LAYERS)
    sliding_window = header.count(f"{architecture}.attention.sliding_window")
    found = experts(header, architecture)
    tied = "output.weight" not in {tensor.name for tensor in header.tensors}
    share = found.share if found else (1, 1)
    return Facts(
        architecture=architecture[:100],
        n_params=sum(tensor.n_weights for tensor in header.tensors),
        n_params_active=sum(_shared(tensor, tensor.n_weights, share) for tensor in header.tensors),
        weight_bytes=sum(tensor.n_bytes for tensor in header.tensors),
        bytes_per_token=sum(_read_per_token(tensor, tied, share) for tensor in header.tensors),
        n_layer=n_layer,
        n_ctx_train=header.count(f"{architecture}.context_length"),
        key_widths=_widths(header, architecture, n_layer, "key_length"),
        value_widths=_widths(header, architecture, n_layer, "value_length"),
        sliding_window=sliding_window,
        sliding_layers=_sliding_layers(header, architecture, n_layer or 0) if sliding_window else frozenset(),
        experts=found,
        n_params_prompt=sum(_multiplied(tensor, share) for tensor in header.tensors),
        expert_bytes=sum(tensor.n_bytes for tensor in header.tensors if is_routed(tensor.name)),
    )


def _shared(tensor: Tensor, amount: int, share: tuple[int, int]) -> int:
    """Return how much of `amount` one token uses of the tensor: all, or the part of the experts in use."""
    return amount * share[0] // share[1] if is_routed(tensor.name) else amount


def _multiplied(tensor: Tensor, share: tuple[int, int]) -> int:
    return 0 if tensor.name in (*_EMBEDDINGS, "output.weight") else _shared(tensor, tensor.n_weights, share)


def _read_per_token(tensor: Tensor, tied: bool, share: tuple[int, int]) -> int:
    if tensor.name in _EMBEDDINGS and not (tied and tensor.name == "token_embd.weight"):
        return tensor.row_bytes
    return _shared(tensor, tensor.n_bytes, share)


def _widths(header: Header, architecture: str, n_layer: int | None, which: str) -> tuple[int, ...] | None:
    """Return the width of a key (or value) of all heads together, for each layer."""
    heads = _per_layer(header, f"{architecture}.attention.head_count", n_layer)
    heads_kv = _per_layer(header, f"{architecture}.attention.head_count_kv", n_layer) or heads
    n_embd = header.count(f"{architecture}.embedding_length")
    size = header.count(f"{architecture}.attention.{which}")
    if size is None and n_embd and heads and max(heads):
        size = n_embd // max(heads)
    if heads_kv is None or size is None:
        return None
    return tuple(n * size for n in heads_kv)


def _per_layer(header: Header, key: str, n_layer: int | None) -> tuple[int, ...] | None:
    """Return a number for each layer, from one for all or a list; None where the file does not tell."""
    value = header.metadata.get(key)
    if n_layer is None or isinstance(value, bool):
        return None
    items = (value,) * n_layer if isinstance(value, int) else value
    if not isinstance(items, tuple) or len(items) < n_layer:
        return None
    if not all(isinstance(item, int) and item >= 0 for item in items[:n_layer]):
        return None
    return tuple(int(item) for item in items[:n_layer])


def _sliding_layers(header: Header, architecture: str, n_layer: int) -> frozenset[int]:
    """Return the layers that keep a window only; the pattern is a switch for each, or the n of "all but every n-th"."""
    key = f"{architecture}.attention.sliding_window_pattern"
    value = header.metadata.get(key)
    if isinstance(value, tuple):
        return frozenset(layer for layer, slides in enumerate(value[:n_layer]) if slides)
    pattern = header.count(key) or _SLIDING_PATTERN.get(architecture)
    if pattern is None:
        return frozenset()
    return frozenset(layer for layer in range(n_layer) if layer % pattern < pattern - 1)


def _padded(n_ctx: int) -> int:
    return math.ceil(n_ctx / CELL_PADDING) * CELL_PADDING
