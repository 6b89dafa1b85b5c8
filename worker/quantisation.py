"""Which type each tensor gets in a quantisation mix: llama.cpp's own choice (stdlib only).

Source: `llama_tensor_get_type`, `tensor_allows_quantization` and `tensor_type_fallback` in
src/llama-quant.cpp, for the four mixes and for models without experts.
"""

from collections.abc import Sequence

from worker.ggml import BY_NAME, TensorType

FILE_TYPES = {"F16": 1, "Q8_0": 7, "Q4_K_M": 15, "Q5_K_M": 17}
"""`enum llama_ftype`: the value of `general.file_type`."""

_MAIN = {"F16": "F16", "Q8_0": "Q8_0", "Q4_K_M": "Q4_K", "Q5_K_M": "Q5_K"}
_FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}


def tensor_types(tensors: Sequence[tuple[str, tuple[int, ...]]], mix: str) -> list[TensorType]:
    """Return the type of each (name, shape) in the mix; tensors of one kind must come layer by layer."""
    values = [name for name, _ in tensors if _is_value(name)]
    downs = [name for name, _ in tensors if "ffn_down" in name]
    better = {name for names in (values, downs) for i, name in enumerate(names) if _more_bits(i, len(names))}
    tied = "output.weight" not in {name for name, _ in tensors}
    head = "token_embd.weight" if tied else "output.weight"
    return [BY_NAME[_type(name, shape, mix, name == head, name in better)] for name, shape in tensors]


def _is_value(name: str) -> bool:
    return name.endswith(("attn_v.weight", "attn_qkv.weight"))


def _more_bits(layer: int, n_layer: int) -> bool:
    """Tell whether llama.cpp spends more bits on this layer: the outer eighths, and every third between."""
    return layer < n_layer // 8 or layer >= 7 * n_layer // 8 or (layer - n_layer // 8) % 3 == 2


def _type(name: str, shape: tuple[int, ...], mix: str, is_head: bool, is_better: bool) -> str:
    if len(shape) < 2 or not name.endswith("weight") or name.endswith("_norm.weight"):
        return "F32"
    kind = _MAIN[mix]
    if mix in ("Q4_K_M", "Q5_K_M") and (is_better or is_head):
        kind = "Q6_K"
    return _fitting(kind, shape[0])


def _fitting(kind: str, width: int) -> str:
    """Return a type with smaller blocks where a row is no whole number of them."""
    if width % BY_NAME[kind].block_weights == 0:
        return kind
    smaller = _FALLBACK.get(kind, kind)
    return smaller if width % BY_NAME[smaller].block_weights == 0 else "F16"
