"""Synthetic models: a real architecture and quantisation mix, random weights, the same bytes everywhere."""

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from schema.errors import ModelError
from worker import architecture
from worker.gguf import Header, Tensor
from worker.gguf_writer import Entry, header_bytes, lay_out, padded, stored
from worker.noise import tensor_data
from worker.quantisation import FILE_TYPES, tensor_types
from worker.shapes import QUANTISATIONS, SHAPES, Shape, find_quantisation, find_shape

GENERATOR_VERSION = 1
"""Part of a model's identity; it goes up whenever one byte of any synthetic model changes."""

ABANDONED_AFTER_SECONDS = 3600
"""A builder writes all the time, so a temporary file untouched for so long was left by one that was killed."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """A synthetic model before it is built."""

    shape: Shape
    quantisation: str
    seed: int = 0

    @property
    def spec(self) -> str:
        """The model as a sweep file names it."""
        return f"{self.shape.name}:{self.quantisation}"

    @property
    def identity(self) -> str:
        """What determines the bytes: shape, quantisation, seed and generator version."""
        return f"synthetic:{self.spec}:{self.seed}:v{GENERATOR_VERSION}"

    @property
    def filename(self) -> str:
        """The name of the file that holds it."""
        return f"{self.shape.name}-{self.quantisation}-seed{self.seed}-v{GENERATOR_VERSION}.gguf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One synthetic model that can be made, for a list of them."""

    spec: str
    filename: str
    title: str
    published: bool
    n_params: int
    file_bytes: int


def listing() -> tuple[Listed, ...]:
    """Return every synthetic model that can be made, with the size of its file in bytes."""
    return tuple(
        _listed(Synthetic(shape=shape, quantisation=quantisation)) for shape in SHAPES for quantisation in QUANTISATIONS
    )


def _listed(model: Synthetic) -> Listed:
    whole = header(model)
    return Listed(
        spec=model.spec,
        filename=model.filename,
        title=model.shape.title,
        published=model.shape.published,
        n_params=sum(tensor.n_weights for tensor in whole.tensors),
        file_bytes=whole.file_bytes,
    )


def parse(spec: str) -> Synthetic:
    """Return the model that `shape` or `shape:QUANTISATION` names; raises ModelError with the nearest names."""
    name, _, quantisation = spec.partition(":")
    return Synthetic(shape=find_shape(name), quantisation=find_quantisation(quantisation or QUANTISATIONS[0]))


def header(model: Synthetic) -> Header:
    """Return the header that the built file has, without building it."""
    tensors = _tensors(model)
    entries = metadata(model)
    data_offset = len(header_bytes(entries, tensors))
    return Header(
        version=3,
        metadata={key: stored(kind, value) for key, kind, value in entries},
        tensors=tensors,
        data_offset=data_offset,
        file_bytes=data_offset + sum(padded(tensor.n_bytes) for tensor in tensors),
    )


def build(model: Synthetic, directory: Path, progress: Progress) -> tuple[Path, str]:
    """Write the model into `directory` and return its path and SHA-256.

    The file appears whole or not at all: it is written under another name, synced and renamed, so
    several processes may build the same one at once. Raises ModelError where the disk is full or
    refuses, and leaves nothing behind.
    """
    target = directory / model.filename
    _remove_abandoned(target)
    temporary = directory / f".{model.filename}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        sha256 = _write(model, temporary, progress)
        temporary.replace(target)
        _sync_directory(directory)
    except OSError as error:
        raise ModelError(
            f"The synthetic model {model.spec} could not be written to {directory}: {error.strerror or error}. "
            f"It needs {header(model).file_bytes / 1e6:.0f} MB; make room or set TOKFLEET_HOME to another directory."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return target, sha256


def _write(model: Synthetic, path: Path, progress: Progress) -> str:
    """Write the model and return its SHA-256, hashing each piece on a thread while the next one is made."""
    total = header(model).file_bytes
    digest = hashlib.sha256()
    with path.open("xb", buffering=0) as file, ThreadPoolExecutor(1) as hasher:
        hashed: Future[None] | None = None
        for piece in _pieces(model):
            if hashed:
                hashed.result()
            hashed = hasher.submit(digest.update, piece)
            _write_whole(file, piece)
            progress("build", file.tell() / total)
        os.fsync(file.fileno())
    return digest.hexdigest()


def _write_whole(file: FileIO, piece: bytes | memoryview) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]


def _pieces(model: Synthetic) -> Iterator[bytes | memoryview]:
    tensors = _tensors(model)
    yield header_bytes(metadata(model), tensors)
    for tensor in tensors:
        for data in tensor_data(tensor, model.identity, model.shape.rope_factors):
            yield data.data
        if padding := padded(tensor.n_bytes) - tensor.n_bytes:
            yield bytes(padding)


def _tensors(model: Synthetic) -> tuple[Tensor, ...]:
    named = architecture.tensors(model.shape)
    types = tensor_types(named, model.quantisation)
    return lay_out((name, shape, kind) for (name, shape), kind in zip(named, types, strict=True))


def metadata(model: Synthetic) -> list[Entry]:
    """Return the metadata as it is written, each key with its value type."""
    return [
        ("general.architecture", "string", model.shape.architecture),
        ("general.type", "string", "model"),
        ("general.name", "string", f"Synthetic {model.shape.title}"),
        ("general.description", "string", "Random weights made by tokfleet to measure speed; it says nothing."),
        ("general.quantization_version", "u32", 2),
        ("general.file_type", "u32", FILE_TYPES[model.quantisation]),
        ("tokfleet.synthetic.identity", "string", model.identity),
        *architecture.metadata(model.shape),
    ]


def _remove_abandoned(target: Path) -> None:
    for path in target.parent.glob(f".{target.name}.*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > ABANDONED_AFTER_SECONDS:
                path.unlink()


def _sync_directory(directory: Path) -> None:
    # Windows cannot open a directory; there the rename alone has to do.
    with contextlib.suppress(PermissionError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
