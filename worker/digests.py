"""The SHA-256 of files, computed once per content: a small file per path remembers it (stdlib only)."""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from schema.errors import HostError, ModelError
from worker.home import make_writable

PIECE_BYTES = 1 << 20


def content_sha256(path: Path, home: Path | None, progress: Callable[[float], None] = lambda _: None) -> str:
    """Return the SHA-256 of the content of `path`, from the cache in `home` where size and time still agree.

    A cache that cannot be read or written is done without, as is one that is None. Raises ModelError
    where the file cannot be read, or changes while it is.
    """
    path = path.absolute()
    return cached_sha256(path, home) or _compute(path, home, progress)


def cached_sha256(path: Path, home: Path | None) -> str | None:
    """Return the SHA-256 of `path` where the cache knows it for this size and time of change, else None."""
    if home is None:
        return None
    path = path.absolute()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        entry = json.loads(_entry(path, home).read_bytes())
        if [entry["path"], entry["size"], entry["mtime_ns"]] == _stamp(path):
            return str(entry["sha256"])
    return None


def remember(path: Path, sha256: str, home: Path) -> None:
    """Note that `path`, as it is now, has this SHA-256; does nothing where the cache cannot be written."""
    path = path.absolute()
    with contextlib.suppress(OSError, HostError):
        _store(_entry(path, home), _stamp(path), sha256)


def joined(digests: Sequence[str]) -> str:
    """Return the digest of the files of one model: a single file's own; of several, the SHA-256 of theirs in lines."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()


def quick_digest(path: Path) -> str:
    """Return a digest of the size and of the first and last MiB, for files whose whole hash would take long."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.sha256(str(size).encode() + b":" + file.read(PIECE_BYTES))
            file.seek(max(size - PIECE_BYTES, 0))
            digest.update(file.read(PIECE_BYTES))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    return digest.hexdigest()


def _compute(path: Path, home: Path | None, progress: Callable[[float], None]) -> str:
    digest = hashlib.sha256()
    try:
        before = _stamp(path)
        done, size = 0, path.stat().st_size
        with path.open("rb") as file:
            while done < size and (piece := file.read(PIECE_BYTES)):  # a file that grows is not followed
                digest.update(piece)
                done += len(piece)
                progress(min(done / size, 1.0))
        after = _stamp(path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from error
    if before != after:
        raise ModelError(f"{path} changed while it was read. Try again when it is complete.")
    if home is not None:
        with contextlib.suppress(OSError, HostError):
            _store(_entry(path, home), after, digest.hexdigest())
    return digest.hexdigest()


def _stamp(path: Path) -> list[str | int]:
    status = path.stat()
    return [str(path), status.st_size, status.st_mtime_ns]


def _entry(path: Path, home: Path) -> Path:
    return home / "digests" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:32]}.json"


def _store(entry: Path, stamp: list[str | int], sha256: str) -> None:
    """Write one entry under another name and rename it, so that processes never see half of one."""
    make_writable(entry.parent)
    temporary = entry.with_suffix(f".{os.getpid()}.{os.urandom(4).hex()}.tmp")
    path, size, mtime_ns = stamp
    try:
        temporary.write_text(json.dumps({"path": path, "size": size, "mtime_ns": mtime_ns, "sha256": sha256}))
        temporary.replace(entry)
    finally:
        temporary.unlink(missing_ok=True)
