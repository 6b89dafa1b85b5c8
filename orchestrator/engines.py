"""SQLAlchemy engines for a store: one that writes, one that cannot."""

import sqlite3
from pathlib import Path

from sqlalchemy import Connection, Engine, NullPool, QueuePool, create_engine, event

from orchestrator.sqlite_file import BUSY_SECONDS, open_reader, open_writer


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

    engine = create_engine(
        "sqlite://", creator=connect, poolclass=QueuePool, pool_size=1, max_overflow=0, pool_timeout=2 * BUSY_SECONDS
    )
    event.listen(engine, "begin", _begin)
    return engine


def reader(path: Path) -> Engine:
    """Return the engine that reads the file at `path` and has no means to change it.

    Each use opens the file and closes it again, so no reader holds back a checkpoint for long.
    """
    return create_engine("sqlite://", creator=lambda: open_reader(path), poolclass=NullPool)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")
