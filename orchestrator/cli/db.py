"""Which database a command uses (`--db`, TOKFLEET_DB, or the one in tokfleet's home), and `tokfleet db`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from orchestrator.cli.output import note, write
from orchestrator.store_url import is_postgres, shown
from schema.errors import StoreError, UsageError
from worker.home import home, writable_home

FILE_NAME = "tokfleet.sqlite"
F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["FILE_NAME", "database_url", "db", "db_option", "shown"]


def db_option(command: F) -> F:
    """Give `command` the option `--db`, passed as `db`: what was said, or None; `database_url` makes it a URL."""
    return click.option(
        "--db",
        envvar="TOKFLEET_DB",
        metavar="PATH|URL",
        help="The database: an SQLite file, or postgresql://USER@HOST/NAME.  "
        "[default: TOKFLEET_DB, or the file in TOKFLEET_HOME]",
    )(command)


def database_url(db: str | None, create: bool = False) -> str:
    """Return the SQLAlchemy URL of what `--db` says: a URL as it is, a path as SQLite, None as the one in our home.

    With `create`, our home is made where it is missing. Raises HostError where there is no
    home, or none that can be written; UsageError for `:memory:`.
    """
    if not db:
        return _sqlite((writable_home() if create else home()) / FILE_NAME)
    if "://" in db:
        return db
    if db == ":memory:":
        raise UsageError("A database in memory would be lost: give the path of a file.")
    return _sqlite(Path(db).absolute())


def _sqlite(path: Path) -> str:
    return f"sqlite:///{path}"


@click.group()
def db() -> None:
    """Create, upgrade, check or copy the database: an SQLite file or a PostgreSQL database.

    No command upgrades a database by itself: an older one is refused until `tokfleet db upgrade`.
    """


@db.command()
@db_option
def upgrade(db: str | None) -> None:
    """Create the database, or bring it up to date.

    A copy of an older SQLite file is kept beside it. An upgrade of PostgreSQL is one transaction; `tokfleet db
    backup` copies it before.
    """
    from orchestrator.migrate import upgrade as migrate

    url = database_url(db, create=True)
    done = migrate(url)
    what = f"was made at revision {done.after}" if done.before is None else f"went from {done.before} to {done.after}"
    write([f"{shown(url)} {'is up to date already' if done.before == done.after else what}."])
    if done.backup is not None:
        write([f"What it was before is kept in {done.backup}."])
    if is_postgres(url):
        from orchestrator.reader_role import see_to_reader

        said = see_to_reader(url, writable_home())
        write([said] if said else [])


@db.command()
@click.option("--renew", is_flag=True, help="Give the role a new password, or make it where there is none.")
@db_option
def reader(renew: bool, db: str | None) -> None:
    """Print the URL, with its password, by which PostgreSQL may be read and not changed: for psql or a dashboard.

    It is that of the role as which `tokfleet sql` asks, which `tokfleet db upgrade` makes.
    """
    from orchestrator.reader_role import see_to_reader
    from orchestrator.reader_url import chosen

    url = database_url(db)
    if not is_postgres(url):
        raise UsageError(f"{shown(url)} is an SQLite file, which has no roles: open it read-only (sqlite3 -readonly).")
    said = see_to_reader(url, writable_home(), renew=True) if renew else None
    found = chosen(url, home())
    if found.found_in is None:
        raise StoreError(f"No role that may only read {shown(url)} is known here. `tokfleet db upgrade` makes one.")
    write([found.url])
    if said:
        note(said)


@db.command()
@db_option
def current(db: str | None) -> None:
    """Print the revision of the database's schema."""
    from orchestrator.migrate import current as revision

    write([revision(database_url(db)) or "no schema yet"])


@db.command()
@db_option
def check(db: str | None) -> int:
    """Say whether the database fits this version.

    The exit status is 1 where it does not.
    """
    from orchestrator.migrate import check as problems

    found = problems(database_url(db))
    write(found or ["The database fits this version."])
    return 1 if found else 0


@db.command()
@db_option
@click.argument("file", required=False, type=click.Path(dir_okay=False, path_type=Path))
def backup(db: str | None, file: Path | None) -> None:
    """Copy the database, as it is at this moment, to FILE.

    A copy of SQLite is a file like the database itself; one of PostgreSQL is made by pg_dump, and pg_restore
    reads it. Without FILE it gets a name with the time, in this directory. Others may write meanwhile.
    """
    from orchestrator.backup import stamp
    from orchestrator.database import database_at, plain_words

    url = database_url(db)
    database = database_at(url)
    if database.is_empty():
        raise StoreError(f"There is nothing to copy: no run was stored yet at {shown(url)}.")
    to = file or Path(f"tokfleet.{stamp()}.{'dump' if is_postgres(url) else 'sqlite'}")
    with plain_words(database):
        database.back_up(to)
    write([f"{shown(url)} is copied to {to}."])


@db.command()
@click.option("--before", default="52w", show_default=True, metavar="TIME", help="2026-01-31, or 12h, 7d, 4w ago.")
@click.option("--yes", is_flag=True, help="Do it; without, only say what would be dropped.")
@db_option
def prune(before: str, yes: bool, db: str | None) -> None:
    """Drop samples, histograms of latencies and logs of old attempts, to save space.

    The attempts stay, with their rates, spreads, percentiles and conditions. docs/labels.md.
    """
    from datetime import UTC, datetime

    from orchestrator.interchange.view_rows import moment
    from orchestrator.prune import prunable, pruned_text
    from orchestrator.prune import prune as drop
    from orchestrator.store import Store

    until = moment(before, datetime.now(UTC))
    with Store.open(database_url(db), create=False) as store:
        write(pruned_text(drop(store, until) if yes else prunable(store, until), until, yes))
