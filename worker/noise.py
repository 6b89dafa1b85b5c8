"""Tensor data of random weights, from integer arithmetic only, hence the same bytes on every machine.

The words are the raw output of PCG64 with a state of our own making, so neither numpy's seeding nor
its drawing of floats takes part. Every tensor has its own full stream: a pool repeated over the file
would be quicker still, but data that repeats is compressible, and file systems and memories that
compress or merge pages would then be faster with it than with the real model.

Only scales are fixed. They are powers of two which make a tensor's weights about 1/√width in size, as
in a trained model, so that activations neither vanish, overflow nor become denormal on the way: a
processor may be slower with those. The scales inside K-quant blocks keep four of their bits, so that
the block's own half-precision scale is never denormal either.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from worker.gguf import Tensor

Bytes = npt.NDArray[np.uint8]

CHUNK_BYTES = 1 << 20


class Words:
    """An endless stream of random 64-bit words that `name` alone determines."""

    def __init__(self, name: str) -> None:
        """Take state and (odd) increment of PCG64 from the SHA-256 of `name`."""
        seed = hashlib.sha256(name.encode()).digest()
        state = int.from_bytes(seed[:16], "little")
        increment = int.from_bytes(seed[16:], "little") | 1
        self._generator = np.random.PCG64(0)
        self._generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": state, "inc": increment},
            "has_uint32": 0,
            "uinteger": 0,
        }

    def take(self, n_bytes: int) -> Bytes:
        """Return the next `n_bytes` bytes, words in little-endian order; a last part of a word is dropped."""
        words: npt.NDArray[np.uint64] = self._generator.random_raw(-(-n_bytes // 8))
        return words.astype("<u8", copy=False).view(np.uint8)[:n_bytes]


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where a block keeps its half-precision numbers, and which of its bytes keep only four bits.

    `halves` are (position, exponent, sign): the number is ± sign × 2^(exponent − half the width's bits),
    with one ± for the whole block, drawn, so that a row's weights lie around zero: were they even a
    little to one side, layer after layer would forget which token it was given.
    """

    halves: tuple[tuple[int, int, int], ...]
    four_bits: tuple[int, int] = (0, 0)


_LAYOUTS = {
    "Q1_0": _Layout(((0, 1, 1),)),
    "Q2_0": _Layout(((0, 0, 1),)),
    "Q4_0": _Layout(((0, -2, 1),)),
    "Q4_1": _Layout(((0, -2, 1), (2, 1, -1))),
    "Q5_0": _Layout(((0, -3, 1),)),
    "Q5_1": _Layout(((0, -3, 1), (2, 1, -1))),
    "Q8_0": _Layout(((0, -6, 1),)),
    "Q2_K": _Layout(((80, -4, 1), (82, -4, 1))),
    "Q3_K": _Layout(((108, -6, 1),)),
    "Q4_K": _Layout(((0, -6, 1), (2, -3, 1)), (4, 12)),
    "Q5_K": _Layout(((0, -7, 1), (2, -3, 1)), (4, 12)),
    "Q6_K": _Layout(((208, -7, 1),), (192, 208)),
    "IQ2_XXS": _Layout(((0, -6, 1),)),
    "IQ2_XS": _Layout(((0, -6, 1),)),
    "IQ2_S": _Layout(((0, -6, 1),)),
    "IQ3_XXS": _Layout(((0, -7, 1),)),
    "IQ3_S": _Layout(((0, -7, 1),)),
    "IQ1_S": _Layout(((0, -2, 1),)),
    "IQ4_NL": _Layout(((0, -6, 1),)),
    "IQ4_XS": _Layout(((0, -10, 1),)),
    "TQ1_0": _Layout(((52, 0, 1),)),
    "TQ2_0": _Layout(((64, 0, 1),)),
}
"""Of the block structures in ggml-common.h. A minimum is scaled to the middle of the block's weights."""


ZEROS = ("I8", "I16", "I32", "I64")
"""Types of tables of numbers, which no weights are; 0 is valid in any."""


def can_be_made(kind: str) -> bool:
    """Tell whether tensors of this type can be made; what cannot be is in no published file."""
    return kind in _LAYOUTS or kind in _EXPONENTS or kind in _ODD or kind in ZEROS


def tensor_data(tensor: Tensor, stream: str, factors: tuple[float, ...] = ()) -> Iterator[Bytes]:
    """Yield the data of `tensor` in pieces of about CHUNK_BYTES; `stream` names its random numbers.

    Norms are 1, a bias is small, `rope_freqs` holds `factors` (1 where there are none), the decay of a
    state-space layer is such that it decays; everything else is random.
    """
    if tensor.name == "rope_freqs.weight" and factors:
        yield np.array(factors, "<f4").view(np.uint8)
    elif tensor.type.name == "F32" and tensor.name.endswith(_ONES):
        yield np.ones(tensor.n_weights, "<f4").view(np.uint8)
    elif tensor.type.name == "F32" and tensor.name.endswith(".ssm_a"):
        yield np.full(tensor.n_weights, -1.0, "<f4").view(np.uint8)
    elif tensor.type.name in ZEROS:
        yield from (np.zeros(size, np.uint8) for size in _pieces(tensor.n_bytes, CHUNK_BYTES))
    else:
        yield from _random_data(tensor, Words(f"{stream}:{tensor.name}"))


_ONES = ("_norm.weight", "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")


def _pieces(size: int, most: int) -> Iterator[int]:
    for start in range(0, size, most):
        yield min(most, size - start)


def _random_data(tensor: Tensor, words: Words) -> Iterator[Bytes]:
    shrink = tensor.shape[0].bit_length() // 2
    finish = _finisher(tensor.type.name, tensor.type.block_bytes, shrink)
    # A multiple of eight blocks is a whole number of words, so the pieces' size leaves no trace in the data.
    piece = CHUNK_BYTES // (8 * tensor.type.block_bytes) * 8 * tensor.type.block_bytes
    for size in _pieces(tensor.n_bytes, piece):
        data = words.take(size)
        finish(data)
        yield data


def _finisher(kind: str, block_bytes: int, shrink: int) -> Callable[[Bytes], None]:
    """Return the function that turns random bytes into finite weights, in place."""
    if kind in _EXPONENTS:
        layout_of, keep, exponent = _EXPONENTS[kind]
        return lambda data: _set_exponent(data.view(layout_of), keep, exponent(shrink))
    if kind in _ODD:
        return lambda data: _ODD[kind](data.reshape(-1, block_bytes), shrink)
    layout = _LAYOUTS[kind]
    halves = [(position, *_half(exponent - shrink, sign)) for position, exponent, sign in layout.halves]

    def finish(data: Bytes) -> None:
        blocks = data.reshape(-1, block_bytes)
        blocks[:, slice(*layout.four_bits)] &= 0x0F
        negative = blocks[:, halves[0][0]] & 0x80
        for position, low, high in halves:
            blocks[:, position] = low
            blocks[:, position + 1] = negative ^ high

    return finish


def _set_exponent(numbers: npt.NDArray[Any], keep: int, exponent: int) -> None:
    numbers &= numbers.dtype.type(keep)
    numbers |= numbers.dtype.type(exponent)


_EXPONENTS: dict[str, tuple[str, int, Callable[[int], int]]] = {
    "F64": ("<u8", 0x800FFFFFFFFFFFFF, lambda shrink: (1023 - shrink) << 52),
    "F32": ("<u4", 0x807FFFFF, lambda shrink: (127 - shrink) << 23),
    "BF16": ("<u2", 0x807F, lambda shrink: (127 - shrink) << 7),
    # The lowest bit of an even exponent stays random: weights of two magnitudes.
    "F16": ("<u2", 0x87FF, lambda shrink: ((14 - shrink) & ~1) << 10),
}
"""Plain numbers: their bits, those that stay random, and the exponent."""


def _mxfp4(blocks: Bytes, shrink: int) -> None:
    """One byte is the exponent of the block, of values up to 12."""
    blocks[:, 0] = 126 - shrink


def _nvfp4(blocks: Bytes, shrink: int) -> None:
    """Four bytes are the scales of 16 values each, with four bits of exponent and three of mantissa."""
    blocks[:, :4] = (5 - shrink) << 3 if shrink < 5 else 8 >> (shrink - 4)  # below 2^-6 it is denormal


def _iq1_m(blocks: Bytes, shrink: int) -> None:
    """The half-precision scale lies in the upper four bits of four 16-bit words."""
    low, high = _half(-2 - shrink, 1)
    for position, bits in zip((49, 51, 53, 55), (low & 15, low >> 4, high & 15, high >> 4), strict=True):
        blocks[:, position] = blocks[:, position] & 0x0F | bits << 4


_ODD: dict[str, Callable[[Bytes, int], None]] = {"MXFP4": _mxfp4, "NVFP4": _nvfp4, "IQ1_M": _iq1_m}
"""Types whose scale is no half-precision number of its own: what fixes it in random blocks."""


def _half(exponent: int, sign: int) -> tuple[int, int]:
    """Return the two bytes, low first, of ±2^exponent in half precision; below 2^-14 it is denormal, down to 2^-24."""
    bits = (15 + exponent) << 10 if exponent >= -14 else 1 << (24 + exponent)
    return bits & 0xFF, bits >> 8 | (0x80 if sign < 0 else 0)
