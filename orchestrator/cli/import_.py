"""`tokfleet import`: results that others measured, from llama-bench's files of any age and form."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.db import database_url, db_option
from orchestrator.cli.output import format_option, note, write, write_rows
from schema.errors import TokfleetError

if TYPE_CHECKING:
    from orchestrator.import_report import Outcome
    from orchestrator.interchange.bench_folder import Source

PATIENCE_SECONDS = 1.0
"""After so long the person is told how far it is."""


@click.command(name="import")
@click.argument(
    "paths", metavar="FILE|DIR|-…", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True)
)
@click.option("--host", metavar="NAME", help="The host on which they were measured: one that is known, or a new name.")
@click.option("--dry-run", is_flag=True, help="Say what would be new, known and refused, and store nothing.")
@click.option("--salvage", is_flag=True, help="Take the good rows of a damaged file too, and name the others.")
@click.option("--distinct", is_flag=True, help="Count rows that are likely the same as others as results of their own.")
@click.option("--tags-from-name", "tags", is_flag=True, help="Tag them with the words of the names of file and folder.")
@format_option
@db_option
def import_(
    paths: tuple[Path, ...],
    host: str | None,
    dry_run: bool,
    salvage: bool,
    distinct: bool,
    tags: bool,
    form: str,
    db: str | None,
) -> int:
    """Take results that llama-bench or batched-bench printed into the database, marked as imported.

    A FILE may be of any age and form: tables in any text, json, jsonl, csv, sql, SQLite; a DIR is looked through. A
    file with a damaged piece is not taken at all, unless --salvage says so, and nothing is taken twice. Files that
    tokfleet itself wrote, of a whole store or of a bundle, are taken in too.

    \b
    Exit status: 0 all was taken or is known, 3 some of it, 1 nothing.
    """
    from orchestrator.cli import version
    from orchestrator.import_run import Importer, Tryer, take_source
    from orchestrator.interchange.bench_folder import sources

    url = database_url(db, create=not dry_run)
    listed = sources(paths)
    doing = f"{'looking through' if dry_run else 'importing'} {len(listed)} files"
    with Tryer(url, host, distinct=distinct) if dry_run else Importer(url, host, version(), distinct=distinct) as taker:
        outcomes: list[Outcome] = []
        try:
            for source in _told(listed, doing):
                outcomes.append(take_source(source, taker, salvage=salvage, tags=tags))
        except (TokfleetError, KeyboardInterrupt):
            if outcomes and not dry_run:
                note(f"{len(outcomes)} of {len(listed)} files are done; the same command goes on from there.")
            raise
    return _show(outcomes, form, dry_run, salvage)


def _told(listed: "Sequence[Source]", doing: str) -> "Iterator[Source]":
    """Yield the files one by one; once it takes long, say how far it is."""
    from orchestrator.cli.progress import Progress

    start = time.monotonic()
    with Progress(0) as progress:
        for number, source in enumerate(listed):
            if time.monotonic() - start > PATIENCE_SECONDS:
                progress.stage(doing, number / len(listed))
            yield source


def _show(outcomes: "Sequence[Outcome]", form: str, dry_run: bool, salvage: bool) -> int:
    """Print what came of the files, and return the exit status."""
    from orchestrator import import_report as report

    if form != "table":
        write_rows(report.ALL_COLUMNS, report.whole_table(outcomes), form)
    else:
        rows = [*report.table(outcomes)]
        if rows:
            write_rows(report.COLUMNS, rows)
            write(["", report.summary(outcomes, dry_run)])
        write([outcome.own for outcome in outcomes if outcome.own is not None])
    for line in report.remarks(outcomes, salvage):
        note(line)
    return report.status(outcomes)
