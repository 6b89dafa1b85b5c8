"""The stand-in ships with the product, and nobody can take its rows for measurements."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.store import Store
from schema.host import Allocation, Hardware
from tests.command import Command
from tests.factories import make_build, make_fingerprint, make_job, make_record, make_run
from tests.stores import answers_of, new_store
from worker.fingerprint.take import n_threads_all, n_threads_physical

ROOT = Path(__file__).parents[1]
FAKE = make_build(binding="stand-in", method="fake")


def test_it_says_that_it_is_none() -> None:
    command = [sys.executable, "-m", "worker.standin", "--build"]
    environment = os.environ | {"TOKFLEET_FAULT": ""}
    build = json.loads(subprocess.check_output(command, cwd=ROOT, env=environment))["build"]
    assert (build["method"], build["binding"], build["llama_cpp_commit"]) == ("fake", "stand-in", None)


def test_its_rows_are_marked_in_results_and_never_among_the_latest(tmp_path: Path) -> None:
    with Store.open(str(new_store(tmp_path))) as store:
        for number, build in enumerate((make_build(), FAKE, None), 1):
            job = make_job(run_uid=f"run-{number}")
            store.save_run(make_run(run_uid=job.run_uid), [job])
            if build is not None:
                store.save_fingerprint(make_fingerprint(build=build))
            build_id = build.build_id if build else None
            at = f"2026-03-0{number}T00:00:00Z"
            store.save_records([make_record(job, attempt_uid=f"a{number}", build_id=build_id, started_at=at)])
        methods = {row["attempt_uid"]: row["method"] for row in store.results()}
        latest = {row[0] for row in answers_of(store.database, "SELECT attempt_uid FROM latest")}
    assert methods == {"a1": "llama-cpp-python", "a2": "fake", "a3": None}
    assert latest == {"a1", "a3"}


@pytest.mark.parametrize(("n_cpus", "quota", "expected"), [(4, None, 4), (4, 2.5, 2), (1, None, 1), (64, None, 12)])
def test_no_more_threads_than_the_allowed_cpus(n_cpus: int, quota: float | None, expected: int) -> None:
    hardware = Hardware(arch="x86_64", n_cores_physical=12, n_cores_logical=24)
    host = make_fingerprint(hardware=hardware, allocation=Allocation(n_cpus=n_cpus, cpu_quota_cores=quota))
    assert n_threads_physical(host) == expected
    assert n_threads_all(host) == min(24, n_cpus, int(quota or 24))


@pytest.mark.ray
def test_a_fault_by_hand_ends_as_a_failed_row_beside_measured_ones(tmp_path: Path, standin_python: str) -> None:
    command = Command(tmp_path / "home", standin_python)
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("name: faults\nmodels: [{synthetic: 'test-tiny:Q8_0'}]\ntests: {n_gen: [4, 6]}\nrepeat: 3\n")
    end = command.run("run", str(sweep), TOKFLEET_FAULT="abort@decode:2#4")
    assert end.returncode == 3, end.stderr
    (failure,) = command.rows("select test, stage, failure_kind, n_samples, method from failures")
    assert failure == {"test": "tg4", "stage": "decode", "failure_kind": "abort", "n_samples": 1, "method": "fake"}
    assert command.rows("select test, method from results") == [{"test": "tg6", "method": "fake"}]
    assert command.rows("select count(*) n from latest") == [{"n": 0}]
    assert "fake" in end.stdout
    shown = command.run("results")
    assert "fake" in shown.stdout
