"""The tensor data that a GGUF header speaks of: is it all there, and of types that are known here (stdlib only)."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from schema.errors import ModelError
from schema.problem import show
from worker.ggml import REMOVED

if TYPE_CHECKING:
    from worker.gguf import Header


def refuse_unknown_types(path: Path, header: "Header") -> None:
    """Raise ModelError where a tensor has a type that is not in `worker.ggml`."""
    tensor = next((tensor for tensor in header.tensors if tensor.type.is_unknown), None)
    if tensor is None:
        return
    if tensor.type.code in REMOVED:
        raise ModelError(
            f"{path}: tensor {show(tensor.name)} has the type {tensor.type.name}, which llama.cpp no longer loads. "
            "Download the model quantised otherwise; Q4_0 replaces the types packed for ARM."
        )
    raise ModelError(
        f"{path}: tensor {show(tensor.name)} has the unknown type {tensor.type.code}. "
        "Use a newer tokfleet, or a model quantised otherwise."
    )


def with_sizes(header: "Header") -> "Header":
    """Return the header with the size of what has a type not known here: all up to the next tensor, or to the end."""
    if not any(tensor.type.is_unknown for tensor in header.tensors):
        return header
    starts = sorted({*(tensor.offset for tensor in header.tensors), header.file_bytes - header.data_offset})
    after = dict(itertools.pairwise(starts))
    sized = (
        replace(tensor, stored_bytes=max(0, after.get(tensor.offset, tensor.offset) - tensor.offset))
        for tensor in header.tensors
    )
    return replace(header, tensors=tuple(sized))


def check_data(path: Path, header: "Header") -> None:
    """Raise ModelError where the file ends before the data that its header speaks of."""
    last = max(header.tensors, key=lambda tensor: tensor.offset + tensor.n_bytes, default=None)
    if last is None:
        return
    end = header.data_offset + last.offset + last.n_bytes
    if end <= header.file_bytes:
        return
    packed = sum(tensor.n_bytes for tensor in header.tensors) + header.alignment * len(header.tensors)
    if header.file_bytes <= header.data_offset and last.offset < packed:
        raise ModelError(
            f"{path} holds a header only, without weights: the file is {header.file_bytes} bytes, needs {end}. "
            f"Download it again, or make a model of that shape with `tokfleet model synth --like {path}`."
        )
    raise ModelError(
        f"{path} is not complete: the file is {header.file_bytes} bytes, needs {end} "
        f"(for tensor {last.name!r}). Download or copy it again."
    )
