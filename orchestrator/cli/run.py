"""`tokfleet run`, `resume`, `plan` and `status`: from a sweep file to rows in the database."""

import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import click

from orchestrator.cli.db import database_url, db_option, shown
from orchestrator.cli.output import confirm, format_option, note, terminal_width, write, write_rows
from schema.errors import PlanError

if TYPE_CHECKING:
    from orchestrator.driver import Driver
    from orchestrator.plan import Plan
    from orchestrator.prepare import Prepared
    from orchestrator.store import Store
    from schema.run import Run
    from schema.sweep import Sweep

FAILED, IN_PART, INTERRUPTED = 1, 3, 130


def _from_here(_context: click.Context, _parameter: click.Parameter, python: str) -> str:
    """Return a path that means the same in every directory; a name alone is looked up in PATH."""
    return str(Path(python).absolute()) if "/" in python else python


python_option = click.option(
    "--python",
    envvar="TOKFLEET_PYTHON",
    default=sys.executable,
    callback=_from_here,
    metavar="PATH",
    help="The Python whose llama-cpp-python measures.  [default: TOKFLEET_PYTHON, or the one that runs tokfleet]",
)


@click.command()
@click.argument("sweep", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask before a large sweep, or one that is possible only in part.")
@python_option
@db_option
def run(sweep: Path, yes: bool, python: str, db: str | None) -> int:
    """Measure everything in the SWEEP file, and store each result as it comes.

    Running a file again is a new run. Ctrl-C loses nothing that was measured.
    """
    return measure_sweep(sweep, yes, python, db)


def measure_sweep(sweep: "Path | Sweep", yes: bool, python: str, db: str | None) -> int:
    """Plan the sweep (or the one in a file), ask where it is large, measure it, and return the exit status."""
    from orchestrator.store import Store
    from worker.home import writable_home

    run_uid = _new_uid()
    prepared = _prepare(sweep, writable_home(), python, run_uid)
    _ask_first(prepared.plan, yes)
    url = database_url(db, create=True)
    with Store.open(url, create=True) as store:
        store.save_fingerprint(prepared.fingerprint)
        store.save_run(_run_of(prepared, run_uid), prepared.plan.jobs)
        missing = sum(item.n_jobs or 1 for item in prepared.plan.skipped if item.missing)
        return _measure(store, url, run_uid, python, prepared.plan.expected_seconds, missing)


@click.command()
@click.argument("run", default="latest")
@python_option
@db_option
def resume(run: str, python: str, db: str | None) -> int:
    """Measure what RUN (its uid or the start of it; default: the latest) still lacks.

    What failed is not tried again: run the file anew for that.
    """
    from orchestrator.store import Store

    url = database_url(db)
    with Store.open(url, create=False) as store:
        uid = store.run(run).run_uid
        if not store.remaining_jobs(uid):
            note(f"Nothing is missing of run {uid[:8]}; what failed is not tried again.")
            return _conclude(store, url, uid, False, 0)
        return _measure(store, url, uid, python, {}, 0)


@click.command()
@click.argument("sweep", type=click.Path(path_type=Path))
@python_option
def plan(sweep: Path, python: str) -> int:
    """Show what the SWEEP file would measure, how long that takes, and what is skipped and why."""
    from orchestrator.plan_text import render_plan
    from worker.home import home_or_nowhere

    prepared = _prepare(sweep, home_or_nowhere(), python, "plan")
    write(render_plan(prepared.plan, terminal_width(sys.stdout)))
    return 0 if prepared.plan.n_jobs else FAILED


@click.command()
@click.argument("run", required=False)
@format_option
@db_option
def status(run: str | None, form: str, db: str | None) -> None:
    """Show how far each run is, newest first, or RUN alone."""
    from orchestrator.store import Store

    with Store.open(database_url(db), create=False) as store:
        rows = store.progress(store.run(run).run_uid if run else None)
    columns = ("run_uid", "name", "created_at", "n_jobs", "n_measured", "n_failed", "n_remaining")
    write_rows(columns, [tuple(row[name] for name in columns) for row in rows], form)


def _prepare(sweep: "Path | Sweep", home: Path, python: str, run_uid: str) -> "Prepared":
    from orchestrator.prepare import prepare

    return prepare(sweep, home, python, run_uid)


def _ask_first(plan: "Plan", yes: bool) -> None:
    """Show the plan, and ask before one that is large or that this machine can do only in part.

    Raises PlanError where there is nothing to run, click.Abort where the answer is no.
    """
    from orchestrator.plan_text import render_plan

    for line in render_plan(plan, terminal_width(sys.stderr)):
        note(line)
    if not plan.n_jobs:
        raise PlanError("There is nothing to run: see the reasons above.")
    if not plan.is_complete:
        raise PlanError(f"{plan.n_jobs} jobs are more than one run takes. Split the sweep into several files.")
    missing = [item for item in plan.skipped if item.missing]
    if yes or not (plan.needs_confirmation or missing):
        return
    if not confirm("Measure the rest all the same?" if missing else "Measure all of this?"):
        raise click.Abort


def _run_of(prepared: "Prepared", run_uid: str) -> "Run":
    from hashlib import sha256

    from orchestrator.cli import version
    from schema.run import Run
    from worker.recovery import utc_now

    text = prepared.sweep.text
    return Run(
        run_uid=run_uid,
        name=prepared.sweep.name,
        sweep_text=text,
        sweep_sha256=sha256(text.encode()).hexdigest(),
        created_at=utc_now(),
        tokfleet_version=version(),
        tags=prepared.sweep.tags,
    )


def _measure(
    store: "Store", url: str, run_uid: str, python: str, expected_seconds: Mapping[str, float], n_missing: int
) -> int:
    """Measure what the run lacks, print its summary and return the exit status."""
    from orchestrator.cli.progress import Progress
    from orchestrator.driver import Driver, driving
    from orchestrator.spool import Spool, spool_path
    from worker.fingerprint.take import take
    from worker.home import writable_home

    home = writable_home()
    interrupted = False
    with Spool.open(spool_path(home, url)) as spool, Progress(0) as starting, _signals():
        driver = Driver(
            store=store,
            spool=spool,
            home=home,
            host_uid=take(home, None).host_uid,
            run_uid=run_uid,
            python=python,
            show=starting,
        )
        try:
            with driving(driver):
                _measure_remaining(driver, expected_seconds)
        except KeyboardInterrupt:
            interrupted = True
    return _conclude(store, url, run_uid, interrupted, n_missing)


def _measure_remaining(driver: "Driver", expected_seconds: Mapping[str, float]) -> None:
    from orchestrator.cli.progress import Progress
    from orchestrator.order import groups

    remaining = driver.store.remaining_jobs(driver.run_uid)
    jobs = [job for job in remaining if job.host_uid == driver.host_uid]
    if len(jobs) < len(remaining):
        note(f"{len(remaining) - len(jobs)} jobs are another machine's; resume the run there.")
    expected = sum(expected_seconds.get(job.job_uid, 0.0) for job in jobs) if expected_seconds else None
    with Progress(len(jobs), expected) as show:
        driver.measure(groups(jobs, expected_seconds), show)


def _conclude(store: "Store", url: str, run_uid: str, interrupted: bool, n_missing: int) -> int:
    from orchestrator.report import run_summary, stages_table

    rows, failures = store.results(run_uid)[::-1], store.failures(run_uid)[::-1]  # oldest first
    width = terminal_width(sys.stdout)
    write(run_summary(rows, failures, shown(url), width))
    for row in rows:
        if row["kind"] == "pg" and len(rows) <= 4:
            write(["", f"{row['model']} {row['test']}:", *stages_table(row, width)])
    remaining = len(store.remaining_jobs(run_uid))
    if interrupted:
        note(f"Interrupted; {remaining} jobs are left. `tokfleet resume {run_uid[:8]}` measures them.")
        return INTERRUPTED
    n_lacking = len(failures) + remaining + n_missing
    if not n_lacking:
        return 0
    return IN_PART if rows else FAILED


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Treat a request to end (SIGTERM, a closed terminal) like Ctrl-C within the block."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _new_uid() -> str:
    import uuid

    return uuid.uuid4().hex
