"""What a model file is, from its header alone, for a person who wants to know before anything runs (stdlib only)."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from worker.facts import Facts, sizes
from worker.gguf import Header, Skipped, Tensor, Value
from worker.quantisation import NAMES
from worker.refusal import not_a_model, refusal
from worker.split import read_model

MAX_TEXT = 200
MAX_CLASSES = 60

_LAYER = re.compile(r"^(?:[a-z]+\.)?blk\.\d+\.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorClass:
    """All tensors of one role (`attn_v.weight` of every layer): how many there are of each type, and their bytes."""

    name: str
    types: tuple[tuple[str, int], ...]
    n_bytes: int

    @property
    def text(self) -> str:
        """The types as people read them: `12 Q4_K + 12 Q6_K`."""
        return " + ".join(f"{count} {kind}" for kind, count in self.types)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the header of a model tells; what it does not is None.

    `file_type` is the mix that the file says it is, `classes` what its tensors are. `refused` says why
    llama.cpp cannot run it, `notes` what else is odd; each is the rest of a sentence.
    """

    path: Path
    parts: tuple[Path, ...]
    file_bytes: int
    what: str
    name: str | None
    file_type: str | None
    bits_per_weight: float | None
    sizes: Facts
    classes: tuple[TensorClass, ...]
    tokenizer: str | None
    n_tokens: int | None
    has_chat_template: bool
    refused: str | None
    notes: tuple[str, ...]


def inspect(path: Path) -> Inspection:
    """Return what the model in `path` is, of a split set the whole; only headers are read.

    Raises ModelError where it is no GGUF, or one that is damaged or not complete, and says which.
    """
    files = read_model(path, any_type=True)
    header, found = files.header, sizes(files.header)
    return Inspection(
        path=path,
        parts=files.parts,
        file_bytes=header.file_bytes,
        what=not_a_model(header) or "a language model",
        name=_text(header.metadata.get("general.name")),
        file_type=_file_type(header),
        bits_per_weight=8 * found.weight_bytes / found.n_params if found.n_params else None,
        sizes=found,
        classes=_classes(header.tensors),
        tokenizer=_text(header.metadata.get("tokenizer.ggml.model")),
        n_tokens=_length(header.metadata.get("tokenizer.ggml.tokens")),
        has_chat_template=any(key.startswith("tokenizer.chat_template") for key in header.metadata),
        refused=refusal(header),
        notes=(*_notes_on_parts(path, files.parts), *_notes(header, found)),
    )


def _text(value: Value | None) -> str | None:
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[: MAX_TEXT - 3]}..."
    return None if value is None else f"no text but {str(value)[:60]}"


def _length(value: Value | None) -> int | None:
    if isinstance(value, Skipped):
        return value.count
    return len(value) if isinstance(value, tuple) else None


def _file_type(header: Header) -> str | None:
    """Return the mix by its name; llama.cpp adds 1024 to one that it guessed."""
    value = header.integer("general.file_type")
    return None if value is None else NAMES.get(value & ~1024, f"unknown ({value})")


def _classes(tensors: Iterable[Tensor]) -> tuple[TensorClass, ...]:
    types: dict[str, Counter[str]] = {}
    n_bytes: Counter[str] = Counter()
    for tensor in tensors:
        name = _LAYER.sub("", tensor.name)
        if name not in types and len(types) >= MAX_CLASSES:
            name = "others"
        types.setdefault(name, Counter())[tensor.type.name] += 1
        n_bytes[name] += tensor.n_bytes
    return tuple(
        TensorClass(name=name, types=tuple(sorted(found.items(), key=lambda item: -item[1])), n_bytes=n_bytes[name])
        for name, found in sorted(types.items(), key=lambda item: -n_bytes[item[0]])
    )


def _notes_on_parts(path: Path, parts: tuple[Path, ...]) -> Iterable[str]:
    if path != parts[0]:
        yield f"This is part {parts.index(path) + 1}; llama.cpp loads the model from {parts[0].name}."


def _notes(header: Header, found: Facts) -> Iterable[str]:
    if not_a_model(header):
        return
    if "tokenizer.ggml.model" not in header.metadata:
        yield "There is no tokenizer."
    if found.kv_bytes_per_token is None:
        yield "The size of the KV cache is not known: head counts or sizes are missing, or not numbers."
    if header.tensors and found.architecture:
        yield from _notes_on_experts(header, found)


def _notes_on_experts(header: Header, found: Facts) -> Iterable[str]:
    if found.experts is None:
        return
    if found.experts.share == (1, 1):
        yield "How many experts a token uses is not known, so all are counted as active."
    stored = {tensor.shape[-1] for tensor in header.tensors if "_exps." in tensor.name and len(tensor.shape) > 2}
    if stored and found.experts.count and stored != {found.experts.count}:
        numbers = ", ".join(map(str, sorted(stored)[:3]))
        yield f"The metadata says {found.experts.count} experts, the tensors hold {numbers}."
