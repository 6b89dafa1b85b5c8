"""Files of lines of JSON that tokfleet itself wrote, read line by line within bounds; plain or compressed by gzip."""

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from orchestrator.tables import escape
from schema.errors import StoreError

MOST_BYTES = 64 << 20
"""Of one line."""

GZIP = b"\x1f\x8b"


class OwnLines:
    """The lines of one file, in order, with a hash of what was read before the last of them."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self.number = 0
        self._file = file
        self._whole, self._last = sha256(), b""

    @property
    def sha256_before(self) -> str:
        """The SHA-256 of all lines before the one that was read last."""
        return self._whole.hexdigest()

    def next(self) -> Any:
        """Return what the next line holds; raises StoreError where there is none, or it is no JSON."""
        self._whole.update(self._last)
        self.number += 1
        try:
            self._last = self._file.readline(MOST_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise self.refuse(f"it cannot be read on ({error})") from error
        if not self._last.endswith(b"\n"):
            raise self.refuse("it is cut short" if len(self._last) <= MOST_BYTES else "the line is too long")
        try:
            return json.loads(self._last, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise self.refuse("the line is no JSON") from error

    def texts(self) -> Iterator[bytes]:
        """Yield the lines as they stand, up to the last that has an end; what a cut left of another is passed over."""
        while True:
            try:
                text = self._file.readline(MOST_BYTES + 1)
            except (OSError, EOFError, zlib.error):
                return
            if not text.endswith(b"\n"):
                return
            yield text

    @property
    def over(self) -> bool:
        """Whether nothing comes after the line that was read last."""
        return not self._file.read(1)

    def refuse(self, why: str) -> StoreError:
        """Return the error that says why the file is not taken, with its line."""
        return StoreError(f"{escape(str(self.path))}, line {self.number}: {escape(why)}. Nothing of it was stored.")


@contextmanager
def read_own(path: Path) -> Iterator[OwnLines]:
    """Give the lines of the file; raises StoreError where it cannot be opened."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == GZIP
            raw.seek(0)
            if packed:
                with gzip.GzipFile(fileobj=raw, mode="rb") as unpacked:
                    yield OwnLines(path, unpacked)  # type: ignore[arg-type]
            else:
                yield OwnLines(path, raw)
    except OSError as error:
        raise StoreError(f"{escape(str(path))} cannot be read: {error.strerror or error}.") from error


def own_mark(path: Path, marks: tuple[str, ...]) -> str | None:
    """Return which of `marks` is a key of the first line, None where the file is none of tokfleet's own."""
    try:
        with read_own(path) as lines:
            first = lines.next()
    except StoreError:
        return None
    return next((mark for mark in marks if isinstance(first, dict) and mark in first), None)


def _refuse_constant(text: str) -> float:
    raise ValueError(text)
