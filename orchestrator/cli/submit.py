"""`tokfleet submit`, `logs` and `cancel`: runs that the head drives by itself, whoever comes and goes."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.address import address_option, is_elsewhere
from orchestrator.cli.choices import course_options
from orchestrator.cli.db import database_url, db_option
from orchestrator.cli.output import note, write
from orchestrator.tables import escape
from schema.errors import ClusterError, StoreError

if TYPE_CHECKING:
    from orchestrator.handover import Handover
    from orchestrator.jobs_api import Jobs, RunJob

FAILED, INTERRUPTED = 1, 130
CANCEL_SECONDS = 30.0
BEGINS = "Run {run_uid} begins"
"""What a driver says as soon as its run is in the store; `submit` waits for it."""


@click.command()
@click.argument("sweep", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask before a large sweep, or one that is possible only in part.")
@click.option("--follow", is_flag=True, help="Show the driver's log until the run has ended, as `tokfleet run` would.")
@course_options
@click.option("--db", metavar="PATH|URL", help="The database, as the head calls it.  [default: the head's own]")
@address_option
def submit(
    sweep: Path,
    yes: bool,
    follow: bool,
    db: str | None,
    address: str | None,
    **course: Any,
) -> int:
    """Hand the SWEEP file over to the lab's head, and return when it is planned and begun.

    The run goes on whatever becomes of this terminal and this machine; its rows are in the head's database. Printed
    is the run's uid, by which `status`, `logs`, `cancel` and `resume` know it.
    """
    from orchestrator.handover import Handover
    from orchestrator.jobs_api import connect
    from schema.sweep import load_sweep

    value = load_sweep(sweep)
    handover = Handover(
        run_uid=_new_uid(),
        sweep=value.text,
        filename=str(sweep),
        base=str(sweep.absolute().parent),
        yes=yes,
        db=db,
        course=course,
    )
    return hand_over(connect(address), handover, follow)


def hand_over(jobs: "Jobs", handover: "Handover", follow: bool) -> int:
    """Have the head drive a run, show what its driver says until it has begun, and return the exit status."""
    from orchestrator.handover import as_metadata
    from orchestrator.jobs_api import entrypoint

    job = jobs.hand_over(handover.run_uid, entrypoint(["drive"]), as_metadata(handover))
    if follow:
        return follow_to_the_end(jobs, job)
    begun = False
    with contextlib.closing(jobs.follow(job.submission_id)) as lines:
        for line in _told(lines, job):
            begun = begun or line.startswith(BEGINS.format(run_uid=handover.run_uid))
            if begun:
                break
            note(escape(line))
    if not begun:
        return end_status(jobs, job)
    write([handover.run_uid])
    short = handover.run_uid[:8]
    note(f"The head measures it now. `tokfleet logs {short} --follow` shows how, `tokfleet cancel {short}` ends it.")
    return 0


def _told(lines: Iterator[str], job: "RunJob") -> Iterator[str]:
    """Yield the lines; Ctrl-C meanwhile says that the run is at the head already."""
    try:
        yield from lines
    except KeyboardInterrupt:
        note(f"The run is at the head and goes on: `tokfleet cancel {job.run_uid[:8]}` ends it.")
        raise


def follow_to_the_end(jobs: "Jobs", job: "RunJob") -> int:
    """Show the driver's log until it ends and return its exit status; Ctrl-C asks once whether to leave it running."""
    from orchestrator.cli.detaching import ends_here

    lines = jobs.follow(job.submission_id)
    try:
        for line in lines:
            write([escape(line)])
    except KeyboardInterrupt:
        if not ends_here():
            note(f"The run goes on at the head. `tokfleet logs {job.run_uid[:8]} --follow` shows it again.")
            return 0
        lines.close()
        _cancel_at(jobs, job)
        return INTERRUPTED
    return end_status(jobs, job)


def end_status(jobs: "Jobs", job: "RunJob") -> int:
    """Return the exit status of a driver whose log has ended, which the head knows a moment later."""
    from orchestrator.cli.there import exit_status

    return exit_status(jobs, job.submission_id)


@click.command()
@click.argument("run", default="latest")
@click.option("--follow", is_flag=True, help="Go on until the run has ended; Ctrl-C ends the following, not the run.")
@address_option
def logs(run: str, follow: bool, address: str | None) -> int:
    """Show what the driver of RUN (its uid, the start of it, or `latest`) says at the head."""
    from orchestrator.jobs_api import connect

    jobs = connect(address)
    job = jobs.find(run)
    if not follow:
        write(escape(line) for line in jobs.logs(job.submission_id).splitlines())
        return 0
    for line in jobs.follow(job.submission_id):
        write([escape(line)])
    return 0


@click.command()
@click.argument("run")
@db_option
@address_option
def cancel(run: str, db: str | None, address: str | None) -> int:
    """End the measuring of RUN (its uid, the start of it, or `latest`), wherever it is driven.

    The hosts are free at once. What was measured stays; the job that was cut is no result, and `tokfleet resume`
    measures it and the rest.
    """
    if is_elsewhere(address):
        from orchestrator.jobs_api import connect

        jobs = connect(address)
        return _cancel_at(jobs, jobs.find(run))
    return _cancel_here(run, db, address)


def _cancel_here(run: str, db: str | None, address: str | None) -> int:
    """End the driver on this machine, or the one at this machine's head."""
    from orchestrator.driver_lock import end_driver
    from orchestrator.store import Store
    from worker.home import home

    with Store.open(database_url(db), create=False) as store:
        uid = store.run(run).run_uid
        holder = end_driver(home(), uid, CANCEL_SECONDS)
        if holder is None:
            _end_at_own_head(uid, address)
        row = store.progress(uid)[0]
    write(
        [
            f"Run {uid[:8]} is cancelled: {row['n_measured']} of {row['n_jobs']} jobs are measured and kept, "
            f"{row['n_failed']} failed, {row['n_remaining']} are left. `tokfleet resume {uid[:8]}` measures them."
        ]
    )
    return 0


def _end_at_own_head(uid: str, address: str | None) -> None:
    """End a driver that only this machine's head knows of; ClusterError where there is none."""
    from orchestrator.jobs_api import connect

    nobody = f"Nobody measures run {uid[:8]} on this machine, so there is nothing to cancel."
    try:
        jobs = connect(address)
        living = next((job for job in jobs.of(uid) if job.lives), None)
    except ClusterError as error:
        raise StoreError(f"{nobody} If another machine drives it, cancel it there.") from error
    if living is None:
        raise StoreError(nobody)
    jobs.stop(living.submission_id)


def _cancel_at(jobs: "Jobs", job: "RunJob") -> int:
    """End a driver at the head, and say what is left by its last words, or by the database where it had none."""
    if not job.lives and jobs.ended(job.submission_id) is not None:
        write([f"Run {job.run_uid[:8]} is not being measured at the head: its driver has {job.status.lower()}."])
        return FAILED
    jobs.stop(job.submission_id)
    write([f"Run {job.run_uid[:8]} is cancelled, and its hosts are free. What was measured is in the head's database."])
    said = [line for line in jobs.logs(job.submission_id).splitlines() if line.startswith("Interrupted;")]
    if said:
        write([escape(said[-1])])
        return 0
    from orchestrator.cli.there import ride

    return ride(jobs.address, ["status", job.run_uid])


def detach(uid: str, url: str, address: str | None, course: dict[str, Any]) -> int:
    """Have this machine's head go on with a run of the store at `url`; return the exit status."""
    from orchestrator.driver_lock import driver
    from orchestrator.handover import Handover
    from orchestrator.jobs_api import connect
    from worker.home import home

    holder = driver(home(), uid)
    if holder is not None:
        raise ClusterError(f"Run {uid[:8]} is being measured already, by {holder.describe()}.")
    jobs = connect(address)
    if not jobs.is_here:
        raise ClusterError(
            f"The head at {jobs.address} is another machine, and run {uid[:8]} is in a database of this one. "
            f"`tokfleet resume {uid[:8]}` goes on with it from here."
        )
    return hand_over(jobs, Handover(run_uid=uid, db=url, course=course), follow=False)


def _new_uid() -> str:
    import uuid

    return uuid.uuid4().hex
