"""SQLAlchemy engines for a store: one that writes, one that cannot; for SQLite, and for PostgreSQL."""

import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine, event

from orchestrator import postgres
from orchestrator.sqlite_file import BUSY_SECONDS, open_reader, open_writer

_LOCK = (
    f"SELECT set_config('lock_timeout', '{postgres.LOCK_SECONDS}s', true), "
    "set_config('idle_in_transaction_session_timeout', '60s', true), "
    # What was acknowledged must survive a crash of the server, also where others on it do without.
    "CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, "
    f"pg_advisory_xact_lock({postgres.LOCK})"
)


def writer(path: Path, *, create: bool = False, foreign_keys: bool = True) -> Engine:
    """Return the engine that writes to the file at `path`: one connection, every transaction BEGIN IMMEDIATE.

    An SQLite transaction that starts by reading and then wants to write fails at once when somebody
    else has committed in between; one that starts with the lock waits its turn.
    """

    def connect() -> sqlite3.Connection:
        connection = open_writer(path, create=create)
        # Only outside a transaction; within one SQLite ignores it.
        connection.execute(f"PRAGMA foreign_keys = {'ON' if foreign_keys else 'OFF'}")
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool, **_one_connection(BUSY_SECONDS))
    event.listen(engine, "begin", _begin_immediate)
    return engine


def reader(path: Path) -> Engine:
    """Return the engine that reads the file at `path` and has no means to change it.

    Each use opens the file and closes it again, so no reader holds back a checkpoint for long.
    """
    return create_engine("sqlite://", creator=lambda: open_reader(path), poolclass=NullPool)


def postgres_writer(url: str) -> Engine:
    """Return the engine that writes to the PostgreSQL at `url`: one connection, one writing transaction at a time.

    All writers of one store wait for one lock, as SQLite's do: what a transaction has read stays true until
    it commits, and none is broken off as a deadlock. A connection that the server has closed is replaced.
    """
    engine = create_engine(
        "postgresql+psycopg://",
        creator=lambda: postgres.connect(url),
        pool_pre_ping=True,
        **_one_connection(postgres.LOCK_SECONDS),
    )
    event.listen(engine, "begin", _take_lock)
    return engine


def postgres_reader(url: str) -> Engine:
    """Return the engine that reads the PostgreSQL at `url`, in READ ONLY transactions."""
    return create_engine("postgresql+psycopg://", creator=lambda: postgres.connect(url, read_only=True),
                         pool_pre_ping=True, pool_size=1)  # fmt: skip


def _one_connection(seconds: float) -> dict[str, Any]:
    return {"pool_size": 1, "max_overflow": 0, "pool_timeout": 2 * seconds}


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _take_lock(connection: Connection) -> None:
    connection.exec_driver_sql(_LOCK)
