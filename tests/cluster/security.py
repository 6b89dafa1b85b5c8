"""The table of docs/cluster.md: what answers whom in a lab, by trying it; `python -m tests.cluster.security` writes it.

A head and a host are started in namespaces of their own with the documented commands, and a third machine, which
is no host, knocks at each of their ports without a token, with a wrong one and with the right one.
"""

import concurrent.futures
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from orchestrator.bootstrap import CLIENT_PORT, DASHBOARD_PORT, HEAD_PORT, PORTS
from tests.cluster.lab import REPOSITORY, Host, Lab, lab, missing

DOCUMENT = REPOSITORY / "docs" / "cluster.md"
BEGIN, END = "<!-- security table: begin -->", "<!-- security table: end -->"
KNOCK = str(Path(__file__).with_name("knock.py"))
WRONG = "0" * 64
REFUSALS = ("401", "403", "UNAUTHENTICATED", "PERMISSION_DENIED")
STRANGER = "desk"
LISTENERS = (
    "import json; from worker.checkup import listeners_here; "
    "print(json.dumps([[one.ip, one.port] for one in listeners_here()[0]]))"
)


class Door(NamedTuple):
    """A port and a call that is tried there; `starts_work` says that it could make a program run."""

    what: str
    port: int
    call: str
    starts_work: bool = False


DOORS = (
    Door("head: list of hosts", HEAD_PORT, "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo"),
    Door("head: who are you", HEAD_PORT, "/ray.rpc.NodeInfoGcsService/GetClusterId"),
    Door("head: new actor", HEAD_PORT, "/ray.rpc.ActorInfoGcsService/RegisterActor!", True),
    Door("head: new job", HEAD_PORT, "/ray.rpc.JobInfoGcsService/AddJob!", True),
    Door("head: write its table", HEAD_PORT, "/ray.rpc.InternalKVGcsService/InternalKVPut!", True),
    Door("head: new host", HEAD_PORT, "/ray.rpc.NodeInfoGcsService/RegisterNode!", True),
    Door("raylet: figures", PORTS["node-manager-port"], "/ray.rpc.NodeManagerService/GetNodeStats"),
    Door("raylet: a worker", PORTS["node-manager-port"], "/ray.rpc.NodeManagerService/RequestWorkerLease!", True),
    Door("raylet: end", PORTS["node-manager-port"], "/ray.rpc.NodeManagerService/ShutdownRaylet!", True),
    Door("objects", PORTS["object-manager-port"], "/ray.rpc.ObjectManagerService/Push!", True),
    Door("worker: figures", PORTS["min-worker-port"], "/ray.rpc.CoreWorkerService/GetCoreWorkerStats!"),
    Door("worker: run a task", PORTS["min-worker-port"], "/ray.rpc.CoreWorkerService/PushTask!", True),
    Door("agent: health", PORTS["dashboard-agent-grpc-port"], "/ray.rpc.ReporterService/HealthCheck"),
    Door("agent: list logs", PORTS["dashboard-agent-grpc-port"], "/ray.rpc.LogService/ListLogs!"),
    Door("agent: profile", PORTS["dashboard-agent-grpc-port"], "/ray.rpc.ReporterService/CpuProfiling!", True),
    Door("agent: jobs", PORTS["dashboard-agent-listen-port"], "POST /api/job_agent/jobs/", True),
    Door("agent: page", PORTS["dashboard-agent-listen-port"], "GET /api/local_raylet_healthz"),
    Door("environments", PORTS["runtime-env-agent-port"], "POST /get_or_create_runtime_env", True),
    Door("metrics", PORTS["metrics-export-port"], "GET /metrics"),
    Door("Ray Client", CLIENT_PORT, "/ray.rpc.RayletDriver/ClusterInfo!", True),
    Door("dashboard: page", DASHBOARD_PORT, "GET /"),
    Door("dashboard: version", DASHBOARD_PORT, "GET /api/version"),
    Door("Jobs API: list", DASHBOARD_PORT, "GET /api/jobs/"),
    Door("Jobs API: submit", DASHBOARD_PORT, "POST /api/jobs/", True),
)


class Row(NamedTuple):
    """One line of the table."""

    what: str
    port: str
    seen_from: str
    none: str
    wrong: str
    right: str
    starts_work: bool


def started(hosts: Lab, host: str = "host") -> None:
    """Start `head` and `host` by the documented commands."""
    hosts["head"].output("tokfleet", "cluster", "token")
    hosts["head"].output("tokfleet", "cluster", "start", "--detach")
    for name in (host, STRANGER):
        done = hosts[name].shell("ssh head cat .ray/auth_token | tokfleet cluster token --stdin")
        assert done.returncode == 0, done.stderr
    hosts[host].output("tokfleet", "cluster", "join", "head", "--detach")
    hosts["head"].run("tokfleet", "cluster", "doctor", "--address", "head")  # so that each has a worker that listens


def token_of(host: Host) -> str:
    """Return the token as the host has it."""
    return (host.home / ".ray" / "auth_token").read_text()


def doors(hosts: Lab, host: str = "host") -> Iterator[Row]:
    """Knock at each port from elsewhere, at those on loopback alone from the machine itself; yield what came."""
    token = token_of(hosts["head"])
    host_ports, head_ports = _open_ports(hosts[host]), _open_ports(hosts["head"])
    for door in DOORS:
        name = host if door.port in host_ports and not door.what.startswith(("head", "Jobs", "dashboard")) else "head"
        ports = host_ports if name == host else head_ports
        port = _worker_port(ports) if door.port == PORTS["min-worker-port"] else door.port
        if port not in ports:
            yield Row(door.what, str(door.port), "-", "not open", "not open", "not open", door.starts_work)
            continue
        elsewhere = ports[port]
        asker, address = (hosts[STRANGER], hosts[name].ip) if elsewhere else (hosts[name], "127.0.0.1")
        answers = _knock(asker, address, port, token, door.call)
        seen = "everywhere" if elsewhere else "the machine itself"
        none, wrong, right = (said(answers[kind]) for kind in ("none", "wrong", "right"))
        yield Row(door.what, str(door.port), seen, none, wrong, right, door.starts_work)


def said(answer: str) -> str:
    """Return an answer as the table says it."""
    return f"refused ({answer})" if answer in REFUSALS else answer


def _open_ports(host: Host) -> dict[int, bool]:
    """Return the ports that are open there, and for each whether others reach it."""
    found: dict[int, bool] = {}
    for ip, port in json.loads(host.output(sys.executable, "-c", LISTENERS)):
        found[port] = found.get(port, False) or not ip.startswith(("127.", "::1"))
    return found


def _worker_port(ports: dict[int, bool]) -> int:
    workers = [port for port in ports if PORTS["min-worker-port"] <= port <= PORTS["max-worker-port"]]
    return workers[0] if workers else PORTS["min-worker-port"]


def _knock(asker: Host, address: str, port: int, token: str, call: str) -> dict[str, str]:
    answer = json.loads(asker.output(sys.executable, "-I", KNOCK, address, str(port), token, call))
    found: dict[str, str] = next(iter(answer.values()))
    return found


DRIVER = """
import logging, os, sys
import ray
try:
    ray.init(address="10.203.0.1:6379", logging_level=logging.CRITICAL, log_to_driver=False)
    print("accepted", ray.get(ray.remote(lambda: 1).options(num_cpus=0).remote(), timeout=30))
except Exception as error:
    print("refused", type(error).__name__)
"""


def actions(hosts: Lab, host: str = "host") -> Iterator[Row]:
    """Try what people do, without a token, with a wrong one and with the right one."""
    without = _attempt(hosts[STRANGER], ("tokfleet", "cluster", "start", "--detach"), "")
    yield Row("start a head", "", "", without, "-", "-", True)
    token = token_of(hosts["head"])
    tokens = {"none": "", "wrong": WRONG, "right": token}
    driver = DRIVER.replace("10.203.0.1", hosts["head"].ip)
    tried = {
        "join as a host": (STRANGER, ("tokfleet", "cluster", "join", "head", "--detach")),
        "be a driver": (host, (sys.executable, "-W", "ignore", "-c", driver)),
        "submit a job": ("head", (f"{Path(sys.executable).parent}/ray", "job", "submit", "--no-wait", "--", "true")),
    }
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for what, (name, command) in tried.items():
            if what == "submit a job" and DASHBOARD_PORT not in _open_ports(hosts["head"]):
                continue
            asked = {
                kind: pool.submit(_attempt, hosts[name], command, one)
                for kind, one in tokens.items()
                if kind != "right"
            }
            answers = {kind: one.result() for kind, one in asked.items()}
            answers["right"] = _attempt(hosts[name], command, token)
            if name == STRANGER:
                hosts[name].run(f"{Path(sys.executable).parent}/ray", "stop", "--force")
            yield Row(what, "", "", answers["none"], answers["wrong"], answers["right"], True)


def _attempt(host: Host, command: Sequence[str], token: str) -> str:
    variables = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": "/nonexistent/token",
        "RAY_ADDRESS": "http://127.0.0.1:8265",
    }
    if token:
        variables["RAY_AUTH_TOKEN"] = token
    if command[0] == "tokfleet" or "-c" in command:
        del variables["RAY_ADDRESS"]
    done = host.run(*command, timeout=90, **variables)
    if done.stdout.startswith("refused") or done.returncode:
        return "refused"
    return "accepted"


def table(rows: Sequence[Row]) -> list[str]:
    """Return the rows as Markdown."""
    lines = ["| what | port | reached from | no token | wrong token | right token |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join((f'**{row.what}**' if row.starts_work else row.what, *row[1:6]))} |" for row in rows]
    return [*lines, "", "**Bold** is what could make a program run. `not tried`: an empty message would do harm there."]


def written(lines: Sequence[str]) -> str:
    """Return the document with `lines` in the place of its table."""
    text = DOCUMENT.read_text(encoding="utf-8")
    block = "\n".join([BEGIN, *lines, END])
    return re.sub(f"{re.escape(BEGIN)}.*{re.escape(END)}", lambda _: block, text, flags=re.DOTALL)


def main() -> int:
    """Write the table into the document."""
    if lacks := missing():
        print("\n".join(lacks), file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, lab(Path(folder), ("head", "host", STRANGER)) as hosts:
        started(hosts)
        rows = [*actions(hosts), *doors(hosts)]
    DOCUMENT.write_text(written(table(rows)), encoding="utf-8")
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
