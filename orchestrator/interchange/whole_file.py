"""Files that are whole or not there: written under another name beside their own, which they take in the end."""

import gzip
import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from schema.errors import UsageError

GZIP = ".gz"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a path to write to; what is there when the block ends well takes the place of `path`, synced to the disk.

    Where the block raises, `path` is left as it was. A link stays one; what is no plain file (a pipe, a device) is
    written as it comes, since nothing may take its place.
    """
    if path.exists() and not path.is_file():
        if path.is_dir():
            raise UsageError(f"{path} is a directory: name a file in it.")
        yield path
        return
    target = path.resolve()
    beside = target.with_name(f".{target.name[:200]}.{uuid.uuid4().hex[:8]}.partial")
    try:
        yield beside
        _sync(beside)
        beside.replace(target)
    finally:
        with suppress(FileNotFoundError):
            beside.unlink()


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write `lines` as UTF-8 to the file, whole or not at all; compressed where its name ends with `.gz`."""
    with whole_file(path) as beside, text_writer(beside, path.name) as file:
        for line in lines:
            file.write(line.encode("utf-8", "backslashreplace") + b"\n")


@contextmanager
def text_writer(path: Path, name: str) -> Iterator[IO[bytes]]:
    """Give `path` open for writing, compressed where `name` ends with `.gz`; the same content is the same file."""
    with path.open("wb") as raw:
        if not name.endswith(GZIP):
            yield raw
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) as packed:
            yield packed  # type: ignore[misc]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
