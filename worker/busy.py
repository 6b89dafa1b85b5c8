"""What this machine is busy with: who holds its lock, and which job that one is at."""

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schema.canonical import decode
from schema.job import Group
from worker.fingerprint.take import take
from worker.home import home_or_nowhere
from worker.journal import journal_directory
from worker.lock import Holder, peek

MAX_BYTES = 16 * 1024 * 1024
"""More than the journal of a group ever has."""

MAX_TEXT = 300
_GROUP = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """What is measured here now. `job` and `run_uid` are None where the holder is no group of this user's.

    `since` is when the job began, else when the machine was taken.
    """

    holder: str
    since: str | None = None
    job: str | None = None
    run_uid: str | None = None


def busy(home: Path, lock: Path | None = None) -> Busy | None:
    """Return what holds this machine, None where nothing does; nothing is disturbed by asking."""
    holder = peek(lock)
    if holder is None:
        return None
    group = _GROUP.search(holder.what or "")
    events = _events(journal_directory(home) / f"{group[0]}.jsonl") if group else []
    return _at_a_job(holder, events) or Busy(holder=holder.describe()[:MAX_TEXT], since=holder.since)


def look() -> dict[str, Any]:
    """Return this machine's fingerprint, and what holds it, None where nothing does, as plain values."""
    home = home_or_nowhere()
    held = busy(home)
    return {"fingerprint": asdict(take(home, None)), "busy": asdict(held) if held else None}


def _at_a_job(holder: Holder, events: list[dict[str, Any]]) -> Busy | None:
    """Return what the group is at by its journal; None where that does not tell."""
    try:
        group = decode(Group, next(event["group"] for event in events if event["event"] == "group"))
        jobs = {assignment.attempt_uid: assignment.job for assignment in group.assignments}
        started = [event for event in events if event["event"] == "attempt_start"]
        job = jobs[started[-1]["attempt_uid"]] if started else group.assignments[0].job
        since = str(started[-1]["started_at"]) if started else holder.since
    except (StopIteration, KeyError, IndexError, TypeError, ValueError):
        return None
    return Busy(
        holder=holder.describe()[:MAX_TEXT], since=since, job=job.label[:MAX_TEXT], run_uid=job.run_uid[:MAX_TEXT]
    )


def _events(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            lines = file.read(MAX_BYTES).split(b"\n")[:-1]
    except OSError:
        return []
    return [event for line in lines if isinstance(event := _event(line), dict) and "event" in event]


def _event(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None
