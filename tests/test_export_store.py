"""A whole store in a file, and the same store made of it, in either kind of database."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from orchestrator.cli import main
from orchestrator.interchange.own_file import is_own, load_own
from orchestrator.interchange.store_file import TABLES, load_store, store_lines, write_store
from orchestrator.labels import mark, note, tag
from orchestrator.store import Store
from schema.errors import SchemaMismatchError, StoreError
from schema.job import Test
from tests.factories import make_failure, make_fingerprint, make_job, make_probe, make_record, make_run
from tests.stores import count, new_store

JOBS = [make_job(test=Test(n_prompt=n, n_gen=0)) for n in range(1, 8)]


def filled(url: str) -> str:
    """Fill the store with something in every kind of table."""
    with Store.open(url) as store:
        store.save_fingerprint(make_fingerprint(hostname="bücher\u202e\x1b[1m"))
        store.save_run(make_run(tags={"why": "drïver"}), JOBS)
        store.save_probe(make_probe())
        store.save_records([make_record(job) for job in JOBS[:5]])
        store.save_records([make_record(JOBS[5], failure=make_failure())])
        tag(store, "host", "host-1", {"cooling": "fan"}, [], "ann")
        note(store, "run", "latest", "second try", "ann")
        mark(store, [JOBS[0].job_uid], "fan was off", "ann")
    return url


def contents(url: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table, as values."""
    with Store.open(url) as store, store.snapshot() as connection:
        return {
            table.name: [
                tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns)).all()
            ]
            for table in TABLES
        }


def other_store(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Return an empty store in the other kind of database."""
    if url.startswith("sqlite"):
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{new_store(tmp_path, 'other.db')}"


@pytest.mark.parametrize("name", ["lab.jsonl", "lab.jsonl.gz"])
def test_export_and_import_give_the_same_store_in_the_same_kind_of_database(tmp_path: Path, name: str) -> None:
    before = filled(f"sqlite:///{new_store(tmp_path)}")
    after = f"sqlite:///{new_store(tmp_path, 'after.db')}"
    assert main(["export", "--to", "store", str(tmp_path / name), "--db", before]) == 0
    assert is_own(tmp_path / name)
    with Store.open(after) as store:
        assert "a whole store" in load_own(tmp_path / name, store)
    assert contents(after) == contents(before)
    assert sum(map(len, contents(after).values())) > 30


def test_export_and_import_give_the_same_store_in_the_other_kind_of_database(
    store_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    filled(store_url)
    path = tmp_path / "lab.jsonl"
    with Store.open(store_url) as store:
        n_rows = write_store(store, path)
    other = other_store(store_url, tmp_path, request)
    with Store.open(other) as store:
        assert load_store(path, store) == n_rows
        again = list(store_lines(store))
    assert contents(other) == contents(store_url)
    assert [json.loads(line) for line in again[:-1]] == [
        json.loads(line) for line in path.read_text().splitlines()[:-1]
    ]


def test_a_store_that_was_imported_goes_on_as_any_other(store_url: str, tmp_path: Path) -> None:
    source = filled(f"sqlite:///{new_store(tmp_path, 'source.db')}")
    path = tmp_path / "lab.jsonl"
    with Store.open(source) as store:
        write_store(store, path)
    with Store.open(store_url) as store:
        load_store(path, store)
        assert store.save_records([make_record(job) for job in JOBS]) == 1  # the others were there
        store.save_run(make_run(run_uid="run-2"), [make_job(run_uid="run-2")])
        note(store, "run", "run-2", "after the move", "ann")
    assert count(store_url, "run") == 2


def test_the_same_store_gives_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.jsonl"
    with Store.open(filled(f"sqlite:///{new_store(tmp_path)}")) as store:
        write_store(store, path)
        assert "\n".join(store_lines(store)) + "\n" == path.read_text()


def test_a_store_with_rows_is_not_filled(store_url: str, tmp_path: Path) -> None:
    filled(store_url)
    path = tmp_path / "lab.jsonl"
    with Store.open(store_url) as store:
        write_store(store, path)
        before = list(store_lines(store))
        with pytest.raises(StoreError, match="has rows already"):
            load_store(path, store)
        assert list(store_lines(store)) == before


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Return the file of a whole store."""
    path = tmp_path / "lab.jsonl"
    with Store.open(filled(f"sqlite:///{new_store(tmp_path, 'source.db')}")) as store:
        write_store(store, path)
    return path


def refused(path: Path, url: str) -> str:
    """Return why an empty store does not take the file; nothing is in it afterwards."""
    with Store.open(url) as store:
        with pytest.raises(StoreError) as raised:
            load_store(path, store)
        with store.snapshot() as connection:
            assert [connection.execute(select(table)).first() for table in TABLES] == [None] * len(TABLES)
    return str(raised.value)


def test_a_file_that_was_cut_anywhere_is_refused_as_a_whole(written: Path, store_url: str) -> None:
    data = written.read_bytes()
    for share in (0.0, 0.2, 0.5, 0.9, 0.999):
        written.write_bytes(data[: int(len(data) * share)])
        assert "line" in refused(written, store_url)
    lines = data.splitlines(keepends=True)
    written.write_bytes(b"".join(lines[:-1]))
    assert "cut short" in refused(written, store_url)
    written.write_bytes(data + b"\n")
    assert "changed, or cut short" in refused(written, store_url)


def test_a_file_that_was_changed_is_refused_as_a_whole(written: Path, store_url: str) -> None:
    text = written.read_text()
    for old, new in (
        ('"fan was off"', '"fan was on"'),
        ('"table":"job"', '"table":"jobs"'),
        ('"table":"job"', '"table":"run"'),
        ('"columns":["id"', '"columns":["number"'),
        ('"columns":["id"', '"columns":[1'),
        ("2026-01-02T03:04:15.000000Z", "2026-01-02 yesterday"),
        ('"run-1"', "null"),
        ('"run-1"', "[1]"),
        ('"tokfleet_store":1', '"tokfleet_store":2'),
        ('"revision":"00', '"revision":"99'),
        ('"tokfleet_store":1', '"some_store":1'),
        ("{", "NaN"),
    ):
        assert old in text
        written.write_text(text.replace(old, new, 1))
        refused(written, store_url)


def test_rows_that_no_tokfleet_stores_are_refused_though_their_hash_is_right(written: Path, store_url: str) -> None:
    import hashlib

    lines = written.read_text().splitlines()[:-1]
    at = next(n for n, line in enumerate(lines) if line.startswith('{"table":"sample"'))
    for bad in ("[999,1,5,1,null,null,null]", "[1,99,0,1,null,null,null]", '[1,"x",5,1,null,null,null]'):
        changed = [*lines[: at + 1], bad, *lines[at + 1 :]]
        content = "".join(f"{line}\n" for line in changed)
        n_rows = sum(line.startswith("[") for line in changed)
        end = {"end": {"n_rows": n_rows, "sha256": hashlib.sha256(content.encode()).hexdigest()}}
        written.write_text(content + json.dumps(end) + "\n")
        refused(written, store_url)


def test_a_file_of_a_newer_tokfleet_says_so(written: Path, store_url: str) -> None:
    text = written.read_text()
    revision = json.loads(text.splitlines()[0])["revision"]
    written.write_text(text.replace(f'"revision":"{revision}"', '"revision":"9000"', 1))
    with Store.open(store_url) as store, pytest.raises(SchemaMismatchError, match="newer tokfleet"):
        load_store(written, store)


def test_what_is_compressed_and_damaged_is_refused(written: Path, store_url: str) -> None:
    packed = gzip.compress(written.read_bytes())
    for data in (packed[:-20], packed[:100], b"\x1f\x8b" + b"nonsense" * 10, b"\x1f\x8b"):
        written.write_bytes(data)
        refused(written, store_url)


def test_a_store_goes_to_standard_output_too(written: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["export", "-", "--to", "store", "--db", str(tmp_path / "source.db")]) == 0
    assert capsys.readouterr().out == written.read_text()


def test_other_files_are_not_taken_for_ours(tmp_path: Path) -> None:
    for name, data in (("a.json", b"[]\n"), ("b", b""), ("c.jsonl", b'{"build_commit": "x"}\n'), ("d", b"\x1f\x8bxx")):
        (tmp_path / name).write_bytes(data)
        assert not is_own(tmp_path / name)
    assert not is_own(tmp_path / "absent")
