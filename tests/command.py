"""The command line as a person runs it: a process of its own, with a home of its own and a stand-in that measures."""

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil


def heed_ctrl_c() -> None:
    """Heed SIGINT, which a shell tells its background jobs, and so whatever tests they run, to ignore."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass(frozen=True)
class Command:
    """`tokfleet` with this home, and this Python for measuring."""

    home: Path
    python: str = sys.executable
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *arguments: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a command in a session of its own, as a terminal does."""
        lock = f"{self.home}.lock"
        own = {"TOKFLEET_HOME": str(self.home), "TOKFLEET_PYTHON": self.python, "TOKFLEET_LOCK": lock}
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator.cli", *arguments],
            env=os.environ | own | self.environment | variables,
            cwd=Path(__file__).parents[1],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=heed_ctrl_c,
        )

    def run(self, *arguments: str, timeout: float = 300.0, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end."""
        process = self.start(*arguments, **variables)
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return the rows of a question to the store, read without our code."""
        connection = sqlite3.connect(f"file:{self.home / 'tokfleet.sqlite'}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        try:
            return [dict(row) for row in connection.execute(query)]
        finally:
            connection.close()


def processes_of(home: Path) -> list[psutil.Process]:
    """Return the living processes that were started for this home, Ray's and the measuring ones among them."""
    found = []
    for process in psutil.process_iter():
        try:
            ours = process.environ().get("TOKFLEET_HOME") == str(home)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found
