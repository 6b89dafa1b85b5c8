"""What a host measured for a bundle, taken home: checked line by line, and stored once, like any other record."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from orchestrator.interchange.own_lines import read_own
from orchestrator.spool import Entry
from orchestrator.store import Store
from orchestrator.tables import escape
from schema.accept import accept_fingerprint, accept_job, accept_probe, accept_record, accept_run
from schema.bundle import RECORDS, VERSION, Line, parse_line
from schema.canonical import digest
from schema.errors import StoreError
from schema.job import Job
from schema.run import Run

MARK = RECORDS
AT_ONCE = 50
MOST_JOBS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """What a file of records had: its run, how many attempts, how many of them were new, and whether it is all."""

    run: Run
    n_records: int
    n_new: int
    complete: bool


def load_records(path: Path, store: Store) -> TakenIn:
    """Store what is in the file of records, and return what it had; the same file twice, or grown, is no trouble.

    A file that was cut short is taken as far as it proves itself. Raises StoreError, with nothing stored, where a
    line was changed, or holds something that may not be stored.
    """
    run, jobs, n_records, complete = look(path)
    before = store.attempt_uids(run.run_uid)
    store.save_run(run, jobs)
    entries = (entry for entry in map(_entry, enumerate(_lines(path))) if entry is not None)
    while some := list(islice(entries, AT_ONCE)):
        store.save_entries(some)
    n_new = len(store.attempt_uids(run.run_uid) - before)
    return TakenIn(run=run, n_records=n_records, n_new=n_new, complete=complete)


def look(path: Path) -> tuple[Run, list[Job], int, bool]:
    """Return run, jobs, number of records, and whether all was measured; raises what `load_records` would raise."""
    lines = _lines(path)
    first = next(lines, None)
    if first is None or not isinstance(first.value, dict) or first.value.get("version") != VERSION:
        raise _refused(path, 1, "it does not begin as the records of a bundle do, or is of a newer tokfleet")
    try:
        run = accept_run(first.value.get("run"))
    except StoreError as error:
        raise _refused(path, 1, str(error)) from error
    jobs: dict[str, Job] = {}
    n_records, complete = 0, False
    for number, line in enumerate(lines, 2):
        if complete:
            raise _refused(path, number, "it goes on after its end")
        try:
            _check(line, run, jobs)
        except StoreError as error:
            raise _refused(path, number, str(error)) from error
        n_records += line.kind == "record"
        complete = line.kind == "end"
    return run, list(jobs.values()), n_records, complete


def _check(line: Line, run: Run, jobs: dict[str, Job]) -> None:
    if line.kind == "job":
        job = accept_job(line.value)
        if job.run_uid != run.run_uid or len(jobs) >= MOST_JOBS:
            raise StoreError("There is a job of another run, or there are too many.")
        jobs[job.job_uid] = job
    elif line.kind == "fingerprint":
        accept_fingerprint(line.value)
    elif line.kind == "probe":
        accept_probe(line.value)
    elif line.kind == "record":
        record = accept_record(line.value)
        own = jobs.get(record.job_uid)
        if own is None or (record.run_uid, record.host_uid) != (own.run_uid, own.host_uid):
            raise StoreError(f"The record of attempt {record.attempt_uid!r:.80} is of no job in the file.")


def _lines(path: Path) -> Iterator[Line]:
    """Yield the lines that prove themselves; what a cut left of a last line is passed over."""
    before: Line | None = None
    with read_own(path) as own:
        for number, text in enumerate(own.texts(), 1):
            before = parse_line(before, text)
            if before is None:
                raise _refused(path, number, "the line was changed, or one before it is missing")
            yield before


def _entry(numbered: tuple[int, Line]) -> Entry | None:
    number, line = numbered
    uids: dict[str, Any] = {"record": "attempt_uid", "probe": "probe_uid"}
    if line.kind in uids:
        return Entry(seq=number, kind=line.kind, uid=line.value[uids[line.kind]], payload=line.value)
    if line.kind == "fingerprint":
        return Entry(seq=number, kind=line.kind, uid=digest(line.value), payload=line.value)
    return None


def _refused(path: Path, number: int, why: str) -> StoreError:
    return StoreError(f"{escape(str(path))}, line {number}: {escape(why).rstrip('.')}. Nothing of it was stored.")
