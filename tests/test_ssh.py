"""A machine that is behind ssh alone: a real sshd on loopback, whose user has nothing of ours."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchestrator import on_host
from schema.errors import ClusterError
from schema.job import ModelRef
from schema.lab_host import Launcher
from tests.supervised import DECODE, PREFILL, group_of, records
from worker import far
from worker.group import Errand
from worker.launcher import ask, measure

SSHD = shutil.which("sshd", path=f"/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}")

pytestmark = pytest.mark.skipif(SSHD is None or shutil.which("ssh") is None, reason="no sshd is installed here")


@dataclass(frozen=True)
class Sshd:
    """A running sshd: its process, and a launcher to it."""

    process: "subprocess.Popen[bytes]"
    launcher: Launcher
    home: Path

    def far_processes(self) -> list[psutil.Process]:
        """Return what it runs, sessions of its own and what was started in them."""
        found = []
        for process in psutil.process_iter():
            try:
                ours = process.environ().get("TOKFLEET_LOCK") == str(self.home / "lock")
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.far_processes() and time.monotonic() < deadline:
            time.sleep(0.1)
        return not self.far_processes()


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    keys, home = tmp_path / "keys", tmp_path / "far"
    keys.mkdir(mode=0o700)
    home.mkdir()
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(keys / name)], check=True)
    (keys / "authorized").write_text((keys / "user.pub").read_text())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = {"TOKFLEET_LOCK": home / "lock", "TOKFLEET_STANDIN_TOKEN_SECONDS": "0.01", "XDG_CACHE_HOME": home}
    (keys / "config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/authorized\n"
        "StrictModes no\nUsePAM no\nPidFile none\nPasswordAuthentication no\n"
        f"SetEnv {' '.join(f'{name}={value}' for name, value in variables.items())}\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    assert SSHD is not None
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(keys / "config")], stderr=subprocess.DEVNULL)
    options = ("BatchMode=yes", "StrictHostKeyChecking=no", f"UserKnownHostsFile={keys}/known", "LogLevel=ERROR")
    words = [
        "ssh",
        "-p",
        str(port),
        "-i",
        str(keys / "user"),
        *(word for o in options for word in ("-o", o)),
        "127.0.0.1",
    ]
    launcher = Launcher(
        host="mac", command=tuple(words), via="boxa", python=sys.executable, shell=True, home=str(home / "home")
    )
    running = Sshd(process=process, launcher=launcher, home=home)
    try:
        _wait_for(port)
        yield running
    finally:
        for each in [*psutil.Process(process.pid).children(recursive=True), *running.far_processes()]:
            each.kill()
        process.kill()
        process.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("sshd did not start")


@pytest.fixture
def far_python(tmp_path: Path) -> str:
    script = tmp_path / "far-python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m worker.standin "$@"\n')
    script.chmod(0o755)
    return str(script)


def errand(model: ModelRef, python: str, repetitions: int = 3) -> Errand:
    return Errand(group=group_of(model, PREFILL, DECODE, repetitions=repetitions), python=python)


def begun(sshd: Sshd, model: ModelRef, python: str) -> Any:
    events = measure(sshd.launcher, errand(model, python, repetitions=1000))
    next(event for event in events if event["event"] == "sample")
    return events


def test_a_group_is_measured_over_ssh(sshd: Sshd, far_python: str, model: ModelRef) -> None:
    found = records(list(measure(sshd.launcher, errand(model, far_python))))
    assert [record.status for record in found] == ["measured", "measured"]
    assert (sshd.home / "home" / "journal" / "group.jsonl").is_file()
    assert sshd.gone(60)


def test_cancelled_it_leaves_nothing_there(sshd: Sshd, far_python: str, model: ModelRef) -> None:
    begun(sshd, model, far_python).close()
    assert sshd.gone(60)


def test_a_connection_that_is_killed_loses_and_doubles_nothing(sshd: Sshd, far_python: str, model: ModelRef) -> None:
    events = begun(sshd, model, far_python)
    for session in psutil.Process(sshd.process.pid).children(recursive=True):
        if session.name().startswith("sshd"):
            session.kill()
    with pytest.raises(ClusterError, match="'mac' was lost"):
        list(events)
    assert sshd.gone(60)
    recovered = ask(sshd.launcher, on_host.recovered, seconds=60)
    ends = [event["record"] for event in recovered if event["event"] == "attempt_end"]
    assert [end["attempt_uid"] for end in ends] == ["attempt-0"]
    assert len(ends[0]["samples"]) >= 1
    assert ends[0]["failure"]["kind"] == "interrupted"


def test_a_line_that_is_cut_and_closes_nothing_is_found_out_at_both_ends(
    sshd: Sshd, far_python: str, model: ModelRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far, "SILENCE_SECONDS", 5.0)
    monkeypatch.setattr(far, "BEAT_SECONDS", 0.3)
    events = begun(sshd, model, far_python)
    sessions = [p for p in psutil.Process(sshd.process.pid).children(recursive=True) if p.name().startswith("sshd")]
    for session in sessions:
        session.send_signal(signal.SIGSTOP)
    with pytest.raises(ClusterError, match="nothing was heard of it"):
        list(events)
    assert sshd.gone(60)


def test_a_host_that_is_not_there_is_named_with_what_ssh_said(sshd: Sshd) -> None:
    with pytest.raises(ClusterError, match=r"'mac' was not reached: .*ended with exit code 255.*Could not resolve"):
        ask(replace(sshd.launcher, command=("ssh", "no-such-host.invalid")), on_host.any_lives, ["x"], seconds=60)
    with pytest.raises(ClusterError, match=r"exit code 127.*no-python"):
        ask(replace(sshd.launcher, python="/no-python"), on_host.any_lives, ["x"], seconds=60)
