"""Bring a store to this code's schema, and say what is wrong with one."""

import importlib.metadata
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, func, insert, inspect, select

import migrations
from orchestrator.database import Database, database_at, plain_words
from orchestrator.revision import check_revision, newer
from schema import tables
from schema.errors import SchemaMismatchError, StoreError
from schema.revisions import REVISIONS
from schema.views import VIEW_HASH, VIEWS, spelt

SCRIPTS = Path(migrations.__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgraded:
    """What an upgrade did: revision before (None: there was no store) and after, and where the backup is."""

    before: str | None
    after: str
    backup: Path | None = None


def upgrade(url: str, scripts: Path = SCRIPTS, known: tuple[str, ...] = REVISIONS) -> Upgraded:
    """Bring the store at `url` to the newest revision, making it if need be, all of it or nothing.

    One at a time: others wait for the lock. An SQLite store with runs whose revision changes is copied
    first, to a file beside it. Raises StoreError for what is no store, has a revision that is not
    `known` (SchemaMismatchError), or would be left with rows that refer to nothing.
    """
    database = database_at(url)
    database.check_place()
    engine = database.migrator()
    try:
        with plain_words(database):
            return _upgrade(database, engine, scripts, known)
    except CommandError as error:
        raise StoreError(f"The database {database.name} was not upgraded: {error}") from error
    finally:
        engine.dispose()


def current(url: str) -> str | None:
    """Return the revision of the store at `url`, None where there is none yet; StoreError where it has several."""
    database = database_at(url)
    if database.is_empty():
        return None
    engine = database.reader()
    try:
        with plain_words(database), engine.connect() as connection:
            found = database.revisions(connection) or ()
    finally:
        engine.dispose()
    if len(found) > 1:
        raise SchemaMismatchError(
            f"The database {database.name} claims {len(found)} versions at once: {', '.join(found)}."
        )
    return found[0] if found else None


def check(url: str, scripts: Path = SCRIPTS, known: tuple[str, ...] = REVISIONS) -> list[str]:
    """Return everything that is wrong with the store at `url` or with the migrations, one sentence each."""
    problems = _script_problems(scripts, known)
    database = database_at(url)
    engine = database.reader()
    try:
        database.check_there()
        with plain_words(database), engine.connect() as connection:
            found = database.revisions(connection)
            check_revision(database.name, found, lambda: database.made_by(connection), known)
            problems += _content_problems(database, connection)
    except StoreError as error:
        problems.append(str(error))
    finally:
        engine.dispose()
    return problems


def script_config(connection: Connection | None, scripts: Path = SCRIPTS) -> Config:
    """Return Alembic's configuration for our migrations on `connection`; there is no alembic.ini."""
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _upgrade(database: Database, engine: Engine, scripts: Path, known: tuple[str, ...]) -> Upgraded:
    with engine.begin() as connection:
        before = _revision(database, connection, known)
        if before == known[-1] and _has_our_views(connection):
            return Upgraded(before=before, after=before)
        changes = before not in (None, known[-1])
        backup = database.back_up_beside(before) if changes and _has_runs(connection) else None
        # A table that a view reads can be neither altered nor made anew.
        _drop_views(connection)
        command.upgrade(script_config(connection, scripts), "head")
        _refuse_orphans(database, connection)
        _make_views(connection)
        return Upgraded(before=before, after=known[-1], backup=backup)


def _revision(database: Database, connection: Connection, known: tuple[str, ...]) -> str | None:
    """Return the store's revision; raise where an upgrade would not know what it has before it."""
    found = database.revisions(connection)
    if found is None:
        return None
    if not found and set(inspect(connection).get_table_names()) <= {"alembic_version"}:
        return None
    if len(found) != 1:
        check_revision(database.name, found, lambda: None, known)
    if found[0] not in known:
        raise SchemaMismatchError(newer(database.name, found[0], database.made_by(connection)))
    return found[0]


def _has_our_views(connection: Connection) -> bool:
    found = connection.execute(select(tables.schema_info.c.view_hash)).scalars().all()
    return found == [VIEW_HASH] and set(VIEWS) <= set(inspect(connection).get_view_names())


def _has_runs(connection: Connection) -> bool:
    counts = [
        connection.execute(select(func.count()).select_from(table)).scalar_one() for table in (tables.run, tables.host)
    ]
    return any(counts)


def _drop_views(connection: Connection) -> None:
    for name in reversed(VIEWS):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def _make_views(connection: Connection) -> None:
    for name, query in VIEWS.items():
        connection.exec_driver_sql(f"CREATE VIEW {name} AS {spelt(query, connection.dialect.name)}")
    row = {"id": 1, "view_hash": VIEW_HASH, "tokfleet_version": _version(), "upgraded_at": datetime.now(UTC)}
    connection.execute(tables.schema_info.delete())
    connection.execute(insert(tables.schema_info), row)


def _version() -> str:
    try:
        return importlib.metadata.version("tokfleet")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def _refuse_orphans(database: Database, connection: Connection) -> None:
    orphans = database.orphans(connection)
    if orphans:
        raise StoreError(
            f"The database {database.name} was not upgraded: {len(orphans)} rows, the first in table {orphans[0]}, "
            "refer to rows that do not exist. Restore a backup or delete them (PRAGMA foreign_key_check lists them)."
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


def _content_problems(database: Database, connection: Connection) -> list[str]:
    problems = []
    if not _has_our_views(connection):
        problems.append(
            f"The views of {database.name} are not those of this tokfleet. `tokfleet db upgrade` makes them anew."
        )
    damage = database.damage(connection)
    if damage:
        problems.append(f"The database {database.name} is damaged: {damage}. Restore a backup.")
    orphans = database.orphans(connection)
    if orphans:
        problems.append(
            f"{len(orphans)} rows of {database.name}, the first in table {orphans[0]}, refer to rows that do not exist."
        )
    return problems
