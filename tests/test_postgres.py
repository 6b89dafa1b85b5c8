import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from orchestrator import postgres as module
from orchestrator.backup import dump_postgres
from orchestrator.database import database_at
from orchestrator.migrate import check, upgrade
from orchestrator.spool import Drainer, Spool, spool_path
from orchestrator.store import Store
from orchestrator.store_url import identity, shown
from schema.canonical import to_json
from schema.errors import StoreError, StoreUnavailableError
from tests.factories import make_job, make_record
from tests.postgres import Server, running
from tests.stores import change, count, open_store
from tests.test_migrations import with_a_result

SECRET = "pa:ss/w@rd"


@contextmanager
def a_server_to_stop() -> Iterator[tuple[Server, str]]:
    """Give a server that a crash does not harm, and the URL of an empty store in it."""
    with running(durable=True) as server:
        url = server.url(server.create())
        upgrade(url)
        yield server, url


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql+psycopg://me:{SECRET}@127.0.0.1:1/runs",
        f"postgresql://me@127.0.0.1:1/runs?password={SECRET}",
        "postgresql://me:secret@127.0.0.1:1/runs",
        "postgresql://me:secret@127.0.0.1:port/runs",
        "postgresql://me:secret@127.0.0.1:1/runs?colour=secret2",
    ],
)
def test_a_password_is_never_told(url: str) -> None:
    for use in (Store.open, upgrade, lambda url: spool_path(Path("/"), url), lambda url: ", ".join(check(url))):
        try:
            said = str(use(url))
        except StoreError as error:
            said = str(error)
        assert SECRET not in said
        assert "secret@" not in said
        assert "w@rd" not in said


def test_what_is_no_url_of_ours_is_said(postgres: Server) -> None:
    nobody = postgres.url(user="nobody_known")
    for url, words in (
        ("postgresql+psycopg2://me@db/runs", r"asks for psycopg2, which is not used here"),
        ("postgresql://db?colour=red", "is no PostgreSQL URL"),
        ("postgresql://127.0.0.1:1/runs", r"cannot be reached: .*Connection refused.*TOKFLEET_DB"),
        (postgres.url("nowhere"), r'cannot be reached: .*"nowhere" does not exist.*createdb'),
        (nobody, "cannot be reached: .*nobody_known"),
    ):
        with pytest.raises(StoreError, match=words):
            Store.open(url)


def test_reading_makes_nothing(postgres: Server) -> None:
    url = postgres.url(postgres.create())
    with pytest.raises(StoreError, match=r"No run was stored yet at postgresql.*`tokfleet run SWEEP\.yaml` fills it"):
        Store.open(url)
    assert database_at(url).is_empty()


def test_a_store_is_made_where_it_is_wanted(postgres: Server) -> None:
    url = postgres.url(postgres.create())
    with Store.open(url, create=True) as store:
        assert store.hosts() == []
    assert check(url) == []


def test_a_database_that_does_not_keep_utf_8_is_refused(postgres: Server) -> None:
    postgres.execute("CREATE DATABASE ascii TEMPLATE template0 ENCODING 'SQL_ASCII'")
    with pytest.raises(StoreError, match=r"keeps texts as SQL_ASCII.*createdb --template=template0 --encoding=UTF8"):
        upgrade(postgres.url("ascii"))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (errors.AdminShutdown, "stopping or starting"),
        (errors.DiskFull, "disk is full"),
        (errors.TooManyConnections, "no connection left"),
        (errors.LockNotAvailable, "has held its lock for over 30 s"),
        (errors.ReadOnlySqlTransaction, "may only be read"),
        (errors.InsufficientPrivilege, "GRANT"),
        (errors.DeadlockDetected, "same moment"),
        (errors.UndefinedTable, "not whole"),
        (errors.DataCorrupted, "damaged"),
        (psycopg.OperationalError, "cannot be reached"),
    ],
)
def test_trouble_of_the_database_is_not_that_of_the_rows(kind: type[psycopg.Error], words: str) -> None:
    error = module.store_error("postgresql://me:secret@db/runs", kind("details\nmore"))
    assert isinstance(error, StoreUnavailableError)
    assert words in str(error)
    assert "postgresql://me:***@db/runs" in str(error)


@pytest.mark.parametrize("kind", [errors.CheckViolation, errors.NumericValueOutOfRange, errors.NotNullViolation])
def test_rows_that_are_refused_are_that_for_good(kind: type[psycopg.Error]) -> None:
    error = module.store_error("postgresql://db/runs", kind("avg_ts"))
    assert not isinstance(error, StoreUnavailableError)
    assert "refused what was to be written: avg_ts." in str(error)


def test_one_database_has_one_spool_whoever_connects() -> None:
    urls = (
        "postgresql+psycopg://me:one@Lab/runs",
        "postgresql://you:two@lab:5432/runs?sslmode=require",
        "postgres://lab/runs",
        "postgresql:///runs?host=lab",
    )
    assert {identity(url) for url in urls} == {"postgresql://lab:5432/runs"}
    others = ("postgresql://lab:5433/runs", "postgresql://lab/other", "postgresql://lab2/runs")
    assert len({identity(url) for url in (*others, urls[0])}) == 4
    assert shown(urls[0]) == "postgresql+psycopg://me:***@Lab/runs"


def test_a_reader_can_change_nothing(postgres_url: str) -> None:
    with (
        Store.open(postgres_url) as store,
        store._reader.connect() as connection,
        pytest.raises(DBAPIError, match="read-only transaction"),
    ):
        connection.execute(text("CREATE TABLE mine (a integer)"))


def test_a_connection_that_the_server_closed_is_replaced(postgres: Server, postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        assert store.results() == []
        _end_sessions(postgres, postgres_url)
        assert store.results() == []
        _end_sessions(postgres, postgres_url)
        assert store.save_records([make_record()]) == 1


def test_a_transaction_that_is_broken_off_is_done_anew_as_a_whole(postgres: Server, postgres_url: str) -> None:
    calls = []

    def work(connection: Connection) -> int:
        calls.append(connection)
        connection.execute(text("UPDATE run SET name = name || '!'"))
        if len(calls) == 1:
            _end_sessions(postgres, postgres_url)
        return int(connection.execute(text("SELECT COUNT(*) FROM run")).scalar_one())

    with open_store(postgres_url) as store:
        assert store._write(work) == 1
        assert len(calls) == 2
        assert store.run().name == "smoke!"


def test_a_server_that_is_down_is_said_and_the_open_store_goes_on_when_it_is_back() -> None:
    with a_server_to_stop() as (server, url), open_store(url) as store:
        server.stop()
        for use in (lambda: store.save_records([make_record()]), store.results):
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                use()
        server.start()
        assert store.results() == []
        assert store.save_records([make_record()]) == 1


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_under_load_loses_and_doubles_nothing(tmp_path: Path, mode: Any) -> None:
    jobs = [make_job(replica=number) for number in range(300)]
    with (
        a_server_to_stop() as (server, url),
        open_store(url, jobs) as store,
        Spool.open(tmp_path / "spool") as spool,
        Drainer(spool, store.save_entries, pause_seconds=0.01, longest_pause_seconds=0.5) as drainer,
    ):
        _put_slowly(spool, jobs[:150])
        server.stop(mode)
        _put_slowly(spool, jobs[150:250])
        assert spool.waiting() >= 100
        server.start()
        _put_slowly(spool, jobs[250:])
        drainer.flush(60)
        assert (spool.waiting(), spool.parked()) == (0, [])
        assert [count(url, table) for table in ("attempt", "sample")] == [300, 900]


def test_a_row_that_is_refused_does_not_keep_others_back_and_an_outage_parks_none(tmp_path: Path) -> None:
    with a_server_to_stop() as (server, url), open_store(url) as store, Spool.open(tmp_path / "spool") as spool:
        payload = json.loads(to_json(make_record()))
        spool.put("record", "stranger", payload | {"attempt_uid": "stranger", "job_uid": "unknown"})
        spool.put("record", "good", payload)
        server.stop()
        with pytest.raises(StoreUnavailableError):
            spool.drain(store.save_entries)
        assert (spool.waiting(), spool.parked()) == (2, [])
        server.start()
        assert spool.drain(store.save_entries) == 1
        assert [parked.entry.uid for parked in spool.parked()] == ["stranger"]


def test_a_writer_waits_while_another_one_writes_and_readers_do_not(postgres_url: str) -> None:
    with open_store(postgres_url) as store, store._writer.begin() as held:
        held.execute(text("UPDATE run SET name = 'mine'"))
        done = threading.Event()

        def write() -> None:
            with Store.open(postgres_url) as other:
                other.save_records([make_record()])
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        assert store.run().name == "smoke"
        assert not done.wait(0.3)
        held.commit()
        writer.join(30)
        assert done.is_set()
        assert store.run().name == "mine"


def test_views_of_other_people_that_stand_in_the_way_of_an_upgrade_are_named(postgres_url: str) -> None:
    change(postgres_url, "CREATE VIEW mine AS SELECT host FROM latest; UPDATE schema_info SET view_hash = 'old'")
    with pytest.raises(StoreError, match=r"something there is built on it: view mine depends on view latest\. Drop"):
        upgrade(postgres_url)
    change(postgres_url, "DROP VIEW mine")
    upgrade(postgres_url)
    assert check(postgres_url) == []


def test_a_copy_can_be_restored_into_a_new_database(
    postgres: Server, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_a_result(postgres_url)
    monkeypatch.setenv("PATH", str(postgres.binaries))
    dump_postgres(postgres_url, tmp_path / "copy.dump")
    with pytest.raises(StoreError, match="exists already"):
        dump_postgres(postgres_url, tmp_path / "copy.dump")
    name = postgres.create()
    restored = postgres.url(name)
    postgres.restore(tmp_path / "copy.dump", name)
    assert check(restored) == []
    with Store.open(restored) as store:
        assert [row["host"] for row in store.results()] == ["box-a"]
        assert store.save_records([make_record(attempt_uid="again", number=2)]) == 1


def test_without_pg_dump_the_way_to_a_copy_is_said(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StoreError, match=r"no pg_dump on this machine's PATH.*pg_dump --format=custom"):
        dump_postgres(postgres_url, tmp_path / "copy.dump")
    assert list(tmp_path.iterdir()) == []


def test_a_copy_that_fails_leaves_no_half_file(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(postgres.binaries))
    with pytest.raises(StoreError, match=r'pg_dump could not copy the database postgresql.*"nowhere" does not exist'):
        dump_postgres(postgres.url("nowhere"), tmp_path / "copy.dump")
    assert list(tmp_path.iterdir()) == []


def _put_slowly(spool: Spool, jobs: list[Any]) -> None:
    for job in jobs:
        spool.put("record", job.job_uid, json.loads(to_json(make_record(job))))
        time.sleep(0.002)


def _end_sessions(server: Server, url: str) -> None:
    name = url.partition("?")[0].rpartition("/")[2]
    server.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")
