"""What takes long in a lab: hosts that are cut off, and hosts that are busy with all they have.

`make test-long` runs these by hand; what they printed is kept in docs/cluster-trials.md.
"""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.lab import Host, Lab
from tests.cluster.test_cluster_lab import (
    ADDRESS,
    BIN,
    assert_each_job_once,
    eventually,
    join,
    measuring,
    stop_all,
    sweep_text,
    up,
    written,
)

__all__ = ["up"]
pytestmark = [pytest.mark.cluster, pytest.mark.long]

N_CUTS = 5
KNOWN_SECONDS = 30.0
CUT_SECONDS = 300.0
BUSY_SECONDS = float(os.environ.get("TOKFLEET_BUSY_SECONDS", "600"))

ALIVE = """
import os, sys
os.environ["RAY_AUTH_MODE"] = "token"
from ray._raylet import GcsClient
from ray.core.generated.gcs_pb2 import GcsNodeInfo
nodes = GcsClient(address="head:6379").get_all_node_info(timeout=10).values()
print(*(node.node_manager_address for node in nodes if node.state == GcsNodeInfo.ALIVE))
"""


def alive(head: Host) -> set[str]:
    import sys

    return set(head.output(sys.executable, "-W", "ignore", "-c", ALIVE).split())


def test_a_host_that_is_cut_off_is_known_within_half_a_minute(up: Lab) -> None:
    seconds = []
    for _ in range(N_CUTS):
        eventually(lambda: up["cpu"].ip in alive(up["head"]), 60, "cpu is alive")
        up.cut("cpu")
        begun = time.monotonic()
        eventually(lambda: up["cpu"].ip not in alive(up["head"]), 90, "the head knows that cpu is gone")
        seconds.append(time.monotonic() - begun)
        up.heal("cpu")
        eventually(
            lambda: not up["cpu"].processes("raylet/raylet"), 60, "the raylet ends when it hears that it is dead"
        )
        up["cpu"].run(str(BIN / "ray"), "stop", "--force")
        join(up, "cpu")
    print("known after", ", ".join(f"{one:.1f} s" for one in seconds))
    assert max(seconds) <= KNOWN_SECONDS


def test_a_host_that_is_busy_with_all_threads_is_never_taken_for_lost(up: Lab) -> None:
    n_threads = 4 * (os.cpu_count() or 1)
    busy = [up["cpu"].start("sh", "-c", "while :; do :; done", timeout=BUSY_SECONDS) for _ in range(n_threads)]
    deadline = time.monotonic() + BUSY_SECONDS
    n_asked = 0
    while time.monotonic() < deadline - 10:
        assert up["cpu"].ip in alive(up["head"]), f"cpu was taken for lost at question {n_asked + 1}"
        n_asked += 1
        time.sleep(2)
    for process in busy:
        process.wait(timeout=60)
    print(f"asked {n_asked} times in {BUSY_SECONDS:g} s with {n_threads} busy threads: alive each time")


def test_a_link_that_is_cut_for_five_minutes_is_taken_up_again(up: Lab) -> None:
    path = written(up["head"], "faults.yaml", sweep_text(6, repeat=20))
    run: Any = measuring(up, path)
    up.cut("cpu")
    time.sleep(CUT_SECONDS)
    up.heal("cpu")
    eventually(lambda: not up["cpu"].processes("raylet/raylet"), 90, "the raylet has ended")
    up["cpu"].run(str(BIN / "ray"), "stop", "--force")
    join(up, "cpu")
    run.wait(timeout=600)
    done = up["head"].run("tokfleet", "resume", "--address", ADDRESS, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_each_job_once(up["head"], 12)


def test_a_link_that_is_cut_for_ever_ends_with_every_job_of_the_other_hosts(up: Lab) -> None:
    path = written(up["head"], "faults.yaml", sweep_text(6, repeat=20))
    run: Any = measuring(up, path)
    up.cut("cpu")
    run.wait(timeout=900)
    assert run.returncode in (1, 3), up["head"].log(run)
    up.heal("cpu")
    stop_all(up)
    assert Path(up["head"].home).is_dir()
