"""Results as the SQLite file that `llama-bench -o sql | sqlite3 FILE` makes, for llama.cpp's own compare script."""

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from orchestrator.interchange.bench_output import FIELDS, Bench

AT_ONCE = 500
TYPES = {str: "TEXT", int: "INTEGER", float: "REAL"}
OURS = ("host", "run_uid", "attempt_uid", "quality")
"""Columns of ours behind llama-bench's; the script passes over what it does not know."""


def create(connection: sqlite3.Connection) -> None:
    """Make the table, a real one: the script does not see views."""
    columns = [f"{name} {TYPES[kind]}" for name, kind in FIELDS.items()] + [f"{name} TEXT" for name in OURS]
    connection.execute(f"CREATE TABLE llama_bench ({', '.join(columns)})")


def write_file(path: Path, rows: Iterable[tuple[dict[str, Any], Bench]]) -> int:
    """Write the rows, each as stored and as llama-bench's, into a new file at `path`; return how many there were."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        create(connection)
        marks = ", ".join("?" * (len(FIELDS) + len(OURS)))
        done, left = 0, iter(rows)
        while some := list(islice(left, AT_ONCE)):
            values = [(*bench.values(), *(row.get(name) for name in OURS)) for row, bench in some]
            connection.executemany(f"INSERT INTO llama_bench VALUES ({marks})", values)  # noqa: S608 - question marks
            done += len(some)
        connection.execute("COMMIT")
        return done
