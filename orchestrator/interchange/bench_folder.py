"""Files and folders of llama-bench's output: what each holds, and which results lie there more than once."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.interchange.bench_file import read_text
from orchestrator.interchange.file_text import SQLITE
from orchestrator.interchange.found import Found, Refusal, Row, likely_same

MOST_BYTES = 64 << 20
RICHEST = ("json", "jsonl", "batched-bench", "csv", "sql", "sqlite", "md")
"""Forms of a result, the one that keeps most of it first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scanned:
    """A file of a folder: what it holds, which of its rows no other file of the folder has, which may be doubles.

    `likely` pairs a row kept without its time with one of another file that may be the same result; such a row is
    not among `fresh`.
    """

    path: Path
    found: Found
    fresh: tuple[Row, ...] = ()
    known: int = 0
    likely: tuple[tuple[Row, Row], ...] = ()


def scan(paths: Sequence[Path], *, salvage: bool = False) -> list[Scanned]:
    """Return what each file in `paths`, and in the directories among them, holds, in the order of their names.

    A file that cannot be read, is too large or is no plain file is a refusal. Of a result that lies there in several
    forms, the one with the most in it is fresh, the others are known.
    """
    files = [(path, _read(path, salvage)) for path in _files(paths)]
    ranked = sorted(range(len(files)), key=lambda at: (_rank(files[at][1]), at))
    taken: dict[str, Row] = {}
    printed: dict[str, list[Row]] = {}
    done = {at: _told_apart(*files[at], taken, printed) for at in ranked}
    return [done[at] for at in range(len(files))]


def _rank(found: Found) -> int:
    return max((RICHEST.index(form) for form in found.formats), default=len(RICHEST))


def _told_apart(path: Path, found: Found, taken: dict[str, Row], printed: dict[str, list[Row]]) -> Scanned:
    fresh, likely, known = [], [], 0
    for row in found.rows:
        if row.import_key in taken:
            known += 1
            continue
        twin = next((other for other in printed.get(row.printed_key, ()) if likely_same(row, other)), None)
        if twin is not None:
            likely.append((row, twin))
        else:
            fresh.append(row)
    for row in fresh:
        taken[row.import_key] = row
        printed.setdefault(row.printed_key, []).append(row)
    return Scanned(path=path, found=found, fresh=tuple(fresh), known=known, likely=tuple(likely))


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield each file once; links to directories are not followed, so no circle is."""
    seen = set()
    for path in paths:
        inside = _inside(path) if path.is_dir() else [path]
        for file in inside:
            if file not in seen:
                seen.add(file)
                yield file


def _inside(folder: Path) -> list[Path]:
    found = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(root, name) for name in sorted(names) if not name.startswith(".")]
    return found


def _read(path: Path, salvage: bool) -> Found:
    name = str(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return _refused(name, "it is no plain file")
        if status.st_size > MOST_BYTES:
            return _refused(name, f"it has {status.st_size >> 20} MiB, more than {MOST_BYTES >> 20}")
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
        log = path.with_name(path.name + "-wal")
        behind = raw.startswith(SQLITE) and log.exists() and log.stat().st_size > 0
    except OSError as error:
        return _refused(name, f"it cannot be read: {error.strerror or error}")
    found = read_text(raw[:MOST_BYTES], name, salvage=salvage)
    note = f"{log.name} lies beside it, with rows that are not in it yet: end the program that writes it"
    return replace(found, incomplete=True, notes=(*found.notes, note)) if behind else found


def _refused(name: str, reason: str) -> Found:
    return Found(name=name, refusals=(Refusal(line=0, reason=reason),), n_refused=1)


def tags_from_name(path: Path, folder: Path | None = None) -> tuple[str, ...]:
    """Return the words of a file's name, and of the directories from `folder` down to it, as tags, each once.

    Words are parted by blanks, commas and underscores; `key=value` stays one, and so does a word with dashes.
    """
    inside = path.relative_to(folder) if folder and path.is_relative_to(folder) else Path(path.name)
    words = [word for part in inside.with_suffix("").parts for word in re.split(r"[\s,_]+", part)]
    return tuple(dict.fromkeys(word[:100] for word in words if word.strip(".-+")))
