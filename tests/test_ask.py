"""Questions in SQL on both databases: what is answered, what is refused and in which words, and what it may cost."""

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.ask import Answer, ask
from orchestrator.store import Store
from orchestrator.store_url import is_postgres
from schema.errors import SqlError, StoreError
from tests.asking import let_read
from tests.factories import make_fingerprint, make_job, make_record, make_run
from tests.stores import new_store

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


def fill(url: str) -> str:
    with Store.open(url) as store:
        store.save_run(make_run(tags={"room": "ö"}), [make_job()])
        store.save_fingerprint(make_fingerprint())
        store.save_records([make_record()])
    return url


@pytest.fixture
def url(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return let_read(fill(store_url), tmp_path / "home", monkeypatch)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    return fill(str(new_store(tmp_path)))


def refusal(url: str, sql: str, **options: Any) -> str:
    with pytest.raises(SqlError) as raised:
        list(ask(url, sql, **options))
    return str(raised.value)


def askers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if "orchestrator.answering" in " ".join(child.cmdline())]


def test_a_question_is_answered_with_columns_and_rows(url: str) -> None:
    answer = ask(url, "SELECT host, test, n_samples FROM latest;")
    assert answer.columns == ("host", "test", "n_samples")
    assert list(answer) == [("box-a", "pp512", 3)]
    assert not answer.truncated


def test_values_are_the_same_whatever_the_database(url: str) -> None:
    sql = (
        "SELECT results.tags, test_time, test_epoch, final, model_synthetic, NULL, results.quality_reasons, "
        "results.avg_ts > 1, "
        "AVG(n_prompt) OVER (), SUM(n_prompt) OVER () "
        "FROM results JOIN attempt ON attempt.attempt_uid = results.attempt_uid"
    )
    ((*row,),) = ask(url, sql)
    assert row == [
        *('{"room": "\\u00f6"}', "2026-01-02T03:04:05.250000Z", 1767323045, 1, 1, None, "[]", 1, 512.0, 512),
    ]
    assert [type(value) for value in row[-2:]] == [float, int]


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


def test_a_parameter_has_the_type_of_what_it_stands_beside(url: str) -> None:
    sql = (
        "SELECT host FROM results WHERE host = :host AND n_prompt = :n AND avg_ts > :rate AND test_time > :since "
        "AND attempt_uid NOT LIKE '%:nobody%' LIMIT :most"
    )
    given: dict[str, Any] = {"host": "box-a", "n": 512, "rate": 1.5, "since": "2026-01-01T00:00:00Z", "most": 5}
    assert list(ask(url, sql, parameters=given)) == [("box-a",)]
    assert list(ask(url, sql, parameters=given | {"host": "box-a' OR ''='"})) == []


@pytest.mark.parametrize(
    ("sql", "given", "words"),
    [
        ("SELECT :host", {}, "asks for a value of :host. Give it: -p host=VALUE"),
        ("SELECT :host", {"hots": 1, "host": 2}, "has no :hots. Did you mean host?"),
        ("SELECT 1 -- :host", {"host": 1}, "has no :host. It has: none."),
        ("SELECT ':host', \":host\" /* :host */", {"host": 1}, "has no :host"),
    ],
)
def test_parameters_are_those_of_the_question(url: str, sql: str, given: dict[str, Any], words: str) -> None:
    assert words in refusal(url, sql, parameters=given)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT avg_tss FROM results", "There is no column avg_tss. Did you mean avg_ts?"),
        ("SELECT r.HOTS FROM results AS r", "Did you mean host?"),
        ("SELECT wattage FROM hosts", "hosts have: allocation_facts, allocation_id"),
        ("SELECT nubmer FROM attempt", "There is no column nubmer. Did you mean number?"),
        ("SELECT * FROM result", "There is no table or view result. Did you mean results?"),
        ("SELECT * FROM atempt", "There is no table or view atempt. Did you mean attempt?"),
        (
            "SELECT * FROM wine_list",
            "There is no table or view wine_list. There are results, latest, failures, samples",
        ),
        ("SELECT host FORM results r", "The question is not SQL from 'r"),
        ("SELECT 1; DELETE FROM run", "Only one statement is answered at a time."),
        ("UPDATE samples SET n_tokens = 1", "Only SELECT is answered here, not UPDATE"),
        ("INSERT INTO run VALUES (1)", "Only SELECT is answered here, not INSERT"),
        ("SELECT nosuch(1)", "nosuch"),
        ("", "There is no question."),
        (" ; -- nothing", "There is no question."),
        ("SELECT '" + "x" * 100_000 + "'", "more than the 100000 that one may have"),
    ],
)
def test_a_mistake_is_named_in_plain_words(url: str, sql: str, words: str) -> None:
    assert words in refusal(url, sql)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELEC host FROM results", "Did you mean SELECT?"),
        ("results", "A question starts with SELECT."),
        ("SELECT 1 FROM", "incomplete input."),
        ("SELECT ?", "does not understand the question"),
        ("SELECT nosuch(1)", "no such function: nosuch."),
        ("SELECT 'a\0b'", "null character"),
        ("SELECT '\ud83d'", "does not understand"),
        ("SELECT CAST(x'ff' AS TEXT)", "no text in UTF-8. Ask for hex() of it."),
        ("SELECT hex(zeroblob(900000))", "larger than 1000000 bytes"),
    ],
)
def test_what_only_sqlite_would_say_is_in_plain_words_too(path: str, sql: str, words: str) -> None:
    assert words in refusal(path, sql)


def test_a_question_without_end_is_stopped_while_it_looks_for_its_first_row_and_later(url: str) -> None:
    message = "took more than 0.3 s"
    assert message in refusal(url, f"{ENDLESS} SELECT count(*) FROM n", timeout_seconds=0.3)
    assert message in refusal(url, f"{ENDLESS} SELECT i FROM n WHERE i < 3", timeout_seconds=0.3)


def test_the_time_in_which_the_caller_reads_does_not_count(url: str) -> None:
    answer = iter(ask(url, f"{ENDLESS} SELECT i FROM n LIMIT 3000", limit=None, timeout_seconds=5.0))
    next(answer)
    (asker,) = askers()
    asker.suspend()  # as if it waited for its reader
    time.sleep(0.2)
    asker.resume()
    assert sum(1 for _ in answer) == 2999


def test_a_function_that_heeds_no_limit_ends_with_its_process(path: str) -> None:
    long = "(SELECT group_concat(substr(hex(zeroblob(20000)), 1, 40000), '') FROM n WHERE i < 20)"
    sql = (
        f"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 30) SELECT instr({long}, '0001') FROM n"
    )
    assert isinstance(list(ask(path, sql, timeout_seconds=1.0)), list)
    sql = "SELECT printf('%.*c', 2000000000, 'x')"
    assert refusal(path, sql, timeout_seconds=0.5)
    assert askers() == []


def test_an_answer_that_needs_more_memory_than_there_is_is_refused(path: str) -> None:
    columns = ", ".join(["hex(zeroblob(490000))"] * 500)
    assert "more than 200 MiB" in refusal(path, f"SELECT {columns}", memory_bytes=200 << 20, timeout_seconds=20.0)
    assert list(ask(path, "SELECT 1")) == [(1,)]


def test_reading_does_not_hold_up_a_writer_and_a_slow_reader_sees_one_moment(url: str) -> None:
    answer = iter(ask(url, f"{ENDLESS} SELECT i, (SELECT count(*) FROM attempt) FROM n LIMIT 20000", limit=None))
    assert next(answer) == (1, 1)
    with Store.open(url) as store:
        store.save_records([make_record(attempt_uid="late", number=2)])
    assert {count for _, count in answer} == {1}
    assert list(ask(url, "SELECT count(*) FROM attempt")) == [(2,)]


def test_the_process_that_asks_ends_when_the_caller_stops_early(url: str) -> None:
    answer = ask(url, f"{ENDLESS} SELECT i FROM n", limit=None)
    assert next(iter(answer)) == (1,)
    answer.close()
    assert list(answer) == []
    assert askers() == []


def test_the_process_that_asks_ends_when_its_caller_is_killed(url: str) -> None:
    answer = ask(url, f"{ENDLESS} SELECT i FROM n", limit=None)
    next(iter(answer))
    (asker,) = askers()
    caller = os.fork()
    if caller == 0:  # holds the pipe as well, until it is killed
        time.sleep(60)
        os._exit(0)
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    assert asker.is_running()
    answer.close()
    assert asker.wait(10) is None or not asker.is_running()


def test_a_process_that_dies_is_no_silence(url: str) -> None:
    answer: Answer = ask(url, f"{ENDLESS} SELECT i FROM n", limit=None)
    rows: Iterator[tuple[Any, ...]] = iter(answer)
    next(rows)
    (asker,) = askers()
    asker.kill()
    with pytest.raises(SqlError, match="ended by signal 9"):
        list(rows)


def test_functions_of_json_can_be_used(url: str) -> None:
    function = "jsonb_array_elements('[7]')" if is_postgres(url) else "json_each('[7]')"
    assert list(ask(url, f"SELECT j.value FROM results, {function} AS j")) in ([(7,)], [("7",)])


def test_a_missing_store_is_said_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No run was stored yet at"):
        ask(str(tmp_path / "none.db"), "SELECT 1")
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_lacks_a_view_is_said_not_to_be_whole(path: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("DROP VIEW results")
    connection.close()
    with pytest.raises(StoreError, match=r"not whole: no such table.*`tokfleet db upgrade`"):
        ask(path, "SELECT * FROM results")
    with Store.open(path) as store, pytest.raises(StoreError, match="not whole: no such table"):
        store.results()


def test_a_damaged_store_is_said_to_be_damaged(path: str) -> None:
    connection = sqlite3.connect(path)
    page, root = (
        connection.execute("PRAGMA page_size").fetchone()[0],
        "SELECT rootpage FROM sqlite_master WHERE name = 'run'",
    )
    offset = (connection.execute(root).fetchone()[0] - 1) * page
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(b"\xff" * page)
    with pytest.raises(StoreError, match="damaged"):
        list(ask(path, "SELECT * FROM run"))
