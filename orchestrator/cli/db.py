"""Which database a command uses (`--db`, TOKFLEET_DB, or the one in tokfleet's home), and `tokfleet db`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from orchestrator.cli.output import write
from schema.errors import UsageError
from worker.home import home, writable_home

FILE_NAME = "tokfleet.sqlite"
F = TypeVar("F", bound=Callable[..., Any])


def db_option(command: F) -> F:
    """Give `command` the option `--db`, passed as `db`: what was said, or None; `database_url` makes it a URL."""
    return click.option(
        "--db",
        envvar="TOKFLEET_DB",
        metavar="PATH|URL",
        help="The database: an SQLite file or an SQLAlchemy URL.  [default: TOKFLEET_DB, or the one in TOKFLEET_HOME]",
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


def shown(url: str) -> str:
    """Return the database as people may see it: the file of SQLite, any other URL without its password."""
    if url.startswith("sqlite:///"):
        return url.removeprefix("sqlite:///")
    return re.sub(r"(://[^/@:]*):[^@]*@", r"\1:***@", url)


def _sqlite(path: Path) -> str:
    return f"sqlite:///{path}"


@click.group()
def db() -> None:
    """Create, upgrade or check the database.

    No command upgrades a database by itself: an older one is refused until `tokfleet db upgrade`.
    """


@db.command()
@db_option
def upgrade(db: str | None) -> None:
    """Create the database, or bring it up to date.

    A copy of an older one is kept beside it.
    """
    from orchestrator.migrate import upgrade as migrate

    url = database_url(db, create=True)
    done = migrate(url)
    what = f"was made at revision {done.after}" if done.before is None else f"went from {done.before} to {done.after}"
    write([f"{shown(url)} {'is up to date already' if done.before == done.after else what}."])
    if done.backup is not None:
        write([f"What it was before is kept in {done.backup}."])


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
