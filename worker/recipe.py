"""All that determines the bytes of a synthetic model, and how they get onto the disk."""

import contextlib
import hashlib
import importlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from glob import escape as glob_escape
from io import FileIO
from pathlib import Path
from types import ModuleType

from schema.errors import ModelError
from worker.gguf import Tensor
from worker.gguf_writer import padded

ABANDONED_AFTER_SECONDS = 3600
"""A builder writes all the time, so a temporary file untouched for so long was left by one that was killed."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A synthetic model before it is built: what stands in front of its data, and the tensors in their order.

    `spec` is what it is called in messages, `identity` what determines its bytes (and names its random
    numbers), `rope_factors` what `rope_freqs.weight` holds.
    """

    spec: str
    filename: str
    identity: str
    head: bytes
    tensors: tuple[Tensor, ...]
    alignment: int
    rope_factors: tuple[float, ...] = ()

    @property
    def file_bytes(self) -> int:
        """The size of the file, in bytes."""
        return len(self.head) + sum(padded(tensor.n_bytes, self.alignment) for tensor in self.tensors)


def build(recipe: Recipe, directory: Path, progress: Progress) -> tuple[Path, str]:
    """Write the model into `directory` and return its path and SHA-256.

    The file appears whole or not at all: it is written under another name, synced and renamed, so
    several processes may build the same one at once. Raises ModelError where the disk is full or
    refuses, and leaves nothing behind.
    """
    target = directory / recipe.filename
    _remove_abandoned(target)
    temporary = directory / f".{recipe.filename}.{os.getpid()}.{os.urandom(4).hex()}.tmp"
    try:
        sha256 = _write(recipe, temporary, progress)
        temporary.replace(target)
        _sync_directory(directory)
    except OSError as error:
        raise ModelError(
            f"The synthetic model {recipe.spec} could not be written to {directory}: {error.strerror or error}. "
            f"It needs {recipe.file_bytes / 1e6:.0f} MB; make room or set TOKFLEET_HOME to another directory."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    return target, sha256


def _write(recipe: Recipe, path: Path, progress: Progress) -> str:
    """Write the model and return its SHA-256, hashing each piece on a thread while the next one is made."""
    total = recipe.file_bytes
    digest = hashlib.sha256()
    with path.open("xb", buffering=0) as file, ThreadPoolExecutor(1) as hasher:
        hashed: Future[None] | None = None
        for piece in _pieces(recipe):
            if hashed:
                hashed.result()
            hashed = hasher.submit(digest.update, piece)
            _write_whole(file, piece)
            progress("build", file.tell() / total)
        os.fsync(file.fileno())
    return digest.hexdigest()


def noise() -> ModuleType:
    """Return `worker.noise`; ModelError where there is no numpy, as on a host that measures files alone."""
    try:
        return importlib.import_module("worker.noise")
    except ImportError as error:
        raise ModelError(f"A synthetic model is made with numpy, which cannot be used here: {error}.") from error


def _write_whole(file: FileIO, piece: bytes | memoryview) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[file.write(rest) :]


def _pieces(recipe: Recipe) -> Iterator[bytes | memoryview]:
    tensor_data = noise().tensor_data
    yield recipe.head
    for tensor in recipe.tensors:
        for data in tensor_data(tensor, recipe.identity, recipe.rope_factors):
            yield data.data
        if padding := padded(tensor.n_bytes, recipe.alignment) - tensor.n_bytes:
            yield bytes(padding)


def _remove_abandoned(target: Path) -> None:
    for path in target.parent.glob(f".{glob_escape(target.name)}.*.tmp"):
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
