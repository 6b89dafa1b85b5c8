"""Facts read from files below a root directory, and notes on where each came from or why it is missing."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

MAX_BYTES = 4 << 20
PIECE_BYTES = 1 << 16
MAX_CHARACTERS = 200
MAX_CPUS = 1 << 14
"""More than any kernel can number; a list that goes on is damaged."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What the readers write down beside their facts: `sources` by field, `errors` as sentences."""

    sources: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    def found(self, name: str, source: str) -> None:
        """Note that the field `name` was read from `source`."""
        self.sources[name] = source

    def missing(self, name: str, why: str) -> None:
        """Note that the field `name` could not be had, and why; the same note is kept once."""
        line = f"{name}: {why}"
        if line not in self.errors:
            self.errors.append(line)

    def told(self, name: str, value: T, source: str, otherwise: str) -> T:
        """Return `value`, noting its `source`, or where it is None why the field `name` could not be had."""
        if value is None:
            self.missing(name, otherwise)
        else:
            self.found(name, source)
        return value

    def add(self, other: "Notes") -> None:
        """Take over the notes of `other`."""
        self.sources.update(other.sources)
        self.errors.extend(line for line in other.errors if line not in self.errors)


def is_live(root: Path) -> bool:
    """Return whether `root` is this machine, so that system calls speak of the same thing as the files."""
    return root == Path("/")


def text(path: Path) -> str | None:
    """Return the file's text without blanks and NULs at its ends; None where absent, forbidden or void.

    Bytes that are no UTF-8 are replaced; at most 4 MiB are read.
    """
    try:
        with path.open("rb") as file:
            # /proc/sys answers ENOMEM to one large read, so the file is read in pieces.
            content = b"".join(islice(iter(lambda: file.read(PIECE_BYTES), b""), MAX_BYTES // PIECE_BYTES))
    except (OSError, ValueError):
        return None
    return content.decode("utf-8", "replace").strip("\0 \t\r\n") or None


def line(path: Path) -> str | None:
    """Return the file's text on one line, as `short` cuts it; None where there is none."""
    return short(text(path))


def short(content: str | None) -> str | None:
    """Return what is to be one name or word with single blanks, at most 200 characters of it; None for nothing.

    One odd file must not make a fingerprint that no border lets through.
    """
    return " ".join((content or "").replace("\0", " ").split())[:MAX_CHARACTERS].strip() or None


def number(path: Path) -> int | None:
    """Return the decimal number that is the file's whole text, else None."""
    content = text(path)
    return int(content) if content and re.fullmatch(r"-?\d{1,30}", content) else None


def first_text(paths: Iterable[Path]) -> tuple[str, Path] | None:
    """Return the text of the first of `paths` that has any, and that path."""
    for path in paths:
        content = text(path)
        if content:
            return content, path
    return None


def entries(directory: Path, pattern: str = "*") -> list[Path]:
    """Return the directory's matching entries in order of name; none where it cannot be listed."""
    try:
        return sorted(directory.glob(pattern))
    except OSError:
        return []


def cpu_list(content: str | None) -> frozenset[int]:
    """Return the CPUs (or nodes) of a kernel list such as `0-3,8,10-14:2`; none of them where it is no such list."""
    cpus: set[int] = set()
    for part in (content or "").split(","):
        match = re.fullmatch(r"\s*(\d{1,6})(?:-(\d{1,6})(?::(\d{1,6}))?)?\s*", part)
        if match:
            first, last = int(match[1]), min(int(match[2] or match[1]), MAX_CPUS - 1)
            cpus.update(range(first, last + 1, int(match[3] or 1) or 1))
    return frozenset(cpus)


def cpu_mask(content: str | None) -> frozenset[int]:
    """Return the CPUs of a kernel mask such as `00000000,0000000f`; none of them where it is no such mask."""
    digits = (content or "").replace(",", "")
    if not re.fullmatch(r"[0-9a-fA-F]{1,4096}", digits):
        return frozenset()
    bits = int(digits, 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)
