import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ask import ask
from orchestrator.sqlite_file import network_disk, sqlite_path, store_error
from orchestrator.store import Store
from schema.errors import StoreError, StoreUnavailableError
from tests.factories import make_job, make_record, make_run, make_samples
from tests.stores import count, new_store, open_store

JOB = make_job()


def test_a_missing_store_is_said_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "none" / "runs.db"
    with pytest.raises(StoreError, match=rf"No run was stored yet at {path}.*tokfleet run.*TOKFLEET_DB"):
        Store.open(str(path))
    assert list(tmp_path.iterdir()) == []


def test_a_store_is_made_where_it_is_wanted_and_opened_again_as_it_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'deep' / 'runs.db'}"
    with Store.open(url, create=True) as store:
        store.save_run(make_run(), [JOB])
    with Store.open(url, create=True) as store:
        assert store.jobs("run-1") == [JOB]


def test_reading_leaves_the_database_file_as_it_was(tmp_path: Path) -> None:
    path = new_store(tmp_path)
    with open_store(str(path)) as store:
        store.save_records([make_record()])
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    with Store.open(str(path)) as reader:
        reader.results()
        reader.jobs("run-1")
        list(ask(str(path), "SELECT * FROM latest"))
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_what_is_no_store_is_said_in_plain_words(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("people, not rows\n" * 100)
    (tmp_path / "empty").write_bytes(b"")
    for url, words in (
        (str(tmp_path), "is a directory. Set TOKFLEET_DB to a file"),
        (str(tmp_path / "text"), "is not an SQLite database"),
        (str(tmp_path / "text" / "below"), "No run was stored yet"),
        (str(tmp_path / "empty"), "No run was stored yet"),
        ("/dev/null", "is not a regular file"),
        ("mysql://root@db/runs", "mysql://… is not one that this version knows"),
        ("sqlite://", "names no file"),
        (":memory:", "names no file"),
        (str(tmp_path / ("n" * 300)), "File name too long"),
    ):
        with pytest.raises(StoreError, match=words):
            Store.open(url)


@pytest.mark.parametrize("below", ["text/runs.db", "text"])
def test_a_store_that_cannot_be_made_names_the_reason_and_the_way_out(tmp_path: Path, below: str) -> None:
    (tmp_path / "text").write_text("people, not rows\n" * 100)
    with pytest.raises(StoreError, match="TOKFLEET_DB"):
        Store.open(str(tmp_path / below), create=True)


def test_paths_and_urls_name_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("runs.db", "sqlite:///runs.db", f"sqlite:///{tmp_path}/runs.db", f"{tmp_path}/runs.db"):
        assert sqlite_path(url) == tmp_path / "runs.db"


def test_a_network_disk_is_recognised_by_the_longest_mount_point(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/a / ext4 rw 0 0\nsrv:/x {tmp_path!s}/my\\040lab nfs4 rw 0 0\nbroken line\n")
    (tmp_path / "my lab" / "deep").mkdir(parents=True)
    assert network_disk(tmp_path / "my lab" / "deep", mounts) == "nfs4"
    assert network_disk(tmp_path, mounts) is None
    assert network_disk(tmp_path, tmp_path / "missing") is None


def test_a_full_disk_is_said_stores_nothing_in_part_and_is_over_when_there_is_room(tmp_path: Path) -> None:
    record = make_record(samples=make_samples(JOB.test, *range(1, 5000)))
    path = new_store(tmp_path)
    with open_store(str(path)) as store:
        with store._writer.connect() as connection:
            raw: Any = connection.connection.driver_connection
            raw.execute("PRAGMA max_page_count = 1")
            connection.rollback()
        with pytest.raises(StoreUnavailableError, match=r"the disk is full.*TOKFLEET_DB"):
            store.save_records([record])
        assert [count(str(path), table) for table in ("attempt", "sample")] == [0, 0]
        raw.execute("PRAGMA max_page_count = 1000000")
        assert store.save_records([record]) == 1


def test_a_file_that_may_not_be_written_is_said(tmp_path: Path) -> None:
    path = new_store(tmp_path)
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    with pytest.raises(sqlite3.Error) as raised:
        connection.execute("DELETE FROM run")
    connection.close()
    error = store_error(path, raised.value)
    assert isinstance(error, StoreUnavailableError)
    assert f"{path} cannot be used: it may not be written by this user" in str(error)


def test_a_store_whose_file_is_moved_away_takes_nothing_until_it_is_back(tmp_path: Path) -> None:
    path = new_store(tmp_path)
    with open_store(str(path)) as store:
        path.rename(tmp_path / "moved.db")
        for use in (lambda: store.save_records([make_record()]), store.results):
            with pytest.raises(StoreUnavailableError, match=r"is no longer there\. Put it back"):
                use()
        (tmp_path / "moved.db").rename(path)
        assert store.save_records([make_record()]) == 1


def test_a_writer_waits_while_another_program_holds_the_lock(tmp_path: Path) -> None:
    hold = (
        "import sqlite3, sys, time\nc = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "c.execute('BEGIN IMMEDIATE')\nprint('locked', flush=True)\ntime.sleep(1)\nc.execute('ROLLBACK')\n"
    )
    path = new_store(tmp_path)
    with open_store(str(path)) as store:
        holder = subprocess.Popen([sys.executable, "-c", hold, str(path)], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        assert store.results() == []
        assert store.save_records([make_record()]) == 1
        holder.communicate()
