"""A run over several hosts of a real Ray cluster on loopback, with the stand-in for llama.cpp, and its faults."""

import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command import Command
from tests.labs import Lab, lab_in, wait_for

pytestmark = pytest.mark.ray

SWEEP = """
name: lab
models: [{synthetic: "test-tiny:Q8_0"}]
tests: {n_prompt: [8, 16], n_gen: [4, 6]}
repeat: 3
"""
SLOW = {"TOKFLEET_STANDIN_TOKEN_SECONDS": "0.08"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, standin_python: str) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("lab")
    (directory / "sweep.yaml").write_text(SWEEP)
    with lab_in(directory, standin_python, "alpha", "beta", **SLOW) as found:
        yield found


@pytest.fixture
def command(lab: Lab) -> Command:
    return lab.command()


def sweep_of(lab: Lab) -> str:
    return str(lab.directory / "sweep.yaml")


def rows(command: Command, query: str) -> list[dict[str, object]]:
    try:
        return command.rows(query)
    except sqlite3.OperationalError:
        return []


def latest(command: Command) -> str:
    return str(command.rows("select run_uid from run order by id desc limit 1")[0]["run_uid"])


def n_final(command: Command) -> int:
    """Return how many jobs of the latest run are measured."""
    query = "select count(*) n from results where run_uid = (select run_uid from run order by id desc limit 1)"
    found = rows(command, query)
    return int(str(found[0]["n"])) if found else 0


def begun(command: Command, before: int) -> bool:
    """Return whether a run after the first `before` has been stored."""
    found = rows(command, "select count(*) n from run")
    return bool(found) and int(str(found[0]["n"])) > before


def no_doubles(command: Command, n_jobs: int) -> None:
    uid = latest(command)
    found = command.rows(
        "select j.job_uid, sum(a.final) n, max(a.number) most from attempt a join job j on j.id = a.job_id "
        f"join run r on r.id = j.run_id where r.run_uid = '{uid}' group by j.id"
    )
    assert len(found) == n_jobs
    assert {row["n"] for row in found} == {1}
    assert command.rows("pragma integrity_check") == [{"integrity_check": "ok"}]


def n_interrupted(command: Command) -> int:
    """Return how many attempts of the latest run were cut."""
    query = (
        "select count(*) n from attempt a join job j on j.id = a.job_id join run r on r.id = j.run_id "
        f"where r.run_uid = '{latest(command)}' and a.failure_stage = 'interrupted'"
    )
    return int(str(command.rows(query)[0]["n"]))


def journals(lab: Lab, name: str) -> list[str]:
    return [path.name for path in (lab.home(name) / "journal").glob("*.jsonl")]


def measures(lab: Lab, *names: str) -> bool:
    """Return whether each of these hosts is in the middle of an attempt."""
    return all(lab.workers(name) and is_in_the_middle(lab.home(name) / "journal") for name in names)


def is_in_the_middle(directory: Path) -> bool:
    events = [json.loads(line) for path in directory.glob("*.jsonl") for line in path.read_text().splitlines()]
    begun = {event["attempt_uid"] for event in events if event["event"] == "attempt_start"}
    return bool(begun - {event["record"]["attempt_uid"] for event in events if event["event"] == "attempt_end"})


def test_each_host_has_its_share_and_lines_that_are_piped_say_whose(lab: Lab, command: Command) -> None:
    end = command.run("run", sweep_of(lab))
    assert end.returncode == 0, end.stderr
    assert n_final(command) == 8
    found = command.rows("select host_uid, count(*) n, count(distinct test) tests from results group by host_uid")
    assert [(row["n"], row["tests"]) for row in found] == [(4, 4), (4, 4)]
    for host in ("alpha", "beta"):
        assert f"({host}): test-tiny:Q8_0 pp8: " in end.stderr
        assert journals(lab, host) == []
    assert "Measured 8 tests." in end.stdout
    no_doubles(command, 8)


def test_a_killed_ray_worker_costs_one_attempt(lab: Lab, command: Command) -> None:
    running = command.start("run", sweep_of(lab))
    wait_for(lambda: measures(lab, "beta"))
    lab.workers("beta")[0].send_signal(signal.SIGKILL)
    _, err = running.communicate(timeout=120)
    assert running.returncode == 0, err
    assert "(beta) is lost: " in err
    no_doubles(command, 8)
    assert n_interrupted(command) == 1


def test_a_host_that_dies_and_comes_back_under_a_new_node_id_goes_on(lab: Lab, command: Command) -> None:
    running = command.start("run", sweep_of(lab))
    wait_for(lambda: measures(lab, "beta"))
    lab.kill("beta")
    lab.start_host("beta", **SLOW)
    _, err = running.communicate(timeout=180)
    assert running.returncode == 0, err
    no_doubles(command, 8)
    assert n_interrupted(command) == 1
    assert journals(lab, "beta") == []


def test_ctrl_c_frees_both_hosts_and_resume_measures_the_rest(lab: Lab, command: Command) -> None:
    running = command.start("run", sweep_of(lab))
    wait_for(lambda: measures(lab, "alpha", "beta"))
    os.killpg(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert running.returncode == 130, err
    assert "Traceback" not in err
    wait_for(lambda: not lab.workers("alpha") and not lab.workers("beta"), seconds=10)
    end = command.run("resume")
    assert end.returncode == 0, end.stderr
    no_doubles(command, 8)


def test_a_killed_driver_loses_nothing(lab: Lab, command: Command) -> None:
    running = command.start("run", sweep_of(lab))
    wait_for(lambda: measures(lab, "alpha"))
    running.kill()
    running.communicate()
    wait_for(lambda: not lab.workers("alpha") and not lab.workers("beta"), seconds=60)
    end = command.run("resume")
    assert end.returncode == 0, end.stderr
    no_doubles(command, 8)


def test_plan_says_of_each_host_what_it_will_run_and_why_not(lab: Lab, command: Command, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text(
        SWEEP.replace('[{synthetic: "test-tiny:Q8_0"}]', '[{synthetic: "test-tiny:Q8_0"}, {path: no.gguf}]')
    )
    end = command.run("plan", str(sweep))
    assert end.returncode == 0, end.stderr
    assert end.stdout.count("There is no model file") == 2


def test_a_wrong_token_is_refused_in_words(lab: Lab, command: Command) -> None:
    end = command.run("run", sweep_of(lab), RAY_AUTH_TOKEN="b" * 64)
    assert end.returncode == 1
    assert "does not accept our token" in end.stderr, end.stderr


def test_no_token_and_no_head_are_said_at_once(lab: Lab, command: Command, tmp_path: Path) -> None:
    end = command.run("run", sweep_of(lab), RAY_AUTH_TOKEN="", HOME=str(tmp_path))
    assert end.returncode == 1
    assert "wants a token, and none is known here" in end.stderr, end.stderr
    end = command.run("run", sweep_of(lab), TOKFLEET_RAY_ADDRESS="127.0.0.1:9")
    assert end.returncode == 1
    assert "No Ray head answers at 127.0.0.1:9" in end.stderr


def test_a_host_that_comes_late_gets_its_share(lab: Lab, command: Command) -> None:
    longer = lab.directory / "longer.yaml"
    longer.write_text(SWEEP.replace("repeat: 3", "repeat: 40"))
    running = command.start("run", str(longer))
    wait_for(lambda: measures(lab, "alpha"))
    lab.start_host("gamma")
    _, err = running.communicate(timeout=180)
    lab.kill("gamma")  # the head takes it for alive for a while, so that no other test comes after this one
    assert running.returncode == 0, err
    no_doubles(command, 12)


@pytest.mark.cluster
@pytest.mark.long
def test_a_killed_head_ends_the_run_in_words_and_resume_measures_the_rest(lab: Lab, command: Command) -> None:
    longer = lab.directory / "longer.yaml"
    longer.write_text(SWEEP.replace("repeat: 3", "repeat: 100"))
    running = command.start("run", str(longer))
    wait_for(lambda: measures(lab, "alpha", "beta"))
    lab.kill_head()
    _, err = running.communicate(timeout=180)
    assert running.returncode == 1, err
    assert "The Ray head has not answered for 30 s" in err
    for name in ("alpha", "beta"):
        lab.kill(name)
    lab.start_head()
    for name in ("alpha", "beta"):
        lab.start_host(name)
        lab.wait_for_host(name)
    end = command.run("resume")
    assert end.returncode == 0, end.stderr
    no_doubles(command, 8)
