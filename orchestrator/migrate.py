"""Bring a store to this code's schema, and say what is wrong with one."""

import importlib.metadata
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, func, insert, select
from sqlalchemy.exc import DBAPIError

import migrations
from orchestrator import engines
from orchestrator.sqlite_file import (
    check_file,
    check_place,
    check_revision,
    newer,
    open_reader,
    revisions,
    sqlite_path,
    store_error,
)
from schema import tables
from schema.errors import SchemaMismatchError, StoreError
from schema.revisions import REVISIONS
from schema.views import VIEW_HASH, VIEWS

SCRIPTS = Path(migrations.__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """What an upgrade did: revision before (None: there was no store) and after, and where the backup is."""

    before: str | None
    after: str
    backup: Path | None = None


def upgrade(url: str, scripts: Path = SCRIPTS, known: tuple[str, ...] = REVISIONS) -> Upgraded:
    """Bring the store at `url` to the newest revision, making it if need be, all of it or nothing.

    One at a time: others wait for the lock. A store with runs whose revision changes is copied
    first, to a file beside it. Raises StoreError for what is no store, has a revision that is not
    `known` (SchemaMismatchError), or would be left with rows that refer to nothing.
    """
    path = sqlite_path(url)
    check_place(path)
    # With foreign keys on, making a table anew would delete or orphan the rows that refer to it.
    engine = engines.writer(path, create=True, foreign_keys=False)
    try:
        return _upgrade(path, engine, scripts, known)
    except sqlite3.Error as error:
        raise store_error(path, error) from error
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise store_error(path, error.orig) from error
        raise
    except CommandError as error:
        raise StoreError(f"The database {path} was not upgraded: {error}") from error
    finally:
        engine.dispose()


def current(url: str) -> str | None:
    """Return the revision of the store at `url`, None where there is none yet; StoreError where it has several."""
    path = sqlite_path(url)
    found = _found(path)
    if len(found) > 1:
        raise SchemaMismatchError(f"The database {path} claims {len(found)} versions at once: {', '.join(found)}.")
    return found[0] if found else None


def check(url: str, scripts: Path = SCRIPTS, known: tuple[str, ...] = REVISIONS) -> list[str]:
    """Return everything that is wrong with the store at `url` or with the migrations, one sentence each."""
    problems = _script_problems(scripts, known)
    path = sqlite_path(url)
    try:
        check_file(path)
        with closing(open_reader(path)) as connection:
            check_revision(path, connection, known)
            problems += _content_problems(path, connection)
    except StoreError as error:
        problems.append(str(error))
    except sqlite3.Error as error:
        problems.append(str(store_error(path, error)))
    return problems


def script_config(connection: Connection | None, scripts: Path = SCRIPTS) -> Config:
    """Return Alembic's configuration for our migrations on `connection`; there is no alembic.ini."""
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _upgrade(path: Path, engine: Engine, scripts: Path, known: tuple[str, ...]) -> Upgraded:
    with engine.begin() as connection:
        raw: Any = connection.connection.driver_connection
        before = _revision(path, raw, known)
        if before == known[-1] and _has_our_views(raw):
            return Upgraded(before=before, after=before)
        backup = _back_up(path, before) if before not in (None, known[-1]) and _has_runs(connection) else None
        # A table that a view reads can be neither altered nor made anew.
        _drop_views(connection)
        command.upgrade(script_config(connection, scripts), "head")
        _refuse_broken_references(path, connection)
        _make_views(connection)
        return Upgraded(before=before, after=known[-1], backup=backup)


def _revision(path: Path, raw: sqlite3.Connection, known: tuple[str, ...]) -> str | None:
    """Return the store's revision; raise where an upgrade would not know what it has before it."""
    found = revisions(raw)
    if found is None:
        return None
    if not found and _tables(raw) <= {"alembic_version"}:
        return None
    if len(found) != 1:
        check_revision(path, raw, known)
    if found[0] not in known:
        raise SchemaMismatchError(newer(path, raw, found[0]))
    return found[0]


def _tables(connection: sqlite3.Connection) -> set[str]:
    rows = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite^_%' ESCAPE '^'"
    )
    return {name for (name,) in rows}


def _found(path: Path) -> tuple[str, ...]:
    try:
        check_file(path)
    except StoreError:
        if path.exists() and path.stat().st_size:
            raise
        return ()
    try:
        with closing(open_reader(path)) as connection:
            return revisions(connection) or ()
    except sqlite3.Error as error:
        raise store_error(path, error) from error


def _has_our_views(connection: sqlite3.Connection) -> bool:
    row = connection.execute("SELECT view_hash FROM schema_info").fetchone()
    present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'view'")}
    return bool(row) and row[0] == VIEW_HASH and present.issuperset(VIEWS)


def _has_runs(connection: Connection) -> bool:
    counts = [
        connection.execute(select(func.count()).select_from(table)).scalar_one() for table in (tables.run, tables.host)
    ]
    return any(counts)


def _back_up(path: Path, revision: str | None) -> Path:
    """Copy the store as it is, while the caller holds its write lock, and return the copy's path."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")
    copy = path.with_name(f"{path.name}.{revision}.{stamp}.backup")
    try:
        with closing(open_reader(path)) as connection:
            connection.execute("VACUUM INTO ?", (str(copy),))
    except sqlite3.Error:
        copy.unlink(missing_ok=True)
        raise
    return copy


def _drop_views(connection: Connection) -> None:
    for name in reversed(VIEWS):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def _make_views(connection: Connection) -> None:
    for name, query in VIEWS.items():
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {query}")
    row = {"id": 1, "view_hash": VIEW_HASH, "tokfleet_version": _version(), "upgraded_at": datetime.now(UTC)}
    connection.execute(tables.schema_info.delete())
    connection.execute(insert(tables.schema_info), row)


def _version() -> str:
    try:
        return importlib.metadata.version("tokfleet")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _refuse_broken_references(path: Path, connection: Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
    if broken:
        raise StoreError(
            f"The database {path} was not upgraded: {len(broken)} rows, the first in table {broken[0][0]}, refer to "
            "rows that do not exist. Restore a backup or delete those rows (PRAGMA foreign_key_check lists them)."
        )


def _script_problems(scripts: Path, known: Iterable[str]) -> list[str]:
    directory = ScriptDirectory.from_config(script_config(None, scripts))
    heads = directory.get_heads()
    if len(heads) != 1:
        return [
            f"The migrations have {len(heads)} heads, {', '.join(sorted(heads))}: give one of them the other as parent."
        ]
    order = tuple(script.revision for script in reversed(list(directory.walk_revisions())))
    return [] if order == tuple(known) else [f"schema.revisions says {tuple(known)}, the migrations say {order}."]


def _content_problems(path: Path, connection: sqlite3.Connection) -> list[str]:
    problems = []
    if not _has_our_views(connection):
        problems.append(f"The views of {path} are not those of this tokfleet. `tokfleet db upgrade` makes them anew.")
    damage = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        problems.append(f"The database {path} is damaged: {damage}. Restore a backup.")
    broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    if broken:
        problems.append(
            f"{len(broken)} rows of {path}, the first in table {broken[0][0]}, refer to rows that do not exist."
        )
    return problems
