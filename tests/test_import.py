"""`tokfleet import` as people use it: files, folders, standard input, counts, exit statuses, and what it says."""

import io
import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.messy_folder import messy_folder
from orchestrator import import_run
from orchestrator.cli import main
from orchestrator.interchange import bench_folder
from orchestrator.store import Store
from tests.import_files import BUILD, HEAD, PP, TG, as_json, in_every_form, jsonl, md, rows_of, table_row
from tests.shared import CASES, needs_cases
from tests.stores import new_store

Run = Callable[..., "Done"]


class Done:
    """What a command printed, and how it ended."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def files(self) -> list[dict[str, Any]]:
        """The rows of `--format json`."""
        found: list[dict[str, Any]] = json.loads(self.out)
        return found

    @property
    def counts(self) -> dict[str, tuple[int, ...]]:
        """Found, new, known, likely, held and refused for each file that has any of it."""
        names = ("found", "new", "known", "likely", "held", "refused")
        rows = {Path(row["file"]).name: tuple(row[name] for name in names) for row in self.files}
        return {name: row for name, row in rows.items() if any(row)}


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of an empty store, of which TOKFLEET_DB tells the commands."""
    folder = tmp_path / "store"
    folder.mkdir()
    path = new_store(folder)
    monkeypatch.setenv("TOKFLEET_DB", str(path))
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("COLUMNS", raising=False)
    return path


@pytest.fixture
def run(db: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return how to run `tokfleet import` with these arguments."""

    def run(*arguments: object) -> Done:
        status = main(["import", *map(str, arguments)])
        printed = capsys.readouterr()
        return Done(status, printed.out, printed.err)

    return run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return an empty folder for files."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


def stored(db: Path, columns: str = "test, round(avg_ts, 2)") -> list[tuple[Any, ...]]:
    return rows_of(db, f"SELECT {columns} FROM all_results ORDER BY test, source_file, source_line")


BOTH = [("pp512", 1817.26), ("tg128", 61.3)]


def test_a_folder_of_one_run_in_every_form_gives_its_results_once(run: Run, runs: Path, db: Path) -> None:
    in_every_form(runs)
    done = run(runs, "--format", "json")
    assert done.status == 0
    assert done.counts == {
        "run.csv": (2, 2, 0, 0, 0, 0),
        "run.json": (2, 0, 2, 0, 0, 0),
        "run.jsonl": (2, 0, 2, 0, 0, 0),
        "run.md": (2, 0, 0, 2, 0, 0),
        "run.sql": (2, 0, 2, 0, 0, 0),
        "run.sqlite": (2, 0, 2, 0, 0, 0),
    }
    assert stored(db) == BOTH
    again = run(runs, "--format", "json")
    assert (again.status, {row[1:4] for row in again.counts.values()}) == (0, {(0, 2, 0)})
    assert stored(db) == BOTH


def test_the_table_for_people_has_a_line_for_each_file_and_a_sentence(run: Run, runs: Path) -> None:
    (runs / "a.jsonl").write_text(jsonl())
    (runs / "notes.md").write_text("# Only words\n")
    done = run(runs)
    lines = done.out.splitlines()
    assert lines[0].split() == ["file", "found", "new", "known", "likely", "held", "refused"]
    assert lines[2].split()[1:] == ["2", "2", "0", "0", "0", "0"]
    assert "notes.md" not in done.out
    assert lines[-1] == "2 results in 1 file: 2 new results, 0 known."


def test_a_dry_run_says_what_an_import_does_and_stores_nothing(run: Run, runs: Path, db: Path) -> None:
    shutil.rmtree(db.parent)
    in_every_form(runs)
    (runs / "cut.jsonl").write_text(jsonl()[:-20])
    tried = run(runs, "--dry-run", "--format", "json")
    assert not db.parent.exists()
    done = run(runs, "--format", "json")
    assert (tried.status, tried.files) == (done.status, done.files)
    before = db.read_bytes()
    (runs / "more.jsonl").write_text(jsonl(PP | {"test_time": "2025-10-12T00:00:00Z"}))
    tried = run(runs, "--dry-run", "--format", "json", "--host", "lab-7")
    assert db.read_bytes() == before
    assert tried.files == run(runs, "--format", "json", "--host", "lab-7").files
    assert "dry run" in run(runs, "--dry-run").out


def test_a_damaged_file_is_left_out_with_its_line_and_salvage_takes_the_rest(run: Run, runs: Path, db: Path) -> None:
    (runs / "a.csv").write_text("")
    (runs / "bad.md").write_text(HEAD + table_row() + table_row("tg128", "61,30 ± 0,12") + BUILD)
    (runs / "good.jsonl").write_text(jsonl(TG))
    done = run(runs)
    assert done.status == 3
    assert f"{runs}/bad.md:4: " in done.err
    assert "1 good row kept back because of it; --salvage takes them" in done.err
    assert stored(db) == BOTH[1:]
    done = run(runs / "bad.md")
    assert done.status == 1
    done = run(runs, "--salvage")
    assert done.status == 3
    assert stored(db) == BOTH


@pytest.mark.parametrize(
    ("files", "status"),
    [
        ({"a.jsonl": jsonl()}, 0),
        ({"a.jsonl": jsonl(), "notes.txt": "words"}, 0),
        ({"a.jsonl": jsonl(), "own.md": "| test | before | after |\n|---|---|---|\n| pp512 | 1.0 | 2.0 |\n"}, 0),
        ({"a.jsonl": jsonl(), "cut.jsonl": jsonl()[:-5]}, 3),
        ({"a.md": HEAD + table_row() + table_row("tg8", "inf ± nan") + BUILD}, 3),
        ({"notes.txt": "words"}, 1),
        ({"own.md": "| test | before | after |\n|---|---|---|\n| pp512 | 1.0 | 2.0 |\n"}, 1),
        ({"cut.jsonl": jsonl()[:-5]}, 1),
        ({}, 1),
    ],
)
def test_the_exit_status_says_whether_all_some_or_nothing_was_taken(
    run: Run, runs: Path, files: dict[str, str], status: int
) -> None:
    for name, text in files.items():
        (runs / name).write_text(text)
    assert run(runs, "--dry-run").status == status
    assert run(runs).status == status
    assert run(runs).status == status


def test_a_named_file_that_holds_nothing_or_is_not_there_is_named(run: Run, runs: Path, db: Path) -> None:
    db.unlink()
    (runs / "notes.txt").write_text("words")
    done = run(runs / "notes.txt", runs / "missing.json")
    assert done.status == 1
    assert "notes.txt: nothing of llama-bench's is in it" in done.err
    assert "missing.json: it cannot be read: No such file or directory" in done.err
    assert not db.exists()


def test_standard_input_is_read(run: Run, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(as_json().encode())))
    assert run("-").status == 0
    assert stored(db, "test, source_file") == [("pp512", "standard input"), ("tg128", "standard input")]


def test_tags_come_of_the_names_of_file_and_folders(run: Run, runs: Path, db: Path) -> None:
    (runs / "lab 3").mkdir()
    (runs / "lab 3" / "2025-10-11_fan=off,qwen3-4B.json").write_text(as_json())
    run(runs, "--tags-from-name")
    tags = json.loads(stored(db, "tags")[0][0])
    assert tags == {"lab": "yes", "3": "yes", "2025-10-11": "yes", "fan": "off", "qwen3-4B": "yes"}
    run(runs)
    assert json.loads(stored(db, "tags")[0][0]) == tags


def test_a_host_can_be_named(run: Run, runs: Path, db: Path) -> None:
    (runs / "a.json").write_text(as_json())
    assert run(runs, "--host", "lab-7").status == 0
    assert stored(db, "host, hardware_id, quality") == [("lab-7", None, None)] * 2
    done = run(runs, "--host", "a\x1bb")
    assert done.status == 2
    assert "is no name of a host" in done.err


def test_nothing_of_a_file_reaches_the_terminal_as_it_is(run: Run, runs: Path) -> None:
    nasty = "a\x1b[31m\u202e\nb"
    (runs / f"{nasty}.jsonl").write_text(jsonl().replace('"n_gen": 0', f'"n_gen": "{chr(27)}[2J"'))
    (runs / "c.md").write_text(HEAD + table_row("pp512", "\x9b31m\u202e ± 1.00") + BUILD)
    for form in ("table", "csv", "json", "jsonl", "markdown"):
        done = run(runs, "--format", form)
        text = done.out + done.err
        assert not [mark for mark in text if mark in "\x1b\x9b\u202e" or (ord(mark) < 32 and mark != "\n")]
        assert done.err.count("\n") == len(done.err.splitlines()) == 3


def test_an_import_that_is_cut_short_keeps_whole_files_and_says_so(
    run: Run, runs: Path, db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (runs / "a.jsonl").write_text(jsonl(PP))
    (runs / "b.jsonl").write_text(jsonl(TG))
    read = bench_folder.read_source

    def cut(path: Path, **options: bool) -> Any:
        if path.name == "b.jsonl":
            raise KeyboardInterrupt
        return read(path, **options)

    monkeypatch.setattr(import_run, "read_source", cut)
    done = run(runs)
    assert done.status == 130
    assert "1 of 2 files are done; the same command goes on from there." in done.err
    assert stored(db) == BOTH[:1]


def test_long_work_says_how_far_it_is(run: Run, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        (runs / f"{number}.md").write_text(md())
    monkeypatch.setattr("orchestrator.cli.import_.PATIENCE_SECONDS", -1.0)
    done = run(runs)
    assert "importing 8 files 50%" in done.err
    assert done.err.count("importing 8 files") <= 5


def test_a_database_of_tokfleet_in_the_folder_is_no_file_of_llama_bench(run: Run, runs: Path, db: Path) -> None:
    (runs / "a.jsonl").write_text(jsonl())
    run(runs)
    shutil.copy(db, runs / "copy.sqlite")
    done = run(runs, "--format", "json")
    assert (done.status, done.counts) == (0, {"a.jsonl": (2, 0, 2, 0, 0, 0)})
    assert "tokfleet" in done.files[1]["notes"][0]


def test_large_files_that_are_not_text_are_passed_over_by_their_beginning(run: Run, runs: Path) -> None:
    (runs / "a.jsonl").write_text(jsonl())
    with (runs / "model.gguf").open("wb") as file:
        file.write(b"GGUF\0\0\0\3")
        file.truncate(bench_folder.MOST_BYTES * 4)
    assert run(runs).status == 0
    with (runs / "long.csv").open("wb") as file:
        file.write(b"build_commit," * 1000)
        file.seek(bench_folder.MOST_BYTES)
        file.write(b"x")
    done = run(runs)
    assert done.status == 3
    assert "long.csv: it has 64 MiB, more than 64" in done.err


def test_imported_rows_stand_in_the_lists_with_their_file_and_line(
    run: Run, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "a.md").write_text(md())
    run(runs)
    assert main(["results"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[-1].strip() == "id"
    assert "imported from" in lines[0]
    assert "a.md:3" in lines[2]
    key = lines[2].split()[-1]
    assert main(["results", "--command", key]) == 2
    assert "was imported from" in capsys.readouterr().err
    assert main(["results", "--explain", key]) == 0
    assert main(["sql", "select host, test from latest", "--format", "json"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "[]"


def test_a_messy_folder_is_counted_exactly_and_a_second_time_adds_nothing(run: Run, runs: Path, db: Path) -> None:
    wanted = messy_folder(runs, 300, random.Random(7))
    tried = run(runs, "--dry-run", "--format", "json")
    done = run(runs, "--format", "json")
    assert (tried.status, tried.files) == (done.status, done.files)
    assert done.status == 3
    names = ("found", "new", "known", "likely", "held", "refused")
    counts = {os.path.relpath(row["file"], runs): tuple(row[name] for name in names) for row in done.files}
    assert {name: counts[name] for name in wanted} == wanted
    assert len(counts) == len(wanted) == 300
    n_new = sum(new for _, new, *_ in wanted.values())
    assert rows_of(db, "SELECT COUNT(*), COUNT(DISTINCT attempt_uid) FROM all_results") == [(n_new, n_new)]
    before = rows_of(db, "SELECT * FROM imported")
    again = run(runs, "--format", "json")
    assert sum(row["new"] + row["likely"] for row in again.files) == 0
    assert rows_of(db, "SELECT * FROM imported") == before


# What people met: the files of each case through the command, (found, new, known, likely, held, refused) of each.
PEOPLE = {
    "A1": (0, {"ot_pipes.md": (3, 3, 0, 0, 0, 0)}),
    "A2": (0, {"clean.json": (2, 2, 0, 0, 0, 0), "merged_2to1.json": (2, 0, 2, 0, 0, 0)}),
    "A3": (0, {"crashed_table.md": (2, 2, 0, 0, 0, 0)}),
    "A4": (3, {"good_2023.csv": (2, 2, 0, 0, 0, 0), "one_value_too_few.csv": (0, 0, 0, 0, 0, 2)}),
    "A5": (3, {"new_table.sql": (2, 2, 0, 0, 0, 0)}),
    "A8": (0, {"tensor_split.md": (6, 6, 0, 0, 0, 0)}),
    "A10": (0, {"three_eras.jsonl": (3, 3, 0, 0, 0, 0)}),
    "A11": (0, {}),
    "A12": (0, {"pg_and_early_build.md": (4, 4, 0, 0, 0, 0)}),
    "A13": (0, {"two_runs_in_one_report.md": (3, 3, 0, 0, 0, 0)}),
    "A15": (1, {"before_after_bold.md": (0, 0, 0, 0, 0, 1), "pivot_comma_decimals.md": (0, 0, 0, 0, 0, 1)}),
    "A17": (0, {"r1.json": (3, 3, 0, 0, 0, 0), "r1.md": (3, 0, 0, 3, 0, 0)}),
    "A20": (0, {"run.csv": (2, 2, 0, 0, 0, 0), "run.md": (2, 0, 0, 2, 0, 0), "run.json": (2, 0, 2, 0, 0, 0)}),
    "A21": (3, {}),
}


def people(case: str, runs: Path) -> None:
    """Copy the files of a case, without what is expected of them."""
    shutil.copytree(CASES / case, runs, dirs_exist_ok=True, ignore=shutil.ignore_patterns("expected.json"))


@needs_cases
@pytest.mark.parametrize("case", PEOPLE)
def test_files_of_people_go_in_as_they_justify_it_and_once(case: str, run: Run, runs: Path, db: Path) -> None:
    status, wanted = PEOPLE[case]
    people(case, runs)
    tried = run(runs, "--dry-run", "--format", "json")
    done = run(runs, "--format", "json")
    assert (done.status, tried.files) == (status, done.files), done.err
    assert {name: done.counts.get(name) for name in wanted} == wanted
    n_new = sum(row["new"] for row in done.files)
    assert rows_of(db, "SELECT COUNT(*) FROM all_results") == [(n_new,)]
    again = run(runs, "--format", "json")
    assert sum(row["new"] + row["likely"] for row in again.files) == 0
    assert main(["db", "check"]) == 0


def of_case(run: Run, db: Path, case: str, columns: str) -> list[tuple[Any, ...]]:
    people(case, db.parents[1] / "runs")
    run(db.parents[1] / "runs", "--salvage")
    return rows_of(db, f"SELECT {columns} FROM all_results ORDER BY source_file, source_line")


@needs_cases
def test_bars_in_overrides_shift_no_rate_on_the_way_to_the_store(run: Run, db: Path) -> None:
    wanted = json.loads((CASES / "A1" / "expected.json").read_text())
    rows = of_case(run, db, "A1", "avg_ts, stddev_ts, test, asked_tensor_buft_overrides")
    assert [row[:2] for row in rows] == [(row["ts"], row["sd"]) for row in [*wanted["rows"], wanted["wrapped_row"]]]
    assert rows[0][3] == wanted["ot_of_row_1"]


@needs_cases
def test_a_crashed_table_has_no_build_and_is_marked_incomplete(run: Run, db: Path) -> None:
    assert of_case(run, db, "A3", "build_commit") == [(None,), (None,)]
    assert rows_of(db, "SELECT DISTINCT incomplete FROM imported") == [(1,)]


@needs_cases
def test_a_processor_is_never_called_one(run: Run, db: Path) -> None:
    assert all(name and name != "1" for (name,) in of_case(run, db, "A4", "cpu_info"))


@needs_cases
def test_a_comma_means_two_runs_and_a_slash_another_setting(run: Run, db: Path) -> None:
    splits = [row[0] for row in of_case(run, db, "A8", "asked_tensor_split")]
    assert splits == ["5"] * 4 + ["5/5"] * 2


@needs_cases
def test_what_an_era_does_not_say_is_null_and_what_nobody_knows_is_kept(run: Run, db: Path) -> None:
    rows = of_case(run, db, "A10", "asked_flash_attn, asked_n_cpu_moe, asked_n_gpu_layers, asked_load_mode")
    assert [row[0] for row in rows] == ["on", "auto", "off"]
    assert rows[0][1] is None
    assert rows[1][1:3] == (0, "all")
    assert rows[2][3] == "mmap+mlock"
    assert any(extras != "{}" for (extras,) in rows_of(db, "SELECT extras FROM imported"))


@needs_cases
def test_a_damaged_name_is_no_name_of_a_model_until_a_whole_one_comes(run: Run, db: Path) -> None:
    columns = "model, model_filename, model_identity, doubts"
    run(CASES / "A11" / "from_x86.json")
    ((model, filename, identity, doubts),) = stored(db, columns)
    assert (model, filename, identity) == ("qwen3 4B Q4_K - Medium", None, None)
    assert "lost letters" in doubts
    assert run(CASES / "A11" / "latin1.csv").status == 0
    assert run(CASES / "A11" / "from_arm.json").status == 0
    whole = json.loads((CASES / "A11" / "expected.json").read_text())["from_arm.json"]
    assert [row[1:3] for row in stored(db, columns)] == [(whole, None)]


@needs_cases
def test_combined_tests_are_of_their_own_kind_and_noise_is_told(run: Run, db: Path) -> None:
    rows = of_case(run, db, "A12", "kind, build_commit, prompt_ts, gen_ts, doubts")
    combined = [row for row in rows if row[0] == "pg"]
    assert combined
    assert all(row[2:4] == (None, None) for row in combined)
    assert {row[1] for row in rows} == {"c0ffee12"}
    assert "noisy" in rows[2][4]


@needs_cases
def test_each_table_of_a_report_has_its_build_and_missing_columns_are_null(run: Run, db: Path) -> None:
    rows = of_case(run, db, "A13", "build_commit")
    assert rows == [("0bad5eed9",), ("0bad5eed9",), ("1bc2d3e4f",)]


@needs_cases
def test_the_spread_of_one_repetition_is_not_known(run: Run, db: Path) -> None:
    assert {row[0] for row in of_case(run, db, "A17", "stddev_ts")} == {None}


@needs_cases
def test_a_rate_that_is_not_finite_never_comes_into_the_store(run: Run, db: Path) -> None:
    rows = of_case(run, db, "A21", "test, avg_ts, stddev_ts")
    assert {row[0] for row in rows} == {"tg128"}
    with Store.open(str(db)) as store:
        assert all(0 < row["avg_ts"] < 1e6 for row in store.results())
