"""Files and folders of llama-bench's output: what there is to read, and what one file holds."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.interchange.bench_file import read_text
from orchestrator.interchange.file_text import HEAD, SQLITE, decode
from orchestrator.interchange.found import Found, Refusal

MOST_BYTES = 64 << 20
MOST_TAGS = 32
TAG_CHARACTERS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file to read, and the directory in which it was found; None for a file that somebody named."""

    path: Path
    folder: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a file holds, and which file that was: the SHA-256 and the number of its bytes."""

    found: Found
    sha256: str = ""
    n_bytes: int = 0


def sources(paths: Sequence[Path]) -> list[Source]:
    """Return the files in `paths`, and in the directories among them, each once, those of a directory by name.

    Hidden files and directories are left out; links to directories are not followed, so no circle is.
    """
    listed: dict[Path, Source] = {}
    for path in paths:
        inside = _inside(path) if path.is_dir() else [Source(path=path)]
        for source in inside:
            listed.setdefault(source.path, source)
    return list(listed.values())


def _inside(folder: Path) -> Iterator[Source]:
    closed: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=lambda error: closed.append(Path(error.filename))):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if not name.startswith("."):
                yield Source(path=Path(root, name), folder=folder)
    for path in closed:
        yield Source(path=path)


def read_source(path: Path, *, salvage: bool = False) -> Content:
    """Return what the file at `path` holds; where it cannot be read, is too large or no plain file, a refusal."""
    name = str(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return _refused(name, "it is no plain file")
        with path.open("rb") as file:
            raw = file.read(HEAD)
            if not raw.startswith(SQLITE) and decode(raw) is None:
                return Content(found=Found(name=name, notes=("it is not text",)))
            if status.st_size > MOST_BYTES:
                return _refused(name, f"it has {status.st_size >> 20} MiB, more than {MOST_BYTES >> 20}")
            raw += file.read(MOST_BYTES - len(raw))
        log = path.with_name(path.name + "-wal")
        behind = raw.startswith(SQLITE) and log.exists() and log.stat().st_size > 0
    except OSError as error:
        return _refused(name, f"it cannot be read: {error.strerror or error}")
    content = read_bytes(raw, name, salvage=salvage)
    note = f"{log.name} lies beside it, with rows that are not in it yet: end the program that writes it"
    found = content.found
    return replace(content, found=replace(found, incomplete=True, notes=(*found.notes, note))) if behind else content


def read_bytes(raw: bytes, name: str, *, salvage: bool = False) -> Content:
    """Return what `raw` holds, of a file or from standard input."""
    if len(raw) > MOST_BYTES:
        return _refused(name, f"it has more than {MOST_BYTES >> 20} MiB")
    found = read_text(raw, name, salvage=salvage)
    return Content(found=found, sha256=hashlib.sha256(raw).hexdigest(), n_bytes=len(raw))


def _refused(name: str, reason: str) -> Content:
    return Content(found=Found(name=name, refusals=(Refusal(line=0, reason=reason),), n_refused=1))


def tags_from_name(path: Path, folder: Path | None = None) -> dict[str, str]:
    """Return the words of a file's name, and of the directories from `folder` down to it, as tags.

    Words are parted by blanks, commas and underscores; of `key=value` the value is the tag's, of any other word
    it is `yes`. A word with dashes stays one.
    """
    inside = path.relative_to(folder) if folder and path.is_relative_to(folder) else Path(path.name)
    words = [word for part in inside.with_suffix("").parts for word in re.split(r"[\s,_]+", part)]
    pairs = [word.partition("=")[::2] for word in words if word.strip(".-+=")]
    tags = {key[:TAG_CHARACTERS]: value[:TAG_CHARACTERS] or "yes" for key, value in pairs if key}
    return dict([*tags.items()][:MOST_TAGS])
