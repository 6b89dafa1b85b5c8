"""Files that tokfleet itself wrote and takes in again: a whole store, and what a host measured for a bundle."""

from pathlib import Path

from orchestrator.interchange import records_in, store_file
from orchestrator.interchange.own_lines import own_mark
from orchestrator.store import Store
from orchestrator.tables import escape


def is_own(path: Path) -> bool:
    """Return whether the file is one of tokfleet's own, told by its first line."""
    return own_mark(path, (store_file.MARK, records_in.MARK)) is not None


def look(path: Path) -> str:
    """Return in a sentence what the file is; StoreError where it is damaged records. Nothing is stored."""
    if own_mark(path, (store_file.MARK,)):
        return f"{escape(str(path))}: a whole store, for an empty database."
    run, jobs, n_records, complete = records_in.look(path)
    rest = "" if complete else " Not all of its jobs are measured yet."
    return f"{escape(str(path))}: run {run.run_uid}, {len(jobs)} jobs, {n_records} attempts.{rest}"


def load_own(path: Path, store: Store) -> str:
    """Take in the file, all or nothing, and return in a sentence what came of it.

    Raises StoreError where it is damaged, or a whole store meets one that has rows already.
    """
    if own_mark(path, (store_file.MARK,)):
        n_rows = store_file.load_store(path, store)
        return f"{escape(str(path))}: a whole store, {n_rows} rows."
    taken = records_in.load_records(path, store)
    known = taken.n_records - taken.n_new
    parts = [f"{taken.n_new} new attempts", *([f"{known} known already"] if known else [])]
    rest = "" if taken.complete else " Not all of its jobs are measured yet."
    return f"{escape(str(path))}: run {taken.run.run_uid}, {', '.join(parts)}.{rest}"
