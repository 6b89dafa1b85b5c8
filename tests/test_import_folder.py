"""Folders of files: counts for each, results that lie there in several forms, tags of names, cases people met."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.import_fuzz import run
from benchmarks.import_inputs import FORMS
from orchestrator.interchange.bench_file import read_text
from orchestrator.interchange.bench_folder import MOST_BYTES, read_source, sources, tags_from_name
from orchestrator.interchange.doubles import identity, likely_same
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


def test_each_file_is_listed_once_by_name_without_hidden_ones_and_circles(tmp_path: Path) -> None:
    for name in ("b.md", "a/c.md", ".hidden", ".git/d.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "a" / "loop").symlink_to(tmp_path, target_is_directory=True)
    listed = sources([tmp_path / "b.md", tmp_path, tmp_path])
    assert [(str(one.path.relative_to(tmp_path)), one.folder) for one in listed] == [
        ("b.md", None),
        ("a/c.md", tmp_path),
    ]


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "large").open("wb") as file:
        file.write(b"x" * 10_000)
        file.truncate(MOST_BYTES + 1)
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    paths = [one.path for one in sources([tmp_path, tmp_path / "missing"])]
    reasons = {path.name: read_source(path).found.refusals[0].reason for path in paths}
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
    assert likely_same(identity(one), identity(open_end))
    assert not likely_same(identity(one), identity(other))
    assert not likely_same(identity(one, "lab-7"), identity(open_end, "lab-8"))
    assert len({open_end.import_key, one.import_key, other.import_key}) == 3


def test_tags_come_of_names_and_folders() -> None:
    path = Path("/runs/lab 3/2025-10-11_fan=off,qwen3-4B.json")
    named = tags_from_name(path)
    assert named == {"2025-10-11": "yes", "fan": "off", "qwen3-4B": "yes"}
    assert tags_from_name(path, Path("/runs")) == {"lab": "yes", "3": "yes", **named}
    assert tags_from_name(Path("qwen2.5_Q4_K.md")) == {"qwen2.5": "yes", "Q4": "yes", "K": "yes"}


@pytest.mark.parametrize("form", FORMS)
def test_of_damaged_files_nothing_is_taken_that_they_do_not_justify(form: str) -> None:
    counts, _, wrong = run(form, 80, seed=5)
    assert wrong == []
    assert counts["refused"] > 20
    assert counts["rows"] > 40
