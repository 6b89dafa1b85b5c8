"""One file of llama-bench's output, of any age and form, as rows and refusals (pure)."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from orchestrator.interchange.bench_fields import KNOWN
from orchestrator.interchange.csv_lines import read_csv
from orchestrator.interchange.file_text import SQLITE, FileText, decode
from orchestrator.interchange.found import Found, Part, Row
from orchestrator.interchange.json_objects import read_json
from orchestrator.interchange.md_tables import read_tables
from orchestrator.interchange.people_sqlite import read_sqlite
from orchestrator.interchange.sql_dump import read_sql

MOST_REFUSALS = 200
PIECE = 8
"""Names of llama-bench's fields, or quoted cells times two, that make a line a piece of its output."""

_NAME = re.compile(r"(?<![A-Za-z0-9_])[a-z]+_[a-z_]+(?![A-Za-z0-9_])")


def read_text(raw: bytes, name: str, *, salvage: bool = False) -> Found:
    """Return what the file `name` with the bytes `raw` holds; nothing is executed, opened or asked.

    Where a piece is damaged, no row of the file is given; with `salvage` the good ones are.
    """
    if raw.startswith(SQLITE):
        return _found(name, [read_sqlite(raw)], salvage, numbered=False)
    text = decode(raw)
    if text is None:
        return Found(name=name, notes=("it is not text",))
    parts = [read_tables(text.lines), read_csv(text.lines), read_json(text.text), read_sql(text.text)]
    parts.append(_left(text, set().union(*(part.lines for part in parts))))
    found = _found(name, parts, salvage)
    return replace(found, notes=(*text.notes, *found.notes)) if found.rows or found.refusals else found


def _left(text: FileText, read: set[int]) -> Part:
    """Refuse lines that look like llama-bench's but that no reader could make anything of; and bytes that are none."""
    part = Part()
    for line, content in enumerate(text.lines, 1):
        if line in read or len(content) < 4 * PIECE:
            continue
        if '","' in content and content.count('","') >= 2 * PIECE:
            part.refuse(line, "values of llama-bench's csv without its header above them", content)
        elif content.count("_") >= PIECE and len({*_NAME.findall(content)} & KNOWN) >= PIECE:
            part.refuse(line, "a piece of llama-bench's output that is cut off or damaged", content)
    if text.damage and (read or part.lines):
        part.refuse(*text.damage)
    return part


def _found(name: str, parts: Sequence[Part], salvage: bool, numbered: bool = True) -> Found:
    rows = [row for part in parts for row in part.rows]
    if numbered:
        rows.sort(key=lambda row: row.line)
    refusals = sorted((refusal for part in parts for refusal in part.refusals), key=lambda refusal: refusal.line)
    notes = [note for part in parts for note in part.notes]
    damaged = any(refusal.severity == "damaged" for refusal in refusals)
    kept, again = _each_once(rows)
    return Found(
        name=name,
        rows=() if damaged and not salvage else tuple(kept),
        refusals=tuple(refusals[:MOST_REFUSALS]),
        n_refused=len(refusals),
        held=len(kept) if damaged and not salvage else 0,
        again=tuple(again),
        notes=tuple(notes) if notes or rows or refusals else ("nothing of llama-bench's is in it",),
        incomplete=any(part.incomplete for part in parts),
    )


def _each_once(rows: Iterable[Row]) -> tuple[list[Row], list[int]]:
    """Return the rows that are not there yet, repetitions without a time counted, and the lines of the others."""
    seen: dict[str, int] = {}
    kept, again = [], []
    for row in rows:
        key = row.import_key
        seen[key] = seen.get(key, 0) + 1
        if row.tested_at and seen[key] > 1:
            again.append(row.line)
        else:
            kept.append(replace(row, occurrence=seen[key] - 1))
    return kept, again
