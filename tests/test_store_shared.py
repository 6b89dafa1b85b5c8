"""One store and several programs: readers while others write, and clocks in different zones."""

import subprocess
import sys
import threading
from pathlib import Path

from sqlalchemy import text

from orchestrator.store import Store
from tests.factories import make_job, make_record
from tests.stores import answers, count, open_store

ROOT = Path(__file__).parents[1]
HALF = (
    "SELECT a.attempt_uid FROM attempt AS a WHERE a.n_samples <> (SELECT COUNT(*) FROM sample WHERE attempt_id = a.id)"
)


def test_readers_are_never_refused_and_never_see_half_a_result_while_a_writer_writes(store_url: str) -> None:
    jobs = [make_job(replica=number) for number in range(60)]
    seen, halves = [], []
    with open_store(store_url, jobs) as store, Store.open(store_url) as reader:
        writer = threading.Thread(target=lambda: [store.save_records([make_record(job)]) for job in jobs])
        writer.start()
        while writer.is_alive():
            seen.append(len(reader.results("run-1")))
            halves += answers(store_url, HALF)
        writer.join()
        seen.append(len(reader.results("run-1")))
    assert halves == []
    assert seen == sorted(seen)
    assert seen[-1] == 60


def test_a_reader_that_holds_its_cursor_open_stops_no_writer_and_sees_what_was_there_when_it_began(
    store_url: str,
) -> None:
    jobs = [make_job(replica=number) for number in range(40)]
    with open_store(store_url, jobs) as store:
        store.save_records([make_record(job) for job in jobs[:20]])
        with store._reader.connect() as connection:
            rows = iter(connection.execution_options(stream_results=True, max_row_buffer=1).execute(
                text("SELECT attempt_uid FROM results")))  # fmt: skip
            next(rows)
            with Store.open(store_url) as writer:
                for job in jobs[20:]:
                    writer.save_records([make_record(job)])
            assert count(store_url, "results") == 40
            assert len(list(rows)) == 19


def test_instants_are_the_same_for_programs_in_any_zone(store_url: str) -> None:
    open_store(store_url).close()
    code = (
        "import sys\nfrom orchestrator.store import Store\nfrom tests.factories import make_record\n"
        "with Store.open(sys.argv[1]) as store:\n"
        "    if sys.argv[2] == 'write':\n"
        "        store.save_records([make_record(started_at=sys.argv[3], ended_at='2025-10-26T01:30:00Z')])\n"
        "    print(store.run().created_at, *[(row['test_time'], row['ended_at']) for row in store.results()])\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code, store_url, what, "2025-10-26T00:30:00Z"],
            cwd=ROOT,
            env={"TZ": zone, "PGTZ": zone, "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for what, zone in (("write", "America/Los_Angeles"), ("read", "Asia/Kolkata"), ("read", "UTC"))
    ]
    assert said == ["2026-01-02T03:00:00Z ('2025-10-26T00:30:00.000000Z', '2025-10-26T01:30:00.000000Z')\n"] * 3
