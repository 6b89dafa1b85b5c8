"""Folders of files: counts for each, results that lie there in several forms, tags of names, cases people met."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.import_fuzz import run
from benchmarks.import_inputs import FORMS, good_file
from orchestrator.interchange.bench_file import read_text
from orchestrator.interchange.bench_folder import MOST_BYTES, scan, tags_from_name
from orchestrator.interchange.found import likely_same
from tests.shared import CASES, needs_cases

KINDS = {"prefill": "pp", "decode": "tg", "combined": "pg"}


def rows(path: str) -> list[dict[str, Any]]:
    """Return the rows of a shared file in the words of what is expected of it."""
    words = {kind: word for word, kind in KINDS.items()}
    return [
        {
            "kind": words[row.test.kind],
            "n_prompt": row.test.n_prompt,
            "n_gen": row.test.n_gen,
            "depth": row.test.n_depth,
            "ts": round(row.avg_ts, 2),
            "sd": round(row.stddev_ts, 2) if row.stddev_ts is not None else None,
        }
        for row in read_text((CASES / path).read_bytes(), path).rows
    ]


def expected(case: str) -> Any:
    return json.loads((CASES / case / "expected.json").read_text())


def plain(wanted: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: row[key] for key in ("kind", "n_prompt", "n_gen", "depth", "ts", "sd")} for row in wanted]


@needs_cases
@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("A1/ot_pipes.md", "rows"),
        ("A2/merged_2to1.json", "rows_if_tolerant"),
        ("A2/clean.json", "rows_if_tolerant"),
        ("A3/crashed_table.md", "rows"),
        ("A4/good_2023.csv", "good_2023.csv"),
        ("A5/old_test_table.sql", "old_test_table.sql"),
        ("A5/new_table.sql", "new_table.sql"),
        ("A5/two_eras_appended.sql", "two_eras_appended.sql"),
        ("A8/tensor_split.md", "rows"),
        ("A10/three_eras.jsonl", "rows"),
        ("A12/pg_and_early_build.md", "rows"),
        ("A13/two_runs_in_one_report.md", "rows"),
        ("A17/r1.md", "rows"),
        ("A17/r1.json", "rows"),
        *(("A20/run." + form, "each") for form in ("csv", "json", "jsonl", "md", "sql")),
        ("A21/inf_nan.md", "inf_nan.md"),
    ],
)
def test_files_of_people_give_what_is_expected_of_them(path: str, key: str) -> None:
    wanted = plain(expected(path.partition("/")[0])[key])
    if path == "A1/ot_pipes.md":
        wanted += plain([expected("A1")["wrapped_row"]])
    assert rows(path) == wanted


@needs_cases
@pytest.mark.parametrize(
    ("path", "line", "words"),
    [
        ("A4/one_value_too_many.csv", 2, ("26", "27")),
        ("A4/one_value_too_few.csv", 2, ("40", "39")),
        ("A5/old_row_27_values.sql", 30, ("27 values for 26 columns",)),
        ("A15/pivot_comma_decimals.md", 3, ("llama-bench's own",)),
        ("A15/before_after_bold.md", 1, ("llama-bench's own",)),
    ],
)
def test_files_that_cannot_be_trusted_are_refused_by_line(path: str, line: int, words: tuple[str, ...]) -> None:
    found = read_text((CASES / path).read_bytes(), path, salvage=True)
    assert (found.rows, found.refusals[0].line) == ((), line)
    assert all(word in found.refusals[0].reason for word in words)


@needs_cases
def test_the_details_of_files_of_people_are_right() -> None:
    read = {path: read_text((CASES / path).read_bytes(), path) for path in map(str, DETAILS)}
    first, second, third = read["A10/three_eras.jsonl"].rows
    assert [row.settings["flash_attn"] for row in (first, second, third)] == ["on", "auto", "off"]
    assert [row.settings.get("n_cpu_moe") for row in (first, second)] == [None, 0]
    assert (second.settings["n_gpu_layers"], third.settings["load_mode"]) == ("all", "mmap+mlock")
    assert read["A3/crashed_table.md"].incomplete
    assert {row.build_commit for row in read["A3/crashed_table.md"].rows} == {None}
    assert [row.settings["tensor_split"] for row in read["A8/tensor_split.md"].rows] == ["5"] * 4 + ["5/5"] * 2
    assert read["A11/from_arm.json"].rows[0].model.filename == expected("A11")["from_arm.json"]
    assert read["A11/from_x86.json"].rows[0].model.filename is None
    assert {row.build_commit for row in read["A12/pg_and_early_build.md"].rows} == {"c0ffee12"}
    assert "noisy" in read["A12/pg_and_early_build.md"].rows[2].doubts[0]
    assert [row.build_commit for row in read["A13/two_runs_in_one_report.md"].rows] == ["0bad5eed9"] * 2 + ["1bc2d3e4f"]
    assert all(row.spread_ts is None for name in ("A17/r1.md", "A17/r1.json") for row in read[name].rows)
    (kept,) = read["A21/inf_nan.json"].rows
    assert (kept.test.name, kept.stddev_ts) == ("tg128", None)
    overrides = read["A1/ot_pipes.md"].rows[0].settings["tensor_buft_overrides"]
    assert overrides == expected("A1")["ot_of_row_1"]


DETAILS = (
    *("A10/three_eras.jsonl", "A3/crashed_table.md", "A8/tensor_split.md", "A11/from_arm.json", "A11/from_x86.json"),
    *("A12/pg_and_early_build.md", "A13/two_runs_in_one_report.md", "A17/r1.md", "A17/r1.json", "A21/inf_nan.json"),
    "A1/ot_pipes.md",
)


@needs_cases
def test_one_run_in_five_forms_is_two_results_and_the_table_is_likely_a_double() -> None:
    counts = {one.path.name: (len(one.fresh), one.known, len(one.likely)) for one in scan([CASES / "A20"])}
    assert counts == {
        "expected.json": (0, 0, 0),
        "run.csv": (0, 2, 0),
        "run.json": (2, 0, 0),
        "run.jsonl": (0, 2, 0),
        "run.md": (0, 0, 2),
        "run.sql": (0, 2, 0),
    }


def messy(folder: Path) -> dict[str, int]:
    """Fill a folder with 300 files of every form, copies, grown ones and others; return how many rows each has."""
    rng, wanted = random.Random(7), {}
    for number in range(300):
        form = FORMS[number % len(FORMS)]
        name = f"{form}/{number}.txt"
        _, raw = good_file(form, rng)
        wanted[name] = len(read_text(raw, name).rows)
        (folder / form).mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(raw)
    return wanted


def test_a_messy_folder_is_counted_exactly_and_a_second_time_adds_nothing(tmp_path: Path) -> None:
    wanted = messy(tmp_path)
    (tmp_path / "notes.md").write_text("# Only words\n")
    (tmp_path / "model.gguf").write_bytes(b"GGUF\0\0\0\3" * 1000)
    (tmp_path / "copy.csv").write_bytes((tmp_path / "csv/3.txt").read_bytes())
    (tmp_path / "cut.jsonl").write_bytes((tmp_path / "jsonl/2.txt").read_bytes()[:-40])
    scanned = {str(one.path.relative_to(tmp_path)): one for one in scan([tmp_path, tmp_path])}
    assert len(scanned) == 304
    assert {name: len(scanned[name].fresh) for name in wanted} == wanted | {"csv/3.txt": 0}
    assert (len(scanned["copy.csv"].fresh), scanned["csv/3.txt"].known) == (wanted["csv/3.txt"], wanted["csv/3.txt"])
    assert (scanned["notes.md"].found.n_refused, scanned["model.gguf"].found.notes) == (0, ("it is not text",))
    assert scanned["cut.jsonl"].found.rows == ()
    assert scanned["cut.jsonl"].found.held == wanted["jsonl/2.txt"] - 1
    keys = {row.import_key for one in scanned.values() for row in one.fresh}
    assert len(keys) == sum(wanted.values())
    assert {row.import_key for one in scan([tmp_path]) for row in one.fresh} == keys


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    reasons = {one.path.name: one.found.refusals[0].reason for one in scan([tmp_path, tmp_path / "missing"])}
    assert "plain file" in reasons["pipe"]
    assert "64" in reasons["large"]
    assert "cannot be read" in reasons["gone"]
    assert "cannot be read" in reasons["missing"]


def test_a_table_whose_end_came_later_is_likely_the_same_and_another_build_is_not() -> None:
    table = (
        "| model | size | params | backend | test | t/s |\n|---|---|---|---|---|---|\n"
        "| q | 2.32 GiB | 4.02 B | CPU | tg128 | 61.30 ± 0.12 |\n"
    )
    (open_end,) = read_text(table.encode(), "a").rows
    (one,) = read_text((table + "\nbuild: 5e1ab07c (6721)\n").encode(), "a").rows
    (other,) = read_text((table + "\nbuild: 0bad5eed9 (7)\n").encode(), "b").rows
    assert likely_same(one, open_end)
    assert not likely_same(one, other)
    assert len({open_end.import_key, one.import_key, other.import_key}) == 3


def test_tags_come_of_names_and_folders() -> None:
    path = Path("/runs/lab 3/2025-10-11_fan=off,qwen3-4B.json")
    assert tags_from_name(path) == ("2025-10-11", "fan=off", "qwen3-4B")
    assert tags_from_name(path, Path("/runs")) == ("lab", "3", "2025-10-11", "fan=off", "qwen3-4B")
    assert tags_from_name(Path("qwen2.5_Q4_K.md")) == ("qwen2.5", "Q4", "K")


@pytest.mark.parametrize("form", FORMS)
def test_of_damaged_files_nothing_is_taken_that_they_do_not_justify(form: str) -> None:
    counts, _, wrong = run(form, 80, seed=5)
    assert wrong == []
    assert counts["refused"] > 20
    assert counts["rows"] > 40
