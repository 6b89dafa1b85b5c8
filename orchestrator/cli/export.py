"""`tokfleet export`: results, or the whole store, in a file for others."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.db import database_url, db_option
from orchestrator.cli.output import note, write
from schema.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.interchange.view_rows import Wanted
    from orchestrator.store import Store

FORMS = ("csv", "json", "jsonl", "markdown", "parquet", "llama-bench-sqlite", "store")
VIEWS = ("results", "latest", "all_results", "failures", "samples")
ENDINGS = {
    "csv": "csv",
    "json": "json",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "md": "markdown",
    "markdown": "markdown",
    "parquet": "parquet",
    "sqlite": "llama-bench-sqlite",
}
"""Ending of a file's name -> what it is written as, where nothing else is said."""

FILES_ONLY = ("parquet", "llama-bench-sqlite")


@click.command()
@click.argument("file", metavar="FILE|-")
@click.option("--to", "form", type=click.Choice(FORMS), help="What to write.  [default: by FILE's ending]")
@click.option("--view", type=click.Choice(VIEWS), default="results", show_default=True, help="Which rows.")
@click.option("--run", metavar="RUN", help="Of this run alone: its uid, the start of it, or `latest`.")
@click.option("--host", metavar="HOST", help="Of this host alone: its name or uid.")
@click.option("--model", metavar="TEXT", help="Of models whose name has TEXT in it.")
@click.option("--since", metavar="TIME", help="Measured since: 2026-01-31, 2026-01-31T18:00 (UTC), or 12h, 7d, 4w ago.")
@db_option
def export(
    file: str,
    form: str | None,
    view: str,
    run: str | None,
    host: str | None,
    model: str | None,
    since: str | None,
    db: str | None,
) -> None:
    """Write results to FILE (`-`: standard output), whole or not at all; with `.gz` at its end, compressed.

    csv, json, jsonl and parquet have every column of the view. markdown is llama-bench's own table, and
    llama-bench-sqlite a file for llama.cpp's compare-llama-bench.py. store is everything, for `tokfleet import`
    into an empty database.
    """
    from orchestrator.store import Store

    form = form or _form_of(file)
    url = database_url(db)
    with Store.open(url, create=False) as store:
        _refuse_the_store_itself(file, store)
        if form == "store":
            if run or host or model or since or view != "results":
                raise UsageError(
                    "A whole store is written whole: leave out --run, --host, --model, --since and --view."
                )
            _write_store(store, file)
        else:
            _write(store, _wanted(store, view, run, host, model, since), form, file)


def _form_of(file: str) -> str:
    name = file.lower().removesuffix(".gz")
    if file == "-":
        return "csv"
    if "." in name and (known := ENDINGS.get(name.rpartition(".")[2])):
        return known
    raise UsageError(f"What {file} is to be cannot be told from its name: say --to {'|'.join(FORMS)}.")


def _wanted(
    store: "Store", view: str, run: str | None, host: str | None, model: str | None, since: str | None
) -> "Wanted":
    from datetime import UTC, datetime

    from orchestrator.interchange.view_rows import Wanted, moment

    return Wanted(
        view=view,
        run_uid=store.run(run).run_uid if run else None,
        host=host,
        model=model,
        since=moment(since, datetime.now(UTC)) if since else None,
    )


def _write(store: "Store", wanted: "Wanted", form: str, file: str) -> None:
    from typing import cast

    from orchestrator.interchange.export_file import AS_LLAMA_BENCH, Form, export_file, export_lines

    if form in AS_LLAMA_BENCH and wanted.view not in ("results", "latest", "all_results"):
        raise UsageError(f"llama-bench has no {wanted.view}: {form} is of the views results, latest and all_results.")
    own = cast(Form, form)
    if file == "-":
        _refuse_standard_output(form)
        write(export_lines(store, wanted, own))
        return
    written = export_file(store, wanted, own, Path(file))
    note(f"{_counted(written.n_rows)} of {wanted.view} {'is' if written.n_rows == 1 else 'are'} in {file}.")
    for number, reason in written.left_out:
        note(f"Left out: {_counted(number)} {reason}.")


def _write_store(store: "Store", file: str) -> None:
    from orchestrator.interchange.store_file import store_lines, write_store

    if file == "-":
        write(store_lines(store))
        return
    n_rows = write_store(store, Path(file))
    note(f"The whole store, {_counted(n_rows)}, is in {file}. `tokfleet import {file} --db NEW` makes it again.")


def _refuse_standard_output(form: str) -> None:
    if form in FILES_ONLY or sys.stdout is None:
        raise UsageError(f"{form} cannot go to standard output: name a file.")


def _refuse_the_store_itself(file: str, store: "Store") -> None:
    """Raise UsageError where the file is the database that is read, or one of the files beside it."""
    own = Path(store.name)
    names = {own.name, f"{own.name}-wal", f"{own.name}-shm", f"{own.name}-journal"}
    path = Path(file).absolute()
    same = own.exists() and path.exists() and path.samefile(own)
    if same or (own.exists() and path.name in names and path.parent.resolve() == own.absolute().parent.resolve()):
        raise UsageError(f"{file} is the database itself: name another file.")


def _counted(number: int) -> str:
    return f"{number} row" + ("" if number == 1 else "s")
