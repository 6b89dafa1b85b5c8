"""The database of runs: values in, values and rows out. Every write is whole, and the same twice as once."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Connection, and_, exists, func, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from orchestrator import engines, inserts, rows
from orchestrator.efficiency import limits_of
from orchestrator.roofline import Limits
from orchestrator.spool import Entry
from orchestrator.sqlite_file import check_revision, check_store, gone, is_empty, sqlite_path, store_error
from schema.accept import accept_fingerprint, accept_probe, accept_record
from schema.errors import StoreError, StoreUnavailableError
from schema.host import Fingerprint
from schema.job import Job, ModelRef
from schema.probe import Probe
from schema.record import Record
from schema.run import Run
from schema.tables import attempt, host, job, model, run


class Store:
    """One database of runs; reading it cannot change it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = engines.writer(path)
        self._reader = engines.reader(path)

    @classmethod
    def open(cls, url: str, create: bool = False) -> "Store":
        """Return the store at `url` (a path, or `sqlite:///FILE`), made if it is missing and `create` says so.

        Raises StoreError where there is none or it is not usable, and SchemaMismatchError where it
        is older or newer than this code: a store with rows is never changed by opening it.
        """
        path = sqlite_path(url)
        if create and is_empty(path):
            from orchestrator.migrate import upgrade

            upgrade(url)
        check_store(path)
        return cls(path)

    def close(self) -> None:
        """Close the database's files."""
        self._writer.dispose()
        self._reader.dispose()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def save_run(self, value: Run, jobs: Sequence[Job] = (), models: Iterable[ModelRef] = ()) -> None:
        """Store a run with its jobs, in their order, and `models` besides those of the jobs. All or nothing."""
        with self._writing() as connection:
            inserts.save_run(connection, value, jobs, models)

    def save_fingerprint(self, fingerprint: Fingerprint) -> None:
        """Store what a host is; the newest fingerprint is the host's, the facts of older ones stay."""
        with self._writing() as connection:
            inserts.save_fingerprint(connection, fingerprint)

    def save_records(self, records: Iterable[Record]) -> int:
        """Store attempts with their samples in one transaction; return how many were not there before."""
        with self._writing() as connection:
            return sum(inserts.save_record(connection, record) for record in records)

    def save_probe(self, probe: Probe) -> bool:
        """Store what a probe found, and settle the attempts on which it bears; return whether it was new."""
        with self._writing() as connection:
            return inserts.save_probe(connection, probe)

    def save_entries(self, entries: Iterable[Entry]) -> None:
        """Store what the spool hands over, in one transaction, checked at the border."""
        with self._writing() as connection:
            for entry in entries:
                if entry.kind == "record":
                    inserts.save_record(connection, accept_record(entry.payload))
                elif entry.kind == "fingerprint":
                    inserts.save_fingerprint(connection, accept_fingerprint(entry.payload))
                elif entry.kind == "probe":
                    inserts.save_probe(connection, accept_probe(entry.payload))
                else:
                    raise StoreError(f"The spool holds {entry.uid}, a {entry.kind!r}, which no table takes.")

    def run(self, name: str = "latest") -> Run:
        """Return the run with the uid `name`, or the one whose uid starts so, or the `latest`."""
        query = select(run).order_by(run.c.created_at.desc(), run.c.id.desc()).limit(10)
        if name != "latest":
            query = query.where(func.substr(run.c.run_uid, 1, len(name)) == name)
        with self._reading() as connection:
            found = connection.execute(query).mappings().all()
        exact = [row for row in found if row["run_uid"] == name]
        if not found:
            raise StoreError(f"No run in {self.path} has the uid {name!r}. `tokfleet results` lists what there is.")
        if len(found) > 1 and name != "latest" and not exact:
            uids = ", ".join(row["run_uid"] for row in found)
            raise StoreError(
                f"Several runs in {self.path} have a uid that starts with {name!r}: {uids}. Give more of it."
            )
        return rows.run_value(dict((exact or found)[0]))

    def jobs(self, run_uid: str) -> list[Job]:
        """Return the jobs of a run in the order in which they were planned."""
        return self._jobs(run_uid, remaining=False)

    def remaining_jobs(self, run_uid: str) -> list[Job]:
        """Return the jobs of a run that have no final attempt, in the order in which they were planned."""
        return self._jobs(run_uid, remaining=True)

    def attempt_uids(self, run_uid: str) -> frozenset[str]:
        """Return the uids of all attempts of a run that are stored."""
        query = (
            select(attempt.c.attempt_uid).join(job, job.c.id == attempt.c.job_id).join(run, run.c.id == job.c.run_id)
        )
        with self._reading() as connection:
            return frozenset(connection.execute(query.where(run.c.run_uid == run_uid)).scalars())

    def next_numbers(self, run_uid: str) -> dict[str, int]:
        """Return for each job of a run, by its uid, the number that its next attempt gets."""
        number = func.coalesce(func.max(attempt.c.number), 0) + 1
        query = (
            select(job.c.job_uid, number.label("number"))
            .join(run, run.c.id == job.c.run_id)
            .outerjoin(attempt, attempt.c.job_id == job.c.id)
            .where(run.c.run_uid == run_uid)
            .group_by(job.c.job_uid)
        )
        with self._reading() as connection:
            return {row.job_uid: row.number for row in connection.execute(query)}

    def results(self, run_uid: str | None = None, limit: int | None = None) -> list[rows.Row]:
        """Return rows of the view `results`, newest first, of one run or of all."""
        return self._view("results", run_uid, limit)

    def failures(self, run_uid: str | None = None, limit: int | None = None) -> list[rows.Row]:
        """Return rows of the view `failures`, newest first, of one run or of all.

        Only final attempts: an interrupted one is still to be done, and a superseded one is answered.
        """
        return self._view("failures", run_uid, limit, "final")

    def row(self, uid: str) -> rows.Row:
        """Return the row of `results`, else of `failures`, whose job_uid or attempt_uid is `uid` or starts so."""
        found = [row for view in ("results", "failures") for row in self._rows_of(view, uid)]
        found = [row for row in found if uid in (row["job_uid"], row["attempt_uid"])] or found
        if not found:
            raise StoreError(f"No job or attempt that ended in {self.path} has the uid {uid!r}.")
        jobs = sorted({row["job_uid"] for row in found})
        if len(jobs) > 1:
            raise StoreError(f"Several jobs in {self.path} have a uid that starts with {uid!r}: {', '.join(jobs)}.")
        return found[0]

    def limits(self, attempt_uid: str) -> Limits | None:
        """Return the attempt beside the limits of its machine; None where it is not there or measured nothing."""
        with self._reading() as connection:
            return limits_of(connection, attempt_uid)

    def progress(self, run_uid: str | None = None) -> list[rows.Row]:
        """Return how far each run is, or one: its jobs by how they ended, newest first."""
        n_final = func.count(attempt.c.id).filter(attempt.c.status == "measured").label("n_measured")
        n_failed = func.count(attempt.c.id).filter(attempt.c.status == "failed").label("n_failed")
        n_jobs = func.count(job.c.id)
        remaining = (n_jobs - func.count(attempt.c.id)).label("n_remaining")
        query = (
            select(run.c.run_uid, run.c.name, run.c.created_at, n_jobs.label("n_jobs"), n_final, n_failed, remaining)
            .outerjoin(job, job.c.run_id == run.c.id)
            .outerjoin(attempt, and_(attempt.c.job_id == job.c.id, attempt.c.final))
            .group_by(run.c.id)
            .order_by(run.c.created_at.desc(), run.c.id.desc())
        )
        if run_uid is not None:
            query = query.where(run.c.run_uid == run_uid)
        with self._reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def hosts(self) -> list[rows.Row]:
        """Return the rows of the view `hosts`, by name."""
        with self._reading() as connection:
            found = connection.execute(text("SELECT * FROM hosts ORDER BY host, host_uid")).mappings()
            return [dict(row) for row in found]

    def _view(self, name: str, run_uid: str | None, limit: int | None, *terms: str) -> list[rows.Row]:
        where = " AND ".join([*terms, *["run_uid = :run_uid"] * (run_uid is not None)])
        query = f"SELECT * FROM {name}" + (f" WHERE {where}" if where else "")  # noqa: S608 - names of ours
        query += " ORDER BY test_time DESC, attempt_uid"
        query += " LIMIT :limit" if limit is not None else ""
        values = {"run_uid": run_uid, "limit": limit}
        with self._reading() as connection:
            found = connection.execute(text(query), {k: v for k, v in values.items() if v is not None}).mappings()
            return [dict(row) for row in found]

    def _rows_of(self, view: str, uid: str) -> list[rows.Row]:
        own = "substr(job_uid, 1, :size) = :uid OR substr(attempt_uid, 1, :size) = :uid"
        query = f"SELECT * FROM {view} WHERE {own} ORDER BY test_time DESC, attempt_uid LIMIT 10"  # noqa: S608 - ours
        with self._reading() as connection:
            found = connection.execute(text(query), {"uid": uid, "size": len(uid)}).mappings()
            return [dict(row) for row in found]

    def _jobs(self, run_uid: str, remaining: bool) -> list[Job]:
        query = (
            select(job, run.c.run_uid, host.c.host_uid, model.c.identity)
            .join(run, run.c.id == job.c.run_id)
            .join(host, host.c.id == job.c.host_id)
            .join(model, model.c.id == job.c.model_id)
            .where(run.c.run_uid == run_uid)
            .order_by(job.c.id)
        )
        if remaining:
            query = query.where(~exists().where(and_(attempt.c.job_id == job.c.id, attempt.c.final)))
        with self._reading() as connection:
            return [rows.job_value(dict(row)) for row in connection.execute(query).mappings()]

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Give a connection in a transaction of its own; it is committed when the block ends well."""
        with self._plain_words(), self._writer.begin() as connection:
            raw: Any = connection.connection.driver_connection
            check_revision(self.path, raw)
            if not self.path.exists():  # a file without a name takes rows, and is gone when it is closed
                raise gone(self.path)
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._plain_words(), self._reader.connect() as connection:
            yield connection

    @contextmanager
    def _plain_words(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise store_error(self.path, error) from error
        except DBAPIError as error:
            if isinstance(error.orig, sqlite3.Error):
                raise store_error(self.path, error.orig) from error
            raise
        except PoolTimeoutError as error:
            raise StoreUnavailableError(f"The database {self.path} is being written by another thread.") from error
