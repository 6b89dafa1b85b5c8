import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.spool import BATCH, Drainer, Entry, Spool
from schema.errors import SchemaMismatchError, StoreError, StoreUnavailableError

ROOT = Path(__file__).parents[1]


class Shelf:
    """A stand-in for the store: keeps what it is given, refuses what it is told to."""

    def __init__(self) -> None:
        self.uids: list[str] = []
        self.sizes: list[int] = []
        self.trouble: list[Exception] = []
        self.refused: set[str] = set()

    def write(self, entries: list[Entry]) -> None:
        if self.trouble:
            raise self.trouble.pop(0)
        for entry in entries:
            if entry.uid in self.refused:
                raise StoreError(f"{entry.uid} is wrong")
        self.uids += [entry.uid for entry in entries]
        self.sizes.append(len(entries))


def filled(path: Path, count: int) -> Spool:
    spool = Spool.open(path)
    for number in range(count):
        spool.put("record", f"u{number}", {"number": number})
    return spool


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_entries_are_handed_over_in_order_in_batches_and_forgotten(tmp_path: Path) -> None:
    shelf = Shelf()
    with filled(tmp_path / "spool", 2 * BATCH + 3) as spool:
        assert spool.drain(shelf.write) == 2 * BATCH + 3
        assert spool.waiting() == 0
        assert spool.drain(shelf.write) == 0
    assert shelf.uids == [f"u{number}" for number in range(2 * BATCH + 3)]
    assert shelf.sizes == [BATCH, BATCH, 3]


def test_an_entry_keeps_its_kind_and_payload_also_what_the_store_will_refuse(tmp_path: Path) -> None:
    found: list[Entry] = []
    with Spool.open(tmp_path / "deep" / "er" / "spool") as spool:
        spool.put("record", "u", {"text": "研究室 \ud83d", "number": float("inf"), "list": [1, None, True]})
        spool.put("fingerprint", "u", {})
        spool.drain(found.extend)
    assert [(entry.kind, entry.uid) for entry in found] == [("record", "u"), ("fingerprint", "u")]
    assert found[0].payload == {"text": "研究室 \ud83d", "number": float("inf"), "list": [1, None, True]}


def test_the_same_uid_twice_is_one_entry(tmp_path: Path) -> None:
    found: list[Entry] = []
    with Spool.open(tmp_path / "spool") as spool:
        spool.put("record", "u", {"number": 1})
        spool.put("record", "u", {"number": 2})
        spool.drain(found.extend)
    assert [entry.payload for entry in found] == [{"number": 1}]


def test_what_was_put_is_there_for_the_next_process(tmp_path: Path) -> None:
    filled(tmp_path / "spool", 3).close()
    shelf = Shelf()
    with Spool.open(tmp_path / "spool") as spool:
        assert spool.waiting() == 3
        spool.drain(shelf.write)
    assert shelf.uids == ["u0", "u1", "u2"]


def test_an_entry_that_is_refused_is_parked_and_the_rest_goes_on(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.refused = {"u1", "u4"}
    with filled(tmp_path / "spool", 6) as spool:
        assert spool.drain(shelf.write) == 4
        assert shelf.uids == ["u0", "u2", "u3", "u5"]
        assert [(parked.entry.uid, parked.error) for parked in spool.parked()] == [
            ("u1", "u1 is wrong"),
            ("u4", "u4 is wrong"),
        ]
        assert spool.parked()[0].entry.payload == {"number": 1}
        assert spool.waiting() == 0


def test_parked_entries_survive_and_can_be_tried_once_more(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.refused = {"u0"}
    with filled(tmp_path / "spool", 1) as spool:
        spool.drain(shelf.write)
    with Spool.open(tmp_path / "spool") as spool:
        spool.put("record", "u0", {"number": 0})
        assert (spool.waiting(), len(spool.parked())) == (0, 1)
        spool.retry_parked()
        shelf.refused.clear()
        assert spool.drain(shelf.write) == 1
        assert spool.parked() == []


def test_a_surprise_in_storing_one_entry_parks_it_with_the_kind_of_surprise(tmp_path: Path) -> None:
    def write(entries: list[Entry]) -> None:
        if any(entry.uid == "u1" for entry in entries):
            raise KeyError("colour")

    with filled(tmp_path / "spool", 3) as spool:
        assert spool.drain(write) == 2
        assert [parked.error for parked in spool.parked()] == ["KeyError: 'colour'"]


@pytest.mark.parametrize("trouble", [StoreUnavailableError("locked"), SchemaMismatchError("too new")])
def test_trouble_of_the_store_itself_parks_nothing_and_loses_nothing(tmp_path: Path, trouble: StoreError) -> None:
    shelf = Shelf()
    shelf.trouble = [trouble]
    with filled(tmp_path / "spool", 3) as spool:
        with pytest.raises(type(trouble)):
            spool.drain(shelf.write)
        assert (spool.waiting(), spool.parked()) == (3, [])
        assert spool.drain(shelf.write) == 3
    assert shelf.uids == ["u0", "u1", "u2"]


def test_the_drainer_stores_while_the_main_thread_goes_on_and_survives_outages(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.trouble = [StoreUnavailableError("locked"), StoreUnavailableError("locked")]
    with Spool.open(tmp_path / "spool") as spool, Drainer(spool, shelf.write, pause_seconds=0.01) as drainer:
        for number in range(20):
            spool.put("record", f"u{number}", {})
        drainer.flush(timeout_seconds=30)
        assert drainer.error is None
        assert shelf.uids == [f"u{number}" for number in range(20)]
        spool.put("record", "unasked", {})
        wait_until(lambda: "unasked" in shelf.uids)


def test_a_flush_that_cannot_be_says_why_and_where_the_results_are(tmp_path: Path) -> None:
    def write(entries: list[Entry]) -> None:
        raise StoreUnavailableError("The disk is full.")

    with filled(tmp_path / "spool", 2) as spool, Drainer(spool, write) as drainer:
        wait_until(lambda: drainer.error is not None)
        with pytest.raises(StoreError, match=r"2 results are not in the database yet.*spool.*The disk is full\."):
            drainer.flush(timeout_seconds=0.1)
        assert spool.waiting() == 2


def test_a_flush_does_not_wait_for_what_is_refused_or_comes_later(tmp_path: Path) -> None:
    shelf = Shelf()
    shelf.refused = {"u1"}
    with filled(tmp_path / "spool", 3) as spool, Drainer(spool, shelf.write) as drainer:
        drainer.flush(timeout_seconds=30)
        assert len(spool.parked()) == 1


def test_stopping_ends_the_thread_at_the_next_batch_and_keeps_the_rest(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()
    stored: list[str] = []

    def write(entries: list[Entry]) -> None:
        begun.set()
        go_on.wait(30)
        stored.extend(entry.uid for entry in entries)

    with filled(tmp_path / "spool", BATCH + 1) as spool:
        drainer = Drainer(spool, write).start()
        begun.wait(30)
        threading.Timer(0.1, go_on.set).start()
        drainer.stop()
        assert len(stored) == BATCH
        assert spool.waiting() == 1


def test_many_threads_may_put_at_once(tmp_path: Path) -> None:
    with Spool.open(tmp_path / "spool") as spool:

        def put_many(name: int) -> None:
            for number in range(25):
                spool.put("record", f"{name}-{number}", {})

        threads = [threading.Thread(target=put_many, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert spool.waiting() == 100


def test_several_processes_share_a_spool_and_lose_nothing(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom orchestrator.spool import Spool\n"
        "name, path, shelf = sys.argv[1:]\n"
        "def write(entries):\n"
        "    with open(shelf, 'a') as file:\n"
        "        file.write(''.join(f'{entry.uid}\\n' for entry in entries))\n"
        "with Spool.open(Path(path)) as spool:\n"
        "    for number in range(40):\n"
        "        spool.put('record', f'{name}-{number}', {})\n"
        "        if number % 10 == 9:\n"
        "            spool.drain(write)\n"
    )
    command = [sys.executable, "-c", code]
    shelf = tmp_path / "shelf"
    workers = [
        subprocess.Popen([*command, name, str(tmp_path / "spool"), str(shelf)], cwd=ROOT, stderr=subprocess.PIPE)
        for name in ("a", "b", "c")
    ]
    assert [worker.communicate()[1] for worker in workers] == [b""] * 3
    with Spool.open(tmp_path / "spool") as spool:
        assert spool.waiting() == 0
    assert set(shelf.read_text().split()) == {f"{name}-{number}" for name in "abc" for number in range(40)}


def test_whatever_was_put_before_a_kill_is_still_there(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom orchestrator.spool import Spool\n"
        "spool = Spool.open(Path(sys.argv[1]))\n"
        "for number in range(10**6):\n"
        "    spool.put('record', f'{sys.argv[2]}-{number}', {'number': number})\n"
        "    print(f'{sys.argv[2]}-{number}', flush=True)\n"
    )
    path, acknowledged = tmp_path / "spool", set()
    for attempt in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", code, str(path), str(attempt)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        for _ in range(10 + 7 * attempt):
            acknowledged.add(writer.stdout.readline().strip())
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged |= {line.strip() for line in writer.stdout if line.endswith("\n")}
        writer.stdout.close()
        writer.wait()
    found: list[Entry] = []
    with Spool.open(path) as spool:
        spool.drain(found.extend)
    assert acknowledged - {entry.uid for entry in found} == set()
    assert len({entry.uid for entry in found}) == len(found)


def test_a_spool_that_cannot_be_opened_or_written_is_said_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no database " * 1000)
    for path in (tmp_path, tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(StoreUnavailableError, match=f"The spool {path}"):
            Spool.open(path)


def test_a_full_disk_is_said_and_what_was_put_before_stays(tmp_path: Path) -> None:
    with filled(tmp_path / "spool", 3) as spool:
        spool._connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(StoreUnavailableError, match="full"):
            spool.put("record", "big", {"text": "x" * 100_000})
        assert spool.waiting() == 3
        shelf: list[Any] = []
        spool.drain(shelf.extend)
        assert len(shelf) == 3


def test_commits_are_on_the_disk_when_put_returns(tmp_path: Path) -> None:
    with Spool.open(tmp_path / "spool") as spool:
        assert spool._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection = sqlite3.connect(tmp_path / "spool")
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
