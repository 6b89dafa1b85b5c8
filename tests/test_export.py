"""Results in files for others: every form, from both databases, whole or not at all."""

import csv
import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli import main
from orchestrator.interchange.export_file import export_lines
from orchestrator.interchange.view_rows import Wanted, moment, selected
from orchestrator.interchange.whole_file import whole_file, write_lines
from orchestrator.store import Store
from orchestrator.tables import render
from schema.errors import UsageError
from schema.job import ModelRef, Test
from schema.view_columns import VIEW_COLUMNS
from tests.factories import make_build, make_failure, make_fingerprint, make_job, make_record, make_run

PP, TG, DEEP = Test(n_prompt=512, n_gen=0), Test(n_prompt=0, n_gen=128), Test(n_prompt=0, n_gen=128, n_depth=4096)
SIDE_BY_SIDE = Test(n_prompt=512, n_gen=0, n_parallel=4)
OTHER = ModelRef(source="path", spec="/models/other_100%.gguf", identity="sha256:" + "c" * 64)


def filled(url: str) -> str:
    """Fill the store with two hosts, two builds, two models, a failure and a test that llama-bench does not have."""
    newer = make_build(llama_cpp_commit="9999999", binding="0.4.0")
    stand_in = make_build(binding="stand-in", method="fake")
    jobs = [make_job(test=test) for test in (PP, TG, DEEP, SIDE_BY_SIDE)]
    jobs += [make_job(host_uid="host-2", test=PP, model=OTHER), make_job(host_uid="host-2", test=TG)]
    jobs += [make_job(host_uid="host-2", test=DEEP)]
    with Store.open(url) as store:
        store.save_run(make_run(), jobs)
        store.save_fingerprint(make_fingerprint())
        second = make_fingerprint(host_uid="host-2", hostname="=cmd|' /C calc'!A0", build=newer)
        store.save_fingerprint(second)
        store.save_fingerprint(make_fingerprint(host_uid="host-2", build=stand_in, taken_at="2025-01-02T03:00:00Z"))
        records = [make_record(job, started_at=f"2026-01-0{day}T03:04:05.250000Z", ended_at=f"2026-01-0{day}T03:05:00Z")
                   for day, job in enumerate(jobs[:5], 1)]  # fmt: skip
        records[4] = make_record(jobs[4], build_id=newer.build_id, started_at="2026-02-01T00:00:00Z")
        records.append(make_record(jobs[5], failure=make_failure(message="no\nmemory")))
        records.append(make_record(jobs[6], build_id=stand_in.build_id))
        store.save_records(records)
    return url


def exported(url: str, directory: Path, *arguments: str) -> Path:
    """Return the file that `tokfleet export FILE ARGUMENTS` wrote; the first argument is its name."""
    path = directory / arguments[0]
    assert main(["export", str(path), *arguments[1:], "--db", url]) == 0
    return path


def test_every_form_has_every_column_and_the_same_rows_from_both_databases(store_url: str, tmp_path: Path) -> None:
    filled(store_url)
    columns = {column.name for column in VIEW_COLUMNS["results"]}
    as_json = json.loads(exported(store_url, tmp_path, "rates.json").read_text())
    as_lines = [json.loads(line) for line in exported(store_url, tmp_path, "rates.jsonl").read_text().splitlines()]
    with exported(store_url, tmp_path, "rates.csv").open(newline="") as file:
        as_csv = list(csv.DictReader(file))
    assert as_json == as_lines
    assert len(as_json) == len(as_csv) == 6
    assert set(as_json[0]) == set(as_csv[0]) == columns
    first = as_json[0]
    assert (first["test"], first["test_time"]) == ("pp512", "2026-01-01T03:04:05.250000Z")
    assert (first["tags"], first["marked_bad"], first["quality_reasons"]) == ({}, False, [])
    assert first["model_synthetic"] is True
    assert [row["test"] for row in as_csv] == [row["test"] for row in as_json]
    assert as_csv[0]["avg_ts"] == str(first["avg_ts"])
    assert as_csv[0]["marked_bad"] == "false"


def test_both_databases_give_the_same_lines(postgres_url: str, tmp_path: Path) -> None:
    from tests.stores import new_store

    urls = [filled(postgres_url), filled(str(new_store(tmp_path)))]
    for view in ("results", "latest", "failures", "samples"):
        told = []
        for url in urls:
            with Store.open(url) as store:
                told.append([json.loads(line) for line in export_lines(store, Wanted(view=view), "jsonl")])
        assert told[0] == told[1], view
        assert told[0]


def test_parquet_has_a_type_for_each_column_even_where_all_is_null(store_url: str, tmp_path: Path) -> None:
    import pyarrow.parquet

    filled(store_url)
    table = pyarrow.parquet.read_table(exported(store_url, tmp_path, "rates.parquet"))
    assert table.num_rows == 6
    kinds = {field.name: str(field.type) for field in table.schema}
    assert kinds["avg_ts"] == "double"
    assert kinds["n_prompt"] == "int64"
    assert kinds["test_time"] == "timestamp[us, tz=UTC]"
    assert kinds["marked_bad"] == "bool"
    assert kinds["joules_total"] == "double"
    assert table["joules_total"].null_count == 6
    row = table.to_pylist()[0]
    assert row["test_time"] == datetime(2026, 1, 1, 3, 4, 5, 250_000, tzinfo=UTC)
    assert json.loads(row["tags"]) == {}


def test_without_pyarrow_the_command_says_what_to_install(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert main(["export", str(tmp_path / "x.parquet"), "--db", store_url]) == 2
    assert "pip install 'tokfleet[parquet]'" in capsys.readouterr().err
    assert list(tmp_path.glob("*parquet*")) == []


@pytest.mark.parametrize(
    ("arguments", "tests"),
    [
        (["--host", "box-a"], ["pp512", "tg128", "tg128 @ d4096", "pp512 x4"]),
        (["--host", "host-2"], ["tg128 @ d4096", "pp512"]),
        (["--model", "OTHER_100%"], ["pp512"]),
        (["--model", "otherX100"], []),
        (["--since", "2026-01-03"], ["tg128 @ d4096", "pp512 x4", "pp512"]),
        (["--since", "2026-01-04T04:04+01:00"], ["pp512 x4", "pp512"]),
        (["--run", "run", "--view", "failures"], ["tg128"]),
        (["--view", "latest", "--host", "host-2"], ["pp512"]),
    ],
)
def test_rows_are_chosen_by_run_host_model_and_time(
    store_url: str, tmp_path: Path, arguments: list[str], tests: list[str]
) -> None:
    path = exported(filled(store_url), tmp_path, "rates.jsonl", *arguments)
    assert [json.loads(line)["test"] for line in path.read_text().splitlines()] == tests


def test_a_time_may_be_a_date_or_a_span_that_ends_now() -> None:
    now = datetime(2026, 2, 1, tzinfo=UTC)
    assert moment("2026-01-31", now) == datetime(2026, 1, 31, tzinfo=UTC)
    assert moment("2026-01-31T18:00+02:00", now) == datetime(2026, 1, 31, 16, tzinfo=UTC)
    assert moment("36h", now) == datetime(2026, 1, 30, 12, tzinfo=UTC)
    assert moment("1w", now) == datetime(2026, 1, 25, tzinfo=UTC)
    for text in ("yesterday", "d", "", "99999999999999w", "2026-13-01"):
        with pytest.raises(UsageError, match="is no time"):
            moment(text, now)


def test_text_that_a_spreadsheet_would_compute_gets_an_apostrophe_and_numbers_do_not() -> None:
    cells = ["=1+1", "+49 30", "-rf", "@sum", "-1", "+3.5e-2", "a=b", -1, -2.5, None, "\t=1"]
    (_, line) = render(["c"] * len(cells), [cells], "csv")
    assert line == "'=1+1,'+49 30,'-rf,'@sum,-1,+3.5e-2,a=b,-1,-2.5,,\\t=1"


def test_a_host_that_is_called_like_a_formula_is_text_in_csv(store_url: str, tmp_path: Path) -> None:
    with exported(filled(store_url), tmp_path, "rates.csv", "--host", "host-2").open(newline="") as file:
        hosts = {row["host"] for row in csv.DictReader(file)}
    assert hosts == {"'=cmd|' /C calc'!A0"}


def test_a_name_with_gz_at_its_end_is_compressed_and_always_the_same(store_url: str, tmp_path: Path) -> None:
    filled(store_url)
    packed = exported(store_url, tmp_path, "rates.csv.gz").read_bytes()
    assert gzip.decompress(packed) == exported(store_url, tmp_path, "rates.csv").read_bytes()
    assert exported(store_url, tmp_path, "rates.csv.gz").read_bytes() == packed


def test_a_file_is_as_it_was_where_the_export_fails(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("before")

    def lines() -> Any:
        yield "one"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_lines(path, lines())
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_plain_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    import os
    import threading

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_lines(pipe, ["row"])
    reader.join()
    assert read == ["row\n"]
    assert pipe.is_fifo()
    with pytest.raises(UsageError, match="is a directory"), whole_file(tmp_path):
        pass


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    write_lines(tmp_path / "link.csv", ["row"])
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == "row\n"


def test_the_database_itself_is_never_written_over(tmp_path: Path, capsys: Any) -> None:
    from tests.stores import new_store

    path = new_store(tmp_path, "runs.sqlite")
    (tmp_path / "same.sqlite").symlink_to(path)
    before = path.read_bytes()
    for name in ("runs.sqlite", "same.sqlite", "runs.sqlite-wal"):
        assert main(["export", "--to", "llama-bench-sqlite", str(tmp_path / name), "--db", str(path)]) == 2
        assert "is the database itself" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["x.xyz"], "cannot be told from its name"),
        (["noending"], "cannot be told from its name"),
        (["-", "--to", "parquet"], "name a file"),
        (["-", "--to", "llama-bench-sqlite"], "name a file"),
        (["x.md", "--view", "failures"], "llama-bench has no failures"),
        (["x.jsonl", "--to", "store", "--host", "a"], "written whole"),
        (["x.csv", "--since", "soon"], "is no time"),
    ],
)
def test_what_has_no_meaning_is_said(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", *arguments, "--db", store_url]) == 2
    assert words in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("x")] == []


def test_a_large_view_is_read_a_few_rows_at_a_time(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("view_rows", "bench_sqlite", "parquet_file"):
        monkeypatch.setattr(f"orchestrator.interchange.{module}.AT_ONCE", 3)
    jobs = [make_job(test=Test(n_prompt=n, n_gen=0)) for n in range(1, 11)]
    with Store.open(store_url) as store:
        store.save_run(make_run(), jobs)
        store.save_records([make_record(job) for job in jobs])
        with store.snapshot() as connection, selected(connection, Wanted()) as (columns, rows):
            assert len(next(rows)) == len(columns)  # the rest is never read
    assert len(exported(store_url, tmp_path, "all.jsonl").read_text().splitlines()) == 10
    for name in ("all.sqlite", "all.parquet", "all.md"):
        exported(store_url, tmp_path, name)
    assert (tmp_path / "all.md").read_text().count("| pp") == 0
    assert (tmp_path / "all.md").read_text().count(" pp") == 10


def test_standard_output_has_the_rows_and_nothing_else(store_url: str, capsys: Any) -> None:
    filled(store_url)
    assert main(["export", "-", "--host", "box-a", "--db", store_url]) == 0
    out = capsys.readouterr().out
    assert [row["test"] for row in csv.DictReader(out.splitlines())] == [
        "pp512",
        "tg128",
        "tg128 @ d4096",
        "pp512 x4",
    ]
