"""Rows as text: a plain table for people, and CSV, JSON, JSON lines and Markdown for programs (pure).

`json` and `jsonl` keep every value as it is. The other formats write control characters, line
breaks and characters that turn the reading direction as `\\n`, `\\x1b`, `\\u202e`, so that a row is
always one line. A text in CSV that begins with `=`, `+`, `-` or `@` and is no number gets an apostrophe in front:
spreadsheets would compute it.
"""

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

Row = Sequence[Any]

ROWS_FOR_WIDTH = 1_000
"""So many rows of a table are held to find how wide its columns are; those after them are not."""

_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_FORMULA = ("=", "+", "-", "@")
_NUMBER = re.compile(r"[-+]?[0-9]+([.][0-9]+)?([eE][-+]?[0-9]+)?")
_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ASCII = str.maketrans(
    {"±": "+/-", "×": "x", "÷": "/", "–": "-", "—": "-", "…": "...", "·": "-", "→": "->", "≥": ">=", "≤": "<="}
)


def escape(text: str) -> str:
    """Return `text` on one line, with everything that could move the cursor or hide a character spelt out."""
    return _UNSAFE.sub(_spelt, text)


def encodable(text: str, encoding: str | None) -> str:
    """Return `text` as a stream of this `encoding` can hold it: `+/-` for `±`, `\\xe4` for what has no ASCII form."""
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()
    return text


def render(columns: Sequence[str], rows: Iterable[Row], form: str = "table", width: int | None = None) -> Iterator[str]:
    """Yield the lines that show `rows` in `form`.

    A table wider than `width` characters becomes one block of `column  value` lines per row,
    so that nothing is cut; `width` None means that lines may be as long as they like.
    Not-a-number and infinity, which JSON does not know, become null there.
    """
    if form == "csv":
        return _csv(columns, rows)
    if form == "json":
        return _json(columns, rows)
    if form == "jsonl":
        return (json.dumps(item) for item in _objects(columns, rows))
    if form == "markdown":
        return _markdown(columns, rows)
    return _table(columns, rows, width)


def _spelt(match: re.Match[str]) -> str:
    character = match[0]
    return _NAMED.get(character) or (f"\\x{ord(character):02x}" if ord(character) < 256 else f"\\u{ord(character):04x}")


def _text(value: Any, null: str) -> str:
    if value is None:
        return null
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, default=str)
    return escape(str(value))


def _cell(value: Any) -> str:
    return _number(value) if isinstance(value, float) else _text(value, "-")


def _number(value: float) -> str:
    """Return six significant digits, without an exponent where people would not write one."""
    short = f"{value:.6g}"
    return f"{value:.0f}" if "e+" in short and abs(value) < 1e15 else short


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _padded(text: str, width: int, right: bool) -> str:
    blank = " " * (width - _width(text))
    return blank + text if right else text + blank


def _table(columns: Sequence[str], rows: Iterable[Row], width: int | None) -> Iterator[str]:
    """Yield the lines of a table as wide as its first rows need; later cells that are wider push the rest aside."""
    rows = iter(rows)
    first = [tuple(row) for row in islice(rows, ROWS_FOR_WIDTH)]
    heads = [escape(column) for column in columns]
    cells = [[_cell(value) for value in row] for row in first]
    widths = [max(map(_width, column)) for column in zip(heads, *cells, strict=True)]
    every = chain(cells, ([_cell(value) for value in row] for row in rows))
    if width is not None and cells and sum(widths) + 2 * len(widths) - 2 > width:
        yield from _blocks(heads, every)
        return
    right = [_is_numeric(column) for column in zip(*first, strict=True)] or [False] * len(heads)
    for line in chain([heads, ["-" * size for size in widths]], every):
        yield "  ".join(map(_padded, line, widths, right)).rstrip()


def _is_numeric(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in known)


def _blocks(heads: list[str], cells: Iterable[list[str]]) -> Iterator[str]:
    size = max(map(_width, heads))
    for number, row in enumerate(cells):
        yield from [""] * bool(number)
        yield from (f"{_padded(head, size, False)}  {cell}" for head, cell in zip(heads, row, strict=True))


def _csv(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    for row in chain([columns], rows):
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="").writerow([_no_formula(value) for value in row])
        yield buffer.getvalue()


def _no_formula(value: Any) -> str:
    """Return `value` as a cell of CSV: text that a spreadsheet would take for a formula has an apostrophe before it."""
    text = _text(value, "")
    return f"'{text}" if isinstance(value, str) and text[:1] in _FORMULA and not _NUMBER.fullmatch(text) else text


def _markdown(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    yield "| " + " | ".join(_text(column, "").replace("|", "\\|") for column in columns) + " |"
    yield "|" + " --- |" * len(columns)
    for row in rows:
        yield "| " + " | ".join(_text(value, "").replace("|", "\\|") for value in row) + " |"


def _json(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[str]:
    before = "["
    for item in _objects(columns, rows):
        yield before + json.dumps(item)
        before = ","
    yield "]" if before == "," else "[]"


def _objects(columns: Sequence[str], rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    names = _distinct(columns)
    for row in rows:
        yield {name: _plain(value) for name, value in zip(names, row, strict=True)}


def _distinct(columns: Sequence[str]) -> list[str]:
    """Return the column names with `_2`, `_3` … where SQL gave the same name twice."""
    names: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in names:
            number += 1
            name = f"{column}_{number}"
        names.append(name)
    return names


def _plain(value: Any) -> Any:
    """Return `value` as JSON knows it: bytes as hexadecimal digits, dates and decimals as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else str(value)
