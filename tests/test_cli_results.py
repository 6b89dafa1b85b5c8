"""`results`, `sql`, `db` and `fingerprint` on a real store in a file."""

import csv
import io
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.cli.hosts import facts
from orchestrator.store import Store
from schema.host import MemoryModules
from schema.job import Test
from tests.factories import (
    make_failure,
    make_fingerprint,
    make_job,
    make_model_facts,
    make_probe,
    make_record,
    make_run,
)
from tests.stores import new_store

NASTY = "box\na\x1b[31m\u202eexe"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store with two measured tests and a failed one, which is also what TOKFLEET_DB names."""
    path = new_store(tmp_path)
    jobs = [make_job(test=Test(n_prompt=p, n_gen=g)) for p, g in ((512, 0), (0, 128), (8192, 0))]
    with Store.open(str(path)) as opened:
        opened.save_fingerprint(make_fingerprint(hostname=NASTY))
        opened.save_run(make_run(), jobs)
        opened.save_records(
            [
                make_record(jobs[0]),
                make_record(jobs[1]),
                make_record(jobs[2], failure=make_failure(message="no\nmemory")),
            ]
        )
    monkeypatch.setenv("TOKFLEET_DB", str(path))
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COLUMNS", raising=False)
    return path


def printed(capsys: Any, *arguments: str, status: int = 0) -> str:
    """Return what `tokfleet ARGUMENTS` prints on standard output."""
    assert main(list(arguments)) == status, capsys.readouterr().err
    return str(capsys.readouterr().out)


def test_results_are_one_line_each_whatever_a_host_is_called(store: Path, capsys: Any) -> None:
    lines = printed(capsys, "results").splitlines()
    assert len(lines) == 4
    assert lines[0].split()[:5] == ["when", "run", "host", "model", "test"]
    assert "box\\na\\x1b[31m\\u202eexe" in lines[2]
    assert {"pp512", "tg128"} <= set(" ".join(lines).split())


@pytest.mark.parametrize("name", ["run-1", "latest", "run"])
def test_a_run_is_named_by_its_uid_or_the_start_of_it(store: Path, capsys: Any, name: str) -> None:
    assert len(printed(capsys, "results", name).splitlines()) == 4


def test_an_unknown_run_is_an_error(store: Path, capsys: Any) -> None:
    assert main(["results", "nosuchrun"]) == 1
    assert "nosuchrun" in capsys.readouterr().err


def test_other_formats_have_all_columns_and_the_name_as_it_is(store: Path, capsys: Any) -> None:
    rows = json.loads(printed(capsys, "results", "--format", "json"))
    assert {row["test"] for row in rows} == {"pp512", "tg128"}
    assert rows[0]["host"] == NASTY
    assert {"avg_ts", "stddev_ts", "asked_n_threads", "model_sha256"} <= set(rows[0])
    read = list(csv.DictReader(io.StringIO(printed(capsys, "results", "--format", "csv"))))
    assert [float(row["avg_ts"]) for row in read] == [row["avg_ts"] for row in rows]


def test_failures_say_why(store: Path, capsys: Any) -> None:
    lines = printed(capsys, "results", "--failed").splitlines()
    assert len(lines) == 3
    assert lines[2].endswith("pp8192  load   no\\nmemory")


def test_a_limit_that_cuts_says_so(store: Path, capsys: Any) -> None:
    assert main(["results", "--limit", "1", "--format", "jsonl"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1
    assert "first 1 rows" in err
    assert main(["results", "--limit", "2"]) == 0
    assert capsys.readouterr().err == ""


def test_a_store_without_results_says_so_on_standard_error(tmp_path: Path, capsys: Any) -> None:
    path = new_store(tmp_path)
    assert main(["results", "--db", str(path), "--format", "json"]) == 0
    assert capsys.readouterr() == ("[]\n", "No results yet.\n")


def test_a_store_that_is_not_there_is_an_error(tmp_path: Path, capsys: Any) -> None:
    for command in (["results"], ["sql", "select 1"]):
        assert main([*command, "--db", str(tmp_path / "none.db")]) == 1
        assert "none.db" in capsys.readouterr().err
    assert not (tmp_path / "none.db").exists()


def test_sql_comes_from_the_argument_a_file_or_standard_input(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    query = "select test from results order by test"
    (tmp_path / "query.sql").write_text(f"\ufeff{query};\n", encoding="utf-8")
    expected = "test\npp512\ntg128\n"
    assert printed(capsys, "sql", query, "--format", "csv") == expected
    assert printed(capsys, "sql", str(tmp_path / "query.sql"), "--format", "csv") == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(query.encode())))
    assert printed(capsys, "sql", "-", "--format", "csv") == expected


def test_sql_in_a_file_that_is_no_text_is_wrong_usage(store: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "query.sql").write_bytes(b"\xff\xfe")
    assert main(["sql", str(tmp_path / "query.sql")]) == 2
    assert "UTF-8" in capsys.readouterr().err


def test_sql_that_is_no_text_is_wrong_usage_wherever_it_comes_from(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"select '\xff'"), encoding="utf-8"))
    assert main(["sql", "-"]) == 2
    assert "Standard input is no text in UTF-8" in capsys.readouterr().err
    assert main(["sql", "select '\udcff'"]) == 2
    assert "The question is no text in UTF-8" in capsys.readouterr().err


def test_sql_from_a_file_that_is_not_there_names_the_file(store: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["sql", str(tmp_path / "query.sql")]) == 2
    assert "There is no file" in capsys.readouterr().err


def test_sql_that_is_none_is_one_line(store: Path, capsys: Any) -> None:
    assert main(["sql", "SELEC 1"]) == 1
    assert "SELECT" in capsys.readouterr().err


def test_sql_says_when_the_limit_cuts(store: Path, capsys: Any) -> None:
    assert main(["sql", "select test from results", "--limit", "1"]) == 0
    assert "first 1 rows" in capsys.readouterr().err


def test_an_interrupt_ends_a_question_that_never_ends(store: Path, capsys: Any) -> None:
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    assert main(["sql", endless]) == 130
    assert capsys.readouterr().err == "tokfleet: interrupted\n"


def test_sql_shows_no_rows_as_a_heading(store: Path, capsys: Any) -> None:
    assert printed(capsys, "sql", "select test from results where 0") == "test\n----\n"


def test_the_database_is_made_once_and_fits_then(tmp_path: Path, capsys: Any) -> None:
    path = str(tmp_path / "new" / "runs.db")
    assert "no schema yet" in printed(capsys, "db", "current", "--db", path)
    assert main(["db", "check", "--db", path]) == 1
    capsys.readouterr()
    assert "was made at revision" in printed(capsys, "db", "upgrade", "--db", path)
    assert "up to date already" in printed(capsys, "db", "upgrade", "--db", path)
    assert printed(capsys, "db", "check", "--db", path) == "The database fits this version.\n"
    assert printed(capsys, "db", "current", "--db", path).strip().isalnum()


def test_a_fingerprint_lists_nested_facts_by_dotted_names() -> None:
    fingerprint = make_fingerprint(sources={"cpu_name": "/proc/cpuinfo"})
    found = {name: (value, source) for name, value, source in facts(fingerprint)}
    assert found["host_uid"] == (fingerprint.host_uid, None)
    assert found["hardware.cpu_name"] == (fingerprint.hardware.cpu_name, "/proc/cpuinfo")
    assert found["hardware.hardware_id"] == (fingerprint.hardware.hardware_id, None)
    assert not any(name.startswith(("sources", "errors")) for name in found)


def test_a_result_is_explained_in_sentences_by_the_start_of_its_id(store: Path, capsys: Any) -> None:
    rows = json.loads(printed(capsys, "results", "--format", "json"))
    decode = next(row for row in rows if row["test"] == "tg128")
    shown = printed(capsys, "results").splitlines()
    assert any(line.endswith(decode["job_uid"][:8]) for line in shown)
    text = printed(capsys, "results", "--explain", decode["job_uid"][:8])
    assert "tg128 on box\\na\\x1b[31m\\u202eexe" in text
    assert "the header of the model file was not stored" in text
    assert max(map(len, text.splitlines())) <= 100
    failed = make_job(test=Test(n_prompt=8192, n_gen=0)).job_uid
    assert "failed in the stage load: no\\nmemory" in printed(capsys, "results", "--explain", failed)
    assert main(["results", "--explain", "nobody"]) == 1
    assert "nobody" in capsys.readouterr().err


def test_an_explanation_names_ceiling_and_memory_modules_where_they_are_known(store: Path, capsys: Any) -> None:
    job = make_job(test=Test(n_prompt=0, n_gen=64))
    model = make_model_facts(weight_bytes_per_token=10**9, key_width=8, value_width=8)
    modules = MemoryModules(source="udev", configured_mts=3200, bus_bits=128)
    with Store.open(str(store)) as opened:
        opened.save_fingerprint(make_fingerprint(memory_modules=modules, taken_at="2026-01-03T00:00:00Z"))
        opened.save_probe(make_probe())
        opened.save_run(make_run(run_uid="run-2"), [make_job(run_uid="run-2", test=job.test)])
        record = make_record(make_job(run_uid="run-2", test=job.test), model=model)
        opened.save_records([record])
    text = " ".join(printed(capsys, "results", "--explain", record.job_uid).split())
    assert "is the ceiling" in text
    assert "The memory modules could deliver 51.2 GB/s in theory." in text
