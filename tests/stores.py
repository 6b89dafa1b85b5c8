"""Stores for tests, made by the migrations as a user's store is, once per session; and plain SQL on any of them."""

import functools
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from orchestrator.database import Database, database_at
from orchestrator.migrate import upgrade
from orchestrator.plain import plain
from orchestrator.store import Store
from orchestrator.store_url import is_postgres
from schema.job import Job
from tests.factories import make_fingerprint, make_job, make_run


@functools.cache
def _made_by_migrations() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "runs.db"
        upgrade(str(path))
        return path.read_bytes()


def new_store(directory: Path, name: str = "runs.db") -> Path:
    """Return the path of a new, empty store in `directory`."""
    path = directory / name
    path.write_bytes(_made_by_migrations())
    return path


def answers(url: str, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of one SELECT as plain values, the same from both databases."""
    return answers_of(database_at(url), sql)


def answers_of(database: Database, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of one SELECT on an open store's database."""
    engine = database.reader()
    try:
        with engine.connect() as connection:
            return [tuple(plain(value) for value in row) for row in connection.exec_driver_sql(sql)]
    finally:
        engine.dispose()


def count(url: str, table: str) -> int:
    """Return the number of rows of a table or view."""
    return int(answers(url, f"SELECT COUNT(*) FROM {table}")[0][0])


def change(url: str, script: str) -> None:
    """Do what no program of ours does: statements, split at semicolons, on a store, whatever its rules say."""
    engine = database_at(url).migrator()
    try:
        with engine.begin() as connection:
            if is_postgres(url):
                connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            for statement in filter(str.strip, script.split(";")):
                connection.exec_driver_sql(statement)
    finally:
        engine.dispose()


def open_store(url: str, jobs: Iterable[Job] = (make_job(),)) -> Store:
    """Return the store at `url` with one run of `jobs` and the fingerprint of its host."""
    store = Store.open(url)
    store.save_run(make_run(), list(jobs))
    store.save_fingerprint(make_fingerprint())
    return store
