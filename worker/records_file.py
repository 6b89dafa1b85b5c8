"""The file in which a host collects what it measured for a bundle: appended to, synced, whole up to its last line."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from schema.bundle import MOST_BYTES, RECORDS, Bundle, Line, head, line_text, next_line, parse_line
from schema.errors import HostError, UsageError

START = b'{"sha256":"'
"""How each line begins: its keys are in order."""


class RecordsFile:
    """One file of records, open for one process at a time; a line that a crash cut is taken away when it is opened."""

    def __init__(self, path: Path, bundle: Bundle) -> None:
        """Open the file, or begin it; raises HostError where that cannot be, UsageError where it is another's."""
        self.path = path
        try:
            self._file = path.open("a+b", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise HostError(f"{path} is being written by another process. Wait until it has finished.") from error
        except OSError as error:
            raise HostError(f"{path} cannot be written: {error.strerror}. Name another file with --records.") from error
        self._last: Line | None = None
        self.kept: list[Line] = []
        self._read(bundle)
        if self._last is None:
            self.add(RECORDS, head(bundle))

    def add(self, kind: str, value: Any) -> None:
        """Append a line; it is on the disk when this returns. Raises HostError where the disk is full."""
        line = next_line(self._last, kind, value)
        try:
            self._file.write(line_text(line).encode() + b"\n")
            os.fsync(self._file.fileno())
        except OSError as error:
            raise HostError(f"{self.path} cannot be written on: {error.strerror}.") from error
        self._last = line
        self.kept.append(line)

    def values(self, kind: str) -> Iterator[Any]:
        """Yield what the lines of this kind hold."""
        return (line.value for line in self.kept if line.kind == kind)

    def __enter__(self) -> "RecordsFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _read(self, bundle: Bundle) -> None:
        """Take in the lines that are there, and take a line away that has no end."""
        whole, cut = 0, b""
        self._file.seek(0)
        with os.fdopen(os.dup(self._file.fileno()), "rb") as lines:
            while (text := lines.readline(MOST_BYTES)).endswith(b"\n"):
                line = parse_line(self._last, text)
                if line is None:
                    raise self._strange()
                self._last = line
                self.kept.append(line)
                whole += len(text)
            cut = text
        if self._last is None and not cut.startswith(START[: len(cut)]):
            raise self._strange()
        if self.kept and self.kept[0].value != head(bundle):
            raise UsageError(f"{self.path} holds the records of another bundle. Name another file with --records.")
        self._file.truncate(whole)

    def _strange(self) -> UsageError:
        return UsageError(
            f"{self.path} is no file of a bundle's records, or was changed. Name another file with --records."
        )
