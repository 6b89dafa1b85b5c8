import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.migrate import check
from orchestrator.spool import Drainer, Entry, Spool
from orchestrator.store import Store
from schema.canonical import to_json
from schema.errors import SchemaMismatchError, StoreError
from schema.host import Environment, Gpu
from schema.job import ModelRef, Test
from schema.record import Conditions, Effective, Record, Sample
from schema.settings import Settings
from tests.factories import (
    make_build,
    make_failure,
    make_fingerprint,
    make_hardware,
    make_job,
    make_latency,
    make_model_facts,
    make_record,
    make_run,
    make_samples,
)
from tests.stores import answers, change, count, open_store

ROOT = Path(__file__).parents[1]
JOB = make_job()
INTERRUPTED = make_failure(stage="interrupted", kind="interrupted")


def attempts(url: str) -> list[tuple[Any, ...]]:
    """Return uid, number, final and superseded of every attempt, as stored."""
    found = answers(url, "SELECT attempt_uid, number, final, superseded FROM attempt ORDER BY id")
    return [(uid, number, bool(final), bool(late)) for uid, number, final, late in found]


def entry(record: Record) -> Entry:
    return Entry(seq=1, kind="record", uid=record.attempt_uid, payload=json.loads(to_json(record)))


def test_a_run_and_its_jobs_come_back_as_they_were(store_url: str) -> None:
    run = make_run(tags={"why": "driver-update"}, created_at="2026-01-02T03:04:05.250000Z")
    jobs = [
        JOB,
        make_job(test=Test(n_prompt=0, n_gen=128, n_depth=4096), settings=Settings(n_threads=4, n_gpu_layers=-1)),
        make_job(
            host_uid="host-2",
            model=ModelRef(source="path", spec="/models/bureau-été's.gguf", identity="sha256:" + "c" * 64),
            settings=Settings(
                flash_attn="on", load_mode="none", type_k="q8_0", n_threads="all", n_batch=64, n_ubatch=32
            ),
            build="vulkan",
            replica=3,
            repetitions=1,
            seed=99,
            timeout_seconds=12.5,
        ),
    ]
    with Store.open(store_url) as store:
        store.save_run(run, jobs)
        assert store.run("run-1") == run
        assert store.jobs("run-1") == jobs
        assert [job.job_uid for job in store.remaining_jobs("run-1")] == [job.job_uid for job in jobs]


def test_saving_a_run_twice_changes_nothing(store_url: str) -> None:
    with open_store(store_url) as store:
        store.save_run(make_run(), [JOB, JOB])
        assert store.jobs("run-1") == [JOB]


def test_a_run_with_a_strangers_job_is_not_stored_at_all(store_url: str) -> None:
    with Store.open(store_url) as store:
        with pytest.raises(StoreError, match="jobs of run run-9"):
            store.save_run(make_run(), [JOB, make_job(run_uid="run-9")])
        assert count(store_url, "run") == 0


def test_a_run_is_found_by_uid_by_the_start_of_it_and_as_the_latest(store_url: str) -> None:
    with Store.open(store_url) as store:
        for uid, day in (("abc1", 3), ("abc2", 5), ("ab", 4)):
            store.save_run(make_run(run_uid=uid, created_at=f"2026-01-0{day}T00:00:00Z"))
        assert store.run().run_uid == "abc2"
        assert store.run("abc1").run_uid == "abc1"
        assert store.run("ab").run_uid == "ab"
        with pytest.raises(StoreError, match=r"Several runs .* 'abc': abc2, abc1\."):
            store.run("abc")
        for stranger in ("zz", "a%", "ABC1", "'; DROP TABLE run; --"):
            with pytest.raises(StoreError, match=r"No run in .* has the uid"):
                store.run(stranger)


def test_a_measured_record_appears_in_results_under_llama_bench_names(store_url: str) -> None:
    with open_store(store_url) as store:
        assert store.save_records([make_record()]) == 1
        (row,) = store.results()
    rates = [512 / 0.500, 512 / 0.512, 512 / 0.524]
    expected = {
        "run_uid": "run-1",
        "job_uid": JOB.job_uid,
        "host": "box-a",
        "model": "tiny:Q4_K_M",
        "kind": "pp",
        "test": "pp512",
        "build_commit": "0c1e57098",
        "cpu_info": "AMD Ryzen 9 5900X 12-Core Processor",
        "gpu_info": "NVIDIA GeForce RTX 3060",
        "backends": "CPU",
        "model_filename": "/srv/models/tiny-Q4_K_M.gguf",
        "model_size": 900_000,
        "n_batch": 2048,
        "asked_n_threads": "physical",
        "n_threads": 8,
        "type_k": None,
        "asked_type_k": "f16",
        "flash_attn": 1,
        "asked_flash_attn": "auto",
        "load_mode": "mmap",
        "n_gpu_layers": 0,
        "avg_ns": 512_000_000,
        "stddev_ns": 12_000_000,
        "n_samples": 3,
        "latency_p99_ms": 13.0,
        "load_seconds": 1.5,
        "quality": "clean",
        "test_time": "2026-01-02T03:04:05.250000Z",
    }
    assert {name: row[name] for name in expected} == expected
    assert row["avg_ts"] == pytest.approx(statistics.mean(rates))
    assert row["stddev_ts"] == pytest.approx(statistics.stdev(rates))
    assert (row["median_ts"], row["max_ts"]) == (pytest.approx(1000.0), pytest.approx(1024.0))


def test_one_repetition_has_no_spread(store_url: str) -> None:
    with open_store(store_url) as store:
        store.save_records([make_record(samples=make_samples(JOB.test, 1_000_000_000))])
        (row,) = store.results()
    assert (row["avg_ts"], row["stddev_ts"], row["stddev_ns"]) == (512.0, None, None)


def test_a_combined_test_has_the_rates_of_its_parts(store_url: str) -> None:
    job = make_job(test=Test(n_prompt=100, n_gen=20))
    samples = tuple(
        Sample(repetition=n, n_tokens=120, elapsed_ns=3_000_000_000, prompt_ns=1_000_000_000, gen_ns=2_000_000_000)
        for n in range(2)
    )
    with open_store(store_url, [job]) as store:
        store.save_records([make_record(job, samples=samples)])
        (row,) = store.results()
    assert (row["kind"], row["test"]) == ("pg", "pp100+tg20")
    assert (row["avg_ts"], row["prompt_ts"], row["gen_ts"]) == (40.0, 100.0, 10.0)


def test_a_setting_that_could_not_be_read_back_is_null_and_never_the_request(store_url: str) -> None:
    odd = {"n_threads": Effective(value="many", source="log"), "flash_attn": Effective(value=None, source="log")}
    with open_store(store_url) as store:
        store.save_records([make_record(in_effect=odd)])
        (row,) = store.results()
        kept = json.loads(answers(store_url, "SELECT in_effect FROM attempt")[0][0])
    assert [row[name] for name in ("n_batch", "n_threads", "flash_attn", "load_mode", "type_k")] == [None] * 5
    assert kept["n_threads"] == {"value": "many", "source": "log"}


def test_the_same_record_twice_is_one_row(store_url: str) -> None:
    with open_store(store_url) as store:
        assert store.save_records([make_record(), make_record()]) == 1
        assert store.save_records([make_record()]) == 0
        assert [count(store_url, table) for table in ("attempt", "sample", "condition")] == [1, 3, 1]


def test_a_failed_record_is_a_row_of_failures_and_not_of_results(store_url: str) -> None:
    failure = make_failure(signal="SIGABRT", exit_code=-6, log_tail=("GGML_ASSERT", "abort"))
    with open_store(store_url) as store:
        store.save_records([make_record(failure=failure, model=None)])
        (row,) = store.failures("run-1")
        assert store.results() == []
        assert store.remaining_jobs("run-1") == []
    names = ("stage", "failure_kind", "message", "signal", "exit_code", "log_tail", "final")
    assert [row[name] for name in names] == [
        "load", "error", "The model could not be loaded.", "SIGABRT", -6, '["GGML_ASSERT", "abort"]', 1,
    ]  # fmt: skip


def test_an_interrupted_attempt_keeps_its_samples_and_leaves_its_job_to_be_done(store_url: str) -> None:
    cut = make_record(failure=INTERRUPTED, samples=make_samples(JOB.test, 500_000_000))
    with open_store(store_url) as store:
        store.save_records([cut])
        assert store.remaining_jobs("run-1") == [JOB]
        assert (store.results(), store.failures()) == ([], [])
        assert count(store_url, "samples") == 1
        assert store.next_numbers("run-1") == {JOB.job_uid: 2}
        store.save_records([make_record(attempt_uid="again", number=2)])
        assert store.remaining_jobs("run-1") == []
        assert [row["attempt_uid"] for row in store.results()] == ["again"]


def test_the_first_measured_attempt_stays_final_and_later_ones_are_superseded(store_url: str) -> None:
    later = [
        make_record(attempt_uid="b", number=2),
        make_record(attempt_uid="c", number=3, failure=make_failure()),
        make_record(attempt_uid="d", number=4, failure=INTERRUPTED),
    ]
    with open_store(store_url) as store:
        store.save_records([make_record(attempt_uid="a"), *later])
        assert attempts(store_url) == [
            ("a", 1, True, False),
            ("b", 2, False, True),
            ("c", 3, False, True),
            ("d", 4, False, True),
        ]


def test_a_failed_attempt_is_final_until_a_later_or_a_measured_one_comes(store_url: str) -> None:
    with open_store(store_url) as store:
        store.save_records([make_record(attempt_uid="second", number=2, failure=make_failure())])
        store.save_records([make_record(attempt_uid="first", number=1, failure=make_failure())])
        assert attempts(store_url) == [("second", 2, True, False), ("first", 1, False, True)]
        store.save_records([make_record(attempt_uid="third", number=3, failure=make_failure())])
        store.save_records([make_record(attempt_uid="fourth", number=4)])
        assert attempts(store_url) == [
            ("second", 2, False, False),
            ("first", 1, False, True),
            ("third", 3, False, False),
            ("fourth", 4, True, False),
        ]


def test_a_lost_attempt_that_turns_up_under_a_taken_number_is_stored_under_the_next(store_url: str) -> None:
    with open_store(store_url) as store:
        store.save_records([make_record(attempt_uid="resumed", number=1), make_record(attempt_uid="orphan", number=1)])
        assert attempts(store_url) == [("resumed", 1, True, False), ("orphan", 2, False, True)]
        assert store.attempt_uids("run-1") == {"resumed", "orphan"}
        assert store.attempt_uids("run-2") == frozenset()


def test_a_record_of_an_unknown_job_is_refused_and_stores_nothing(store_url: str) -> None:
    with open_store(store_url) as store:
        for change in ({"job_uid": "j"}, {"run_uid": "r"}, {"host_uid": "h"}):
            with pytest.raises(StoreError, match="is not in the database"):
                store.save_records([make_record(), make_record(attempt_uid="x", **change)])
        assert count(store_url, "attempt") == 0


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -1.0])
def test_an_impossible_number_is_refused_by_name_and_the_rest_of_the_run_is_kept(
    tmp_path: Path, store_url: str, number: float
) -> None:
    bad = make_record(attempt_uid="bad", number=2, conditions=Conditions(steal_share=number))
    with open_store(store_url) as store, Spool.open(tmp_path / "spool") as spool:
        with pytest.raises(StoreError, match=r"conditions\.steal_share is "):
            store.save_records([bad])
        payload = json.loads(to_json(make_record()))
        spool.put("record", "bad", payload | {"attempt_uid": "bad", "conditions": {"steal_share": number}})
        spool.put("record", "good", payload)
        assert spool.drain(store.save_entries) == 1
        assert "conditions.steal_share is" in spool.parked()[0].error
        assert len(store.results()) == 1


def test_the_drainer_brings_fingerprints_and_records_into_the_store(tmp_path: Path, store_url: str) -> None:
    with Store.open(store_url) as store, Spool.open(tmp_path / "spool") as spool:
        store.save_run(make_run(), [JOB])
        with Drainer(spool, store.save_entries) as drainer:
            spool.put("record", "a", json.loads(to_json(make_record())))
            spool.put("fingerprint", "f", json.loads(to_json(make_fingerprint())))
            spool.put("joke", "j", {})
            drainer.flush()
        assert [row["host"] for row in store.results()] == ["box-a"]
        assert "a 'joke', which no table takes" in spool.parked()[0].error


def test_facts_of_a_host_fill_in_records_that_came_before_them(store_url: str) -> None:
    with Store.open(store_url) as store:
        store.save_run(make_run(), [JOB])
        store.save_records([make_record()])
        assert [(row["host"], row["cpu_info"]) for row in store.results()] == [(None, None)]
        store.save_fingerprint(make_fingerprint())
        assert [row["host"] for row in store.results()] == ["box-a"]
        assert store.results()[0]["cpu_info"] == "AMD Ryzen 9 5900X 12-Core Processor"


def test_the_newest_fingerprint_is_the_hosts_and_results_keep_the_facts_of_their_day(store_url: str) -> None:
    upgraded = make_fingerprint(
        taken_at="2026-02-01T00:00:00Z",
        hostname="box-renamed",
        hardware=make_hardware(cpu_name="new", gpus=(Gpu(vendor="amd", name="A"), Gpu(vendor="amd", name="B"))),
        environment=Environment(os="Debian 13"),
        build=make_build(backends=("CUDA", "CPU")),
        errors=("dmi: not readable",),
    )
    with open_store(store_url) as store:
        store.save_records([make_record()])
        store.save_fingerprint(upgraded)
        store.save_fingerprint(make_fingerprint())
        (host,) = store.hosts()
        assert [host[name] for name in ("host", "cpu_info", "gpu_info", "os", "backends", "errors")] == [
            "box-renamed", "new", "A, B", "Debian 13", "CUDA,CPU", '["dmi: not readable"]',
        ]  # fmt: skip
        assert store.results()[0]["cpu_info"] == "AMD Ryzen 9 5900X 12-Core Processor"


def test_host_names_are_kept_unharmed(store_url: str) -> None:
    awkward = ["bureau-été", "研究室-01", "O'Brien's box", 'robert"); DROP TABLE hosts;--', "BOX-A", "box-a"]
    names = [*awkward, "\u202egnp.exe", "x" * 300]
    with open_store(store_url, []) as store:
        for number, name in enumerate(names):
            store.save_fingerprint(make_fingerprint(host_uid=f"h{number}", hostname=name))
        assert {row["host"] for row in store.hosts()} == set(names)


def test_latest_has_the_newest_result_of_each_question_and_host(store_url: str) -> None:
    other = make_job(test=Test(n_prompt=0, n_gen=128))
    with open_store(store_url, [JOB, other]) as store:
        again = make_job(run_uid="run-2")
        store.save_run(make_run(run_uid="run-2"), [again])
        store.save_records(
            [
                make_record(again, attempt_uid="new", started_at="2026-03-01T00:00:00Z"),
                make_record(attempt_uid="old"),
                make_record(other, attempt_uid="other"),
            ]
        )
        assert len(store.results()) == 3
        assert [row["attempt_uid"] for row in store.results("run-2")] == ["new"]
        assert [row["attempt_uid"] for row in store.results(limit=1)] == ["new"]
        assert {row[0] for row in answers(store_url, "SELECT attempt_uid FROM latest")} == {"new", "other"}


def test_a_synthetic_model_is_named_as_asked_and_described_as_measured(store_url: str) -> None:
    with open_store(store_url) as store:
        store.save_records([make_record(model=make_model_facts(model_n_params=None))])
        (row,) = store.results()
    assert (row["model"], row["model_identity"]) == ("tiny:Q4_K_M", JOB.model.identity)
    assert (row["model_sha256"], row["model_synthetic"], row["model_n_params"]) == ("b" * 64, 1, None)


def test_ten_thousand_latencies_and_samples_fit(store_url: str) -> None:
    samples = make_samples(JOB.test, *range(1, 10_001))
    with open_store(store_url) as store:
        store.save_records([make_record(samples=samples, latency=make_latency())])
        assert count(store_url, "sample") == 10_000


def test_several_processes_that_store_the_same_records_in_any_order_make_one_row_of_each(blank_url: str) -> None:
    jobs = [make_job(replica=number) for number in range(20)]
    code = (
        "import random, sys\nfrom orchestrator.store import Store\n"
        "from tests.factories import make_fingerprint, make_job, make_record, make_run\n"
        "jobs = [make_job(replica=number) for number in range(20)]\n"
        "order = random.Random(int(sys.argv[2])).sample(jobs, len(jobs))\n"
        "with Store.open(sys.argv[1], create=True) as store:\n"
        "    store.save_run(make_run(), jobs)\n"
        "    store.save_fingerprint(make_fingerprint())\n"
        "    for job in order:\n"
        "        store.save_records([make_record(job)])\n"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", code, blank_url, str(seed)], cwd=ROOT, stderr=subprocess.PIPE)
        for seed in range(3)
    ]
    assert [(worker.communicate()[1], worker.returncode) for worker in workers] == [(b"", 0)] * 3
    with Store.open(blank_url) as store:
        assert store.jobs("run-1") == jobs
        assert len(store.results()) == 20
    expected = {"host": 1, "hardware": 1, "model": 2, "run": 1, "attempt": 20, "sample": 60, "condition": 20}
    assert {table: count(blank_url, table) for table in expected} == expected
    assert check(blank_url) == []


def test_whatever_was_acknowledged_before_a_kill_is_there_and_whole(store_url: str) -> None:
    jobs = [make_job(replica=number) for number in range(1000)]
    code = (
        "import sys\nfrom orchestrator.store import Store\nfrom tests.factories import make_job, make_record\n"
        "with Store.open(sys.argv[1]) as store:\n"
        "    for number in range(int(sys.argv[2]), 1000):\n"
        "        store.save_records([make_record(make_job(replica=number))])\n"
        "        print(number, flush=True)\n"
    )
    open_store(store_url, jobs).close()
    acknowledged: set[int] = set()
    for first in (0, 100, 200, 300):
        command = [sys.executable, "-c", code, store_url, str(first)]
        writer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        acknowledged |= {int(writer.stdout.readline()) for _ in range(5 + first // 20)}
        os.kill(writer.pid, signal.SIGKILL)
        acknowledged |= {int(line) for line in writer.stdout if line.endswith("\n")}
        writer.stdout.close()
        writer.wait()
    found = {row[0] for row in answers(store_url, "SELECT replica FROM results WHERE n_samples = 3")}
    assert acknowledged - found == set()
    assert count(store_url, "sample") == 3 * count(store_url, "attempt") == 3 * len(found)
    assert check(store_url) == []


def test_a_run_with_many_jobs_is_stored_and_read_back_in_order(store_url: str) -> None:
    jobs = [make_job(replica=number) for number in range(2000)]
    with open_store(store_url, jobs) as store:
        assert [job.replica for job in store.remaining_jobs("run-1")] == list(range(2000))
        assert set(store.next_numbers("run-1").values()) == {1}


def test_progress_counts_jobs_by_how_they_ended(store_url: str) -> None:
    jobs = [make_job(replica=number) for number in range(4)]
    with open_store(store_url, jobs) as store:
        store.save_records(
            [
                make_record(jobs[0]),
                make_record(jobs[1], failure=make_failure()),
                make_record(jobs[2], failure=INTERRUPTED),
            ]
        )
        (row,) = store.progress("run-1")
    assert [row[name] for name in ("n_jobs", "n_measured", "n_failed", "n_remaining")] == [4, 1, 1, 2]


def test_an_open_store_refuses_to_write_once_a_newer_tokfleet_has_upgraded_it(store_url: str) -> None:
    with open_store(store_url) as store:
        change(store_url, "UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(SchemaMismatchError, match="newer"):
            store.save_records([make_record()])
