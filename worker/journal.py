"""What this host has measured and nobody has yet taken over: one fsynced file of JSON lines per group."""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from schema.canonical import to_json
from schema.errors import HostError

Event = dict[str, Any]
REVOKED = ".revoked"
REVOKED_SECONDS = 3 * 24 * 3600.0
"""Longer than any group waits for its host."""


class Journal:
    """The journal of one living group; a lock on the file says that it lives."""

    def __init__(self, home: Path, group_uid: str) -> None:
        """Open a new journal; raises HostError when it cannot be written."""
        directory = journal_directory(home)
        path = directory / f"{group_uid}.jsonl"
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a+b", buffering=0)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            _fsync_directory(directory)
        except OSError as error:
            raise HostError(
                f"The journal {path} cannot be written: {error.strerror}. Set TOKFLEET_HOME to a directory that can be."
            ) from error

    def write(self, event: Event) -> None:
        """Append `event`; durable when this returns. Raises HostError when the disk is full."""
        try:
            self._file.write(to_json(event).encode() + b"\n")
            os.fsync(self._file.fileno())
        except OSError as error:
            raise HostError(f"The journal cannot be written: {error.strerror}.") from error

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def journal_directory(home: Path) -> Path:
    """Return where a host with this home keeps its journals."""
    return home / "journal"


def abandoned(home: Path) -> Iterator[tuple[Path, list[Event]]]:
    """Yield each journal whose group no longer lives, with its events; a half-written last line is left out.

    The journal stays locked while the caller works on it, so that two callers never take the same one.
    """
    for path in sorted(journal_directory(home).glob("*.jsonl")):
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield path, list(_events(file.read()))


def lives(home: Path, group_uid: str) -> bool:
    """Return whether a process of this host still writes the journal of `group_uid`."""
    try:
        with (journal_directory(home) / f"{group_uid}.jsonl").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def revoke(home: Path, group_uid: str) -> None:
    """Note that the group is not to begin here any more: whoever sent it has given it up."""
    directory = journal_directory(home)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{group_uid}{REVOKED}").touch()


def is_revoked(home: Path, group_uid: str) -> bool:
    """Return whether the group was given up before it began."""
    return (journal_directory(home) / f"{group_uid}{REVOKED}").exists()


def forget_revoked(home: Path) -> None:
    """Remove notes of groups that nobody can still mean to begin."""
    for path in journal_directory(home).glob(f"*{REVOKED}"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > REVOKED_SECONDS:
                path.unlink()


def append(path: Path, event: Event) -> None:
    """Add `event` to an abandoned journal; durable when this returns."""
    with path.open("rb+", buffering=0) as file:
        content = file.read()
        file.seek(content.rfind(b"\n") + 1)
        file.truncate()
        file.write(to_json(event).encode() + b"\n")
        os.fsync(file.fileno())


def _events(content: bytes) -> Iterator[Event]:
    for line in content.split(b"\n")[:-1]:
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
