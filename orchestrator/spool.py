"""What was measured, safe on this machine's disk until the database has it (standard library only).

Delivery is at least once and in order; the store takes the same uid twice as once. One spool file
belongs to one store; several tokfleet processes may share it.
"""

import json
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from orchestrator.sqlite_file import open_writer
from orchestrator.store_url import identity
from schema.canonical import digest
from schema.errors import SchemaMismatchError, StoreError, StoreUnavailableError

BATCH = 50

_TABLE = """CREATE TABLE IF NOT EXISTS outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    uid TEXT NOT NULL,
    payload TEXT NOT NULL,
    error TEXT,
    parked_at TEXT,
    UNIQUE (kind, uid)
)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One thing to be stored: `kind` is `record`, `fingerprint` or `probe`, `payload` parsed JSON."""

    seq: int
    kind: str
    uid: str
    payload: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """An entry that the store refused for good, and why; it stays in the spool."""

    entry: Entry
    error: str
    parked_at: str


Write = Callable[[list[Entry]], object]
"""Stores all entries in one transaction, or raises and stores none."""


def spool_path(home: Path, url: str) -> Path:
    """Return where what is meant for the store at `url` waits: it must never reach another one.

    A new password, or another user of the same PostgreSQL database, finds what waits for it all the same.
    """
    return home / f"spool-{digest(identity(url))[:12]}.sqlite"


class Spool:
    """An outbox on disk; its methods may be called from any thread."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> "Spool":
        """Return the spool at `path`, making file and directory if need be; StoreError where that cannot be."""
        try:
            path = path.absolute()
            path.parent.mkdir(parents=True, exist_ok=True)
            spool = cls(path, open_writer(path, create=True))
            with spool._transaction() as connection:
                connection.execute(_TABLE)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(path, error) from error
        return spool

    def put(self, kind: str, uid: str, payload: dict[str, Any]) -> None:
        """Keep `payload`; when this returns it is on the disk. A uid that is already there is left as it is."""
        row = (kind, uid, json.dumps(payload))
        with self._transaction() as connection:
            connection.execute("INSERT INTO outbox (kind, uid, payload) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", row)

    def drain(self, write: Write) -> int:
        """Give everything to `write`, oldest first, up to 50 at a time, and forget what it stored; return how many.

        An entry that `write` refuses by itself is parked, and the rest goes on. Raises
        StoreUnavailableError or SchemaMismatchError, with nothing lost, where the trouble is the store's.
        """
        stored = 0
        while entries := self._next():
            stored += self._hand_over(entries, write)
        return stored

    def waiting(self, up_to: int | None = None) -> int:
        """Return how many entries wait to be stored (with a `seq` of at most `up_to`)."""
        query = "SELECT COUNT(*) FROM outbox WHERE error IS NULL AND (? IS NULL OR seq <= ?)"
        return int(self._read(query, (up_to, up_to))[0][0])

    def newest(self) -> int:
        """Return the `seq` of the newest entry, 0 where there is none."""
        return int(self._read("SELECT COALESCE(MAX(seq), 0) FROM outbox")[0][0])

    def parked(self) -> list[Parked]:
        """Return the entries that the store refused, oldest first."""
        rows = self._read(
            "SELECT seq, kind, uid, payload, error, parked_at FROM outbox WHERE error IS NOT NULL ORDER BY seq"
        )
        return [Parked(entry=_entry(row[:4]), error=row[4], parked_at=row[5]) for row in rows]

    def retry_parked(self) -> None:
        """Let the refused entries be tried once more."""
        with self._transaction() as connection:
            connection.execute("UPDATE outbox SET error = NULL, parked_at = NULL WHERE error IS NOT NULL")

    def close(self) -> None:
        """Close the file; what it holds stays."""
        with self._lock:
            self._connection.close()

    def __enter__(self) -> "Spool":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hand_over(self, entries: list[Entry], write: Write) -> int:
        try:
            write(entries)
        except (StoreUnavailableError, SchemaMismatchError):
            raise
        except Exception as error:  # whatever one entry provokes must not keep the others from the store
            if len(entries) == 1:
                self._park(entries[0], error)
                return 0
            return sum(self._hand_over([entry], write) for entry in entries)
        self._forget(entries)
        return len(entries)

    def _next(self) -> list[Entry]:
        rows = self._read(
            "SELECT seq, kind, uid, payload FROM outbox WHERE error IS NULL ORDER BY seq LIMIT ?", (BATCH,)
        )
        return [_entry(row) for row in rows]

    def _forget(self, entries: list[Entry]) -> None:
        with self._transaction() as connection:
            connection.executemany("DELETE FROM outbox WHERE seq = ?", [(entry.seq,) for entry in entries])

    def _park(self, entry: Entry, error: Exception) -> None:
        text = str(error) if isinstance(error, StoreError) else f"{type(error).__name__}: {error}"
        with self._transaction() as connection:
            connection.execute(
                "UPDATE outbox SET error = ?, parked_at = ? WHERE seq = ?",
                (text or type(error).__name__, datetime.now(UTC).isoformat(timespec="seconds"), entry.seq),
            )

    def _read(self, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        try:
            with self._lock:
                return self._connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from error

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Give the connection within a transaction that is on the disk when the block has ended."""
        try:
            with self._lock:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                    self._connection.execute("COMMIT")
                finally:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _unusable(self.path, error) from error


class Drainer:
    """A thread that hands a spool to the store within a second, while the main thread goes on.

    Where the store cannot be used it tries again, after 0.05 s at first and 30 s at most; the
    spool keeps everything meanwhile.
    """

    def __init__(
        self, spool: Spool, write: Write, pause_seconds: float = 0.2, longest_pause_seconds: float = 30.0
    ) -> None:
        self.error: Exception | None = None
        self._spool = spool
        self._write = write
        self._pause_seconds = pause_seconds
        self._longest_pause_seconds = longest_pause_seconds
        self._stopping = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drain", daemon=True)

    def start(self) -> "Drainer":
        """Start the thread and return this drainer."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop the thread, after the transaction in hand; what is left stays in the spool."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def flush(self, timeout_seconds: float = 60.0) -> None:
        """Return when everything that is in the spool now is stored or parked.

        Raises StoreError when that takes too long, with the reason that the store gave.
        """
        newest, deadline = self._spool.newest(), time.monotonic() + timeout_seconds
        self._wake.set()
        while self._spool.waiting(newest):
            if time.monotonic() > deadline or not self._thread.is_alive():
                reason = f" {self.error}" if self.error else ""
                raise StoreError(
                    f"{self._spool.waiting()} results are not in the database yet, but safe in {self._spool.path}; "
                    f"the next run stores them.{reason}"
                ) from self.error
            time.sleep(0.02)

    def __enter__(self) -> "Drainer":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        failures = 0
        while not self._stopping:
            self._wake.clear()
            try:
                self._spool.drain(self._write_unless_stopping)
                self.error, failures = None, 0
            except Exception as error:  # kept for the main thread; the spool keeps the results
                self.error, failures = None if self._stopping else error, failures + 1
            self._wake.wait(self._pause(failures) if not self._stopping else 0)

    def _pause(self, failures: int) -> float:
        """Return how long to wait: after failures a random part of a span that doubles each time."""
        if not failures:
            return self._pause_seconds
        span = min(0.05 * 2.0 ** min(failures, 20), self._longest_pause_seconds)
        return span * random.uniform(0.5, 1)

    def _write_unless_stopping(self, entries: list[Entry]) -> None:
        if self._stopping:
            raise StoreUnavailableError(f"Storing was stopped; {self._spool.path} keeps what is left.")
        self._write(entries)


def _entry(row: tuple[Any, ...]) -> Entry:
    return Entry(seq=row[0], kind=row[1], uid=row[2], payload=json.loads(row[3]))


def _unusable(path: Path, error: Exception) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"The spool {path}, which keeps results until they are stored, cannot be used: {error}. "
        "Make room on its disk, or change its permissions; TOKFLEET_HOME moves it."
    )
