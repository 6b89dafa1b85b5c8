"""What differs between the two kinds of database that a store may be in; `database_at` tells them apart."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from orchestrator import backup, engines, postgres, sqlite_file
from orchestrator.revision import Revisions
from orchestrator.store_url import is_postgres, shown
from schema.errors import StoreError, StoreUnavailableError


class Database(Protocol):
    """One database, at one address; methods that take a connection work within its transaction."""

    @property
    def name(self) -> str:
        """The database as people may see it."""

    def writer(self) -> Engine:
        """Return the engine that writes: one transaction at a time, on the disk when it is committed."""

    def reader(self) -> Engine:
        """Return the engine that reads and cannot change anything."""

    def migrator(self) -> Engine:
        """Return the engine that makes and changes tables, making the database's file where it is missing."""

    def check(self) -> None:
        """Raise StoreError in plain words unless this is a store that this code can read."""

    def check_there(self) -> None:
        """Raise StoreError where there is nothing that could be read."""

    def check_place(self) -> None:
        """Raise StoreError where no store can be; make the directory of a file."""

    def check_writing(self, connection: Connection) -> None:
        """Raise StoreError where what is written now would not be a row of a store of this code's revision."""

    def is_empty(self) -> bool:
        """Return whether this is still to become a store."""

    def revisions(self, connection: Connection) -> Revisions:
        """Return the rows of the version table, () where tables lack one, None where there is no table."""

    def made_by(self, connection: Connection) -> str | None:
        """Return which tokfleet made or last upgraded the store, None where it does not say so."""

    def orphans(self, connection: Connection) -> list[str]:
        """Return for each row that refers to one that does not exist the name of its table."""

    def damage(self, connection: Connection) -> str | None:
        """Return what the database finds wrong with its own pages, None where all is well or it has no such check."""

    def back_up_beside(self, revision: str | None) -> Path | None:
        """Copy the store to a file beside it, and return that; None where an upgrade needs no copy."""

    def back_up(self, to: Path) -> None:
        """Copy the store to the new file `to`."""

    def error(self, error: Exception) -> StoreError | None:
        """Return the error of the database's driver in plain words; None for another error."""

    def is_passing(self, error: BaseException | None) -> bool:
        """Return whether a transaction that ended with this error may succeed when it is done anew at once."""


@dataclass(frozen=True, slots=True)
class SqliteDatabase:
    """A database that is a file of this machine."""

    path: Path

    @property
    def name(self) -> str:
        """The file's path."""
        return str(self.path)

    def writer(self) -> Engine:
        """Return the engine that writes, see `engines.writer`."""
        return engines.writer(self.path)

    def reader(self) -> Engine:
        """Return the engine that reads, see `engines.reader`."""
        return engines.reader(self.path)

    def migrator(self) -> Engine:
        """Return a writer without foreign keys: with them, making a table anew would delete or orphan rows."""
        return engines.writer(self.path, create=True, foreign_keys=False)

    def check(self) -> None:
        """Raise StoreError unless this is a store that this code can read."""
        sqlite_file.check_store(self.path)

    def check_there(self) -> None:
        """Raise StoreError unless there is a file with something in it."""
        sqlite_file.check_file(self.path)

    def check_place(self) -> None:
        """Make the directory; raise StoreError where no store can be."""
        sqlite_file.check_place(self.path)

    def check_writing(self, connection: Connection) -> None:
        """Raise StoreError where the schema is another by now, or the file has lost its name."""
        sqlite_file.check_revision(self.path, _raw(connection))
        if not self.path.exists():  # a file without a name takes rows, and is gone when it is closed
            raise sqlite_file.gone(self.path)

    def is_empty(self) -> bool:
        """Return whether there is no file, or one without tables."""
        return sqlite_file.is_empty(self.path)

    def revisions(self, connection: Connection) -> Revisions:
        """Return the rows of the version table, () where tables lack one, None where there is no table."""
        return sqlite_file.revisions(_raw(connection))

    def made_by(self, connection: Connection) -> str | None:
        """Return which tokfleet made or last upgraded the store."""
        return sqlite_file.made_by(_raw(connection))

    def orphans(self, connection: Connection) -> list[str]:
        """Return what foreign_key_check finds: rows are not checked while a migration runs."""
        return [str(row[0]) for row in connection.exec_driver_sql("PRAGMA foreign_key_check")]

    def damage(self, connection: Connection) -> str | None:
        """Return the first thing that quick_check finds."""
        found = str(connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one())
        return None if found == "ok" else found

    def back_up_beside(self, revision: str | None) -> Path | None:
        """Copy the store, named by revision and time, while the caller holds its write lock."""
        copy = self.path.with_name(f"{self.path.name}.{revision}.{backup.stamp()}.backup")
        self.back_up(copy)
        return copy

    def back_up(self, to: Path) -> None:
        """Copy the store to a file that is a store again."""
        backup.copy_sqlite(self.path, to)

    def error(self, error: Exception) -> StoreError | None:
        """Return the error in plain words; None for one that is not SQLite's."""
        return sqlite_file.store_error(self.path, error) if isinstance(error, sqlite3.Error) else None

    def is_passing(self, error: BaseException | None) -> bool:
        """Return False: waiting for the lock is done already when SQLite says that it is busy."""
        return False


@dataclass(frozen=True, slots=True)
class PostgresDatabase:
    """A database of a PostgreSQL server."""

    url: str

    @property
    def name(self) -> str:
        """The URL without its password."""
        return shown(self.url)

    def writer(self) -> Engine:
        """Return the engine that writes, see `engines.postgres_writer`."""
        return engines.postgres_writer(self.url)

    def reader(self) -> Engine:
        """Return the engine that reads, see `engines.postgres_reader`."""
        return engines.postgres_reader(self.url)

    def migrator(self) -> Engine:
        """Return a writer: its lock keeps rows out while tables change, and a second upgrade waiting."""
        return self.writer()

    def check(self) -> None:
        """Raise StoreError unless this is a store that this code can read."""
        postgres.check_store(self.url)

    def check_there(self) -> None:
        """Do nothing: connecting tells."""

    def check_place(self) -> None:
        """Raise StoreError where the server does not answer or the database does not keep UTF-8."""
        postgres.check_place(self.url)

    def check_writing(self, connection: Connection) -> None:
        """Raise StoreError where the schema is another by now."""
        postgres.check_connection(self.url, _raw(connection))

    def is_empty(self) -> bool:
        """Return whether the database has no tables."""
        return postgres.is_empty(self.url)

    def revisions(self, connection: Connection) -> Revisions:
        """Return the rows of the version table, () where tables lack one, None where there is no table."""
        return postgres.revisions(_raw(connection))

    def made_by(self, connection: Connection) -> str | None:
        """Return which tokfleet made or last upgraded the store."""
        return postgres.made_by(_raw(connection))

    def orphans(self, connection: Connection) -> list[str]:
        """Return nothing: the server lets no row refer to one that does not exist."""
        return []

    def damage(self, connection: Connection) -> str | None:
        """Return None: a server checks its pages itself, as it reads them."""
        return None

    def back_up_beside(self, revision: str | None) -> Path | None:
        """Return None: an upgrade is one transaction, and there is no place beside a server's database."""
        return None

    def back_up(self, to: Path) -> None:
        """Copy the database by pg_dump."""
        backup.dump_postgres(self.url, to)

    def error(self, error: Exception) -> StoreError | None:
        """Return the error in plain words; None for one that is not psycopg's."""
        import psycopg

        return postgres.store_error(self.url, error) if isinstance(error, psycopg.Error) else None

    def is_passing(self, error: BaseException | None) -> bool:
        """Return whether the connection was lost, or another transaction came in between."""
        return postgres.is_passing(_driver_error(error))


def database_at(url: str) -> Database:
    """Return the database that `url` names: `postgresql://…`, `sqlite:///FILE` or a plain path.

    Raises StoreError for any other; nothing is opened.
    """
    if is_postgres(url):
        postgres.parameters(url)
        return PostgresDatabase(url)
    return SqliteDatabase(sqlite_file.sqlite_path(url))


@contextmanager
def plain_words(database: Database) -> Iterator[None]:
    """Turn what the database's driver raises within the block into a StoreError that says what to do."""
    try:
        yield
    except PoolTimeoutError as error:
        raise StoreUnavailableError(f"The database {database.name} is being written by another thread.") from error
    except Exception as error:
        said = database.error(_driver_error(error))
        if said is None:
            raise
        raise said from error


def _driver_error(error: Any) -> Any:
    """Return what the driver raised, where SQLAlchemy wrapped it; else the error itself."""
    return error.orig if isinstance(error, DBAPIError) and error.orig is not None else error


def _raw(connection: Connection) -> Any:
    return connection.connection.driver_connection
