"""`tokfleet results`: what was measured."""

import json
import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.db import database_url, db_option
from orchestrator.cli.labels import WithMark
from orchestrator.cli.output import format_option, note, terminal_width, write, write_rows
from schema.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.store import Store

MOST_ROWS = 1_000_000_000
PARAGRAPH_WIDTH = 100


@click.command(cls=WithMark)
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

    `tokfleet results mark ID --bad "REASON"` takes a result out of comparisons; docs/labels.md.
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
        note_limit(limit)
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
    if row["origin"] == "imported":
        where = f"{row['source_file']}:{row['source_line']}"
        raise UsageError(f"The row {uid} was imported from {where}, which does not tell the command that made it.")
    job = next(job for job in store.jobs(row["run_uid"]) if job.job_uid == row["job_uid"])
    for name, value in job.settings.of_host.items():
        note(f"It was measured with {name} set to {value} on the host, which llama-bench does not do.")
    return command_line(job, row)


def note_limit(limit: int) -> None:
    """Say that there are more rows than these."""
    note(f"These are the first {limit} rows; --limit asks for more.")
