"""llama-bench's csv: a header of its fields, then a line for each result; several eras one after another (pure)."""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.interchange.bench_fields import KNOWN
from orchestrator.interchange.bench_row import FIELD, row_of
from orchestrator.interchange.found import Part, RefusedError, Row

SEPARATORS = ",;\t"
LEAST_KNOWN = 8
"""Fields of llama-bench's that make a line a header."""
MOST_CHARACTERS = 65_536

_CELL = r'(?:"(?:[^"]|"")*"|[^"{0}]*)'
_WHOLE = {mark: re.compile(f"{_CELL}(?:{{0}}{_CELL})*".format(mark)) for mark in SEPARATORS}


@dataclass(frozen=True, slots=True)
class _Header:
    fields: tuple[str, ...]
    separator: str
    line: int


def read_csv(lines: Sequence[str]) -> Part:
    """Return the rows below each header in `lines`; a row's last line must have an end or its last quote."""
    part, header, quoted = Part(), None, False
    for line, text in enumerate(lines, 1):
        found = _header(text, line)
        if found:
            header, quoted = _accepted(found, part, text), False
        elif text.startswith("```"):
            header = None
        elif header and text.strip() and (text.startswith('"') or not _is_talk(text, header, quoted)):
            quoted |= text.startswith('"')
            try:
                part.take(_row(text, line, header, last=line == len(lines)))
            except RefusedError as error:
                part.refuse(line, str(error), text, error.severity)
    return part


def _header(text: str, line: int) -> _Header | None:
    if len(text) > MOST_CHARACTERS or not text or text[0] in "|{[" or "_" not in text:
        return None
    for separator in SEPARATORS:
        if text.count(separator) < LEAST_KNOWN - 1:
            continue
        fields = tuple(cell.strip().strip('"') for cell in text.split(separator))
        if len({*fields} & KNOWN) >= LEAST_KNOWN and all(len(cell) <= 64 and "'" not in cell for cell in fields):
            return _Header(fields, separator, line)
    return None


def _accepted(header: _Header, part: Part, text: str) -> _Header | None:
    """Return the header where its rows can be read; else refuse it, and them with it."""
    part.lines.add(header.line)
    twice = [name for name in header.fields if header.fields.count(name) > 1]
    odd = [name for name in header.fields if not FIELD.fullmatch(name)]
    if twice:
        part.refuse(header.line, f"the header has the field {twice[0]!r:.60} twice", text)
    elif odd:
        part.refuse(header.line, f"{odd[0]!r:.60} in the header is no name of a field", text)
    return None if twice or odd else header


def _is_talk(text: str, header: _Header, quoted: bool) -> bool:
    """Say whether a line is what else was printed: it has no quote, and too few separators for a row."""
    few = text.count(header.separator) < len(header.fields) // 2
    return few and '"' not in text and (quoted or ": " in text)


def _row(text: str, line: int, header: _Header, last: bool) -> Row:
    if len(text) > MOST_CHARACTERS:
        raise RefusedError("the line is too long for a row")
    if not _WHOLE[header.separator].fullmatch(text):
        raise RefusedError("its quotes are not closed: the line is cut off or damaged")
    (values,) = csv.reader([text], delimiter=header.separator)
    if len(values) != len(header.fields):
        raise RefusedError(f"the header of line {header.line} has {len(header.fields)} fields, the row {len(values)}")
    if last and not text.endswith('"'):
        raise RefusedError("the file ends within this line, so its last value may be cut off")
    cells = {name: value.strip(" \t") for name, value in zip(header.fields, values, strict=True)}
    cells = {name: value for name, value in cells.items() if value}
    return row_of(cells, form="csv", line=line, raw=text)
