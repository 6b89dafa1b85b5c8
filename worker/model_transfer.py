"""A model's files taken over from another host in pieces: resumable, and kept only where the SHA-256 is right."""

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from schema.errors import ModelError
from schema.problem import show
from worker.digests import remember
from worker.home import make_writable
from worker.model_search import Content, Part
from worker.split import parts_of

Event = dict[str, Any]

CHUNK_BYTES = 8 << 20
MOST_CHUNK_BYTES = 32 << 20
SPARE_BYTES = 256 << 20
LEAST_SHARE = 0.02
NAME = re.compile(r"[\w][\w.+@=, -]{0,200}\.gguf", re.IGNORECASE | re.ASCII)

Chunk = Callable[[int, int, int], bytes]
"""Returns so many bytes at most of a part (its number from 0), from an offset on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A model as the host `host` has it, every SHA-256 known."""

    host: str
    content: Content


def serve_chunk(source: Content, part: int, offset: int, size: int) -> bytes:
    """Return at most `size` bytes of a part of the model on this host, from `offset` on.

    Raises ModelError where the file is gone or is not as large as it was: then it is not the one that was promised.
    """
    promised = source.parts[part]
    path = parts_of(Path(source.path))[part]
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size != promised.file_bytes:
                raise ModelError(f"{path} changed while it was sent. Plan again.")
            file.seek(offset)
            return file.read(max(0, min(size, MOST_CHUNK_BYTES)))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error


def receive(content: Content, home: Path, chunk: Chunk) -> Iterator[Event]:
    """Fetch the model `content` into `home` piece by piece; yields `stage` events, the last with its `path`.

    What an earlier try has left is gone on from. Raises ModelError where the disk is too small, another process is
    fetching it, or what came is not what was promised.
    """
    names = [_name(part, number, len(content.parts)) for number, part in enumerate(content.parts)]
    directory = make_writable(home / "models" / str(content.sha256)[:16])
    _check_room(content, names, directory)
    done = 0
    for number, (part, name) in enumerate(zip(content.parts, names, strict=True)):
        target = directory / name
        if not _is_whole(target, part):
            for got in _receive_part(part, target, lambda offset, size, number=number: chunk(number, offset, size)):  # type: ignore[misc]
                yield _told((done + got) / content.file_bytes)
            remember(target, str(part.sha256), home)
        done += part.file_bytes
    yield {**_told(1.0), "path": str(directory / names[0])}


def _receive_part(part: Part, target: Path, chunk: Callable[[int, int], bytes]) -> Iterator[int]:
    """Yield the bytes that are here, now and then; the file has its name at the end, and not before."""
    partial = target.with_name(f"{target.name}.part")
    with partial.open("a+b") as file:
        _lock(file, partial)
        digest, done = _begun(file, part)
        resumed = done > 0
        told = done
        while done < part.file_bytes:
            piece = chunk(done, min(CHUNK_BYTES, part.file_bytes - done))
            if not piece:
                raise ModelError(f"{target.name} ended after {done} of {part.file_bytes} bytes. Plan again.")
            file.write(piece)
            digest.update(piece)
            done += len(piece)
            if done - told >= LEAST_SHARE * part.file_bytes:
                told = done
                yield done
        file.flush()
        os.fsync(file.fileno())
        if digest.hexdigest() == part.sha256:
            partial.replace(target)
            return
        file.truncate(0)
    if not resumed:
        raise ModelError(
            f"{target.name} came with another content than its SHA-256 says. Is that host's disk in order?"
        )
    yield from _receive_part(part, target, chunk)  # what was left from before was not of this file


def _begun(file: IO[bytes], part: Part) -> "tuple[hashlib._Hash, int]":
    """Return the digest of what an earlier try has left, and how much that is."""
    digest, done = hashlib.sha256(), 0
    file.seek(0)
    while piece := file.read(1 << 20):
        digest.update(piece)
        done += len(piece)
    if done > part.file_bytes:
        file.truncate(0)
        return hashlib.sha256(), 0
    return digest, done


def _lock(file: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ModelError(f"{path} is being fetched by another process. Wait for that one.") from error


def _check_room(content: Content, names: list[str], directory: Path) -> None:
    missing = 0
    for part, name in zip(content.parts, names, strict=True):
        here = [directory / name, directory / f"{name}.part"]
        missing += part.file_bytes - max([path.stat().st_size for path in here if path.is_file()], default=0)
    free = shutil.disk_usage(directory).free
    if missing + SPARE_BYTES > free:
        raise ModelError(
            f"{names[0]} needs {missing / 1e9:.1f} GB more in {directory}, and {free / 1e9:.1f} GB are free there "
            f"({SPARE_BYTES / 1e9:.1f} GB are left alone). Make room, or set TOKFLEET_HOME to a larger disk."
        )


def _is_whole(target: Path, part: Part) -> bool:
    return target.is_file() and target.stat().st_size == part.file_bytes


def _name(part: Part, number: int, count: int) -> str:
    """Return the file's name, which another host told, where it is harmless; ModelError where it is not."""
    if part.sha256 is None or not NAME.fullmatch(part.name):
        raise ModelError(f"Part {number + 1} of {count}, {show(part.name)}, cannot be fetched: rename it, plainly.")
    return part.name


def _told(share: float) -> Event:
    return {"event": "stage", "stage": "model", "text": "fetch", "fraction": share}
