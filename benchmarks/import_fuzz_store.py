"""The second half of import_fuzz: what a damaged file leaves in a store, looked at with sqlite3 and not our code."""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

from orchestrator.imports import save_file
from orchestrator.interchange.doubles import Sorted
from orchestrator.interchange.found import Found
from orchestrator.interchange.import_rows import SourceFile
from orchestrator.store import Store


class Kept:
    """A store into which every input goes as it is, then with salvage, then once more."""

    def __init__(self, store: Store, reader: sqlite3.Connection) -> None:
        self._store, self._reader = store, reader
        self._results = 0

    def problems(self, raw: bytes, strict: Found, loose: Found) -> Iterator[str]:
        """Take in both readings of a file; yield what is in the store that should not be, or is not."""
        digest = sha256(raw).hexdigest()
        damaged = any(refusal.severity == "damaged" for refusal in loose.refusals)
        before = self._count()
        told = self._take(digest, raw, strict)
        if damaged and (self._count() != before or self._knows(digest)):
            yield "a damaged file left something in the store"
        if damaged:
            told = self._take(digest, raw, loose)
        if self._count() != before + len(told.fresh):
            yield f"{self._count() - before} rows came into the store, not {len(told.fresh)}"
        for row in loose.rows:
            kept = self._reader.execute("SELECT raw, avg_ts FROM imported WHERE import_key = ?", (row.import_key,))
            if (found := kept.fetchone()) is None or found[1] != row.avg_ts:
                yield f"line {row.line}: the store has {found}"
        again = self._take(digest, raw, loose)
        if again.fresh or again.doubles or again.n_known != len(loose.rows):
            yield f"the second time {len(again.fresh)} rows were new"
        self._results += told.n_new

    def problems_at_last(self) -> Iterator[str]:
        """Yield what is wrong with the store after all inputs."""
        if self._count("all_results") != self._results:
            yield f"there are {self._count('results')} results, not {self._results}"
        if self._reader.execute("PRAGMA foreign_key_check").fetchall():
            yield "rows of the store refer to none"

    def _take(self, digest: str, raw: bytes, found: Found) -> Sorted:
        file = SourceFile(name="/fuzz/input", sha256=digest, n_bytes=len(raw), found=found)
        return self._store.change(lambda connection: save_file(connection, file, None, "0"))

    def _count(self, table: str = "imported") -> int:
        return int(self._reader.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])

    def _knows(self, digest: str) -> bool:
        return self._reader.execute("SELECT 1 FROM import_file WHERE sha256 = ?", (digest,)).fetchone() is not None


@contextmanager
def kept() -> Iterator[Kept]:
    """Give a new store in a file that is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "runs.db"
        with Store.open(str(path), create=True) as store, closing(_reader(path)) as reader:
            yield Kept(store, reader)


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
