"""Synthetic models made after a file's header alone, and that header as a file of its own.

A skeleton holds the metadata, the tokenizer among it, and the table of tensors. It determines
the model: a file, its skeleton and the skeleton of that make the same bytes.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from schema.errors import ModelError
from worker.facts import facts
from worker.gguf import Header, Tensor
from worker.gguf_writer import Entry, header_bytes, lay_out
from worker.recipe import Recipe, noise
from worker.split import read_model
from worker.synthetic import GENERATOR_VERSION, IDENTITY_KEY

PREFIX = "like:"
"""What the spec of such a model begins with; the path follows."""

_LEFT_OUT = (IDENTITY_KEY, "split.no", "split.count", "split.tensors.count")


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The header of a model: its metadata as they stand in the file, entry by entry, and its tensors."""

    path: Path
    header: Header
    entries: tuple[bytes, ...]
    tensors: tuple[Tensor, ...]

    @property
    def data(self) -> bytes:
        """The skeleton as a file; of a file and of its skeleton it is the same."""
        return header_bytes(self.entries, self.tensors, self.header.alignment)


def read_skeleton(path: Path) -> Skeleton:
    """Return the header of the model in `path`, or of the split set it is a part of; its data may be missing.

    Raises ModelError where the file is no GGUF of a language model.
    """
    files = read_model(path, whole=False)
    if strange := facts(files.header, str(path)).unknown:
        raise ModelError(f"{path} {strange}. Use a newer tokfleet, or another model.")
    placed = lay_out(
        ((tensor.name, tensor.shape, tensor.type) for tensor in files.header.tensors), files.header.alignment
    )
    return Skeleton(path, files.header, tuple(_entries(files.parts[0], files.header)), placed)


def recipe_like(path: Path, seed: int = 0) -> Recipe:
    """Return what makes a model with the metadata, shapes and types of the one in `path`, and random weights."""
    skeleton = read_skeleton(path)
    for tensor in skeleton.tensors:
        if not noise().can_be_made(tensor.type.name):
            raise ModelError(
                f"{path}: tensor {tensor.name!r} has the type {tensor.type.name}, which cannot be made here."
            )
    digest = hashlib.sha256(skeleton.data).hexdigest()
    identity = f"synthetic:like:{digest}:{seed}:v{GENERATOR_VERSION}"
    entry: Entry = (IDENTITY_KEY, "string", identity)
    return Recipe(
        spec=f"{PREFIX}{path}",
        filename=f"like-{digest[:16]}-seed{seed}-v{GENERATOR_VERSION}.gguf",
        identity=identity,
        head=header_bytes([*skeleton.entries, entry], skeleton.tensors, skeleton.header.alignment),
        tensors=skeleton.tensors,
        alignment=skeleton.header.alignment,
    )


def _entries(path: Path, header: Header) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            for key, (start, end) in header.spans.items():
                if key not in _LEFT_OUT:
                    file.seek(start)
                    yield file.read(end - start)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
