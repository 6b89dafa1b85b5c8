"""A model found on this host by its content, wherever it lies and whatever it is called.

Two files are the same model only where their SHA-256 says so, or where both are one file that two hosts see. A quick
digest (size, first and last MiB) tells files apart, never that they are the same: equal headers have different weights.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from schema.errors import ModelError
from worker import hub
from worker.digests import cached_sha256, content_sha256, joined, quick_digest, remember
from worker.models import HASHED_AT_ONCE_BYTES
from worker.same_file import place_of
from worker.split import parts_of

MAX_FILES = 50_000
MAX_DEPTH = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One file of a model: its name, its size, its quick digest, its SHA-256 where known, and which file it is."""

    name: str
    file_bytes: int
    quick: str
    sha256: str | None = None
    place: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a model is made of: the path of its first file on the host that tells of it, and all its files in order."""

    path: str
    parts: tuple[Part, ...]

    @property
    def file_bytes(self) -> int:
        """Bytes of all files together."""
        return sum(part.file_bytes for part in self.parts)

    @property
    def sha256(self) -> str | None:
        """The digest of the content, as an identity has it; None where that of a part is not known."""
        known = [part.sha256 for part in self.parts if part.sha256 is not None]
        return joined(known) if len(known) == len(self.parts) else None

    @property
    def quick(self) -> str:
        """The quick digest of all files."""
        return joined([part.quick for part in self.parts])

    @property
    def identity(self) -> str:
        """The identity as it is known now."""
        return f"sha256:{self.sha256}" if self.sha256 is not None else f"quick:{self.quick}"

    @property
    def places(self) -> tuple[str, ...] | None:
        """Which files these are; None where that of one cannot be told."""
        known = tuple(part.place for part in self.parts if part.place is not None)
        return known if len(known) == len(self.parts) else None


def content_of(path: Path, home: Path | None) -> Content:
    """Return what the model at `path` (any part of it) is made of, without reading a huge file whole.

    Up to HASHED_AT_ONCE_BYTES it is hashed; above, the SHA-256 is what a cache knows. May raise ModelError.
    """
    files = parts_of(path)
    known = [_known_sha256(file, home) for file in files]
    if None in known and sum(_size(file) for file in files) <= HASHED_AT_ONCE_BYTES:
        known = [content_sha256(file, home) for file in files]
    parts = (
        Part(name=file.name, file_bytes=_size(file), quick=quick_digest(file), sha256=sha256, place=place_of(file))
        for file, sha256 in zip(files, known, strict=True)
    )
    return Content(path=str(files[0]), parts=tuple(parts))


def find(wanted: Content, folders: Iterable[Path], home: Path | None) -> Content | None:
    """Return the model in `folders` (and below) that is, or by all that is known at once may be, `wanted`.

    One that surely is comes first; see `is_same` and `may_be_same` for which it is. None where there is none.
    """
    possible = None
    for path in _candidates(wanted, folders):
        try:
            found = content_of(path, home)
        except ModelError:
            continue
        if is_same(wanted, found):
            return found
        if possible is None and may_be_same(wanted, found):
            possible = found
    return possible


def is_same(one: Content, other: Content) -> bool:
    """Return whether both are surely the same bytes: by SHA-256, else as one file that two hosts see."""
    if one.sha256 is not None and other.sha256 is not None:
        return one.sha256 == other.sha256
    return one.places is not None and one.places == other.places and one.quick == other.quick


def may_be_same(one: Content, other: Content) -> bool:
    """Return whether nothing that is known tells them apart; whether they are the same, only a whole reading tells."""
    told_apart = one.sha256 is not None and other.sha256 is not None and one.sha256 != other.sha256
    return not told_apart and one.quick == other.quick and len(one.parts) == len(other.parts)


def hashed(path: Path, home: Path | None, progress: Callable[[float], None] = lambda _: None) -> Content:
    """Return what the model at `path` is made of after reading all of it, unless a cache knows its SHA-256."""
    files = parts_of(path)
    for number, file in enumerate(files):
        if _known_sha256(file, home) is None:
            content_sha256(file, home, lambda share, number=number: progress((number + share) / len(files)))  # type: ignore[misc]
    return content_of(path, home)


def adopt(path: Path, known: Content, home: Path) -> bool:
    """Take over the SHA-256 that another host found, where `path` leads to the very files it read; tell whether."""
    mine = content_of(path, home)
    if known.sha256 is None or mine.places is None or mine.places != known.places or mine.quick != known.quick:
        return False
    for file, part in zip(parts_of(path), known.parts, strict=True):
        remember(file, str(part.sha256), home)
    return True


def folders_of(models: Iterable[str], home: Path) -> tuple[Path, ...]:
    """Return where a host looks for models: the folders its lab names, tokfleet's own, and the hub's cache."""
    named = [Path(os.path.expanduser(folder)) for folder in models]
    return tuple(dict.fromkeys([*named, home / "models", hub.cache()]))


def _candidates(wanted: Content, folders: Iterable[Path]) -> Iterator[Path]:
    """Yield each GGUF file that is as large as the first one wanted, those of the same name first."""
    first = wanted.parts[0]
    found = {path: None for folder in folders for path in _gguf_files(folder) if _size(path) == first.file_bytes}
    yield from sorted(found, key=lambda path: path.name != first.name)


def _gguf_files(folder: Path) -> Iterator[Path]:
    """Yield the GGUF files in and below `folder`, a bounded number of them; a folder that cannot be read has none."""
    n_files = 0
    for directory, below, names in os.walk(folder):
        if len(Path(directory).relative_to(folder).parts) >= MAX_DEPTH:
            below.clear()
        below[:] = sorted(name for name in below if name != ".git")
        for name in sorted(names):
            n_files += 1
            if n_files > MAX_FILES:
                return
            if name.lower().endswith(".gguf"):
                yield Path(directory) / name


def _known_sha256(path: Path, home: Path | None) -> str | None:
    return hub.sha256_of(path) or cached_sha256(path, home)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
