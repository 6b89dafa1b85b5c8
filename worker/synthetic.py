"""Synthetic models: a real architecture and quantisation mix, random weights, the same bytes everywhere."""

from dataclasses import dataclass
from pathlib import Path

from worker import architecture, recipe
from worker.gguf import DEFAULT_ALIGNMENT, Header, Tensor
from worker.gguf_writer import Entry, header_bytes, lay_out, stored
from worker.quantisation import FILE_TYPES, tensor_types
from worker.recipe import Progress, Recipe
from worker.shapes import QUANTISATIONS, SHAPES, Shape, find_quantisation, find_shape

GENERATOR_VERSION = 1
"""Part of a model's identity; it goes up whenever one byte of any synthetic model changes."""

IDENTITY_KEY = "tokfleet.synthetic.identity"
"""The metadata key under which a synthetic model keeps its identity."""


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
    made = recipe_of(model)
    return Header(
        version=3,
        metadata={key: stored(kind, value) for key, kind, value in metadata(model)},
        tensors=made.tensors,
        data_offset=len(made.head),
        file_bytes=made.file_bytes,
    )


def recipe_of(model: Synthetic) -> Recipe:
    """Return all that determines the model's bytes."""
    tensors = _tensors(model)
    return Recipe(
        spec=model.spec,
        filename=model.filename,
        identity=model.identity,
        head=header_bytes(metadata(model), tensors),
        tensors=tensors,
        alignment=DEFAULT_ALIGNMENT,
        rope_factors=model.shape.rope_factors,
    )


def build(model: Synthetic, directory: Path, progress: Progress) -> tuple[Path, str]:
    """Write the model into `directory` and return its path and SHA-256; see `worker.recipe.build`."""
    return recipe.build(recipe_of(model), directory, progress)


def _tensors(model: Synthetic) -> tuple[Tensor, ...]:
    named = architecture.tensors(model.shape)
    types = tensor_types(named, model.quantisation, model.shape.n_head // model.shape.n_head_kv)
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
        (IDENTITY_KEY, "string", model.identity),
        *architecture.metadata(model.shape),
    ]
