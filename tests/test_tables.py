import csv
import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from orchestrator.tables import encodable, escape, render

COLUMNS = ("host", "test", "avg_ts")
ROWS: list[Sequence[Any]] = [("boxa", "pp512", 965.123456), ("boxb", "tg128", None)]


def text(
    form: str, columns: Sequence[str] = COLUMNS, rows: list[Sequence[Any]] = ROWS, width: int | None = None
) -> str:
    return "\n".join(render(columns, rows, form, width))


def test_table_is_plain_ascii_with_numbers_to_the_right() -> None:
    assert text("table") == ("host  test    avg_ts\n----  -----  -------\nboxa  pp512  965.123\nboxb  tg128        -")


def test_table_wider_than_the_terminal_becomes_blocks_that_lose_nothing() -> None:
    assert text("table", width=15) == (
        "host    boxa\ntest    pp512\navg_ts  965.123\n\nhost    boxb\ntest    tg128\navg_ts  -"
    )


def test_table_without_rows_is_its_heading_however_narrow() -> None:
    assert text("table", rows=[], width=3).splitlines()[0] == "host  test  avg_ts"


def test_every_format_can_show_no_columns_and_no_rows() -> None:
    for form in ("table", "csv", "json", "jsonl", "markdown"):
        text(form, (), [])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (965123456.7, "965123457"),
        (0.00001234, "1.234e-05"),
        (92.63, "92.63"),
        (float("inf"), "inf"),
        (2.0**70, "1.18059e+21"),
    ],
)
def test_table_writes_numbers_as_people_do(value: float, shown: str) -> None:
    assert text("table", ("n",), [(value,)]).splitlines()[2].strip() == shown


def test_wide_characters_do_not_move_the_columns() -> None:
    lines = text("table", ("host", "n"), [("計算機", 1), ("boxa", 2)]).splitlines()
    assert lines[2] == "計算機  1"
    assert lines[3] == "boxa    2"


def test_csv_is_read_back_by_the_csv_module() -> None:
    rows: list[Sequence[Any]] = [('say "hi", twice', 1.5), (None, True)]
    assert list(csv.reader(io.StringIO(text("csv", ("a", "b"), rows)))) == [
        ["a", "b"],
        ['say "hi", twice', "1.5"],
        ["", "true"],
    ]


def test_json_is_one_array_also_without_rows() -> None:
    assert json.loads(text("json")) == [
        {"host": "boxa", "test": "pp512", "avg_ts": 965.123456},
        {"host": "boxb", "test": "tg128", "avg_ts": None},
    ]
    assert json.loads(text("json", rows=[])) == []


def test_jsonl_is_one_object_a_line() -> None:
    assert [json.loads(line)["host"] for line in text("jsonl").splitlines()] == ["boxa", "boxb"]


def test_json_has_no_nan_and_keeps_two_columns_of_one_name_apart() -> None:
    rows: list[Sequence[Any]] = [(float("nan"), 2, b"\xff", [float("inf"), {"k": 1}])]
    assert json.loads(text("json", ("a", "a", "b", "c"), rows)) == [
        {"a": None, "a_2": 2, "b": "ff", "c": [None, {"k": 1}]}
    ]


def test_markdown_escapes_the_bar() -> None:
    assert text("markdown", ("ot",), [("a|b",)]) == "| ot |\n| --- |\n| a\\|b |"


@pytest.mark.parametrize("form", ["table", "csv", "markdown", "jsonl"])
def test_a_row_is_one_line_and_cannot_move_the_cursor_or_turn_the_text(form: str) -> None:
    nasty = "box\na\r\x1b[31m\x07\u202e\u2067\u200fgnp.exe\u2028\x9b\udcff"
    lines = text(form, ("host",), [(nasty,), ("boxb",)])
    assert len(lines.splitlines()) == {"table": 4, "csv": 3, "markdown": 4, "jsonl": 2}[form]
    assert not set(lines) & set("\r\x1b\x07\u202e\u2067\u200f\u2028\x9b\udcff")


def test_escape_spells_out_what_it_takes_away() -> None:
    assert escape("a\nb\x1b\u202e\udcff\x85") == "a\\nb\\x1b\\u202e\\udcff\\x85"
    assert escape("Müller 計算機 👩‍💻") == "Müller 計算機 👩‍💻"


def test_encodable_says_it_in_ascii_where_it_must() -> None:
    assert encodable("965 ± 12 · 3 × ä …", "ascii") == "965 +/- 12 - 3 x \\xe4 ..."
    assert encodable("965 ± 12", "utf-8") == "965 ± 12"
    assert encodable("ä", "latin-1") == "ä"
    assert encodable("±", None) == "+/-"
    assert encodable("±", "no-such-encoding") == "+/-"
