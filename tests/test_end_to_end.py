import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.command import Command, processes_of

pytestmark = pytest.mark.ray

SWEEP = """
name: small
models: [{synthetic: "test-tiny:Q8_0"}]
tests: {n_prompt: [8, 16], n_gen: [4, 6]}
repeat: 3
"""


@pytest.fixture
def command(tmp_path: Path, standin_python: str) -> Command:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return Command(tmp_path / "home", standin_python)


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def count(command: Command, table: str) -> int:
    """Return how many rows there are, 0 while there is no store yet."""
    try:
        return int(command.rows(f"select count(*) n from {table}")[0]["n"])
    except sqlite3.OperationalError:
        return 0


def sweep_of(command: Command) -> str:
    return str(command.home.parent / "sweep.yaml")


def test_a_sweep_goes_in_and_rows_and_a_readable_table_come_out(command: Command) -> None:
    end = command.run("run", sweep_of(command))
    assert end.returncode == 0, end.stderr
    rows = command.rows("select test, avg_ts, n_samples, host, model_filename, asked_n_threads, n_threads from results")
    assert sorted(row["test"] for row in rows) == ["pp16", "pp8", "tg4", "tg6"]
    assert all(row["avg_ts"] > 0 and row["n_samples"] == 3 for row in rows)
    assert all(row["asked_n_threads"] == "physical" and row["n_threads"] >= 1 for row in rows)
    assert "Measured 4 tests." in end.stdout
    assert str(command.home) in end.stdout
    assert "tokfleet sql" in end.stdout
    assert processes_of(command.home) == []
    assert list((command.home / "journal").iterdir()) == []


def test_running_the_same_file_again_is_a_new_run_and_resume_of_a_whole_one_does_nothing(command: Command) -> None:
    assert command.run("run", sweep_of(command)).returncode == 0
    assert command.run("run", sweep_of(command)).returncode == 0
    assert command.run("resume").returncode == 0
    assert command.rows("select count(*) n, count(distinct run_uid) runs from results") == [{"n": 8, "runs": 2}]
    assert command.rows("select count(*) n from attempt") == [{"n": 8}]
    assert command.rows("select distinct method from results") == [{"method": "fake"}]
    assert command.rows("select count(*) n from latest") == [{"n": 0}]


def test_a_job_that_aborts_is_a_failed_row_and_the_rest_is_measured(command: Command) -> None:
    end = command.run("run", sweep_of(command), TOKFLEET_FAULT="abort@decode#6")
    assert end.returncode == 3, end.stderr
    (failure,) = command.rows("select test, stage, signal, message, log_tail from failures")
    assert (failure["test"], failure["stage"], failure["signal"]) == ("tg6", "decode", "SIGABRT")
    assert "about to abort in decode" in failure["log_tail"]
    assert command.rows("select count(*) n from results") == [{"n": 3}]
    assert "failed: " in end.stdout


def test_everything_failing_ends_with_one(command: Command) -> None:
    end = command.run("run", sweep_of(command), TOKFLEET_FAULT="exit0@load")
    assert end.returncode == 1
    assert command.rows("select count(*) n from failures") == [{"n": 4}]


def test_ctrl_c_keeps_what_was_measured_and_resume_does_only_what_is_missing(command: Command) -> None:
    running = command.start("run", sweep_of(command), TOKFLEET_FAULT="hang@decode")
    wait_for(lambda: count(command, "results") == 2)
    os.killpg(running.pid, signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "Interrupted; 2 jobs are left" in err
    assert "Traceback" not in err
    assert "Measured 2 tests" in out
    (cut,) = command.rows("select status, final, failure_stage from attempt where status = 'failed'")
    assert (cut["final"], cut["failure_stage"]) == (0, "interrupted")
    assert processes_of(command.home) == []
    end = command.run("resume")
    assert end.returncode == 0, end.stderr
    assert command.rows("select count(*) n from results") == [{"n": 4}]
    assert command.rows("select count(*) n from attempt") == [{"n": 5}]


def test_the_measuring_process_descends_from_a_ray_worker_and_dies_with_the_raylet(command: Command) -> None:
    running = command.start("run", sweep_of(command), TOKFLEET_FAULT="hang@prefill")
    wait_for(lambda: _measuring(command))
    (child,) = _measuring(command)
    names = [" ".join(parent.cmdline()) for parent in child.parents()]
    assert names[0].startswith("ray::")
    assert "raylet" in names[1]
    psutil.Process(child.parents()[1].pid).send_signal(signal.SIGKILL)
    wait_for(lambda: not _measuring(command), seconds=15)
    running.kill()
    running.communicate()
    wait_for(lambda: not processes_of(command.home), seconds=30)
    assert command.run("resume").returncode == 0
    assert command.rows("select count(*) n from results") == [{"n": 4}]


def _measuring(command: Command) -> list[psutil.Process]:
    found = []
    for process in processes_of(command.home):
        try:
            if "worker.standin" in " ".join(process.cmdline()) and "--events" in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


MANY = """
name: many
models: [{synthetic: "test-tiny:Q8_0"}]
tests: {n_prompt: [8, 16, 24, 32], n_gen: [4, 6, 8, 10]}
params: {n_ubatch: [8, 16, 32, 64]}
repeat: 3
"""
N_KILLS = 20


def test_killed_and_interrupted_at_twenty_random_instants_nothing_is_lost_or_doubled(command: Command) -> None:
    Path(sweep_of(command)).write_text(MANY)
    log = command.home.parent / "acknowledged"
    log.touch()
    rng = random.Random(20)
    slow = {"TOKFLEET_STANDIN_LOG": str(log), "TOKFLEET_STANDIN_TOKEN_SECONDS": "0.004"}
    for kill in range(N_KILLS):
        started = bool(count(command, "job"))
        running = command.start(*(("resume",) if started else ("run", sweep_of(command))), **slow)
        number = signal.SIGKILL if kill % 2 else signal.SIGINT
        _let_run(running, command, rng.uniform(0, 1.5) if rng.random() < 0.3 else None, rng)
        _end(running, number)
        _, err = running.communicate(timeout=90)
        assert "Traceback" not in err, err
        # A raylet whose driver is killed while it starts gives up after 60 seconds without its head.
        wait_for(lambda: not processes_of(command.home), seconds=180)
    end = command.run("resume", TOKFLEET_STANDIN_LOG=str(log), timeout=600)
    assert end.returncode == 0, end.stderr
    _nothing_lost_or_doubled(command, log)


def _let_run(running: "subprocess.Popen[str]", command: Command, seconds: float | None, rng: random.Random) -> None:
    """Wait for a moment in the start-up, or until it measures and then a moment longer."""
    if seconds is not None:
        time.sleep(seconds)
        return
    wait_for(lambda: _measuring(command) or running.poll() is not None, seconds=90)
    time.sleep(rng.uniform(0, 2))


def _end(running: "subprocess.Popen[str]", number: signal.Signals) -> None:
    try:
        if number == signal.SIGINT:
            os.killpg(running.pid, number)
        else:
            running.send_signal(number)
    except ProcessLookupError:
        pass


def _nothing_lost_or_doubled(command: Command, log: Path) -> None:
    assert command.rows("pragma integrity_check") == [{"integrity_check": "ok"}]
    n_jobs = command.rows("select count(*) n from job")[0]["n"]
    finals = command.rows("select job_id, count(*) n from attempt where final group by job_id")
    assert len(finals) == n_jobs
    assert {row["n"] for row in finals} == {1}
    uids = [row["attempt_uid"] for row in command.rows("select attempt_uid from attempt")]
    assert len(uids) == len(set(uids))
    assert set(log.read_text().split()) <= set(uids)
    interrupted = command.rows("select final, failure_stage from attempt where status = 'failed'")
    assert interrupted, "no kill hit a measurement"
    assert all(row["failure_stage"] == "interrupted" and not row["final"] for row in interrupted)
    samples = command.rows("select attempt_id, count(*) n from sample group by attempt_id")
    assert max(row["n"] for row in samples) == 3
