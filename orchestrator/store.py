"""The database of runs: values in, values and rows out. Every write is whole, and the same twice as once."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from types import TracebackType
from typing import TypeVar

from sqlalchemy import Connection, and_, exists, func, select, text

from orchestrator import host_states, inserts, record_inserts, rows, run_course
from orchestrator.database import Database, database_at, plain_words
from orchestrator.efficiency import limits_of
from orchestrator.host_states import HostState
from orchestrator.plain import plain_row
from orchestrator.roofline import Limits
from orchestrator.spool import Entry
from schema.accept import accept_fingerprint, accept_probe, accept_record, check_record
from schema.errors import StoreError, StoreUnavailableError
from schema.host import Fingerprint
from schema.job import Job, ModelRef
from schema.probe import Probe
from schema.record import Record
from schema.run import Run
from schema.tables import attempt, host, job, model, run

T = TypeVar("T")

IMPORTED = "origin = 'imported'"
PAUSES = (0.1, 0.5)
"""Seconds at most before a transaction that the database broke off is done anew."""


class Store:
    """One database of runs; reading it cannot change it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._writer = database.writer()
        self._reader = database.reader()

    @classmethod
    def open(cls, url: str, create: bool = False) -> "Store":
        """Return the store at `url` (a path, `sqlite:///FILE` or `postgresql://…`), made where `create` says so.

        Raises StoreError where there is none or it is not usable, and SchemaMismatchError where it
        is older or newer than this code: a store with rows is never changed by opening it.
        """
        database = database_at(url)
        if create and database.is_empty():
            from orchestrator.migrate import upgrade

            upgrade(url)
        database.check()
        return cls(database)

    @property
    def name(self) -> str:
        """The database as people may see it."""
        return self.database.name

    def close(self) -> None:
        """Close the connections."""
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
        models = list(models)
        self._write(lambda connection: inserts.save_run(connection, value, jobs, models))

    def save_fingerprint(self, fingerprint: Fingerprint) -> None:
        """Store what a host is; the newest fingerprint is the host's, the facts of older ones stay."""
        self._write(lambda connection: inserts.save_fingerprint(connection, fingerprint))

    def save_records(self, records: Iterable[Record]) -> int:
        """Store attempts with their samples in one transaction; return how many were not there before."""
        records = list(records)
        for record in records:
            check_record(record)
        return self._write(lambda connection: record_inserts.save_records(connection, records))

    def save_probe(self, probe: Probe) -> bool:
        """Store what a probe found, and settle the attempts on which it bears; return whether it was new."""
        return self._write(lambda connection: inserts.save_probe(connection, probe))

    def save_entries(self, entries: Iterable[Entry]) -> None:
        """Store what the spool hands over, in one transaction, checked at the border."""
        entries = list(entries)
        self._write(lambda connection: _save_entries(connection, entries))

    def run(self, name: str = "latest") -> Run:
        """Return the run with the uid `name`, or the one whose uid starts so, or the `latest`."""
        query = select(run).order_by(run.c.created_at.desc(), run.c.id.desc()).limit(10)
        if name != "latest":
            query = query.where(func.substr(run.c.run_uid, 1, len(name)) == name)
        with self._reading() as connection:
            found = connection.execute(query).mappings().all()
        exact = [row for row in found if row["run_uid"] == name]
        if not found:
            raise StoreError(f"No run in {self.name} has the uid {name!r}. `tokfleet results` lists what there is.")
        if len(found) > 1 and name != "latest" and not exact:
            uids = ", ".join(row["run_uid"] for row in found)
            raise StoreError(
                f"Several runs in {self.name} have a uid that starts with {name!r}: {uids}. Give more of it."
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
        """Return rows of the view `results`, newest first, of one run or of all; with all, imported rows among them."""
        return self._view("results", run_uid, limit)

    def failures(self, run_uid: str | None = None, limit: int | None = None) -> list[rows.Row]:
        """Return rows of the view `failures`, newest first, of one run or of all.

        Only final attempts: an interrupted one is still to be done, and a superseded one is answered.
        """
        return self._view("failures", run_uid, limit, "final")

    def row(self, uid: str) -> rows.Row:
        """Return the row of `all_results`, else of `failures`, whose job_uid or attempt_uid is `uid` or starts so."""
        found = [row for view in ("all_results", "failures") for row in self._rows_of(view, uid)]
        found = [row for row in found if uid in (row["job_uid"], row["attempt_uid"])] or found
        if not found:
            raise StoreError(f"No job or attempt that ended in {self.name} has the uid {uid!r}.")
        jobs = sorted({row["job_uid"] for row in found})
        if len(jobs) > 1:
            raise StoreError(f"Several jobs in {self.name} have a uid that starts with {uid!r}: {', '.join(jobs)}.")
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
        """Return the rows of the view `hosts`, by name: in the order of its characters, whatever the database's is."""
        with self._reading() as connection:
            found = [plain_row(row) for row in connection.execute(text("SELECT * FROM hosts")).mappings()]
        return sorted(found, key=lambda row: (row["host"] is not None, row["host"] or "", row["host_uid"]))

    def change(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` returns, having done it in one transaction; it may be called anew as a whole."""
        return self._write(work)

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Give a connection that sees the store as it is at one moment, whatever is written meanwhile."""
        with self._reading() as connection:
            sqlite = connection.dialect.name == "sqlite"
            connection.exec_driver_sql("BEGIN" if sqlite else "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield connection

    def host_states(self) -> list[HostState]:
        """Return every host that is known, with what the lab says of it: drained or not, its labels."""
        with self._reading() as connection:
            return host_states.all_states(connection)

    def set_drained(self, host_uid: str, is_drained: bool, why: str | None, who: str, at: str) -> None:
        """Keep that a host gets no new jobs from `at` on, or gets them again."""
        self._write(lambda connection: host_states.set_drained(connection, host_uid, is_drained, why, who, at))

    def save_seen(self, host_uid: str, name: str | None, labels: Mapping[str, str], at: str) -> None:
        """Keep that a host was in the cluster at `at`, its name there and its labels."""
        self._write(lambda connection: host_states.set_seen(connection, host_uid, name, labels, at))

    def progress_by_host(self, run_uid: str) -> list[rows.Row]:
        """Return how far each host is with its jobs of a run, and when its last attempt ended, by name."""
        with self._reading() as connection:
            return run_course.by_host(connection, run_uid)

    def _view(self, name: str, run_uid: str | None, limit: int | None, *terms: str) -> list[rows.Row]:
        terms = (*terms, *["run_uid = :run_uid"] * (run_uid is not None))
        found = self._listed(name, run_uid, limit, "test_time DESC, attempt_uid", *terms)
        if name != "results" or run_uid is not None:
            return found
        # a table that was imported has no time; databases do not agree where NULL stands, so it is asked for apart
        terms = (IMPORTED, "test_time IS NOT NULL")
        timed = self._listed("all_results", None, limit, "test_time DESC, attempt_uid", *terms)
        found = sorted([*found, *timed], key=lambda row: str(row["test_time"]), reverse=True)[:limit]
        left = None if limit is None else limit - len(found)
        order = "source_file, source_line, attempt_uid"
        return [*found, *self._listed("all_results", None, left, order, IMPORTED, "test_time IS NULL")]

    def _listed(self, view: str, run_uid: str | None, limit: int | None, order: str, *terms: str) -> list[rows.Row]:
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        query = f"SELECT * FROM {view}{where} ORDER BY {order}"  # noqa: S608 - names of ours
        query += " LIMIT :limit" if limit is not None else ""
        values = {"run_uid": run_uid, "limit": limit}
        with self._reading() as connection:
            found = connection.execute(text(query), {k: v for k, v in values.items() if v is not None}).mappings()
            return [plain_row(row) for row in found]

    def _rows_of(self, view: str, uid: str) -> list[rows.Row]:
        own = "substr(job_uid, 1, :size) = :uid OR substr(attempt_uid, 1, :size) = :uid"
        query = f"SELECT * FROM {view} WHERE {own} ORDER BY test_time DESC, attempt_uid LIMIT 10"  # noqa: S608 - ours
        with self._reading() as connection:
            found = connection.execute(text(query), {"uid": uid, "size": len(uid)}).mappings()
            return [plain_row(row) for row in found]

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

    def _write(self, work: Callable[[Connection], T]) -> T:
        """Return what `work` returns, done in one transaction; as a whole anew where the database broke that off."""
        for seconds in PAUSES:
            try:
                with self._writing() as connection:
                    return work(connection)
            except StoreUnavailableError as error:
                if not self.database.is_passing(error.__cause__):
                    raise
            time.sleep(random.uniform(0, seconds))
        with self._writing() as connection:
            return work(connection)

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        """Give a connection in a transaction of its own; it is committed when the block ends well."""
        with plain_words(self.database), self._writer.begin() as connection:
            self.database.check_writing(connection)
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with plain_words(self.database), self._reader.connect() as connection:
            yield connection


def _save_entries(connection: Connection, entries: Iterable[Entry]) -> None:
    for kind, some in groupby(entries, attrgetter("kind")):
        if kind == "record":
            record_inserts.save_records(connection, [accept_record(entry.payload) for entry in some])
        elif kind == "fingerprint":
            for entry in some:
                inserts.save_fingerprint(connection, accept_fingerprint(entry.payload))
        elif kind == "probe":
            for entry in some:
                inserts.save_probe(connection, accept_probe(entry.payload))
        else:
            raise StoreError(f"The spool holds {next(some).uid}, a {kind!r}, which no table takes.")
