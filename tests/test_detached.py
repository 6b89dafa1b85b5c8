"""A real head with its dashboard, asked from a machine that has only the token: runs go on without who began them."""

import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.command import Command, processes_of
from worker.lock import peek

pytestmark = pytest.mark.ray

QUICK = "name: quick\nmodels: [{synthetic: 'test-tiny:Q8_0'}]\ntests: {n_prompt: 8, n_gen: [4, 6]}\nrepeat: 2\n"
LONG = "name: long\nmodels: [{synthetic: 'test-tiny:Q8_0'}]\ntests: {n_prompt: 8, n_gen: 3000}\nrepeat: 2\n"

Head = tuple["subprocess.Popen[bytes]", str]


@dataclass(frozen=True)
class Lab:
    """One machine that is head and host, and a `Command` of a machine outside."""

    home: Path
    url: str
    outside: Command
    lock: Path

    def n(self, query: str) -> int:
        """Return the number that a question to the head's database has as its answer; 0 while there is none."""
        try:
            with sqlite3.connect(f"file:{self.home / 'tokfleet.sqlite'}?mode=ro", uri=True) as connection:
                return int(connection.execute(query).fetchone()[0])
        except sqlite3.OperationalError:
            return 0

    def ask(self, *arguments: str, status: int = 0, **variables: Any) -> "subprocess.CompletedProcess[str]":
        """Run a command outside and expect its exit status."""
        done = self.outside.run(*arguments, TOKFLEET_RAY_ADDRESS=self.url, **variables)
        assert done.returncode == status, done.stdout + done.stderr
        return done


def wait_for(condition: Callable[[], object], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def free_ports(n: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, standin_python: str) -> Iterator[Lab]:
    """Yield a lab of one machine, with a token, whose stand-in takes 20 ms for a token."""
    base = tmp_path_factory.mktemp("lab")
    binaries = Path(sys.executable).parent
    variables = {
        "PATH": f"{binaries}:{os.environ['PATH']}",
        "HOME": str(base),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
    }
    own = {
        "TOKFLEET_HOME": str(base / "home"),
        "TOKFLEET_LOCK": str(base / "host.lock"),
        "TOKFLEET_PYTHON": standin_python,
        "TOKFLEET_STANDIN_TOKEN_SECONDS": "0.02",
        "RAY_worker_niceness": "0",
        "RAY_raylet_start_wait_time_s": "150",
    }
    with tempfile.TemporaryDirectory(prefix="tf-", dir="/tmp", ignore_cleanup_errors=True) as short:
        head, url = started_head(binaries / "ray", Path(short), base / "ray.log", os.environ | variables | own)
        try:
            yield Lab(base / "home", url, Command(base / "outside", environment=variables), base / "host.lock")
        finally:
            end(head, base / "home")


def started_head(ray: Path, short: Path, log: Path, environment: dict[str, str]) -> Head:
    """Return a head that answers and the URL of its dashboard."""
    port, dashboard = free_ports(2)
    command = [
        *(str(ray), "start", "--head", "--block", "--disable-usage-stats", f"--temp-dir={short}"),
        *(f"--port={port}", "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1"),
        *(f"--dashboard-port={dashboard}", "--num-cpus=1", "--object-store-memory=100000000"),
        *('--resources={"bench_slot": 1}', "--labels=host=lab-a,rack=b"),
    ]
    with log.open("wb") as told:
        head = subprocess.Popen(command, env=environment, stdout=told, stderr=told, start_new_session=True)
    wait_for(lambda: head.poll() is not None or b"monitored and a message" in log.read_bytes(), seconds=180)
    assert head.poll() is None, log.read_text()
    return head, f"http://127.0.0.1:{dashboard}"


def end(head: "subprocess.Popen[bytes]", home: Path) -> None:
    head.send_signal(signal.SIGTERM)
    head.wait(90)
    for process in processes_of(home):
        process.kill()


def submitted(lab: Lab, tmp_path: Path, text: str) -> str:
    """Hand a sweep over and return the run's uid."""
    path = tmp_path / "sweep.yaml"
    path.write_text(text)
    return lab.ask("submit", str(path)).stdout.strip()


def test_a_submitted_run_is_measured_by_the_head_and_seen_from_outside(lab: Lab, tmp_path: Path) -> None:
    uid = submitted(lab, tmp_path, QUICK)
    assert len(uid) == 32
    watched = lab.ask("status", uid[:8], "--watch", "--format", "jsonl")
    last = json.loads(watched.stdout.splitlines()[-1])
    assert (last["run_uid"], last["n_jobs"], last["n_measured"], last["n_remaining"]) == (uid, 3, 3, 0)
    assert lab.n(f"select count(*) from results where run_uid = '{uid}'") == 3
    said = lab.ask("logs", uid[:8]).stdout
    assert f"Run {uid} begins: 3 jobs." in said
    assert "Measured 3 tests." in said
    assert not (lab.outside.home / "tokfleet.sqlite").exists()
    (host,) = json.loads(lab.ask("hosts", "--format", "json").stdout)
    assert (host["state"], host["labels"]) == ("free", {"rack": "b"})


def test_a_cancelled_run_frees_its_host_keeps_what_it_has_and_goes_on_when_asked(lab: Lab, tmp_path: Path) -> None:
    uid = submitted(lab, tmp_path, LONG)
    of_run = f"from attempt join job on job.id = attempt.job_id join run on run.id = job.run_id where run_uid = '{uid}'"
    wait_for(lambda: lab.n(f"select count(*) {of_run}") == 1 and peek(lab.lock))
    refused = lab.ask("resume", uid[:8], status=1)
    assert "is being measured already" in refused.stderr
    cancelled = lab.ask("cancel", uid[:8])
    assert peek(lab.lock) is None
    assert "Interrupted; 1 jobs are left." in cancelled.stdout
    assert lab.n(f"select count(*) {of_run} and final") == 1
    assert lab.n(f"select count(*) {of_run} and failure_stage = 'interrupted' and not final") == 1
    lab.ask("resume", uid[:8])
    wait_for(lambda: peek(lab.lock))
    lab.ask("cancel", uid[:8])
    assert peek(lab.lock) is None
    assert lab.n(f"select count(*) from (select attempt_uid {of_run} group by attempt_uid having count(*) > 1)") == 0


def test_who_has_no_token_or_a_wrong_one_is_told_so_in_a_line(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "sweep.yaml").write_text(QUICK)
    for arguments in (["submit", str(tmp_path / "sweep.yaml")], ["logs"], ["cancel", "x"], ["status"]):
        for token, says in (("", "wants a token, and none is known here"), ("w" * 64, "does not accept our token")):
            told = lab.ask(*arguments, status=1, RAY_AUTH_TOKEN=token).stderr
            assert says in told
            assert len(told.splitlines()) == 1
