"""From a planned run to its summary: what `tokfleet run`, `resume`, `bench` and a submitted driver have in common."""

import contextlib
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from orchestrator.cli.choices import Choices
from orchestrator.cli.db import database_url, shown
from orchestrator.cli.output import note, terminal_width, write
from orchestrator.cli.planning import ask_first, cluster_at, lab_here, prepare, roll_call, run_of
from schema.errors import StoreError

if TYPE_CHECKING:
    from orchestrator.driver import Driver
    from orchestrator.late_shares import LateShares
    from orchestrator.prepare import Prepared
    from orchestrator.roll_call import RollCall
    from orchestrator.store import Store
    from schema.lab_host import Lab
    from schema.run import Run
    from schema.sweep import Sweep

FAILED, IN_PART, INTERRUPTED = 1, 3, 130
QUIET_SECONDS = 1800.0
CONTENDED_TRIES = 2


def measure_sweep(
    sweep: "Path | Sweep", yes: bool, choices: Choices, db: str | None, run_uid: str | None = None
) -> int:
    """Plan the sweep (or the one in a file), ask where it is large, measure it, and return the exit status."""
    from orchestrator.store import Store

    run_uid = run_uid or _new_uid()
    with cluster_at(choices.address):
        lab = lab_here()
        call = roll_call(choices, lab)
        prepared = prepare(sweep, choices, call, run_uid)
        ask_first(prepared.plan, yes)
        url = database_url(db, create=True)
        with Store.open(url, create=True) as store:
            for fingerprint in prepared.fingerprints:
                store.save_fingerprint(fingerprint)
            _save_labels(store, prepared)
            run = run_of(prepared, run_uid)
            store.save_run(run, prepared.plan.jobs)
            note(f"Run {run_uid} begins: {prepared.plan.n_jobs} jobs.")
            missing = sum(item.n_jobs or 1 for item in prepared.plan.skipped if item.missing)
            join = None if call is None else late_shares(store, run, prepared, call)
            return _measure(store, url, run_uid, choices, lab, prepared.plan.expected_seconds, missing, join)


def late_shares(store: "Store", run: "Run", prepared: "Prepared", call: "RollCall") -> "LateShares":
    """Return what plans and stores the share of a host that comes while the run goes on."""
    from orchestrator.late_shares import LateShares

    return LateShares(store, run, prepared, call)


def _save_labels(store: "Store", prepared: "Prepared") -> None:
    """Keep what each host told the cluster of itself."""
    from orchestrator.host_states import own_labels

    for fingerprint in prepared.fingerprints:
        told = prepared.labels.get(fingerprint.host_uid)
        if told is not None:
            store.save_seen(fingerprint.host_uid, told.get("host"), own_labels(told), fingerprint.taken_at)


def measure_rest(run: str, choices: Choices, db: str | None, detach: bool = False) -> int:
    """Measure what the run still lacks, here or by the head, and return the exit status."""
    from orchestrator.store import Store

    url = database_url(db)
    with Store.open(url, create=False) as store:
        uid = store.run(run).run_uid
        if not store.remaining_jobs(uid):
            note(f"Nothing is missing of run {uid[:8]}; what failed is not tried again.")
            return _conclude(store, url, uid, False, 0)
        if detach:
            return _detach(uid, url, choices)
        with cluster_at(choices.address):
            note(f"Run {uid} begins again.")
            return _measure(store, url, uid, choices, lab_here(), {}, 0)


def _measure(
    store: "Store",
    url: str,
    run_uid: str,
    choices: Choices,
    lab: "Lab",
    expected_seconds: Mapping[str, float],
    n_missing: int,
    join: "LateShares | None" = None,
) -> int:
    """Measure what the run lacks, print its summary and return the exit status."""
    from orchestrator.cli.detaching import asking
    from orchestrator.cli.progress import Progress
    from orchestrator.driver_lock import driving_alone
    from orchestrator.driving import driving
    from orchestrator.spool import Spool, spool_path
    from worker.fingerprint.take import take
    from worker.home import writable_home

    home = writable_home()
    interrupted = False
    with (
        driving_alone(home, run_uid),
        Spool.open(spool_path(home, url)) as spool,
        Progress(0) as starting,
        _signals(),
        asking(choices.address is not None) as asked,
    ):
        driver = _driver(store, spool, run_uid, choices, lab, starting, join)
        here = take(home, None).host_uid if choices.address is None else None
        try:
            with driving(driver, spool, here):
                _measure_remaining(driver, expected_seconds)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            _leave(store, run_uid)
    if interrupted and asked.detach:
        return _detach(run_uid, url, choices)
    return _conclude(store, url, run_uid, interrupted, n_missing)


def _detach(run_uid: str, url: str, choices: Choices) -> int:
    """Have this machine's head go on with the run, and return the exit status."""
    from orchestrator.cli.submit import detach

    return detach(run_uid, url, choices.address, choices.course())


def _leave(store: "Store", run_uid: str) -> None:
    """Say that nobody drives the run any more; where that cannot be said, it is known a minute later."""
    from orchestrator.precedence import say_left

    with contextlib.suppress(StoreError):
        say_left(store, run_uid)


def _driver(
    store: "Store", spool: Any, run_uid: str, choices: Choices, lab: "Lab", show: Any, join: "LateShares | None"
) -> "Driver":
    from orchestrator.driver import Driver
    from orchestrator.fleet import Fleet
    from orchestrator.gates import Gates
    from orchestrator.host_states import drained
    from orchestrator.intake import Intake
    from orchestrator.journals import Journals
    from orchestrator.precedence import outranked, say_driven, utc_now
    from orchestrator.queues import Rules

    def in_the_way() -> Any:
        say_driven(store, run_uid, choices.priority, utc_now())
        return outranked(store, run_uid, choices.priority, utc_now())

    intake = Intake(spool)
    driver = Driver(
        store=store,
        journals=Journals(store, intake, run_uid, note),
        hosts=Fleet(intake.keep, lab.launchers if choices.address else {}),
        run_uid=run_uid,
        show=show,
        rules=Rules(
            seconds=None if choices.max_hours is None else 3600 * choices.max_hours,
            contended_tries=CONTENDED_TRIES * choices.when_quiet,
        ),
        lab=lab,
        python=choices.python_there,
        quiet_seconds=QUIET_SECONDS * choices.when_quiet,
        is_local=choices.address is None,
        join=join,
        join_words=join.words if join else (),
        planned=join.planned if join else frozenset(),
    )
    driver.gates = Gates(
        lab=lab,
        drained=lambda: drained(store.host_states()),
        outranked=in_the_way if choices.address else frozenset,
        tell=lambda text: driver.show.note(text),
    )
    return driver


def _measure_remaining(driver: "Driver", expected_seconds: Mapping[str, float]) -> None:
    from orchestrator.cli.progress import Progress

    remaining = driver.store.remaining_jobs(driver.run_uid)
    jobs = [(job, expected_seconds.get(job.job_uid, 0.0)) for job in remaining]
    by_host: dict[str, float] = {}
    for job, seconds in jobs:
        by_host[job.host_uid] = by_host.get(job.host_uid, 0.0) + seconds
    with Progress(len(jobs), max(by_host.values(), default=0.0) if expected_seconds else None) as show:
        driver.measure(jobs, show)


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
