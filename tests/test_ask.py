import sqlite3
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ask import ask
from orchestrator.store import Store
from schema.errors import SqlError, StoreError
from tests.factories import make_fingerprint, make_job, make_record, make_run
from tests.stores import new_store

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.fixture
def url(tmp_path: Path) -> str:
    path = new_store(tmp_path)
    with Store.open(str(path)) as store:
        store.save_run(make_run(), [make_job()])
        store.save_fingerprint(make_fingerprint())
        store.save_records([make_record()])
    return str(path)


def refusal(url: str, sql: str, **options: Any) -> str:
    with pytest.raises(SqlError) as raised:
        list(ask(url, sql, **options))
    return str(raised.value)


def test_a_question_is_answered_with_columns_and_rows(url: str) -> None:
    answer = ask(url, "SELECT host, test, n_samples FROM latest;")
    assert answer.columns == ("host", "test", "n_samples")
    assert list(answer) == [("box-a", "pp512", 3)]
    assert not answer.truncated


def test_rows_are_cut_at_the_limit_and_the_answer_says_so(url: str) -> None:
    answer = ask(url, f"{ENDLESS} SELECT i FROM n", limit=3)
    assert list(answer) == [(1,), (2,), (3,)]
    assert answer.truncated
    exact = ask(url, "SELECT * FROM samples", limit=3)
    assert len(list(exact)) == 3
    assert not exact.truncated


def test_without_a_limit_all_rows_come_and_an_empty_answer_has_its_columns(url: str) -> None:
    assert len(list(ask(url, f"{ENDLESS} SELECT i FROM n LIMIT 2500", limit=None))) == 2500
    empty = ask(url, "SELECT host FROM results WHERE host = 'nobody'")
    assert (empty.columns, list(empty)) == (("host",), [])


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM run",
        "-- harmless\nDELETE FROM run",
        "UPDATE attempt SET avg_ts = 1e6",
        "INSERT INTO model (identity) VALUES ('x')",
        "REPLACE INTO model (identity) VALUES ('x')",
        "DROP TABLE sample",
        "DROP VIEW results",
        "CREATE TABLE t (a)",
        "CREATE TEMP TABLE t (a)",
        "ALTER TABLE run ADD COLUMN x",
        "ATTACH 'other.db' AS other",
        "VACUUM",
        "VACUUM INTO 'copy.db'",
        "PRAGMA journal_mode = delete",
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = ON",
        "BEGIN IMMEDIATE",
        "ANALYZE",
        "REINDEX",
    ],
)
def test_whatever_is_no_question_is_refused_and_changes_nothing(
    url: str, sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = Path(url).read_bytes()
    assert "Only SELECT is answered here, not " in refusal(url, sql)
    assert Path(url).read_bytes() == before
    assert not {path.name for path in tmp_path.iterdir()} & {"other.db", "copy.db"}


@pytest.mark.parametrize(
    "sql",
    [
        "WITH x AS (SELECT 1) DELETE FROM run",
        "SELECT load_extension('evil')",
        "SELECT * FROM pragma_table_info('run')",
    ],
)
def test_a_question_that_does_more_than_read_is_refused(url: str, sql: str) -> None:
    assert "Only SELECT is answered here" in refusal(url, sql)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT avg_tss FROM results", "There is no column avg_tss. Did you mean avg_ts?"),
        ("SELECT r.HOTS FROM results AS r", "There is no column r.HOTS. Did you mean host?"),
        ("SELECT wattage FROM hosts", "hosts have: allocation_facts, allocation_id"),
        ("SELECT * FROM result", "There is no table or view result. Did you mean results?"),
        ("SELECT * FROM wine_list", "There are results, latest, failures, samples, hosts, probes."),
        ("SELEC host FROM results", "Did you mean SELECT?"),
        ("results", "A question starts with SELECT."),
        ("SELECT host FORM results r", "The question is not SQL from 'results' on."),
        ("SELECT 1; DELETE FROM run", "Only one statement is answered at a time."),
        ("UPDATE samples SET nosuch = 1", "Only SELECT is answered here, not UPDATE"),
        ("INSERT INTO nosuch VALUES (1)", "Only SELECT is answered here, not INSERT"),
        ("SELECT 1 FROM", "incomplete input."),
        ("SELECT ?", "bindings"),
        ("SELECT nosuch(1)", "no such function: nosuch."),
        ("", "There is no question."),
        (" ; -- nothing", "There is no question."),
        ("SELECT 'a\0b'", "null character"),
        ("SELECT '\ud83d'", "does not understand"),
        ("SELECT hex(zeroblob(900000))", "larger than 1000000 bytes"),
    ],
)
def test_a_mistake_is_named_in_plain_words(url: str, sql: str, words: str) -> None:
    assert words in refusal(url, sql)


def test_a_question_without_end_is_stopped_while_it_looks_for_its_first_row_and_later(url: str) -> None:
    message = "took more than 0.2 s"
    assert message in refusal(url, f"{ENDLESS} SELECT count(*) FROM n", timeout_seconds=0.2)
    assert message in refusal(url, f"{ENDLESS} SELECT i FROM n WHERE i < 3", timeout_seconds=0.2)


def test_reading_does_not_hold_up_a_writer_and_a_slow_reader_sees_one_moment(url: str) -> None:
    answer = iter(ask(url, f"{ENDLESS} SELECT i, (SELECT count(*) FROM attempt) FROM n LIMIT 2000"))
    assert next(answer) == (1, 1)
    with Store.open(url) as store:
        store.save_records([make_record(attempt_uid="late", number=2)])
    assert {count for _, count in answer} == {1}
    assert list(ask(url, "SELECT count(*) FROM attempt")) == [(2,)]


def test_the_connection_is_closed_when_the_caller_stops_early(url: str) -> None:
    answer = ask(url, f"{ENDLESS} SELECT i FROM n", limit=None)
    assert next(iter(answer)) == (1,)
    answer.close()
    assert list(answer) == []


def test_functions_of_json_can_be_used(url: str) -> None:
    sql = "SELECT j.value FROM results, json_each('[7]') AS j"
    assert list(ask(url, sql)) == [(7,)]


def test_a_missing_store_is_said_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No run was stored yet at"):
        ask(str(tmp_path / "none.db"), "SELECT 1")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_lacks_a_view_is_said_not_to_be_whole(url: str) -> None:
    with sqlite3.connect(url) as connection:
        connection.execute("DROP VIEW results")
    connection.close()
    with pytest.raises(StoreError, match=r"not whole: no such table.*`tokfleet db upgrade`"):
        ask(url, "SELECT * FROM latest")
    with Store.open(url) as store, pytest.raises(StoreError, match="not whole: no such table"):
        store.results()


def test_a_damaged_store_is_said_to_be_damaged(url: str) -> None:
    connection = sqlite3.connect(url)
    page, root = (
        connection.execute("PRAGMA page_size").fetchone()[0],
        "SELECT rootpage FROM sqlite_master WHERE name = 'run'",
    )
    offset = (connection.execute(root).fetchone()[0] - 1) * page
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with open(url, "r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * page)
    with pytest.raises(StoreError, match="damaged"):
        list(ask(url, "SELECT * FROM run"))
