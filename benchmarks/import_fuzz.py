"""Does the reader of llama-bench's files ever take a row that the file does not justify, fail, or take long?

    python benchmarks/import_fuzz.py [--inputs 3000] [--seed 1]

For each form (md, json, jsonl, csv, sql, people's SQLite, batched-bench) good files are written as llama-bench writes
them, and each input is one of them with one or two faults: cut off; a line or a cell lost, doubled or swapped with
another; quotes, separators, encodings, names of columns changed; a digit flipped. Each input is read as it is and with
`salvage`, and taken into a store both ways and once more. Whatever is taken is looked up again in the damaged text by a
second, simpler reader: sqlite3 itself for sql and SQLite, the csv module, regular expressions for JSON and tables.
Where the fault is one of whole lines, of quotes or a cut, it must moreover be a row of the good file.

Printed for each form: inputs, rows taken and held back, files refused, longest CPU time. Exit code: 0, or 1 where a row
was not justified, a damaged file was taken in part, the store has something else than was read, a reader failed, or
one took over a second of CPU.
"""

import argparse
import csv
import json
import random
import re
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.import_fuzz_store import kept
from benchmarks.import_inputs import FORMS, good_file
from orchestrator.interchange.bench_file import read_text
from orchestrator.interchange.found import Found, Row

MAX_SECONDS = 1.0
NUMBERS = ("n_prompt", "n_gen", "n_depth", "avg_ts", "stddev_ts", "avg_ns", "stddev_ns", "model_size", "build_number")
WHOLE = ("cut", "line lost", "line doubled", "lines swapped", "quote", "encoding")
"""Faults after which whatever is taken must be a row of the good file."""

Fault = Callable[[str, random.Random], str]


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randrange(len(text))]


def _line_lost(text: str, rng: random.Random) -> str:
    lines = _lines(text)
    del lines[rng.randrange(len(lines))]
    return "".join(lines)


def _line_doubled(text: str, rng: random.Random) -> str:
    lines = _lines(text)
    at = rng.randrange(len(lines))
    return "".join([*lines[: at + 1], *lines[at:]])


def _lines_swapped(text: str, rng: random.Random) -> str:
    lines = _lines(text)
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return "".join(lines)


def _in_a_line(text: str, rng: random.Random, change: Callable[[list[str]], None]) -> str:
    """Change the cells of one line: they are parted by bars or commas."""
    lines = _lines(text)
    at = rng.randrange(len(lines))
    mark = "|" if "|" in lines[at] else ","
    cells = lines[at].split(mark)
    change(cells)
    lines[at] = mark.join(cells)
    return "".join(lines)


def _cell_lost(text: str, rng: random.Random) -> str:
    def lose(cells: list[str]) -> None:
        del cells[rng.randrange(len(cells))]

    return _in_a_line(text, rng, lose)


def _cell_doubled(text: str, rng: random.Random) -> str:
    def double(cells: list[str]) -> None:
        at = rng.randrange(len(cells))
        cells.insert(at, cells[at])

    return _in_a_line(text, rng, double)


def _cells_swapped(text: str, rng: random.Random) -> str:
    def swap(cells: list[str]) -> None:
        a, b = rng.randrange(len(cells)), rng.randrange(len(cells))
        cells[a], cells[b] = cells[b], cells[a]

    return _in_a_line(text, rng, swap)


def _at_one_of(text: str, rng: random.Random, marks: str, new: Callable[[str], str]) -> str:
    places = [match.start() for match in re.finditer(f"[{re.escape(marks)}]", text)]
    if not places:
        return text
    at = rng.choice(places)
    return text[:at] + new(text[at]) + text[at + 1 :]


def _quote(text: str, rng: random.Random) -> str:
    return _at_one_of(text, rng, "\"'`", lambda mark: rng.choice(("", mark * 2, mark + "'", "\\" + mark, " ")))


def _separator(text: str, rng: random.Random) -> str:
    if rng.random() < 0.3:
        mark = "|" if "|" in text else ","
        return text.replace(mark, rng.choice(("\t", ";", mark + mark, " ")))
    return _at_one_of(text, rng, "|,;:{}[]()", lambda _: rng.choice(("", ";", "\t", "|", ",", "}", "\n")))


def _name(text: str, rng: random.Random) -> str:
    found = list(re.finditer(r"\b(n_\w+|avg_\w+|stddev_\w+|test|t/s|model\w*|build\w*|params|backends?|pp|tg)\b", text))
    if not found:
        return text
    match = rng.choice(found)
    name = match[0]
    at = rng.randrange(len(name))
    new = rng.choice((name[:at] + name[at + 1 :], name[:at] + "x" + name[at:], name.upper(), rng.choice(found)[0]))
    return text[: match.start()] + new + text[match.end() :]


def _digit(text: str, rng: random.Random) -> str:
    return _at_one_of(text, rng, "0123456789", lambda _: rng.choice("0123456789"))


def _number(text: str, rng: random.Random) -> str:
    words = ("inf", "-nan", "nan", "-1", "1e999", "", "1,5", "1.234,56", "0x10", "9" * 40, "true", "null", "١٢")
    found = list(re.finditer(r"\d+(\.\d+)?", text))
    match = rng.choice(found) if found else None
    return text[: match.start()] + rng.choice(words) + text[match.end() :] if match else text


def _character(text: str, rng: random.Random) -> str:
    at = rng.randrange(len(text))
    return text[:at] + rng.choice("\0\x1b\r\n\\\"'|,;{}[]()±�  \u2028é") + text[at + rng.randrange(2) :]


FAULTS: dict[str, Fault] = {
    "cut": _cut,
    "line lost": _line_lost,
    "line doubled": _line_doubled,
    "lines swapped": _lines_swapped,
    "cell lost": _cell_lost,
    "cell doubled": _cell_doubled,
    "cells swapped": _cells_swapped,
    "quote": _quote,
    "separator": _separator,
    "name": _name,
    "digit": _digit,
    "number": _number,
    "character": _character,
}
ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "utf-8": lambda text: text.encode(),
    "utf-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16 without a mark": lambda text: text.encode("utf-16-le"),
    "latin-1": lambda text: text.encode("latin-1", "replace"),
    "of PowerShell": lambda text: text.encode().decode("cp437").encode("utf-16"),
    "windows lines": lambda text: text.replace("\n", "\r\n").encode(),
}


@dataclass(frozen=True, slots=True)
class Input:
    """A damaged file: its form, bytes, the rows of the good one, and the names of its faults."""

    form: str
    raw: bytes
    good: tuple[Row, ...]
    faults: tuple[str, ...]


def inputs(form: str, number: int, seed: int) -> Iterator[Input]:
    """Yield `number` damaged files of `form`, always the same for a `seed`."""
    rng = random.Random(f"{form} {seed}")
    while number:
        number -= 1
        text, raw = good_file(form, rng)
        good = read_text(raw, "good").rows
        if form == "sqlite":
            yield Input(form, *_damaged_bytes(raw, good, rng))
            continue
        names = [rng.choice([*FAULTS]) for _ in range(rng.choice((1, 1, 1, 2)))]
        for name in names:
            text = FAULTS[name](text, rng) or " "
        encoding = rng.choice([*ENCODINGS]) if rng.random() < 0.25 else "utf-8"
        raw = ENCODINGS[encoding](text)
        if rng.random() < 0.05:
            raw = _flipped(raw, rng)
            names.append("byte")
        yield Input(form, raw, good, (*names, *(["encoding"] if encoding != "utf-8" else [])))


def _flipped(raw: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ (1 << rng.randrange(8))]) + raw[at + 1 :]


def _damaged_bytes(raw: bytes, good: tuple[Row, ...], rng: random.Random) -> tuple[bytes, tuple[Row, ...], tuple[str]]:
    if rng.random() < 0.3:
        return raw[: rng.randrange(16, len(raw))], good, ("bytes cut",)
    for _ in range(rng.choice((1, 2, 8, 64))):
        raw = raw[:16] + _flipped(raw[16:], rng)
    return raw, good, ("bytes flipped",)


def problems(one: Input) -> tuple[list[str], Found, Found, float]:
    """Return what is wrong with how `one` was read, what was taken as it is and with salvage, and the CPU seconds."""
    start = time.process_time()
    strict = read_text(one.raw, "input")
    middle = time.process_time()
    loose = read_text(one.raw, "input", salvage=True)
    seconds = max(middle - start, time.process_time() - middle)
    found = []
    damaged = any(refusal.severity == "damaged" for refusal in loose.refusals)
    if strict.rows != (() if damaged else loose.rows):
        found.append("a damaged file was taken in part")
    if seconds > MAX_SECONDS:
        found.append(f"it took {seconds:.1f} s")
    if any(not refusal.reason or refusal.line < 0 for refusal in loose.refusals):
        found.append("a refusal has no reason or line")
    for row in loose.rows:
        found += [f"line {row.line}: {fault}" for fault in _unjustified(row, one)]
    return found, strict, loose, seconds


def _unjustified(row: Row, one: Input) -> Iterator[str]:
    if not 0 < row.avg_ts < float("inf") or not 0 <= (row.stddev_ts or 0) < float("inf"):
        yield f"the rate {row.avg_ts} ± {row.stddev_ts}"
    given = SECOND[row.format](row, one.raw)
    mine = {
        "n_prompt": row.test.n_prompt,
        "n_gen": row.test.n_gen,
        "n_depth": row.test.n_depth or None,
        "avg_ts": row.avg_ts,
        "stddev_ts": row.stddev_ts,
        "avg_ns": row.avg_ns,
        "stddev_ns": row.stddev_ns,
        "model_type": row.model.model_type,
        "model_size": row.model.model_size,
        "build_number": row.build_number,
    }
    for name, value in mine.items():
        if value is not None and not _same(value, given.get(name)):
            yield f"{name} is {value!r}, the file says {given.get(name)!r}"
    whole = all(fault in WHOLE for fault in one.faults) and one.form != "json"
    if whole and not any(_equal(row, other) for other in one.good):
        yield "no such row in the good file"


def _equal(row: Row, other: Row) -> bool:
    """Say whether two rows tell the same; a line of a table may have moved under the header of another table."""
    names = ["test", "avg_ts", "stddev_ts", "samples_ns", "tested_at", "backends"]
    names += [] if row.format == "md" else ["settings", "extras"]
    return all(getattr(row, name) == getattr(other, name) for name in names)


def _same(value: object, text: str | None) -> bool:
    if text is None:
        return False
    if isinstance(value, str):
        return value == text.strip(" \t").strip("*`")
    try:
        return float(str(value)) == float(text.replace(",", "") if "," in text and "." in text else text)
    except ValueError:
        return False


def _text(raw: bytes) -> str:
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return raw.decode("utf-16", "replace")
    if raw[1:40:2].count(0) > 15:
        return raw.decode("utf-16-le", "replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.removeprefix(b"\xef\xbb\xbf").decode("latin-1")


def _by_regular_expressions(row: Row, raw: bytes) -> dict[str, str]:
    """Return the fields of an object: each name must stand in it once."""
    names = (*NUMBERS, "model_type", "pp", "tg", "speed_pp", "speed_tg")
    found = {name: re.findall(rf'"{name}"\s*:\s*("[^"]*"|[^,"\n}}]*)', row.raw) for name in names}
    given = {name: values[0].strip().strip('"') for name, values in found.items() if len(values) == 1}
    if row.format != "batched-bench":
        return given
    phase = "pp" if row.test.n_prompt else "tg"
    depth = {"n_depth": given.get("pp", "")} if phase == "tg" else {}
    counts = {"n_prompt": given["pp"] if phase == "pp" else "0", "n_gen": given["tg"] if phase == "tg" else "0"}
    return counts | depth | {"avg_ts": given[f"speed_{phase}"]}


def _by_csv(row: Row, raw: bytes) -> dict[str, str]:
    """Return the line by the header above it, as the csv module reads both."""
    lines = re.split(r"\r\n|\n|\r", _text(raw))[: row.line]
    mark = max(",;\t", key=row.raw.count)
    headers = [line for line in lines[:-1] if "_ts" in line and "n_" in line and not line.startswith('"5')]
    fields, values = next(csv.reader([headers[-1]], delimiter=mark)), next(csv.reader([row.raw], delimiter=mark))
    return dict(zip(map(str.strip, fields), values, strict=True))


def _by_sqlite(row: Row, raw: bytes) -> dict[str, str]:
    """Return what sqlite3 stores when it runs the very statement."""
    columns = re.search(r"\(([^)]*)\)\s*VALUES", row.raw, re.IGNORECASE)
    table = re.search(r"INTO\s+[\"`\[]?(\w+)", row.raw, re.IGNORECASE)
    assert columns
    assert table
    connection = sqlite3.connect(":memory:")
    connection.execute(f"CREATE TABLE {table[1]} ({columns[1]})")
    connection.execute(row.raw)
    cursor = connection.execute(f"SELECT * FROM {table[1]}")
    names = [column[0] for column in cursor.description]
    return {name: str(value) for name, value in zip(names, cursor.fetchone(), strict=True) if value is not None}


def _of_database(row: Row, raw: bytes) -> dict[str, str]:
    connection = sqlite3.connect(":memory:")
    connection.deserialize(raw)
    connection.text_factory = lambda value: value.decode("utf-8", "replace")
    cursor = connection.execute(f'SELECT * FROM "{row.table}" LIMIT {row.line}')
    names = [column[0] for column in cursor.description]
    return {name: str(value) for name, value in zip(names, cursor.fetchall()[-1], strict=True) if value is not None}


def _by_bars(row: Row, raw: bytes) -> dict[str, str]:
    """Return a row by the header above it, cells counted from both ends: bars too many are in the overrides."""
    lines = re.split(r"\r\n|\n|\r", _text(raw))[: row.line - 1]
    header = next(line for line in reversed(lines) if re.search(r"\|\s*(t/s|tokens/s)\s*\|", line, re.IGNORECASE))
    names = [cell.strip().lower() for cell in header.strip("> \t").strip("|").split("|")]
    cells = [cell.strip() for cell in row.raw.replace("\n", "").strip("> \t").strip("|").split("|")]
    given = dict(zip(reversed(names), reversed(cells), strict=False)) | dict(zip(names[:3], cells[:3], strict=True))
    test = re.fullmatch(r"(?:pp ?(\d+))?\+?(?:tg ?(\d+))?(?: ?@ ?d(\d+))?", given["test"])
    rate = re.findall(r"[\d.,]+|nan|inf", given["t/s"])
    assert test
    return {
        "n_prompt": test[1] or "0",
        "n_gen": test[2] or "0",
        "n_depth": test[3] or "0",
        "avg_ts": rate[0],
        "stddev_ts": rate[1],
        "model_type": given["model"],
        "build_number": str(row.build_number) if f"({row.build_number})" in _text(raw) else "none",
    }


SECOND: dict[str, Callable[[Row, bytes], dict[str, str]]] = {
    "md": _by_bars,
    "csv": _by_csv,
    "json": _by_regular_expressions,
    "jsonl": _by_regular_expressions,
    "batched-bench": _by_regular_expressions,
    "sql": _by_sqlite,
    "sqlite": _of_database,
}
"""Form of a row -> the second reader."""


def run(form: str, number: int, seed: int) -> tuple[Counter[str], float, list[str]]:
    """Return counts of what was read and stored in `number` inputs of `form`, the longest time, and every problem."""
    counts: Counter[str] = Counter()
    longest, wrong = 0.0, []
    with kept() as store:
        for at, one in enumerate(inputs(form, number, seed)):
            loose = Found(name="")
            try:
                found, strict, loose, seconds = problems(one)
                found += store.problems(one.raw, strict, loose)
            except Exception as error:  # whatever a reader raises is what this looks for
                found, seconds = [f"failed: {error!r}"], 0.0
            counts["inputs"] += 1
            counts["rows"] += len(loose.rows)
            counts["rows of the good files"] += len(one.good)
            counts["refused"] += any(refusal.severity == "damaged" for refusal in loose.refusals)
            longest = max(longest, seconds)
            wrong += [f"{form} {at} ({', '.join(one.faults)}): {problem}" for problem in found]
        wrong += [f"{form}: {problem}" for problem in store.problems_at_last()]
    return counts, longest, wrong


def main() -> int:
    """Run every form and print a line for each, then the problems."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=3000, help="inputs for each form")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    failed = []
    for form in FORMS:
        counts, longest, wrong = run(form, arguments.inputs, arguments.seed)
        print(json.dumps({"form": form, **counts, "longest_ms": round(1000 * longest, 1), "wrong": len(wrong)}))
        failed += wrong
    print("\n".join(failed[:50]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
