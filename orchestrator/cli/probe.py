"""`tokfleet probe`: how fast this machine's memory and processor are, as a curve and in words, kept in the database."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.db import database_url, db_option, shown
from orchestrator.cli.output import note, terminal_width, write
from orchestrator.cli.run import python_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schema.host import Fingerprint
    from schema.probe import Probe


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print everything that was measured, as JSON.")
@click.option("--save/--no-save", default=True, show_default=True, help="Keep the probe in the database.")
@python_option
@db_option
def probe(as_json: bool, save: bool, python: str, db: str | None) -> None:
    """Measure how fast this machine reads and copies memory, by threads, and multiplies matrices.

    Takes about three seconds, during which nothing else is measured here. Decoding cannot be faster than
    the memory is read.
    """
    import json
    from dataclasses import asdict

    from orchestrator.probe_text import render
    from worker.home import home_or_nowhere, writable_home

    url = database_url(db, create=True) if save else ""
    fingerprint, probes = _take(python, writable_home() if save else home_or_nowhere())
    if as_json:
        write([json.dumps([asdict(each) for each in probes], indent=2)])
    else:
        write(render(probes, terminal_width(sys.stdout)))
    if save:
        _save(url, fingerprint, probes)
        note(f"Kept in {shown(url)}.")


def _take(python: str, home: Path) -> "tuple[Fingerprint, Sequence[Probe]]":
    """Hold the machine, as a measurement does, and probe it."""
    from orchestrator.cli.hosts import build_or_note
    from orchestrator.cli.progress import Progress
    from worker.fingerprint.take import take
    from worker.lock import WAIT_SECONDS, HostLock
    from worker.probe.take import full

    lock = HostLock(what="tokfleet probe")
    with (
        lock.acquire(WAIT_SECONDS, lambda holder: note(f"waiting for the machine: {holder.describe()}")),
        Progress(0) as show,
    ):
        show.stage("looking at this machine")
        fingerprint = take(home, build_or_note(python, home), holds_lock=True)
        return fingerprint, full(fingerprint, show.stage)


def _save(url: str, fingerprint: "Fingerprint", probes: "Sequence[Probe]") -> None:
    """Spool everything first, so that nothing is lost where the database cannot be used now."""
    from dataclasses import asdict

    from orchestrator.spool import Spool, spool_path
    from orchestrator.store import Store
    from schema.canonical import digest
    from schema.errors import StoreError
    from worker.home import writable_home

    with Spool.open(spool_path(writable_home(), url)) as spool:
        whole = asdict(fingerprint)
        spool.put("fingerprint", digest(whole), whole)
        for each in probes:
            spool.put("probe", each.probe_uid, asdict(each))
        with Store.open(url, create=True) as store:
            spool.drain(store.save_entries)
        ours = {each.probe_uid for each in probes}
        refused = [parked.error for parked in spool.parked() if parked.entry.uid in ours]
    if refused:
        raise StoreError(refused[0])
