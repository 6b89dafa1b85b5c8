"""A folder as people have it: results in every form, copies, files that grew, damaged ones, and what is none of it.

What an import must count of each file is known from how it was made: found, new, known, likely the same as others,
held back, refused. Files are taken in by name, so what a file's rows are depends on those before it.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.import_inputs import (
    FORMS,
    NEW,
    csv_of,
    database,
    good_file,
    json_of,
    jsonl_of,
    results,
    sql_of,
    table_of,
)

Counts = tuple[int, int, int, int, int, int]
Made = Iterator[tuple[str, str | bytes, Counts]]
"""The name of a file, what is in it, and what is to be counted of it."""

PIVOT = "| test | before | after |\n|---|---|---|\n| pp512 | 524,39 | **855 ± 6** |\n"


def _good(rng: random.Random, form: str) -> Made:
    """Yield a good file, and the same under another name."""
    text, raw = good_file(form, rng)
    marks = {"md": "t/s", "json": '"avg_ts":', "jsonl": '"avg_ts":', "csv": '\n"', "sql": "INSERT INTO"}
    if form == "sqlite":
        found = results(rng, NEW)
        raw, n = database(sql_of(found)), len(found)
    elif form == "batched-bench":
        n = 2 * text.count('"speed_pp":')
    elif form == "md":
        n = sum("±" in line for line in text.splitlines())
    else:
        n = text.count(marks[form])
    yield f"good.{form}", raw, (n, n, 0, 0, 0, 0)
    yield f"good.{form}.copy", raw, (n, 0, n, 0, 0, 0)


def _grown(rng: random.Random) -> Made:
    found = results(rng, NEW)
    n, half = len(found), len(found) // 2
    yield "grown.1.jsonl", jsonl_of(found[:half]), (half, half, 0, 0, 0, 0)
    yield "grown.2.jsonl", jsonl_of(found), (n, n - half, half, 0, 0, 0)
    yield "grown.3.sql", sql_of(found), (n, 0, n, 0, 0, 0)


def _every_form(rng: random.Random) -> Made:
    found = results(rng, NEW)
    n = len(found)
    made = [("run.json", json_of(found)), ("run.jsonl", jsonl_of(found)), ("run.csv", csv_of(found))]
    made += [("run.sql", sql_of(found)), ("run.md", table_of(found, rng))]
    rng.shuffle(made)
    tables = [name.endswith(".md") for name, _ in made]
    for number, (name, text) in enumerate(made):
        if number == 0:
            counts = (n, n, 0, 0, 0, 0)
        elif tables[number] or (tables[0] and number == 1):
            counts = (n, 0, 0, n, 0, 0)  # of a table it can only be said that it is likely the same
        else:
            counts = (n, 0, n, 0, 0, 0)
        yield f"{number}.{name}", text, counts


def _cut(rng: random.Random) -> Made:
    found = results(rng, NEW)
    n = len(found)
    yield "cut.1.jsonl", jsonl_of(found)[:-40], (n - 1, 0, 0, 0, n - 1, 1)
    yield "cut.2.csv", csv_of(found)[:-9], (n - 1, 0, 0, 0, n - 1, 1)
    yield "cut.3.json", json_of(found), (n, n, 0, 0, 0, 0)


def _twice(rng: random.Random) -> Made:
    """Yield a report with the same table twice, which is two repetitions, and one with a rate that is none."""
    found = results(rng, NEW)
    n, table = len(found), table_of(found, rng)
    yield "twice.md", f"# Monday\n\n{table}\n# Tuesday\n\n{table}", (2 * n, 2 * n, 0, 0, 0, 0)
    other = table_of(results(rng, NEW)[:1], rng)
    line = next(line for line in other.splitlines() if "±" in line)
    void = line[: line.rindex("|", 0, -1)] + "| inf ± nan |"
    yield "void.md", other.replace(line, f"{line}\n{void}"), (1, 1, 0, 0, 0, 1)


def _others(rng: random.Random) -> Made:
    yield "notes.md", "# What we did\n\nNothing much, at 12.5 t/s | or so.\n", (0, 0, 0, 0, 0, 0)
    yield "model.gguf", b"GGUF\0\0\0\3" + rng.randbytes(5000), (0, 0, 0, 0, 0, 0)
    yield "pivot.md", PIVOT, (0, 0, 0, 0, 0, 1)
    yield "empty.json", "", (0, 0, 0, 0, 0, 0)


KINDS: tuple[Callable[[random.Random], Made], ...] = (
    *(lambda rng, form=form: _good(rng, form) for form in FORMS),
    _grown,
    _every_form,
    _cut,
    _twice,
    _others,
)


def messy_folder(folder: Path, number: int, rng: random.Random) -> dict[str, Counts]:
    """Write `number` files into directories of `folder`; return what is to be counted of each, by its path in it."""
    wanted: dict[str, Counts] = {}
    group = 0
    while True:
        for name, content, counts in KINDS[group % len(KINDS)](rng):
            if len(wanted) == number:
                return wanted
            path = folder / f"{group:03d}" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)
            wanted[str(path.relative_to(folder))] = counts
        group += 1
