"""An import from its files to the database, file by file; or a trial of it, which stores nothing."""

import sys
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from orchestrator.database import database_at
from orchestrator.import_report import Outcome, outcome_of
from orchestrator.imports import host_uid_of, look_up, measured_here, new_host_uid, save_file
from orchestrator.interchange.bench_folder import MOST_BYTES, Content, Source, read_bytes, read_source, tags_from_name
from orchestrator.interchange.doubles import Sorted, identified
from orchestrator.interchange.found import Found, Refusal
from orchestrator.interchange.import_rows import SourceFile
from orchestrator.interchange.import_trial import Trial
from orchestrator.interchange.own_file import is_own, load_own, look
from orchestrator.interchange.own_lines import GZIP
from orchestrator.store import Store
from schema.errors import StoreError, StoreUnavailableError, UsageError

STANDARD_INPUT = Path("-")


class Taker(Protocol):
    """What is done with the files, one after another."""

    def take(self, file: SourceFile) -> Sorted:
        """Take in the rows of a file of llama-bench's, all or nothing, and return what became of them."""

    def take_own(self, path: Path) -> str:
        """Take in a file that tokfleet wrote, and return in a sentence what became of it."""


class Importer:
    """Takes files into the store at `url`, which is made when there is something for it."""

    def __init__(self, url: str, host: str | None, version: str, *, distinct: bool = False) -> None:
        self._url, self._host, self._version, self._distinct = url, host, version, distinct
        self._store: Store | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            self._store.close()

    def take(self, file: SourceFile) -> Sorted:
        """Take in the rows of a file in one transaction."""
        return self._opened().change(
            lambda connection: save_file(connection, file, self._host, self._version, distinct=self._distinct)
        )

    def take_own(self, path: Path) -> str:
        """Take in a whole store, or the records of a bundle."""
        return load_own(path, self._opened())

    def _opened(self) -> Store:
        self._store = self._store or Store.open(self._url, create=True)
        return self._store


class Tryer:
    """Tells of files what an Importer would do, and remembers them; where there is no store yet, all is new."""

    def __init__(self, url: str, host: str | None, *, distinct: bool = False) -> None:
        self._host, self._distinct = host, distinct
        self._store = None if database_at(url).is_empty() else Store.open(url)
        self._trial = Trial()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._store is not None:
            self._store.close()

    def take(self, file: SourceFile) -> Sorted:
        """Return what would become of the file's rows."""
        host = self._host
        if self._store is None:
            rows = identified(file.found.rows, None if host is None else new_host_uid(host))
            return self._trial.sort_out(rows, distinct=self._distinct)
        with self._store.snapshot() as connection:
            rows = identified(file.found.rows, None if host is None else host_uid_of(connection, host))
            stored, measured = look_up(connection, [who for _, who in rows]), measured_here(connection, rows)
        return self._trial.sort_out(rows, stored, measured, distinct=self._distinct)

    def take_own(self, path: Path) -> str:
        """Return what the file holds; StoreError where it is damaged."""
        return look(path)


def take_source(source: Source, taker: Taker, *, salvage: bool, tags: bool) -> Outcome:
    """Read one file and give it to `taker`; return what it held and what became of that."""
    path, named = source.path, source.folder is None
    if path != STANDARD_INPUT and _is_own(path):
        return _own(path, taker)
    content = _content(path, salvage)
    file = SourceFile(
        name="standard input" if path == STANDARD_INPUT else str(path.absolute()),
        sha256=content.sha256,
        n_bytes=content.n_bytes,
        found=content.found,
        tags=tags_from_name(path, source.folder) if tags and path != STANDARD_INPUT else {},
    )
    told = taker.take(file) if content.found.rows else Sorted()
    return outcome_of(str(path), content.found, told, named)


def _content(path: Path, salvage: bool) -> Content:
    if path != STANDARD_INPUT:
        return read_source(path, salvage=salvage)
    if sys.stdin is None:
        raise UsageError("There is no standard input to read.")
    return read_bytes(sys.stdin.buffer.read(MOST_BYTES + 1), str(path), salvage=salvage)


def _is_own(path: Path) -> bool:
    """Return whether tokfleet wrote the file; only what begins as such files do is looked at further."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(2) in (b'{"', GZIP) and is_own(path)
    except OSError:
        return False


def _own(path: Path, taker: Taker) -> Outcome:
    try:
        return Outcome(name=str(path), found=Found(name=str(path)), own=taker.take_own(path), is_taken=True)
    except StoreUnavailableError:
        raise
    except StoreError as error:
        refusal = Refusal(line=0, reason=str(error))
        found = Found(name=str(path), refusals=(refusal,), n_refused=1)
        return outcome_of(str(path), found, Sorted(), named=True)
