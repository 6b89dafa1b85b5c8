"""`tokfleet sql` as a person runs it: where the question comes from, its parameters, what there is to ask, its end."""

import csv
import io
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator.cli import main
from orchestrator.store import Store
from schema.view_columns import VIEW_COLUMNS
from tests.command import Command
from tests.factories import make_fingerprint, make_job, make_record, make_run
from tests.stores import new_store

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return tokfleet's home, with a store of one result in it."""
    with Store.open(str(new_store(tmp_path, "tokfleet.sqlite"))) as store:
        store.save_run(make_run(), [make_job()])
        store.save_fingerprint(make_fingerprint())
        store.save_records([make_record()])
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path))
    monkeypatch.delenv("TOKFLEET_DB", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path


def printed(capsys: Any, *arguments: str, status: int = 0) -> str:
    assert main(["sql", *arguments]) == status, capsys.readouterr().err
    out, err = capsys.readouterr()
    return str(out if status == 0 else err)


def test_a_file_is_named_by_an_option_and_parameters_fill_it(home: Path, capsys: Any) -> None:
    (home / "q.sql").write_text("select host, test from results where host = :host and n_prompt = :n")
    arguments = ("-f", str(home / "q.sql"), "-p", "host=box-a", "--param", ":n=512", "--format", "csv")
    assert printed(capsys, *arguments) == "host,test\nbox-a,pp512\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("select :a", "-p", "a"), "not NAME=VALUE"),
        (("select :a", "-p", "a b=1"), "not NAME=VALUE"),
        (("select 1", "-f", "x.sql"), "two questions"),
        (("--schema", "reslts"), "There is no view reslts. There are results, latest"),
    ],
)
def test_wrong_usage_is_said(home: Path, capsys: Any, arguments: tuple[str, ...], said: str) -> None:
    assert said in printed(capsys, *arguments, status=2)


def test_a_file_that_is_not_there_is_named(home: Path, capsys: Any) -> None:
    assert "none.sql: No such file" in printed(capsys, "-f", str(home / "none.sql"), status=1)


def test_without_a_question_standard_input_is_read(home: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"select 7 as n")))
    assert printed(capsys, "--format", "csv") == "n\n7\n"


def test_the_columns_of_the_views_are_told_without_any_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "none"))
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "--schema", "--format", "csv"))))
    assert len(rows) == sum(map(len, VIEW_COLUMNS.values()))
    assert {"view": "latest", "column": "mbu", "type": "real", "unit": "share"}.items() <= rows[
        [(row["view"], row["column"]) for row in rows].index(("latest", "mbu"))
    ].items()
    samples = printed(capsys, "--schema", "samples")
    assert "repetition" in samples
    assert "latest" not in samples


def test_many_rows_are_written_as_they_come_and_in_little_memory(home: Path) -> None:
    command = Command(home)
    process = command.start("sql", f"{ENDLESS} SELECT i, i * 2 AS j FROM n", "--limit", "400000", "--format", "jsonl")
    assert process.stdout is not None
    assert process.stdout.readline() == '{"i": 1, "j": 2}\n'
    peak, n_lines = 0, 1
    for n_lines, _ in enumerate(process.stdout, 2):
        if n_lines % 50_000 == 0:
            peak = max(peak, psutil.Process(process.pid).memory_info().rss)
    process.stdout.close()
    assert process.communicate(timeout=60)[1] == "These are the first 400000 rows; --limit asks for more.\n"
    assert process.returncode == 0
    assert n_lines == 400_000
    assert peak < 120 << 20


def test_a_reader_that_leaves_ends_the_command_and_its_question(home: Path) -> None:
    process = Command(home).start("sql", f"{ENDLESS} SELECT i FROM n", "--limit", "100000000", "--format", "csv")
    assert process.stdout is not None
    process.stdout.readline()
    children = psutil.Process(process.pid).children()
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr is not None
    with process.stderr as stderr:
        assert stderr.read() == ""
    assert psutil.wait_procs(children, 10)[1] == []


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_no_question_behind(home: Path, stop: signal.Signals) -> None:
    process = Command(home).start("sql", f"{ENDLESS} SELECT count(*) FROM n")
    children = _question_of(process)
    os.kill(process.pid, stop)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == ((130, "") if stop == signal.SIGINT else (-9, ""))
    assert err == ("tokfleet: interrupted\n" if stop == signal.SIGINT else "")
    assert psutil.wait_procs(children, 10)[1] == []


def _question_of(process: "subprocess.Popen[str]") -> list[psutil.Process]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        children = psutil.Process(process.pid).children()
        if any(child.cpu_times().user > 0.2 for child in children):
            return children
        time.sleep(0.05)
    raise AssertionError("no question is being asked")
