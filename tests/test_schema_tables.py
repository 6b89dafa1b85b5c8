import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, event, insert, inspect, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError, StatementError
from sqlalchemy.schema import CreateIndex, CreateTable

from orchestrator.database import database_at
from orchestrator.migrate import upgrade
from orchestrator.store_url import is_postgres
from schema.column_types import UtcDateTime
from schema.host import Build, Fingerprint
from schema.job import Test
from schema.probe import Probe
from schema.record import Conditions, Energy, ModelFacts, Placement, Sample
from schema.run import Run
from schema.settings import Settings
from schema.tables import attempt, job, metadata, run, sample
from schema.views import VIEWS, spelt
from tests.catalogue import catalogue
from tests.stores import answers

GOLDEN = Path(__file__).parent / "golden" / "view_columns.txt"

ATTEMPT = {
    "attempt_uid": "a1",
    "job_id": 1,
    "number": 1,
    "status": "measured",
    "final": True,
    "superseded": False,
    "started_at": datetime(2026, 1, 2, tzinfo=UTC),
    "ended_at": datetime(2026, 1, 2, tzinfo=UTC),
    "in_effect": {},
    "resolved": {},
    "n_samples": 1,
    "avg_ts": 1.0,
    "avg_ns": 1,
    "quality_reasons": [],
}


def refusal_of(url: str, table: Any, row: dict[str, Any]) -> str:
    """Return the words in which the database itself refuses `row`, referential rules aside."""
    engine = lenient(url)
    try:
        with pytest.raises(IntegrityError) as raised, engine.begin() as connection:
            connection.execute(insert(table), row)
    finally:
        engine.dispose()
    return str(raised.value.orig)


def lenient(url: str) -> Engine:
    """Return an engine that takes rows though they refer to nothing."""
    engine = database_at(url).migrator()
    if is_postgres(url):
        replica = "SET LOCAL session_replication_role = replica"
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(replica))
    return engine


def test_the_migrations_make_exactly_what_the_code_describes(blank_url: str) -> None:
    engine = database_at(blank_url).migrator()
    with engine.begin() as connection:
        metadata.create_all(connection)
        for name, query in VIEWS.items():
            connection.exec_driver_sql(f"CREATE VIEW {name} AS {spelt(query, connection.dialect.name)}")
    by_code = catalogue(blank_url)
    with engine.begin() as connection:
        for name in reversed(VIEWS):
            connection.exec_driver_sql(f"DROP VIEW {name}")
        metadata.drop_all(connection)
    engine.dispose()
    assert catalogue(blank_url) == {}
    upgrade(blank_url)
    assert catalogue(blank_url) == by_code
    assert len(by_code) > len(metadata.tables) + len(VIEWS)


def test_views_keep_their_columns_and_add_new_ones_at_will(store_url: str) -> None:
    engine = database_at(store_url).reader()
    with engine.connect() as connection:
        found = inspect(connection)
        now = {f"{view}.{column['name']}" for view in VIEWS for column in found.get_columns(view)}
    engine.dispose()
    promised = set(GOLDEN.read_text().split())
    assert sorted(promised - now) == [], "a column that people may use is gone"
    assert sorted(now - promised) == [], f"new columns: add them to {GOLDEN.name}"


def test_every_value_has_a_column_for_each_of_its_fields_or_one_for_all() -> None:
    named = {"build": Build, "run": Run, "sample": Sample, "condition": Conditions, "host": Fingerprint, "probe": Probe}
    elsewhere = {
        "condition": {"energy"},
        "host": {"taken_at", "hardware", "allocation", "environment", "build"},
        "probe": {"host_uid"},
    }
    for name, cls in named.items():
        own = {field.name for field in fields(cls)} - elsewhere.get(name, set())
        assert own <= set(metadata.tables[name].c.keys()), name
    columns = set(metadata.tables["condition"].c.keys())
    assert all({field.name, f"energy_{field.name}"} & columns for field in fields(Energy))
    for name in ("hardware", "allocation", "environment"):
        assert "facts" in metadata.tables[name].c
    assert {f"asked_{field.name}" for field in fields(Settings)} <= set(job.c.keys())
    assert {field.name for field in (*fields(Settings), *fields(Placement))} <= set(attempt.c.keys())
    assert {field.name for field in fields(Test)} <= set(job.c.keys())
    assert {field.name for field in fields(ModelFacts)} - {"filename"} <= set(metadata.tables["model"].c.keys())


@pytest.mark.parametrize("number", [float("inf"), -5.0, 0.0])
@pytest.mark.parametrize("column", ["avg_ts", "median_ts", "prompt_ts"])
def test_the_database_itself_refuses_an_impossible_rate(store_url: str, column: str, number: float) -> None:
    assert f"ck_attempt_{column}_is_positive" in refusal_of(store_url, attempt, ATTEMPT | {column: number})


def test_the_database_itself_refuses_a_measured_attempt_whose_rate_is_nan(store_url: str) -> None:
    words = refusal_of(store_url, attempt, ATTEMPT | {"avg_ts": float("nan")})
    # To SQLite that is no number, to PostgreSQL one above all others.
    assert "ck_attempt_measured_has_a_rate" in words or "ck_attempt_avg_ts_is_positive" in words


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        ({"stddev_ts": -0.1}, "stddev_ts_is_amount"),
        ({"load_seconds": float("inf")}, "load_seconds_is_amount"),
        ({"avg_ns": 0}, "avg_ns_is_at_least_1"),
        ({"latency_p99_ns": -1}, "latency_p99_ns_is_at_least_1"),
        ({"status": "lost"}, "status_is_known"),
        ({"status": "failed"}, "failed_has_a_stage"),
        ({"superseded": True}, "final_is_not_superseded"),
        ({"number": 0}, "number_is_at_least_1"),
    ],
)
def test_the_database_itself_refuses_a_contradiction(store_url: str, change: dict[str, Any], constraint: str) -> None:
    assert f"ck_attempt_{constraint}" in refusal_of(store_url, attempt, ATTEMPT | change)


@pytest.mark.parametrize("column", ["elapsed_ns", "n_tokens", "prompt_ns", "gen_ns"])
def test_the_database_itself_refuses_a_sample_without_time_or_tokens(store_url: str, column: str) -> None:
    row = {"attempt_id": 1, "repetition": 0, "n_tokens": 1, "elapsed_ns": 1}
    assert f"ck_sample_{column}" in refusal_of(store_url, sample, row | {column: 0})


def test_a_job_has_at_most_one_final_attempt(store_url: str) -> None:
    engine = lenient(store_url)
    with engine.begin() as connection:
        connection.execute(insert(attempt), ATTEMPT)
        connection.execute(insert(attempt), ATTEMPT | {"attempt_uid": "a2", "number": 2, "final": False})
    with pytest.raises(IntegrityError, match=r"attempt\.job_id|uq_attempt_final_job_id"), engine.begin() as connection:
        connection.execute(insert(attempt), ATTEMPT | {"attempt_uid": "a3", "number": 3})
    engine.dispose()


def test_rows_that_refer_to_nothing_are_refused(store_url: str) -> None:
    engine = database_at(store_url).writer()
    with pytest.raises(IntegrityError, match=r"(?i)foreign key"), engine.begin() as connection:
        connection.execute(insert(attempt), ATTEMPT)
    engine.dispose()


def test_one_instant_in_any_zone_is_one_value_and_order_holds_across_the_autumn_fold(store_url: str) -> None:
    same = ["2025-03-30T01:30:00Z", "2025-03-30T02:30:00+01:00", "2025-03-29T18:30:00-07:00"]
    fold = ["2025-10-26T02:30:00+02:00", "2025-10-26T02:30:00+01:00"]
    engine = database_at(store_url).writer()
    row = {"name": "n", "sweep_text": "", "sweep_sha256": "", "tokfleet_version": "1", "tags": {}}
    with engine.begin() as connection:
        for number, text in enumerate([*same, *fold]):
            moment = datetime.fromisoformat(text)
            connection.execute(insert(run), row | {"run_uid": str(number), "created_at": moment})
        found = connection.execute(select(run.c.created_at).order_by(run.c.id)).scalars().all()
        ordered = connection.execute(select(run.c.run_uid).order_by(run.c.created_at, run.c.id)).scalars().all()
    engine.dispose()
    raw = [row[0] for row in answers(store_url, "SELECT DISTINCT created_at FROM run ORDER BY created_at")]
    assert found[:3] == [datetime(2025, 3, 30, 1, 30, tzinfo=UTC)] * 3
    assert found[0].utcoffset() == timedelta(0)
    assert ordered == ["0", "1", "2", "3", "4"]
    assert raw == ["2025-03-30T01:30:00.000000Z", "2025-10-26T00:30:00.000000Z", "2025-10-26T01:30:00.000000Z"]


def test_a_time_without_a_zone_is_refused(store_url: str) -> None:
    engine = database_at(store_url).reader()
    with engine.connect() as connection, pytest.raises(StatementError, match="has no zone"):
        connection.execute(select(run).where(run.c.created_at == datetime(2026, 1, 2)))
    engine.dispose()


def test_times_before_the_year_1000_keep_their_width() -> None:
    early = datetime(1, 1, 2, tzinfo=timezone(timedelta(hours=1)))
    kind = run.c.created_at.type
    assert isinstance(kind, UtcDateTime)
    assert kind.process_bind_param(early, create_engine("sqlite://").dialect) == "0001-01-01T23:00:00.000000Z"


def test_every_table_and_index_can_be_spelt_for_postgresql() -> None:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    spelt = "".join(str(CreateTable(table).compile(dialect=dialect)) for table in metadata.sorted_tables)
    indexes = "".join(
        str(CreateIndex(index).compile(dialect=dialect)) for table in metadata.sorted_tables for index in table.indexes
    )
    assert "TIMESTAMP WITH TIME ZONE" in spelt
    assert "JSONB" in spelt
    assert "BIGSERIAL" in spelt
    assert "WITHOUT ROWID" not in spelt
    assert "WHERE final" in indexes
    assert max(len(name) for name in re.findall(r"\b(?:ck|fk|uq|pk|ix)_\w+", spelt + indexes)) <= 63
