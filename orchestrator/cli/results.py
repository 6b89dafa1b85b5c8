"""`tokfleet results` and `tokfleet sql`: what was measured, and questions about it."""

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.db import database_url, db_option
from orchestrator.cli.output import format_option, note, terminal_width, write, write_rows
from schema.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.store import Store

MOST_ROWS = 1_000_000_000
PARAGRAPH_WIDTH = 100


@click.command()
@click.argument("run", required=False)
@click.option(
    "--command", metavar="ID", help="Print the line of llama-bench that repeats this job or attempt (its uid)."
)
@click.option("--explain", metavar="ID", help="Say in words what bounded this job or attempt (its uid, or the start).")
@click.option("--failed", is_flag=True, help="List the failed attempts and why they failed.")
@click.option(
    "--limit", type=click.IntRange(1, MOST_ROWS), default=1000, show_default=True, help="At most so many rows."
)
@format_option
@db_option
def results(
    run: str | None, command: str | None, explain: str | None, failed: bool, limit: int, form: str, db: str | None
) -> None:
    """List the measured rates, newest first: all, or those of RUN (its uid, the start of it, or `latest`).

    As a table it shows what people ask first; every other format has all columns of the view. `of ceiling` is
    the decode rate as a share of what the memory allows at most; docs/reading-results.md tells how to read it.
    """
    from orchestrator.report import failures_table, results_table
    from orchestrator.store import Store

    with Store.open(database_url(db), create=False) as store:
        if command is not None:
            write([_llama_bench_line(store, command)])
            return
        if explain is not None:
            write(_explained(store, explain))
            return
        uid = store.run(run).run_uid if run else None
        rows = store.failures(uid, limit + 1) if failed else store.results(uid, limit + 1)
    if len(rows) > limit:
        rows = rows[:limit]
        _note_limit(limit)
    if not rows:
        note(f"No {'failed attempts' if failed else 'results'}{f' of run {run}' if run else ''} yet.")
    if form == "table":
        width = terminal_width(sys.stdout)
        write(failures_table(rows, width) if failed else results_table(rows, width))
    elif rows or form == "json":
        write_rows(tuple(rows[0]) if rows else (), [tuple(row.values()) for row in rows], form)


def _explained(store: "Store", uid: str) -> list[str]:
    import textwrap

    from orchestrator.explanation import explain
    from schema.canonical import decode
    from schema.host import MemoryModules

    row = store.row(uid)
    modules = next((host["memory_modules"] for host in store.hosts() if host["host_uid"] == row["host_uid"]), None)
    known = decode(MemoryModules, json.loads(modules)) if modules else None
    width = min(terminal_width(sys.stdout) or PARAGRAPH_WIDTH, PARAGRAPH_WIDTH)
    texts = explain(row, store.limits(row["attempt_uid"]), known)
    return [line for text in texts for line in textwrap.wrap(text, width, subsequent_indent="  ")]


def _llama_bench_line(store: "Store", uid: str) -> str:
    from orchestrator.interchange.llama_bench_row import command_line

    row = store.row(uid)
    job = next(job for job in store.jobs(row["run_uid"]) if job.job_uid == row["job_uid"])
    return command_line(job, row)


@click.command()
@click.argument("query", metavar="QUERY|FILE|-")
@click.option(
    "--limit", type=click.IntRange(1, MOST_ROWS), default=1000, show_default=True, help="At most so many rows."
)
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, help="Seconds."
)
@format_option
@db_option
def sql(query: str, limit: int, timeout: float, form: str, db: str | None) -> None:
    """Ask the database one question in SQL; it can change nothing.

    The views results, latest, failures, samples, hosts and probes are what to ask: for example

    \b
      tokfleet sql "select host, model, test, avg_ts, stddev_ts from latest"
    """
    from orchestrator.ask import ask

    answer = ask(database_url(db), _query(query), limit, timeout)
    write_rows(answer.columns, answer, form)
    if answer.truncated:
        _note_limit(limit)


def _note_limit(limit: int) -> None:
    note(f"These are the first {limit} rows; --limit asks for more.")


def _query(query: str) -> str:
    """Return the SQL: the argument itself, the file that it names, or standard input for `-`."""
    if query == "-":
        if sys.stdin is None:
            raise UsageError("There is no standard input to read the SQL from.")
        return _decoded(sys.stdin.buffer.read(), "Standard input")
    if any(mark.isspace() for mark in query.strip()):
        return _decoded(os.fsencode(query), "The question")
    path = Path(query)
    if path.suffix == ".sql" and not path.exists():
        raise UsageError(f"There is no file {query} to read the SQL from.")
    return _decoded(path.read_bytes(), f"The file {query}") if path.is_file() else query


def _decoded(data: bytes, what: str) -> str:
    """Return `data` as the UTF-8 that it should be, whatever the terminal's locale says."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is no text in UTF-8.") from error
