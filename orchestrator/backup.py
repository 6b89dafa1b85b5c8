"""A copy of a whole store, taken while others read and write it."""

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from orchestrator import postgres
from orchestrator.sqlite_file import open_reader
from orchestrator.store_url import shown
from schema.errors import StoreError


def copy_sqlite(path: Path, to: Path) -> None:
    """Write the store at `path`, as it is at this moment, to the new file `to`, a store like any other.

    Raises StoreError where `to` exists or cannot be written; then there is no half copy.
    """
    _refuse_existing(to)
    try:
        with closing(open_reader(path)) as connection:
            connection.execute("VACUUM INTO ?", (str(to),))
    except (sqlite3.Error, OSError) as error:
        to.unlink(missing_ok=True)
        raise StoreError(
            f"The database {path} could not be copied to {to}: {error}. Make room there, or change the permissions."
        ) from error


def dump_postgres(url: str, to: Path) -> None:
    """Write the database at `url`, as it is at this moment, to the new file `to`, as pg_restore reads it.

    PostgreSQL's own pg_dump does it: of the server's version or newer, from the PATH. Raises StoreError
    where there is none, or where it fails; then there is no half copy.
    """
    from psycopg.conninfo import make_conninfo

    _refuse_existing(to)
    program = shutil.which("pg_dump")
    if program is None:
        raise StoreError(
            "There is no pg_dump on this machine's PATH, which copies a PostgreSQL database. Install PostgreSQL's "
            f"client programs, or run on the server: pg_dump --format=custom --file={to.name} NAME"
        )
    parameters = postgres.parameters(url)
    password = parameters.pop("password", None)  # everybody on this machine may see a command line
    parameters.pop("sslpassword", None)
    done = subprocess.run(
        [program, "--format=custom", "--no-owner", f"--file={to}", f"--dbname={make_conninfo(**parameters)}"],
        env=os.environ | ({"PGPASSWORD": str(password)} if password else {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        to.unlink(missing_ok=True)
        said = (done.stderr.strip().splitlines() or ["it did not say why"])[-1]
        raise StoreError(f"pg_dump could not copy the database {shown(url)}: {said}")


def stamp() -> str:
    """Return this moment for the name of a copy: `20260102T030405000000Z`."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S%fZ")


def _refuse_existing(to: Path) -> None:
    if to.exists():
        raise StoreError(f"The file {to} exists already, and is not written over. Name another one for the copy.")
