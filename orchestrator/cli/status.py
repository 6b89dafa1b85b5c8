"""`tokfleet status`: how far the runs are, and who drives them; once, or again and again until a run has ended."""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.address import rides
from orchestrator.cli.db import database_url, db_option
from orchestrator.cli.output import format_option, note, terminal_width, write, write_rows
from orchestrator.tables import render

if TYPE_CHECKING:
    from orchestrator.store import Store

COLUMNS = ("run_uid", "name", "created_at", "n_jobs", "n_measured", "n_failed", "n_remaining", "driver")
HOST_COLUMNS = ("host", "n_jobs", "n_measured", "n_failed", "n_remaining", "last_ended_at")
WATCH_SECONDS = 2.0
CLEAR_LINE, UP = "\x1b[2K\r", "\x1b[1A"


@click.command()
@click.argument("run", required=False)
@click.option("--watch", is_flag=True, help="Show it again whenever it has changed, until the run has ended.")
@format_option
@db_option
@rides
def status(run: str | None, watch: bool, form: str, db: str | None) -> None:
    """Show how far each run is, newest first, or RUN alone with each of its hosts.

    `driver` is the process that measures it, where that is on the machine of the store. With --watch Ctrl-C
    ends the watching, not the run.
    """
    from orchestrator.store import Store
    from worker.home import home_or_nowhere

    home = home_or_nowhere()
    with Store.open(database_url(db), create=False) as store:
        uid = store.run(run or "latest").run_uid if run or watch else None
        if watch and uid:
            _watch(store, home, uid, form)
            return
        rows = _runs(store, home, uid)
        write_rows(COLUMNS, rows, form)
        if uid and form == "table":
            write(["", *render(HOST_COLUMNS, _hosts(store, uid), form, terminal_width(sys.stdout))])


def _runs(store: "Store", home: Path, uid: str | None) -> list[tuple[Any, ...]]:
    return [
        (*(row[name] for name in COLUMNS[:-1]), _driver(home, row["run_uid"]) if row["n_remaining"] else None)
        for row in store.progress(uid)
    ]


def _driver(home: Path, run_uid: str) -> str | None:
    """Return who drives the run, in words; None where nobody does on this machine."""
    from orchestrator.driver_lock import driver

    holder = driver(home, run_uid)
    return holder.describe() if holder else None


def _hosts(store: "Store", uid: str) -> list[tuple[Any, ...]]:
    return [
        (row["hostname"] or row["host_uid"], *(row[name] for name in HOST_COLUMNS[1:]))
        for row in store.progress_by_host(uid)
    ]


def _watch(store: "Store", home: Path, uid: str, form: str) -> None:
    """Show the run until nothing is left of it, or nobody drives it any more."""
    shown: list[str] = []
    draws = form == "table" and sys.stdout is not None and sys.stdout.isatty()
    for rows, ends in _states(store, home, uid):
        lines = list(_lines(rows, _hosts(store, uid), form))
        if lines != shown:
            _draw(lines, len(shown) if draws else 0)
        shown = lines
        if ends:
            _say_why(uid, rows)
            return
        time.sleep(WATCH_SECONDS)


def _states(store: "Store", home: Path, uid: str) -> Iterator[tuple[list[tuple[Any, ...]], bool]]:
    while True:
        rows = _runs(store, home, uid)
        yield rows, not rows or not rows[0][COLUMNS.index("n_remaining")] or rows[0][-1] is None


def _lines(rows: Sequence[Any], hosts: Sequence[Any], form: str) -> Iterator[str]:
    width = terminal_width(sys.stdout)
    if form != "table":
        yield from render(COLUMNS, rows, "jsonl" if form == "json" else form, width)
        return
    yield from render(COLUMNS, rows, form, width)
    if len(hosts) > 1:
        yield ""
        yield from render(HOST_COLUMNS, hosts, form, width)


def _draw(lines: Sequence[str], over: int) -> None:
    """Write `lines`, at a terminal in place of the `over` lines that stand there."""
    if over and sys.stdout is not None:
        sys.stdout.write((UP + CLEAR_LINE) * over)
    write(lines)


def _say_why(uid: str, rows: Sequence[Any]) -> None:
    if rows and rows[0][COLUMNS.index("n_remaining")]:
        note(f"Nobody measures run {uid[:8]} on this machine now. `tokfleet resume {uid[:8]}` goes on with it.")
