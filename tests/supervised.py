"""Groups of attempts on a stand-in, supervised in this process, and what became of them."""

import os
import sys
from pathlib import Path
from typing import Any

from schema.canonical import decode
from schema.host import Fingerprint
from schema.job import Assignment, Group, Job, ModelRef, Test
from schema.record import Record
from schema.settings import Settings
from worker.supervisor import Supervisor

PREFILL = Test(n_prompt=8, n_gen=0)
DECODE = Test(n_prompt=0, n_gen=4)
BOTH = Test(n_prompt=8, n_gen=4)


def group_of(
    model: ModelRef, *tests: Test, timeout_seconds: float = 30.0, settings: Settings | None = None, repetitions: int = 3
) -> Group:
    """Return a group with an attempt at each test: `attempt-0`, `attempt-1`, …."""
    jobs = [
        Job(
            run_uid="run",
            host_uid="host",
            model=model,
            test=test,
            settings=settings or Settings(),
            repetitions=repetitions,
            timeout_seconds=timeout_seconds,
        )
        for test in tests
    ]
    return Group(
        group_uid="group",
        assignments=tuple(Assignment(job=job, attempt_uid=f"attempt-{i}") for i, job in enumerate(jobs)),
    )


def records(events: list[dict[str, Any]]) -> list[Record]:
    """Return the attempts that ended, in order."""
    return [decode(Record, event["record"]) for event in events if event["event"] == "attempt_end"]


def supervise(group: Group, fingerprint: Fingerprint, home: Path, python: str, fault: str = "") -> list[dict[str, Any]]:
    """Return all events of a group while the stand-in has `fault`."""
    os.environ["TOKFLEET_FAULT"] = fault
    try:
        return list(Supervisor(group=group, fingerprint=fingerprint, home=home, python=python).run())
    finally:
        del os.environ["TOKFLEET_FAULT"]


def python_that(tmp_path: Path, body: str) -> str:
    """Return an `interpreter` that runs `body`, with `events` open for writing."""
    script = tmp_path / "script.py"
    script.write_text(
        "import json, os, signal, sys, time\n"
        "events = os.fdopen(int(sys.argv[sys.argv.index('--events') + 1]), 'w')\n"
        "def tell(**event):\n    print(json.dumps(event), file=events, flush=True)\n" + body
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    python.chmod(0o755)
    return str(python)
