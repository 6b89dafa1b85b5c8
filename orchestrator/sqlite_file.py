"""A store that is an SQLite file: where it is, whether it can be read, its revision, its errors in plain words.

Standard library only: looking at a store costs no SQLAlchemy.
"""

import os
import re
import sqlite3
import stat
import time
from pathlib import Path

from orchestrator import revision
from orchestrator.revision import Revisions
from schema.errors import StoreError, StoreUnavailableError
from schema.revisions import REVISIONS

BUSY_SECONDS = 30.0
NETWORK_DISKS = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "fuse.glusterfs", "lustre")

_ELSEWHERE = "TOKFLEET_DB names another file for it."
_WORDS = {
    "SQLITE_BUSY": f"another program has held its lock for over {BUSY_SECONDS:.0f} s. Try again when that is done.",
    "SQLITE_LOCKED": "another program holds its lock. Try again when that is done.",
    "SQLITE_FULL": f"the disk is full. Make room; {_ELSEWHERE}",
    "SQLITE_IOERR": f"the disk failed to read or write. Look at the disk's room and health; {_ELSEWHERE}",
    "SQLITE_READONLY": f"it may not be written by this user. Change its permissions and its directory's; {_ELSEWHERE}",
    "SQLITE_CANTOPEN": f"it or its directory cannot be opened by this user. Change the permissions; {_ELSEWHERE}",
    "SQLITE_PERM": f"it may not be opened by this user. Change its permissions; {_ELSEWHERE}",
    "SQLITE_NOTADB": f"it is not an SQLite database. {_ELSEWHERE}",
    "SQLITE_CORRUPT": "it is damaged. Restore a backup; those of `tokfleet db upgrade` lie beside it.",
    "SQLITE_PROTOCOL": "its lock cannot be had. Try again.",
}


def sqlite_path(url: str) -> Path:
    """Return the absolute path of the file that `url` names: `sqlite:///FILE`, or a plain path.

    Raises StoreError for another kind of database, and for one in memory, which would be lost.
    """
    scheme, found, rest = url.partition("://")
    if found and not scheme.startswith("sqlite"):
        raise StoreError(f"The store {scheme}://… is not one that this version knows. Give the path of an SQLite file.")
    name = rest.removeprefix("/") if found else url
    if not name or name == ":memory:":
        raise StoreError(f"The store {url!r} names no file. Give the path of an SQLite file, as in sqlite:///runs.db.")
    return Path(name).expanduser().absolute()


def store_error(path: Path, error: sqlite3.Error) -> StoreError:
    """Return `error` of the database at `path` in plain words.

    It is a StoreUnavailableError where the trouble is the database's, not that of the rows.
    """
    name = "_".join(str(getattr(error, "sqlite_errorname", "")).split("_")[:2])
    if name == "SQLITE_CANTOPEN" and not path.exists():
        return gone(path)
    if name in _WORDS:
        return StoreUnavailableError(f"The database {path} cannot be used: {_WORDS[name]}")
    if str(error).startswith("no such "):
        return StoreError(f"The database {path} is not whole: {error}. `tokfleet db upgrade` makes its views anew.")
    return StoreError(f"The database {path} refused what was to be written: {error}.")


def gone(path: Path) -> StoreUnavailableError:
    """Return the error of a store whose file was taken away while it was open."""
    return StoreUnavailableError(f"The database {path} is no longer there. Put it back: what was measured is kept.")


def check_file(path: Path) -> None:
    """Raise StoreError unless `path` is a file that can be read and is not empty."""
    if not _is_there(path):
        raise StoreError(f"No run was stored yet at {path}. `tokfleet run SWEEP.yaml` stores one there; {_ELSEWHERE}")
    if not os.access(path, os.R_OK):
        raise StoreError(f"The database {path} may not be read by this user. Change its permissions; {_ELSEWHERE}")


def check_place(path: Path) -> None:
    """Make the directory of `path` if it is missing; raise StoreError where no store can be."""
    _is_there(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"The directory {path.parent} cannot be made: {error.strerror}. {_ELSEWHERE}") from None
    disk = network_disk(path.parent)
    if disk:
        raise StoreError(f"The database {path} would lie on a network disk ({disk}), where SQLite loses data. "
                         "Set TOKFLEET_DB to a file on a disk of this machine.")  # fmt: skip


def network_disk(directory: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """Return the file system's type (`nfs4`, …) where `directory` lies on a network disk, else None."""
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return None
    where = directory.resolve()
    best, kind = -1, ""
    for fields in (line.split(" ") for line in lines):
        if len(fields) < 3:
            continue
        point = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[1])
        if where.is_relative_to(point) and len(point) >= best:
            best, kind = len(point), fields[2]
    return kind if kind in NETWORK_DISKS else None


def open_reader(path: Path) -> sqlite3.Connection:
    """Return a connection that cannot write to the file at `path`, whoever uses it.

    SQLite may lay its own empty `-wal` and `-shm` files beside a store that it reads. Where it can't,
    because the directory is not ours, and nobody writes, the file is read as one that never changes.
    """
    uri = f"{path.as_uri()}?mode=ro"
    if not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists():
        uri += "&immutable=1"
    return sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def open_writer(path: Path, *, create: bool = False) -> sqlite3.Connection:
    """Return a connection whose commits are on the disk when they return; transactions are the caller's own.

    It keeps a write-ahead log, so that readers and the writer do not wait for each other.
    """
    uri = f"{path.as_uri()}?mode={'rwc' if create else 'rw'}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        mode = _write_ahead(connection)
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        connection.close()
        raise
    if mode != "wal":
        connection.close()
        raise StoreUnavailableError(
            f"The database {path} cannot keep a write-ahead log (its journal mode is {mode!r}), as on a network disk. "
            "Set TOKFLEET_DB to a file on a disk of this machine."
        )
    return connection


def revisions(connection: sqlite3.Connection) -> Revisions:
    """Return the rows of the version table, () where tables lack one, None where there is no table at all."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "alembic_version" in tables:
        return tuple(str(row[0]) for row in connection.execute("SELECT version_num FROM alembic_version"))
    return () if tables else None


def check_revision(path: Path, connection: sqlite3.Connection, known: tuple[str, ...] = REVISIONS) -> None:
    """Raise SchemaMismatchError unless the store has the newest revision that is `known`; StoreError if it is none."""
    revision.check_revision(str(path), revisions(connection), lambda: made_by(connection), known)


def made_by(connection: sqlite3.Connection) -> str | None:
    """Return which tokfleet made or last upgraded the store, None where it does not say so."""
    try:
        row = connection.execute("SELECT tokfleet_version FROM schema_info").fetchone()
    except sqlite3.Error:
        return None
    return str(row[0]) if row else None


def check_store(path: Path) -> None:
    """Raise StoreError in plain words unless `path` is a store that this code can read."""
    check_file(path)
    try:
        connection = open_reader(path)
        try:
            check_revision(path, connection)
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise store_error(path, error) from error


def is_empty(path: Path) -> bool:
    """Return whether `path` is still to become a store: no file, or a database without tables."""
    if not _is_there(path):
        return True
    try:
        connection = open_reader(path)
        try:
            return revisions(connection) is None
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise store_error(path, error) from error


def _write_ahead(connection: sqlite3.Connection) -> str:
    """Switch to the write-ahead log. SQLite does not wait for a lock here, so the waiting is ours."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _is_there(path: Path) -> bool:
    """Return whether a file with content is at `path`; raise StoreError where something else is."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreError(f"The database {path} cannot be looked at: {error.strerror}. {_ELSEWHERE}") from None
    if stat.S_ISDIR(found.st_mode):
        raise StoreError(f"The database {path} is a directory. Set TOKFLEET_DB to a file, such as {path / 'runs.db'}.")
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"The database {path} is not a regular file. {_ELSEWHERE}")
    return found.st_size > 0
