"""Models that stand in several files, and folders with a model in them: which files make one model (stdlib only).

Source of the rules: `llama_split_path` and the loading of splits in src/llama-model-loader.cpp. The
names decide which files belong together, the metadata decides whether there are several at all.
"""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from schema.errors import ModelError
from worker.gguf import Header, read_header

MAX_NAMES = 10_000
MAX_PARTS = 1_000
_PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
BESIDES = re.compile(r"mmproj|imatrix", re.IGNORECASE)
"""Names of what lies beside a model in a folder and is none."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model in their order, and the header of all together.

    Its metadata are the first part's, its tensors those of all parts, each with the offset in its own part.
    """

    parts: tuple[Path, ...]
    header: Header


def read_model(path: Path, *, whole: bool = True, any_type: bool = False) -> ModelFiles:
    """Return the model that the file `path` holds, or the split set that it is a part of.

    Raises ModelError where a part is missing, damaged or of another set, naming it. `whole` False
    takes files whose tensor data is missing, too, `any_type` those with tensors of types that are not known here.
    """
    header = read_header(path, whole=whole, any_type=any_type)
    count = header.integer("split.count") or 1
    if count <= 1:
        return ModelFiles((path,), header)
    parts = _names(path, header, count)
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise ModelError(
            f"{path} is one of {count} parts, of which {', '.join(missing[:3])}{more} "
            f"{'is' if len(missing) == 1 else 'are'} missing in {path.parent}. Download all parts into one directory."
        )
    others = {part: read_header(part, whole=whole, any_type=any_type) for part in parts if part != path}
    headers = [others.get(part, header) for part in parts]
    for number, (part, found) in enumerate(zip(parts, headers, strict=True)):
        _check_part(part, found, number, count)
    return ModelFiles(parts, _joined(parts[0], headers))


def parts_of(path: Path) -> tuple[Path, ...]:
    """Return the files of the model that `path` belongs to; the file is read only where its name is a part's."""
    return read_model(path, any_type=True).parts if _PART.fullmatch(path.name) else (path,)


def model_in(directory: Path) -> Path:
    """Return the file of the one model in `directory`, of a split set its first; ModelError says what else is there.

    What is called mmproj or imatrix does not count beside a model.
    """
    names = sorted(name for name in names_in(directory) if name.lower().endswith(".gguf") and name[0] != ".")
    models = {set_of(name): name for name in reversed(names)}
    if len(models) > 1:
        models = {key: name for key, name in models.items() if not BESIDES.search(name)} or models
    if len(models) == 1:
        return directory / next(iter(models.values()))
    if models:
        raise ModelError(
            f"{directory} holds {len(models)} models: {_listed(sorted(models.values()))}. Name one of them."
        )
    there = sorted(names_in(directory))
    raise ModelError(
        f"{directory} is a directory without a GGUF file; it holds {_listed(there) if there else 'nothing'}. "
        "Name a GGUF file, or the directory it is in."
    )


def names_in(directory: Path) -> list[str]:
    """Return the names in `directory`, at most MAX_NAMES; none where it cannot be read."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry, _ in zip(entries, range(MAX_NAMES), strict=False)]
    except OSError:
        return []


def set_of(name: str) -> tuple[str, str]:
    """Return what the names of one model's files have in common."""
    match = _PART.fullmatch(name)
    return (match["stem"], match["count"]) if match else (name, "")


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(names[:6]) + more


def _part_name(stem: str, number: int, count: int) -> str:
    return f"{stem}-{number:05d}-of-{count:05d}.gguf"


def _names(path: Path, header: Header, count: int) -> tuple[Path, ...]:
    number = (header.integer("split.no") or 0) + 1
    if count > MAX_PARTS or not 0 < number <= count:
        raise ModelError(f"{path} is damaged: it says that it is part {number} of {count}. Download it again.")
    match = _PART.fullmatch(path.name)
    if match is None or (int(match["number"]), int(match["count"])) != (number, count):
        raise ModelError(
            f"{path} is part {number} of {count} by its metadata, but not by its name, so llama.cpp cannot find the "
            f"other parts. Give the files their names back: ...-{number:05d}-of-{count:05d}.gguf."
        )
    return tuple(path.with_name(_part_name(match["stem"], part, count)) for part in range(1, count + 1))


def _check_part(part: Path, header: Header, number: int, count: int) -> None:
    found = header.integer("split.no"), header.integer("split.count")
    if found != (number, count):
        raise ModelError(
            f"{part} should be part {number + 1} of {count}, but its metadata says split.no {found[0]} (from 0) "
            f"of {found[1]}. Download all parts again, from one place."
        )


def _joined(path: Path, headers: list[Header]) -> Header:
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    expected = headers[0].integer("split.tensors.count")
    n_names = len({tensor.name for tensor in tensors})
    if n_names < len(tensors) or expected not in (None, n_names):
        raise ModelError(
            f"The {len(headers)} parts of {path} hold {len(tensors)} tensors and should hold {expected}, each once. "
            "Download all parts again, from one place."
        )
    return replace(headers[0], tensors=tensors, file_bytes=sum(header.file_bytes for header in headers))
