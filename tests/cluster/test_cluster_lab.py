"""Three hosts and a person's machine, in namespaces: the documented commands, a real sweep, and faults.

Rows and states are asserted, never rates or quality: all hosts share this machine's cores.
"""

import json
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import HOME, REPOSITORY, Host, Lab

pytestmark = pytest.mark.cluster

BIN = Path(sys.executable).parent
DOCUMENT = (REPOSITORY / "docs" / "cluster.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- run on: (\w+) -->\n```sh\n(.*?)```", DOCUMENT, re.DOTALL)
RAY_WORDS = ("gcs_server", "raylet", "ray::", "dashboard", "monitor.py", "default_worker", "agent.py", "log_monitor")
ADDRESS = "head:6379"
FAILURES = "select host, test, stage, failure_kind, message, final from failures"


def gone(hosts: Lab, names: Sequence[str], seconds: float) -> None:
    """Wait until no process of Ray is left on the hosts called `names`; AssertionError with those that are."""
    deadline = time.monotonic() + seconds
    while left := {name: found for name in names if (found := ray_processes(hosts[name]))}:
        assert time.monotonic() < deadline, left
        time.sleep(0.5)


def eventually(is_true: Callable[[], Any], seconds: float, what: str) -> Any:
    """Return the first true value; AssertionError with `what` where there is none in time."""
    deadline = time.monotonic() + seconds
    while not (found := is_true()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.5)
    return found


def ray_processes(host: Host) -> dict[int, str]:
    return {pid: line for pid, line in host.processes().items() if any(word in line for word in RAY_WORDS)}


def stop_all(hosts: Lab) -> None:
    for host in hosts.hosts.values():
        if ray_processes(host):
            host.run(str(BIN / "ray"), "stop", "--force", timeout=60)


def rows(head: Host, query: str) -> list[dict[str, Any]]:
    """Return the rows of a question to the head's database, read from outside and without our code."""
    path = head.home / ".local" / "share" / "tokfleet" / "tokfleet.sqlite"
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in connection.execute(query)]
    finally:
        connection.close()


def written(host: Host, name: str, text: str) -> str:
    """Write a file into the host's home and return its path there."""
    (host.home / name).write_text(text)
    return str(HOME / name)


def bring_token(hosts: Lab, *names: str) -> None:
    hosts["head"].output("tokfleet", "cluster", "token")
    for name in names:
        done = hosts[name].shell("ssh head cat .ray/auth_token | tokfleet cluster token --stdin")
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def up(hosts: Lab) -> Iterator[Lab]:
    """Return the lab with its head (which only coordinates) and both hosts joined by hand."""
    stop_all(hosts)
    bring_token(hosts, "cpu", "gpu")
    hosts["head"].output("tokfleet", "cluster", "start", "--no-measure", "--detach")
    join(hosts, "cpu")
    join(hosts, "gpu")
    yield hosts
    stop_all(hosts)


def join(hosts: Lab, name: str) -> None:
    gpus = ("--gpus", "1") if name == "gpu" else ()
    hosts[name].output("tokfleet", "cluster", "join", "head", "--detach", *gpus)


def test_the_manual_is_followed_word_for_word_from_nothing_to_a_result_of_two_hosts(hosts: Lab) -> None:
    assert [where for where, _ in BLOCKS] == ["head", "hosts", "head"]
    for where, block in BLOCKS:
        host = hosts["head" if where == "head" else "cpu"]
        for line in block.strip().splitlines():
            done = host.shell(line, timeout=300)
            assert done.returncode == 0, f"{line} on {host.name}:\n{done.stdout}{done.stderr}"
    measured = rows(hosts["head"], "select host, test, avg_ts from results order by host, test")
    assert [(row["host"], row["test"]) for row in measured] == [
        (name, test) for name in ("cpu", "head") for test in ("pp128", "tg32")
    ]
    assert all(row["avg_ts"] > 0 for row in measured)
    assert not rows(hosts["head"], FAILURES)
    stop_all(hosts)
    gone(hosts, ("head", "cpu"), 30)


def test_a_host_is_refused_in_words_before_ray_is_started(hosts: Lab) -> None:
    (hosts["desk"].home / ".ray").mkdir(exist_ok=True)
    nothing = hosts["desk"].run("tokfleet", "cluster", "join", "head")
    assert nothing.returncode == 1
    assert "needs the lab's token" in nothing.stderr
    bare = hosts["desk"].run("tokfleet", "cluster", "start", RAY_AUTH_MODE="disabled")
    assert bare.returncode == 1
    assert "needs the lab's token" in bare.stderr
    assert not ray_processes(hosts["desk"])


def cluster_yaml(hosts: Lab) -> str:
    """Return cluster.yaml with what is marked HERE changed, as a person does it."""
    text = (REPOSITORY / "cluster.yaml").read_text(encoding="utf-8")
    for old, new in (
        ("head_ip: 10.0.0.1", f"head_ip: {hosts['head'].ip}"),
        ("- 10.0.0.2", f"- {hosts['cpu'].ip}"),
        ("- 10.0.0.3", f"- {hosts['gpu'].ip}"),
        ("ssh_user: bench", "ssh_user: root"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def test_ray_up_makes_the_lab_and_ray_down_leaves_nothing(hosts: Lab, model_on_cpu: str) -> None:
    for name in ("head", "cpu", "gpu"):
        environment = hosts[name].home / "tokfleet" / ".venv"
        environment.parent.mkdir(exist_ok=True)
        if not environment.exists():
            environment.symlink_to(sys.prefix)  # an environment that is there is left alone
    (hosts["gpu"].home / ".profile").write_text("export TOKFLEET_GPUS=1\n")
    desk = hosts["desk"]
    path = written(desk, "cluster.yaml", cluster_yaml(hosts))
    desk.output("tokfleet", "cluster", "token", "--new")
    done = desk.run(str(BIN / "ray"), "up", "-y", path, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    head = hosts["head"]
    eventually(lambda: n_alive(head) == 3, 180, "all three hosts are in the lab")
    doctor = head.run("tokfleet", "cluster", "doctor", "--address", "head", "--expect", path_on(head, path, desk))
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert_real_sweep(head, model_on_cpu)
    down = desk.run(str(BIN / "ray"), "down", "-y", path, timeout=200)
    assert down.returncode == 0, down.stdout + down.stderr
    gone(hosts, ("head", "cpu", "gpu"), 100)


def path_on(host: Host, path: str, source: Host) -> str:
    name = Path(path).name
    (host.home / name).write_bytes((source.home / name).read_bytes())
    return str(HOME / name)


def n_alive(head: Host) -> int:
    done = head.run("tokfleet", "cluster", "doctor", "--address", "head", "--format", "json", "--all", timeout=120)
    reach = [one for one in json.loads(done.stdout or "[]") if one["check"] == "reach"]
    found = re.search(r"(\d+) hosts are alive", reach[0]["found"]) if reach else None
    return int(found[1]) if found else 0


def assert_real_sweep(head: Host, model: str) -> None:
    """Run a sweep of the real model, which one host has, and of one that all can build; assert its rows."""
    text = f"""
name: real
models:
  - path: {model}
  - synthetic: test-tiny:Q8_0
tests: {{n_prompt: 64, n_gen: 16}}
params: {{n_gpu_layers: 0}}
repeat: 3
"""
    path = written(head, "real.yaml", text)
    done = head.run("tokfleet", "run", path, "--address", ADDRESS, "--yes", timeout=400)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    measured = rows(head, "select host, model, test from results order by host, model, test")
    found = {(row["host"], "tiny" if "tiny" in row["model"] else "real", row["test"]) for row in measured}
    tests = ("pp64", "tg16")
    assert found >= {(name, "tiny", test) for name in ("cpu", "gpu") for test in tests}
    assert found >= {("cpu", "real", test) for test in tests}
    assert ("gpu", "real", "pp64") not in found
    assert not rows(head, f"{FAILURES} where run_name = 'real'")


def sweep_text(n_jobs: int, repeat: int = 3) -> str:
    prompts = ", ".join(str(16 + number) for number in range(n_jobs))
    return f"name: faults\nmodels:\n  - synthetic: test-tiny:Q8_0\ntests: {{n_prompt: [{prompts}]}}\nrepeat: {repeat}\n"


def n_attempts(head: Host) -> int:
    try:
        return int(rows(head, "select count(*) as n from attempt")[0]["n"])
    except sqlite3.OperationalError:  # it is being made
        return 0


def assert_each_job_once(head: Host, n_jobs: int) -> None:
    """Assert that each job of the latest run has exactly one final attempt, and that no attempt is there twice."""
    finals = rows(
        head,
        "select job_uid, sum(final) as n from job join attempt on attempt.job_id = job.id"
        " where run_id = (select max(id) from run) group by job_uid",
    )
    assert [one["n"] for one in finals] == [1] * n_jobs, finals
    assert not rows(head, "select attempt_uid from attempt group by attempt_uid having count(*) > 1")
    failed = (
        "select attempt_uid from attempt join job on job.id = job_id"
        " where run_id = (select max(id) from run) and final and status != 'measured'"
    )
    assert not rows(head, failed)


FAULTS: dict[str, Callable[[Lab], Any]] = {
    "the measuring process is killed": lambda hosts: hosts["cpu"].kill("-m worker", "--events"),
    "the worker of Ray is killed": lambda hosts: hosts["cpu"].kill("ray::", "measure"),
    "the raylet is killed": lambda hosts: hosts["cpu"].kill("raylet/raylet"),
}


def measuring(hosts: Lab, path: str) -> Any:
    """Start a sweep at the head and return it once `cpu` measures."""
    run = hosts["head"].start("tokfleet", "run", path, "--address", ADDRESS, "--yes", timeout=400)
    eventually(
        lambda: hosts["cpu"].processes("-m worker", "--events") or run.poll() is not None,
        120,
        f"cpu measures\n{hosts['head'].log(run)}",
    )
    return run


@pytest.mark.parametrize("fault", FAULTS)
def test_a_process_that_is_killed_costs_no_job(up: Lab, fault: str) -> None:
    path = written(up["head"], "faults.yaml", sweep_text(6, repeat=20))
    run = measuring(up, path)
    assert eventually(lambda: FAULTS[fault](up), 60, "there is something to kill")
    if "raylet" in fault:
        eventually(lambda: not up["cpu"].processes("raylet/raylet"), 30, "the raylet is gone")
        up["cpu"].run(str(BIN / "ray"), "stop", "--force")
        join(up, "cpu")
    run.wait(timeout=400)
    log = up["head"].log(run)
    if "measuring" in fault:
        assert run.returncode == 3, log  # one failed row, and all others
        failed = rows(up["head"], "select * from attempt where status = 'failed'")
        assert failed, log
    else:
        assert run.returncode == 0, log
        assert_each_job_once(up["head"], 12)


def test_a_link_that_is_cut_for_five_seconds_costs_nothing(up: Lab) -> None:
    path = written(up["head"], "faults.yaml", sweep_text(6, repeat=20))
    run = measuring(up, path)
    up.cut("cpu")
    time.sleep(5)
    up.heal("cpu")
    run.wait(timeout=400)
    assert run.returncode == 0, up["head"].log(run)
    assert_each_job_once(up["head"], 12)


def test_a_driver_that_is_killed_is_resumed(up: Lab) -> None:
    path = written(up["head"], "faults.yaml", sweep_text(6, repeat=20))
    run = measuring(up, path)
    before = n_attempts(up["head"])
    eventually(lambda: n_attempts(up["head"]) > before or run.poll() is not None, 120, "something is stored")
    up["head"].kill("tokfleet", "run", "faults.yaml")
    run.wait(timeout=30)
    done = up["head"].run("tokfleet", "resume", "--address", ADDRESS, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_each_job_once(up["head"], 12)


def test_a_head_that_is_killed_is_started_again_and_the_run_resumed(up: Lab) -> None:
    path = written(up["head"], "faults.yaml", sweep_text(6, repeat=20))
    run = measuring(up, path)
    up["head"].kill("gcs_server")
    run.wait(timeout=200)
    assert run.returncode not in (0, None), up["head"].log(run)
    for name in ("head", "cpu", "gpu"):
        up[name].run(str(BIN / "ray"), "stop", "--force", timeout=60)
    up["head"].output("tokfleet", "cluster", "start", "--no-measure", "--detach")
    join(up, "cpu")
    join(up, "gpu")
    done = up["head"].run("tokfleet", "resume", "--address", ADDRESS, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_each_job_once(up["head"], 12)
