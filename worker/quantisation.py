"""Which type each tensor gets in a quantisation mix: llama.cpp's own choice (stdlib only).

Source: `llama_tensor_get_type`, `tensor_allows_quantization` and `tensor_type_fallback` in
src/llama-quant.cpp, for the mixes below, without an importance matrix.
"""

import re
from collections.abc import Sequence

from worker.ggml import BY_NAME, TensorType

FILE_TYPES = {
    "F16": 1,
    "Q4_0": 2,
    "Q8_0": 7,
    "Q4_K_M": 15,
    "Q5_K_M": 17,
    "Q6_K": 18,
    "IQ4_NL": 25,
    "BF16": 32,
}
"""`enum llama_ftype`: the value of `general.file_type`."""

NAMES = {
    **{number: name for name, number in FILE_TYPES.items()},
    **{0: "F32", 3: "Q4_1", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S"},
    **{16: "Q5_K_S", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 26: "IQ3_S"},
    **{27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE"},
    **{39: "NVFP4", 40: "Q1_0", 41: "Q2_0"},
}
"""The same the other way round, with the mixes that are not made here."""

_MAIN = {"Q4_K_M": "Q4_K", "Q5_K_M": "Q5_K"}
_PLAIN = ("F16", "BF16")
_FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
_LAYERS_OF_70B, _HEADS_SHARING_4 = 80, 4


def tensor_types(tensors: Sequence[tuple[str, tuple[int, ...]]], mix: str, heads_sharing: int = 1) -> list[TensorType]:
    """Return the type of each (name, shape) in the mix; tensors of one kind must come layer by layer.

    `heads_sharing` is the number of heads that share one key and value (n_gqa).
    """
    kinds = _Kinds(mix, [name for name, _ in tensors], heads_sharing)
    return [BY_NAME[kinds.of(name, shape)] for name, shape in tensors]


class _Kinds:
    """The names of types for the tensors of one model, in one mix."""

    def __init__(self, mix: str, names: list[str], heads_sharing: int) -> None:
        self._mix, self._main = mix, _MAIN.get(mix, mix)
        self._values = {name: i for i, name in enumerate(filter(_is_value, names))}
        self._downs = {name: _layer(name) for name in names if "ffn_down" in name}
        self._head = "output.weight" if "output.weight" in names else "token_embd.weight"
        self._shares_4 = heads_sharing >= _HEADS_SHARING_4
        self._is_70b = len(self._values) == _LAYERS_OF_70B and heads_sharing > 1

    def of(self, name: str, shape: tuple[int, ...]) -> str:
        if not _is_quantised(name, shape):
            return "F32"
        if self._mix in _PLAIN:
            return self._mix
        return _fitting(self._wanted(name, shape[0]), shape[0])

    def _wanted(self, name: str, width: int) -> str:
        if name == self._head:
            fits = width % BY_NAME[self._main].block_weights == 0
            return "Q6_K" if fits and self._main != "Q8_0" else "Q8_0"
        if name in self._values:
            return self._for_value(name)
        if name in self._downs:
            return self._for_down(name)
        return self._main

    def _for_value(self, name: str) -> str:
        if self._mix in _MAIN and _more_bits(self._values[name], len(self._values)):
            return "Q6_K"
        if self._mix == "IQ4_NL" and self._shares_4:
            return "Q5_K"
        return "Q5_K" if self._is_70b and self._main == "Q4_K" else self._main

    def _for_down(self, name: str) -> str:
        layer, n_layer = self._downs[name], len(self._downs)
        if self._mix in _MAIN and _more_bits(layer, n_layer):
            return "Q6_K"
        return "Q5_K" if self._mix == "IQ4_NL" and layer < n_layer // 8 else self._main


def _is_value(name: str) -> bool:
    return name.endswith(("attn_v.weight", "attn_qkv.weight"))


def _layer(name: str) -> int:
    match = re.match(r"blk\.(\d+)\.", name)
    return int(match[1]) if match else 0


def _is_quantised(name: str, shape: tuple[int, ...]) -> bool:
    return len(shape) >= 2 and name.endswith("weight") and not name.endswith(("_norm.weight", "ffn_gate_inp.weight"))


def _more_bits(layer: int, n_layer: int) -> bool:
    """Tell whether llama.cpp spends more bits on this layer: the outer eighths, and every third between."""
    return layer < n_layer // 8 or layer >= 7 * n_layer // 8 or (layer - n_layer // 8) % 3 == 2


def _fitting(kind: str, width: int) -> str:
    """Return a type with smaller blocks where a row is no whole number of them."""
    if width % BY_NAME[kind].block_weights == 0:
        return kind
    smaller = _FALLBACK.get(kind, kind)
    return smaller if width % BY_NAME[smaller].block_weights == 0 else "F16"
