"""`tokfleet sql`: a question to the database, and what there is to ask about."""

import os
import sys
from contextlib import closing
from pathlib import Path

import click

from orchestrator.cli.db import database_url, db_option
from orchestrator.cli.output import format_option, write_rows
from orchestrator.cli.results import MOST_ROWS, note_limit
from orchestrator.sql_words import Value, value_of
from schema.errors import UsageError

LONGEST_SECONDS = 86_400.0


@click.command()
@click.argument("query", metavar="[QUERY|FILE|-]", required=False)
@click.option("-f", "--file", "path", type=click.Path(path_type=Path), help="Read the question from this file.")
@click.option(
    "-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="What :NAME in the question stands for."
)
@click.option("--schema", "about", is_flag=True, help="List the views' columns: of all, or of the view QUERY.")
@click.option(
    "--limit", type=click.IntRange(1, MOST_ROWS), default=1000, show_default=True, help="At most so many rows."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True, max=LONGEST_SECONDS),
    default=60.0,
    show_default=True,
    help="Seconds that the database may work.",
)
@format_option
@db_option
def sql(
    query: str | None,
    path: Path | None,
    params: tuple[str, ...],
    about: bool,
    limit: int,
    timeout: float,
    form: str,
    db: str | None,
) -> None:
    """Ask the database one question in SQL; it can change nothing.

    The views results, latest, failures, samples, hosts and probes are what to ask; --schema says what is in them,
    docs/sql.md has questions to start from. For example

    \b
      tokfleet sql "select host, model, test, avg_ts, stddev_ts from latest"
      tokfleet sql -f trend.sql -p host=box-a --format csv
    """
    if about:
        _describe(query, form)
        return
    from orchestrator.ask import ask

    asked = _question(query, path)
    with closing(ask(database_url(db), asked, limit, timeout, _parameters(params))) as answer:
        write_rows(answer.columns, answer, form)
        if answer.truncated:
            note_limit(limit)


def _describe(view: str | None, form: str) -> None:
    from schema.view_columns import VIEW_COLUMNS

    if view is not None and view not in VIEW_COLUMNS:
        raise UsageError(f"There is no view {view}. There are {', '.join(VIEW_COLUMNS)}.")
    rows = [
        (name, column.name, column.kind, column.unit or None, column.meaning)
        for name, columns in VIEW_COLUMNS.items()
        for column in columns
        if view in (None, name)
    ]
    write_rows(("view", "column", "type", "unit", "meaning"), rows, form)


def _parameters(said: tuple[str, ...]) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for pair in said:
        name, given, value = pair.partition("=")
        name = name.strip().removeprefix(":")
        if not given or not name.isidentifier() or not name.isascii():
            raise UsageError(f"The parameter {pair!r} is not NAME=VALUE, as in -p host=box-a.")
        found[name] = value_of(value)
    return found


def _question(query: str | None, path: Path | None) -> str:
    """Return the SQL: the argument itself, the file that it or --file names, or standard input."""
    if path is not None and query is not None:
        raise UsageError("There are two questions: an argument and --file. Give one of them.")
    if path is not None:
        return _decoded(path.read_bytes(), f"The file {path}")
    if query is None and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("There is no question. Give it as an argument, in a file (-f), or on standard input.")
    if query in (None, "-"):
        return _from_standard_input()
    if any(mark.isspace() for mark in query.strip()):
        return _decoded(os.fsencode(query), "The question")
    named = Path(query)
    if named.suffix == ".sql" and not named.exists():
        raise UsageError(f"There is no file {query} to read the SQL from.")
    return _decoded(named.read_bytes(), f"The file {query}") if named.is_file() else query


def _from_standard_input() -> str:
    if sys.stdin is None:
        raise UsageError("There is no standard input to read the SQL from.")
    return _decoded(sys.stdin.buffer.read(), "Standard input")


def _decoded(data: bytes, what: str) -> str:
    """Return `data` as the UTF-8 that it should be, whatever the terminal's locale says."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is no text in UTF-8.") from error
