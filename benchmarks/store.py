"""What people ask of a store of a million jobs, through our views and as the best SQL that one could write by hand.

    python benchmarks/store.py [--jobs 100000] [--samples 10] [--records 2000] [--only sqlite|postgresql] [URL]

Makes a store with so many jobs on 50 hosts in SQLite, and one in a PostgreSQL of its own (or at URL, an empty
database), asks each question through the views, then by hand, on the bare tables with an index made for it alone, and
prints both times; first with a tenth of the jobs, for the growth. Then records go through the spool, one by
one as a run's do and as a full spool. Ends with 1 where a view takes more than 1.5 times as long as the hand-written
question, or an interactive question more than 100 ms, or fewer than 500 records a second are stored.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from orchestrator.database import database_at
from orchestrator.migrate import upgrade
from orchestrator.spool import Drainer, Spool
from orchestrator.store import Store
from orchestrator.store_url import is_postgres
from schema.canonical import to_json
from schema.job import Job, Test
from schema.record import Record
from tests.factories import MODEL, make_fingerprint, make_job, make_record, make_run
from tests.postgres import running

HOSTS, MODELS, CONFIGS = 50, 20, 20
COMBINATIONS = HOSTS * MODELS * CONFIGS
GOAL, INTERACTIVE_MS, RECORDS_PER_S = 1.5, 100.0, 500.0
ROUNDS = 7

KEY = "config-3-7"
"""The configuration that is compared over hosts and followed over time: a decode of one model."""


@dataclass(frozen=True)
class Question:
    """A question through the views and the same by hand, with the index that is best for it."""

    name: str
    ours: str
    theirs: str
    index: str
    interactive: bool = False


_LATEST_OF = """
SELECT h.hostname, x.test, x.avg_ts FROM (
    SELECT a.id, j.host_id, j.test, a.avg_ts, ROW_NUMBER() OVER (
        PARTITION BY j.host_id, a.hardware_id, j.model_id, a.build_id, j.config_key ORDER BY a.started_at DESC) AS age
    FROM job j JOIN attempt a ON a.job_id = j.id AND a.final
    WHERE a.status = 'measured' {where}
) AS x JOIN host h ON h.id = x.host_id WHERE x.age = 1"""

QUESTIONS = (
    Question(
        "latest per host, one model",
        "SELECT host, test, avg_ts FROM latest WHERE model = 'model-3'",
        _LATEST_OF.format(where="AND j.model_id = (SELECT id FROM model WHERE name = 'model-3')"),
        "CREATE INDEX best_1 ON job (model_id, host_id, config_key)",
    ),
    Question(
        "latest per host, everything",
        "SELECT host, test, avg_ts FROM latest",
        _LATEST_OF.format(where=""),
        "CREATE INDEX best_2 ON attempt (job_id, started_at) WHERE final",
    ),
    Question(
        "compare 50 hosts",
        f"SELECT host, avg_ts, stddev_ts FROM latest WHERE config_key = '{KEY}' ORDER BY avg_ts DESC",
        f"""SELECT h.hostname, x.avg_ts, x.stddev_ts FROM (
            SELECT j.host_id, a.avg_ts, a.stddev_ts, ROW_NUMBER() OVER (
                PARTITION BY j.host_id, a.hardware_id, j.model_id, a.build_id ORDER BY a.started_at DESC) AS age
            FROM job j JOIN attempt a ON a.job_id = j.id AND a.final
            WHERE a.status = 'measured' AND j.config_key = '{KEY}'
        ) AS x JOIN host h ON h.id = x.host_id WHERE x.age = 1 ORDER BY x.avg_ts DESC""",
        "CREATE INDEX best_3 ON job (config_key, host_id)",
        interactive=True,
    ),
    Question(
        "history of one configuration",
        f"SELECT test_time, avg_ts, stddev_ts FROM results WHERE host = 'host-7' AND config_key = '{KEY}' "
        "ORDER BY test_time",
        f"""SELECT a.started_at, a.avg_ts, a.stddev_ts FROM job j JOIN attempt a ON a.job_id = j.id AND a.final
        WHERE j.host_id = (SELECT id FROM host WHERE hostname = 'host-7') AND j.config_key = '{KEY}'
        AND a.status = 'measured' ORDER BY a.started_at""",
        "CREATE INDEX best_4 ON job (host_id, config_key)",
        interactive=True,
    ),
    Question(
        "percentile from samples",
        f"""SELECT host, MIN(CASE WHEN place >= 0.95 * n THEN ts END) AS p95 FROM (
            SELECT host, ts, ROW_NUMBER() OVER (PARTITION BY host ORDER BY ts) AS place,
                COUNT(*) OVER (PARTITION BY host) AS n
            FROM samples WHERE config_key = '{KEY}' AND final AND status = 'measured'
        ) AS x GROUP BY host""",
        f"""SELECT h.hostname, x.p95 FROM (
            SELECT host_id, MIN(CASE WHEN place >= 0.95 * n THEN ts END) AS p95 FROM (
                SELECT j.host_id, 1e9 * s.n_tokens / s.elapsed_ns AS ts,
                    ROW_NUMBER() OVER (PARTITION BY j.host_id ORDER BY 1e9 * s.n_tokens / s.elapsed_ns) AS place,
                    COUNT(*) OVER (PARTITION BY j.host_id) AS n
                FROM job j JOIN attempt a ON a.job_id = j.id AND a.final JOIN sample s ON s.attempt_id = a.id
                WHERE j.config_key = '{KEY}' AND a.status = 'measured'
            ) AS y GROUP BY host_id
        ) AS x JOIN host h ON h.id = x.host_id""",
        "CREATE INDEX best_5 ON job (config_key, host_id)",
    ),
    Question(
        "newest failures",
        "SELECT host, model, test, stage, message, test_time FROM failures WHERE final "
        "ORDER BY test_time DESC LIMIT 100",
        """SELECT h.hostname, m.name, j.test, a.failure_stage, a.failure_message, a.started_at
        FROM (SELECT * FROM attempt WHERE status = 'failed' AND final ORDER BY started_at DESC LIMIT 100) AS a
        JOIN job j ON j.id = a.job_id JOIN host h ON h.id = j.host_id JOIN model m ON m.id = j.model_id
        ORDER BY a.started_at DESC""",
        "CREATE INDEX best_6 ON attempt (started_at) WHERE status = 'failed' AND final",
        interactive=True,
    ),
    Question(
        "newest results",
        "SELECT host, model, test, avg_ts, test_time FROM results ORDER BY test_time DESC LIMIT 100",
        """SELECT h.hostname, m.name, j.test, a.avg_ts, a.started_at
        FROM (SELECT * FROM attempt WHERE status = 'measured' AND final ORDER BY started_at DESC LIMIT 100) AS a
        JOIN job j ON j.id = a.job_id JOIN host h ON h.id = j.host_id JOIN model m ON m.id = j.model_id
        ORDER BY a.started_at DESC""",
        "CREATE INDEX best_7 ON attempt (started_at) WHERE status = 'measured' AND final",
        interactive=True,
    ),
)


def fill(connection: Connection, first: int, last: int, n_samples: int) -> None:
    """Make the jobs numbered `first` to `last`, one attempt each, of which every 50th fails."""
    postgres = connection.dialect.name == "postgresql"
    json = "CAST('{}' AS JSONB)" if postgres else "'{}'"
    array = "CAST('[]' AS JSONB)" if postgres else "'[]'"
    when = _minutes(postgres, "i")
    numbers = f"WITH RECURSIVE n(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM n WHERE i < {last})"
    host, model, config = f"i % {HOSTS}", f"i / {HOSTS} % {MODELS}", f"i / {HOSTS * MODELS} % {CONFIGS}"
    decodes = f"{config} % 2 = 1"
    rate = f"(20.0 + {host} + 100.0 * ({config}) + i % 97 / 97.0)"
    _insert(
        connection,
        "run",
        {"id": "i", "run_uid": "'run-' || i", "name": "'nightly'", "sweep_text": "''", "sweep_sha256": "''",
         "created_at": _minutes(postgres, f"i * {COMBINATIONS}"), "tokfleet_version": "'1'", "tags": json},
        f"WITH RECURSIVE n(i) AS (SELECT {first // COMBINATIONS + bool(first % COMBINATIONS)} UNION ALL "
        f"SELECT i + 1 FROM n WHERE i < {last // COMBINATIONS})",
    )  # fmt: skip
    _insert(
        connection,
        "job",
        {"id": "i + 1", "job_uid": "'job-' || i", "run_id": f"i / {COMBINATIONS}", "host_id": f"{host} + 1",
         "model_id": f"{model} + 1", "config_key": f"'config-' || ({model}) || '-' || ({config})", "replica": "0",
         "model_source": "'path'", "model_spec": "''", "build": "'default'",
         "kind": f"CASE WHEN {decodes} THEN 'tg' ELSE 'pp' END",
         "test": f"CASE WHEN {decodes} THEN 'tg128' ELSE 'pp512' END",
         "n_prompt": f"CASE WHEN {decodes} THEN 0 ELSE 512 END", "n_gen": f"CASE WHEN {decodes} THEN 128 ELSE 0 END",
         "n_depth": "0", "asked_n_batch": "2048", "asked_n_ubatch": "512", "asked_n_threads": "'physical'",
         "asked_type_k": "'f16'", "asked_type_v": "'f16'", "asked_flash_attn": "'auto'",
         "asked_n_gpu_layers": "'all'", "asked_load_mode": "'auto'", "repetitions": str(n_samples), "seed": "0",
         "timeout_seconds": "1800"},
        numbers,
    )  # fmt: skip
    failed = "i % 50 = 13"
    _insert(
        connection,
        "attempt",
        {"id": "i + 1", "attempt_uid": "'attempt-' || i", "job_id": "i + 1",
         "subject_key": f"'subject-of-' || ({host}) || '-with-' || ({model}) || '-and-' || ({config})", "number": "1",
         "status": f"CASE WHEN {failed} THEN 'failed' ELSE 'measured' END", "final": "TRUE", "superseded": "FALSE",
         "started_at": when, "ended_at": when, "hardware_id": f"'hardware-' || ({host})",
         "environment_id": f"'environment-' || ({host})", "build_id": "'build'", "model_id": f"{model} + 1",
         "n_threads": "8", "n_batch": "512", "in_effect": json, "resolved": json, "quality_reasons": array,
         "quality": "'clean'", "n_samples": f"CASE WHEN {failed} THEN 0 ELSE {n_samples} END",
         "avg_ts": f"CASE WHEN {failed} THEN NULL ELSE {rate} END",
         "stddev_ts": f"CASE WHEN {failed} THEN NULL ELSE 0.5 END",
         "avg_ns": f"CASE WHEN {failed} THEN NULL ELSE 1000000000 END",
         "failure_stage": f"CASE WHEN {failed} THEN 'load' END",
         "failure_message": f"CASE WHEN {failed} THEN 'The model could not be loaded.' END"},
        numbers,
    )  # fmt: skip
    _insert(
        connection,
        "condition",
        {"attempt_id": "i + 1", "cpu_share": "0.99", "run_delay_share": "0.001", "major_faults": "0"},
        numbers,
    )
    _insert(
        connection,
        "sample",
        {"attempt_id": "i + 1", "repetition": "k", "n_tokens": "128",
         "elapsed_ns": f"CAST(128e9 / ({rate} + (i * 31 + k * 17) % 23 / 23.0) AS BIGINT)"},
        f"{numbers}, r(k) AS (SELECT 0 UNION ALL SELECT k + 1 FROM r WHERE k < {n_samples - 1})",
        f"n, r WHERE NOT ({failed})",
    )  # fmt: skip


def _minutes(postgres: bool, number: str) -> str:
    """Return the instant so many minutes after the start of 2024."""
    if postgres:
        return f"TIMESTAMPTZ '2024-01-01 00:00:00+00' + ({number}) * INTERVAL '1 minute'"
    return f"strftime('%Y-%m-%dT%H:%M:00.000000Z', '2024-01-01', '+' || ({number}) || ' minutes')"


def _insert(connection: Connection, table: str, values: dict[str, str], numbers: str, source: str = "n") -> None:
    _do(connection, f"INSERT INTO {table} ({', '.join(values)}) {numbers} "
        f"SELECT {', '.join(values.values())} FROM {source}")  # fmt: skip
    if connection.dialect.name == "postgresql" and "id" in values:
        _do(connection, f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), MAX(id) + 1) FROM {table}")


def _do(connection: Connection, sql: str) -> Any:
    """Run a statement in which a percent sign is one."""
    return connection.execution_options(no_parameters=True).exec_driver_sql(sql)


def name_machines(connection: Connection) -> None:
    """Make the hosts, what they are made of, and the models."""
    for number in range(HOSTS):
        for kind in ("hardware", "environment"):
            connection.exec_driver_sql(f"INSERT INTO {kind} ({kind}_id) VALUES ('{kind}-{number}')")
        connection.exec_driver_sql(
            f"INSERT INTO host (id, host_uid, hostname) VALUES ({number + 1}, 'uid-{number}', 'host-{number}')"
        )
    for number in range(MODELS):
        connection.exec_driver_sql(
            f"INSERT INTO model (id, identity, name) VALUES ({number + 1}, 'sha256:{number}', 'model-{number}')"
        )
    connection.exec_driver_sql("INSERT INTO build (build_id, method) VALUES ('build', 'llama-cpp-python')")
    if connection.dialect.name == "postgresql":
        for table in ("host", "model"):
            _do(connection, f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), MAX(id) + 1) FROM {table}")


def milliseconds(engine: Engine, sql: str) -> tuple[float, int]:
    """Return the shortest time of a question, its rows fetched, and how many rows there are."""
    times, n_rows = [], 0
    with engine.connect() as connection:
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            n_rows = len(_do(connection, sql).fetchall())
            times.append(1000 * (time.perf_counter() - begun))
            if sum(times) > 20_000:
                break
    return min(times), n_rows


def ask_all(url: str) -> dict[str, tuple[float, float, int, int]]:
    """Return for each question the time through the views and by hand, and the rows of both."""
    database, found = database_at(url), {}
    ours = {}
    with _disposing(database.reader()) as reader:
        for question in QUESTIONS:
            ours[question.name] = milliseconds(reader, question.ours)
    with _disposing(database.migrator()) as writer:
        for question in QUESTIONS:
            with writer.begin() as connection:
                connection.exec_driver_sql(question.index)
            _analyse(writer)
            with _disposing(database.reader()) as reader:
                theirs = milliseconds(reader, question.theirs)
            with writer.begin() as connection:
                connection.exec_driver_sql(f"DROP INDEX {question.index.split()[2]}")
            found[question.name] = (ours[question.name][0], theirs[0], ours[question.name][1], theirs[1])
        _analyse(writer)
    return found


def _analyse(engine: Engine) -> None:
    with engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE")
        connection.commit()


@contextlib.contextmanager
def _disposing(engine: Engine) -> Iterator[Engine]:
    try:
        yield engine
    finally:
        engine.dispose()


def megabytes(url: str) -> float:
    """Return the size of the store."""
    with _disposing(database_at(url).reader()) as engine, engine.connect() as connection:
        if is_postgres(url):
            return float(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()) / 1e6
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        return float(pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one()) / 1e6


def records(n_records: int, n_samples: int) -> tuple[list[Job], list[Record]]:
    """Return jobs of one more run and a record of each."""
    test = Test(n_prompt=0, n_gen=128)
    jobs = [
        make_job(run_uid="new", test=test, replica=number, model=MODEL, host_uid="uid-new")
        for number in range(n_records)
    ]
    return jobs, [
        replace(make_record(job, samples=_many(make_record(job), n_samples)), attempt_uid=job.job_uid) for job in jobs
    ]


def _many(record: Record, n_samples: int) -> Any:
    one = record.samples[0]
    return tuple(replace(one, repetition=number, elapsed_ns=one.elapsed_ns + number) for number in range(n_samples))


def through_the_spool(url: str, folder: Path, n_records: int, n_samples: int) -> tuple[float, float, int]:
    """Return records per second put one by one while they are stored, those of a full spool, and how many are there."""
    jobs, made = records(2 * n_records, n_samples)
    payloads = [to_json(record) for record in made]
    with Store.open(url) as store, Spool.open(folder / "spool.sqlite") as spool:
        store.save_run(make_run(run_uid="new"), jobs)
        store.save_fingerprint(make_fingerprint(host_uid="uid-new"))
        put = _putter(spool, made, payloads)
        begun = time.perf_counter()
        with Drainer(spool, store.save_entries) as drainer:
            for number in range(n_records):
                put(number)
            drainer.flush(600)
        live = n_records / (time.perf_counter() - begun)
        for number in range(n_records, 2 * n_records):
            put(number)
        begun = time.perf_counter()
        spool.drain(store.save_entries)
        drained = n_records / (time.perf_counter() - begun)
        return live, drained, len(store.attempt_uids("new"))


def _putter(spool: Spool, made: list[Record], payloads: list[str]) -> Callable[[int], None]:
    import json

    return lambda number: spool.put("record", made[number].attempt_uid, json.loads(payloads[number]))


def measure(url: str, name: str, n_jobs: int, n_samples: int, n_records: int, folder: Path) -> bool:
    """Fill the store at `url`, ask it, and return whether all is as fast as it should be."""
    upgrade(url)
    database, before, seconds = database_at(url), {}, 0.0
    with _disposing(database.migrator()) as writer:
        with writer.begin() as connection:
            name_machines(connection)
        for first, last in ((0, n_jobs // 10 - 1), (n_jobs // 10, n_jobs - 1)):
            before_mb, before = (megabytes(url) if first else 0.0), (ask_all(url) if first else {})
            begun = time.perf_counter()
            with writer.begin() as connection:
                fill(connection, first, last, n_samples)
            _analyse(writer)
            seconds += time.perf_counter() - begun
    print(f"\n{name}: {n_jobs} jobs, {n_jobs * n_samples} samples, {megabytes(url):.0f} MB "
          f"({before_mb:.0f} MB with a tenth of it), filled in {seconds:.0f} s")  # fmt: skip
    good = _print_questions(ask_all(url), before)
    live, drained, stored = through_the_spool(url, folder, n_records, n_samples)
    print(f"records through the spool: {live:.0f}/s end to end, {drained:.0f}/s from a full spool; "
          f"{stored} of {2 * n_records} stored")  # fmt: skip
    return good and live >= RECORDS_PER_S and stored == 2 * n_records


def _print_questions(found: dict[str, tuple[float, float, int, int]], before: dict[str, Any]) -> bool:
    print(f"{'':30}  {'views':>9}  {'by hand':>9}  {'ratio':>6}  {'rows':>7}  {'grown by':>8}")
    good = True
    for question in QUESTIONS:
        ours, theirs, n_rows, n_theirs = found[question.name]
        ratio, grown = ours / theirs, ours / before[question.name][0]
        slow = ratio > GOAL or (question.interactive and ours > INTERACTIVE_MS)
        good = good and not slow and n_rows == n_theirs
        marks = "  <-" * slow + f"  {n_theirs} rows by hand" * (n_rows != n_theirs)
        print(f"{question.name:30}  {ours:6.1f} ms  {theirs:6.1f} ms  {ratio:6.2f}  {n_rows:7}  {grown:7.1f}x{marks}")
    return good


def main() -> int:
    """Measure each database and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--records", type=int, default=2_000)
    parser.add_argument("--only", choices=("sqlite", "postgresql"))
    parser.add_argument("url", nargs="?", help="an empty PostgreSQL database")
    given = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        urls = {"sqlite": f"sqlite:///{directory}/store.sqlite"} if given.only != "postgresql" else {}
        if given.only != "sqlite":
            urls["postgresql"] = given.url or (lambda s: s.url(s.create()))(stack.enter_context(running(durable=True)))
        for name, url in urls.items():
            folder = Path(directory) / name
            folder.mkdir()
            good &= measure(url, name, given.jobs, given.samples, given.records, folder)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
