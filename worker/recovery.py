"""What dead groups left in this host's journals: handed on, closed where it was cut, and forgotten when it is safe."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from schema.canonical import decode
from schema.job import Group
from schema.record import Failure, Record, Sample
from worker import journal

Event = dict[str, Any]


def recover(home: Path) -> Iterator[Event]:
    """Yield each `probe`, with its `run_uid`, and the `attempt_end` of every attempt that dead groups left here.

    An attempt without an end is closed as `failed(interrupted)` with the samples it has.
    """
    for path, events in journal.abandoned(home):
        yield from _probes(events)
        ends = {e["record"]["attempt_uid"]: e for e in events if e["event"] == "attempt_end"}
        for start in (e for e in events if e["event"] == "attempt_start"):
            uid = start["attempt_uid"]
            if uid not in ends:
                ends[uid] = _interrupted(start, events)
                journal.append(path, ends[uid])
        yield from ends.values()


def _probes(events: list[Event]) -> Iterator[Event]:
    header = next((event for event in events if event["event"] == "group"), None)
    if header is not None:
        run_uid = header["group"]["assignments"][0]["job"]["run_uid"]
        yield from (event | {"run_uid": run_uid} for event in events if event["event"] == "probe")


def trim(home: Path, acknowledged: frozenset[str]) -> None:
    """Remove each dead journal whose every attempt is in `acknowledged`, that is, safe elsewhere."""
    for path, events in journal.abandoned(home):
        started = {e["attempt_uid"] for e in events if e["event"] == "attempt_start"}
        if events and started <= acknowledged:
            path.unlink(missing_ok=True)
    journal.forget_revoked(home)


def _interrupted(start: Event, events: list[Event]) -> Event:
    header: Event = next(e for e in events if e["event"] == "group")
    group = decode(Group, header["group"])
    assignment = next(a for a in group.assignments if a.attempt_uid == start["attempt_uid"])
    samples = [e["sample"] for e in events if e["event"] == "sample" and e["attempt_uid"] == start["attempt_uid"]]
    message = f"The run was interrupted after {len(samples)} of {assignment.job.repetitions} repetitions."
    record = Record(
        attempt_uid=assignment.attempt_uid,
        job_uid=assignment.job.job_uid,
        run_uid=assignment.job.run_uid,
        host_uid=assignment.job.host_uid,
        number=assignment.number,
        started_at=start["started_at"],
        ended_at=utc_now(),
        status="failed",
        samples=tuple(decode(Sample, sample) for sample in samples),
        failure=Failure(stage="interrupted", message=message, kind="interrupted"),
        hardware_id=header["hardware_id"],
        allocation_id=header["allocation_id"],
        environment_id=header["environment_id"],
        build_id=header["build_id"],
    )
    return {"event": "attempt_end", "record": asdict(record)}


def utc_now() -> str:
    """Return the time, as ISO 8601 in UTC with microseconds and `Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
