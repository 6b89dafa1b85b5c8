"""The header of a GGUF file as bytes: metadata, tensor table, padding (stdlib only)."""

import struct
from collections.abc import Iterable, Sequence

from worker.ggml import TensorType
from worker.gguf import DEFAULT_ALIGNMENT, MAGIC, SCALARS, STRING, Scalar, Tensor

Entry = tuple[str, str, Scalar]
"""A metadata key, its value type (a name of `worker.gguf.SCALARS`, or `string`) and its value."""

_CODES = {name: (code, layout) for code, (name, layout) in SCALARS.items()}


def lay_out(
    tensors: Iterable[tuple[str, tuple[int, ...], TensorType]], alignment: int = DEFAULT_ALIGNMENT
) -> tuple[Tensor, ...]:
    """Return the tensors one after the other, each at an aligned offset from the data's start."""
    placed: list[Tensor] = []
    offset = 0
    for name, shape, kind in tensors:
        placed.append(Tensor(name, shape, kind, offset))
        offset = padded(offset + placed[-1].n_bytes, alignment)
    return tuple(placed)


def header_bytes(
    metadata: Sequence[Entry | bytes], tensors: Sequence[Tensor], alignment: int = DEFAULT_ALIGNMENT
) -> bytes:
    """Return everything in front of the tensor data, padded up to where that begins.

    A metadata entry may also be bytes: a key with its value as it stands in another file.
    """
    parts = [MAGIC, struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    parts += [entry if isinstance(entry, bytes) else _entry(*entry) for entry in metadata]
    parts += [_row(tensor) for tensor in tensors]
    whole = b"".join(parts)
    return whole.ljust(padded(len(whole), alignment), b"\0")


def padded(size: int, alignment: int = DEFAULT_ALIGNMENT) -> int:
    """Return `size` rounded up to the alignment of tensor data."""
    return -(-size // alignment) * alignment


def stored(kind: str, value: Scalar) -> Scalar:
    """Return what a reader finds where `value` was written as `kind`: an f32 keeps seven digits."""
    if kind == "string":
        return value
    layout = _CODES[kind][1]
    found: Scalar = struct.unpack(layout, struct.pack(layout, value))[0]
    return found


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _entry(key: str, kind: str, value: Scalar) -> bytes:
    if kind == "string":
        return _text(key) + struct.pack("<I", STRING) + _text(str(value))
    code, layout = _CODES[kind]
    return _text(key) + struct.pack("<I", code) + struct.pack(layout, value)


def _row(tensor: Tensor) -> bytes:
    sizes = struct.pack(f"<I{len(tensor.shape)}Q", len(tensor.shape), *tensor.shape)
    return _text(tensor.name) + sizes + struct.pack("<IQ", tensor.type.code, tensor.offset)
