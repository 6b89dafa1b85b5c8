"""People's own SQLite files: read by name, and whatever a schema tries, nothing happens."""

import sqlite3
from pathlib import Path

import pytest

from benchmarks.import_inputs import OLD
from orchestrator.interchange.bench_file import read_text
from orchestrator.interchange.bench_folder import read_source
from orchestrator.interchange.found import Found
from orchestrator.interchange.people_sqlite import read_sqlite

VALUES = (
    *("77aa001", "2090", "1", "0", "1", "1", "AMD Ryzen 9", "NVIDIA A", "/srv/a.gguf", "llama 13B Q5_K", "9229000000"),
    *("13016000000", "2048", "12", "1", "99", "0", "1", "0.00", "512", "0", "2025-10-11T09:14:02Z", "220500000"),
    *("707106", "2322.007404", "7.446291"),
)
DEFAULT = "INTEGER"
KINDS = {**dict.fromkeys(("build_commit", "tensor_split", "test_time"), "TEXT"), "avg_ts": "REAL", "stddev_ts": "REAL"}
TABLE = f"CREATE TABLE test ({', '.join(f'{name} {KINDS.get(name, DEFAULT)}' for name in OLD)})"
INSERT = f"INSERT INTO test VALUES ({', '.join(map(repr, VALUES))})"


def database(*statements: str) -> bytes:
    connection = sqlite3.connect(":memory:")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    raw = connection.serialize()
    connection.close()
    return raw


def read(*statements: str) -> Found:
    return read_text(database(*statements), "people.db")


def test_rows_are_those_of_the_statements_that_made_them() -> None:
    (row,) = read(TABLE, INSERT).rows
    text = f"INSERT INTO test ({', '.join(OLD)}) VALUES ({', '.join(map(repr, VALUES))});\n"
    assert row.import_key == read_text(text.encode(), "dump.sql").rows[0].import_key
    assert (row.format, row.table, row.line, row.backends) == ("sqlite", "test", 1, "CUDA")


def test_columns_go_by_name_and_missing_ones_are_not_there() -> None:
    again = TABLE.replace("TABLE test", "TABLE llama_bench").replace("gpu_blas INTEGER, blas", "n_ubatch INTEGER, blas")
    rows = read(TABLE, INSERT, again, INSERT.replace("INTO test", "INTO llama_bench")).rows
    assert {row.table: row.settings.get("n_ubatch") for row in rows} == {"test": None, "llama_bench": 1}


def test_rows_that_are_none_are_refused_by_table_and_number() -> None:
    found = read(
        TABLE,
        INSERT,
        INSERT.replace("2322.007404", "9e999").replace("'9e999'", "9e999"),
        "INSERT INTO test DEFAULT VALUES",
    )
    assert [(refusal.line, refusal.severity) for refusal in found.refusals] == [(2, "void"), (3, "damaged")]
    assert "'test'" in found.refusals[0].reason
    assert found.rows == ()
    blob = read(TABLE, INSERT.replace("'77aa001'", "x'00ff'"))
    assert "no text and no number" in blob.refusals[0].reason


ENDLESS = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS avg_ts FROM c"


@pytest.mark.parametrize(
    "statements",
    [
        (f"CREATE VIEW llama_bench AS {ENDLESS}",),
        (f"CREATE VIEW test AS SELECT {', '.join(f'1 AS {name}' for name in OLD)}",),
        (
            TABLE.replace("avg_ts REAL", "avg_ts REAL AS (hex(zeroblob(100000000)))"),
            "INSERT INTO test (n_prompt, n_gen) VALUES (512, 0)",
        ),
        (f"CREATE VIRTUAL TABLE test USING fts5({', '.join(OLD)})",),
        (TABLE, "CREATE TRIGGER t AFTER INSERT ON test BEGIN DELETE FROM test; END"),
    ],
)
def test_a_schema_that_would_run_something_does_nothing(statements: tuple[str, ...]) -> None:
    assert read(*statements).rows == ()


def test_time_is_bounded() -> None:
    many = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 3000) SELECT x FROM c"
    rows = f"INSERT INTO test SELECT {', '.join(map(repr, VALUES))} FROM ({many})"
    part = read_sqlite(database(TABLE, rows), seconds=0.0)
    assert any("within 0 s" in refusal.reason for refusal in part.refusals)


def test_what_only_begins_like_a_database_is_refused() -> None:
    for raw in (b"SQLite format 3\0", b"SQLite format 3\0" + b"\xff" * 5000, database(TABLE, INSERT)[:3000]):
        found = read_text(raw, "broken.db")
        assert (found.rows, len(found.refusals)) == ((), 1)


def test_the_file_is_not_changed_and_a_log_beside_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "people.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(TABLE)
    connection.execute(INSERT)
    connection.commit()
    before = path.read_bytes(), sorted(tmp_path.iterdir())
    found = read_source(path).found
    assert (path.read_bytes(), sorted(tmp_path.iterdir())) == before
    assert found.incomplete
    assert "people.db-wal" in found.notes[-1]
    connection.close()
    found = read_source(path).found
    assert (len(found.rows), found.incomplete) == (1, False)
