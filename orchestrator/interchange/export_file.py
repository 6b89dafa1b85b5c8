"""Results of a store in a file for others: in whole, in bounded memory, and nothing where it fails."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, get_args

from sqlalchemy import Connection

from orchestrator.interchange import bench_markdown, bench_sqlite, parquet_file
from orchestrator.interchange.bench_output import Bench, bench_row, shortened
from orchestrator.interchange.view_rows import Wanted, count_rows, kinds, selected
from orchestrator.interchange.whole_file import whole_file, write_lines
from orchestrator.store import Store
from orchestrator.tables import render

Form = Literal["csv", "json", "jsonl", "markdown", "parquet", "llama-bench-sqlite"]
FORMS: tuple[Form, ...] = get_args(Form)
TEXTS = ("csv", "json", "jsonl", "markdown")
"""Forms that are lines of text, so that they can go to standard output."""

AS_LLAMA_BENCH = ("markdown", "llama-bench-sqlite")
"""Forms of llama-bench's own: they have no place for a mark, so what is not to be compared is left out."""

BY_PLACE = "host, host_uid, build_commit, backends, cpu_info, gpu_info, test_time, attempt_uid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """How many rows were written, and how many of those asked for were not, with the reason."""

    n_rows: int
    left_out: tuple[tuple[int, str], ...] = ()


@dataclass(slots=True)
class _Count:
    """Counts what passes through."""

    n: int = 0
    n_strange: int = 0

    def rows(self, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for row in rows:
            self.n += 1
            yield row

    def benches(self, rows: Iterable[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], Bench]]:
        for row in rows:
            bench = bench_row(row)
            if bench is None:
                self.n_strange += 1
                continue
            self.n += 1
            yield row, bench


def export_file(store: Store, wanted: Wanted, form: Form, path: Path) -> Written:
    """Write what is `wanted` to the file in `form`: all of it, or the file is left as it was."""
    if form not in ("parquet", "llama-bench-sqlite"):
        count = _Count()
        with store.snapshot() as connection:
            write_lines(path, _lines(connection, wanted, form, count))
            return _written(connection, wanted, form, count)
    count = _Count()
    with store.snapshot() as connection, whole_file(path) as beside:
        if form == "parquet":
            with selected(connection, wanted) as (columns, rows):
                parquet_file.write_file(beside, columns, kinds(wanted.view), count.rows(rows))
        else:
            bench_sqlite.write_file(beside, _for_the_script(connection, replace(wanted, sound=True), count))
        return _written(connection, wanted, form, count)


def export_lines(store: Store, wanted: Wanted, form: Form) -> Iterator[str]:
    """Yield what is `wanted` line by line, in a form that is text."""
    with store.snapshot() as connection:
        yield from _lines(connection, wanted, form, _Count())


def _lines(connection: Connection, wanted: Wanted, form: str, count: _Count) -> Iterator[str]:
    if form == "markdown":
        yield from _markdown(connection, replace(wanted, sound=True), count)
        return
    with selected(connection, wanted) as (columns, rows):
        yield from render(columns, (tuple(row.values()) for row in count.rows(rows)), form)


def _markdown(connection: Connection, wanted: Wanted, count: _Count) -> Iterator[str]:
    columns = bench_markdown.Columns()
    for row, bench in _benches(connection, wanted, _Count(), BY_PLACE):
        columns.look(bench_markdown.place_of(row, bench), bench)
    rows = _benches(connection, wanted, count, BY_PLACE)
    yield from bench_markdown.tables(((bench_markdown.place_of(row, bench), bench) for row, bench in rows), columns)


def _for_the_script(connection: Connection, wanted: Wanted, count: _Count) -> Iterator[tuple[dict[str, Any], Bench]]:
    """Yield the rows with builds called as llama.cpp's compare script can tell them apart."""
    commits = {str(bench["build_commit"]) for _, bench in _benches(connection, wanted, _Count())}
    names = shortened(sorted(commits))
    for row, bench in _benches(connection, wanted, count):
        commit = str(bench["build_commit"])
        yield row, bench | {"build_commit": names.get(commit, commit)}


def _benches(
    connection: Connection, wanted: Wanted, count: _Count, order: str | None = None
) -> Iterator[tuple[dict[str, Any], Bench]]:
    with selected(connection, wanted, order) as (_, rows):
        yield from count.benches(rows)


def _written(connection: Connection, wanted: Wanted, form: str, count: _Count) -> Written:
    if form not in AS_LLAMA_BENCH:
        return Written(n_rows=count.n)
    n_unsound = count_rows(connection, wanted) - count.n - count.n_strange
    reasons = chain(
        [(n_unsound, "marked bad, or of the stand-in that measures nothing")] * bool(n_unsound),
        [(count.n_strange, "of tests that llama-bench does not have")] * bool(count.n_strange),
    )
    return Written(n_rows=count.n, left_out=tuple(reasons))
