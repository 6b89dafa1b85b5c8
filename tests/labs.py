"""A lab on this machine's loopback: a real Ray head and real hosts, each with its own home, lock and environment."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from orchestrator.bootstrap import environment
from tests.command import Command

TOKEN = "a" * 64
RAY = str(Path(sys.executable).with_name("ray"))
ANY_PORT = ("node-manager", "object-manager", "dashboard-agent-listen", "dashboard-agent-grpc", "runtime-env-agent")


class Lab:
    """Started by `lab_in`; hosts are named by their labels."""

    def __init__(self, directory: Path, python: str) -> None:
        self.directory, self.python = directory, python
        self.sockets = Path(tempfile.mkdtemp(prefix="lab-", dir="/tmp"))
        self.address = f"127.0.0.1:{free_port()}"
        self.head: subprocess.Popen[bytes] | None = None
        self.hosts: dict[str, subprocess.Popen[bytes]] = {}
        self._variables_of: dict[str, dict[str, str]] = {}

    def start_head(self) -> None:
        """Start the head and wait until it answers."""
        host, _, port = self.address.partition(":")
        options = {"node-ip-address": host, "port": port, "num-cpus": "0", "include-dashboard": "false"}
        self.head = self._ray("head", {**options, "temp-dir": str(self.sockets)}, "--head")
        wait_for(lambda: answers(host, int(port)))

    def start_host(self, name: str, **variables: str) -> None:
        """Start a host that measures with the stand-in; it joins some seconds later."""
        options = {
            "address": self.address,
            "node-ip-address": "127.0.0.1",
            "num-cpus": "1",
            "resources": '{"bench_slot": 1}',
            "labels": f"host={name}",
            "object-store-memory": "80000000",
            **{f"{what}-port": "0" for what in ANY_PORT},
        }
        self._variables_of[name] = variables
        self.hosts[name] = self._ray(name, options, **variables)

    def wait_for_host(self, name: str) -> None:
        """Return when the host that was started last under this name has joined; it is started again as need be."""

        def joined() -> bool:
            if self.hosts[name].poll() is not None:  # Ray gives up on a node that takes more than half a minute
                self.start_host(name, **self._variables_of[name])
            return "Ray runtime started" in (self.home(name) / "ray.log").read_text()

        wait_for(joined, seconds=240)

    def home(self, name: str) -> Path:
        """Return the home of a host, or of the head, where the store is."""
        return self.directory / name

    def command(self) -> Command:
        """Return `tokfleet` as it is run on the head."""
        return Command(
            self.home("head"),
            environment={**self._variables(), "TOKFLEET_RAY_ADDRESS": self.address, "TOKFLEET_PYTHON": ""},
        )

    def raylet(self, name: str) -> psutil.Process:
        """Return the raylet of a host."""
        return next(p for p in self._processes(self.hosts[name]) if p.name() == "raylet")

    def workers(self, name: str) -> list[psutil.Process]:
        """Return the Ray workers of a host that run a group."""
        found = []
        for process in self._processes(self.hosts[name]):
            with contextlib.suppress(psutil.Error):
                if any("_measure_group" in word for word in process.cmdline()):
                    found.append(process)
        return found

    def kill(self, name: str) -> None:
        """Take a host's power away: all of it dies at once."""
        self._end(self.hosts.pop(name))

    def kill_head(self) -> None:
        """Take the head's power away."""
        if self.head is not None:
            self._end(self.head)
            self.head = None

    def stop(self) -> None:
        """End everything, and leave nothing behind."""
        for name in list(self.hosts):
            self.kill(name)
        self.kill_head()
        shutil.rmtree(self.sockets, ignore_errors=True)

    def _variables(self) -> dict[str, str]:
        return {"RAY_AUTH_TOKEN": TOKEN}

    def _ray(self, name: str, options: dict[str, str], *flags: str, **variables: str) -> "subprocess.Popen[bytes]":
        home = self.home(name)
        home.mkdir(exist_ok=True)
        own = {"TOKFLEET_HOME": str(home), "TOKFLEET_PYTHON": self.python, "TOKFLEET_LOCK": f"{home}.lock"}
        with (home / "ray.log").open("wb") as log:
            return subprocess.Popen(
                [RAY, "start", "--block", *flags, *(f"--{option}={value}" for option, value in options.items())],
                env=os.environ | environment("Linux") | self._variables() | own | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _processes(self, root: "subprocess.Popen[bytes]") -> list[psutil.Process]:
        try:
            process = psutil.Process(root.pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _end(self, root: "subprocess.Popen[bytes]") -> None:
        processes = self._processes(root)
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        root.wait()
        psutil.wait_procs(processes, timeout=20)


@contextlib.contextmanager
def lab_in(directory: Path, python: str, *hosts: str, **variables: str) -> Iterator[Lab]:
    """Run a lab with a head and these hosts for the length of the block."""
    lab = Lab(directory, python)
    try:
        lab.start_head()
        for host in hosts:  # one after another, since each takes some seconds of CPU
            lab.start_host(host, **variables)
            lab.wait_for_host(host)
        yield lab
    finally:
        lab.stop()


def wait_for(condition: Callable[[], object], seconds: float = 90.0) -> None:
    """Return when the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def free_port() -> int:
    """Return a port at which nothing listens now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(host: str, port: int) -> bool:
    """Return whether something listens there."""
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True
