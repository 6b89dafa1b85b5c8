"""`python -m worker --bundle FILE`: measure a bundle's jobs where no cluster reaches, without Ray or a database.

What was measured is in the records file, synced line by line. Interrupted in any way, the same command goes on.
"""

import contextlib
import os
import socket
import sys
import uuid
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from schema.bundle import MOST_BYTES, Bundle, parse_bundle
from schema.canonical import to_json
from schema.errors import TokfleetError, UsageError
from schema.job import Assignment, Group, Job, ModelRef
from worker.builds import find_named
from worker.fingerprint.take import take
from worker.home import writable_home
from worker.like import PREFIX
from worker.lock import WAIT_SECONDS, HostLock
from worker.models import reference
from worker.records_file import RecordsFile
from worker.recovery import recover, trim
from worker.supervisor import Supervisor

Event = dict[str, Any]
DONE, FAILED, IN_PART, INTERRUPTED = 0, 1, 3, 130


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a bundle is measured: this host, its Python for measuring, and a directory where its models are."""

    home: Path
    host_uid: str
    python: str
    models: Path


def main(path: Path, records: Path | None, models: Path | None, python: str | None) -> int:
    """Measure the bundle in the file `path`, tell how far that is on standard error, and return the exit status."""
    try:
        bundle = parse_bundle(_content(path), str(path))
        records = records or Path(f"{path.stem}.{_safe(socket.gethostname())}.records.jsonl")
        home = writable_home()
        place = Place(
            home=home,
            host_uid=take(home, None).host_uid,
            python=python or os.environ.get("TOKFLEET_PYTHON") or sys.executable,
            models=models or path.absolute().parent,
        )
        with RecordsFile(records, bundle) as file:
            return _measure_bundle(bundle, file, place)
    except TokfleetError as error:
        _say(f"error: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        _say("interrupted; the same command goes on")
        return INTERRUPTED


def _measure_bundle(bundle: Bundle, file: RecordsFile, place: Place) -> int:
    _take_over(bundle, file, place)
    _refuse_other_host(file, place)
    groups, absent = _understood(bundle, place)
    known = {to_json(value) for value in file.values("job")}
    for job in (job for group in groups for job in group if to_json(asdict(job)) not in known):
        file.add("job", asdict(job))
    try:
        for group in groups:
            _measure_group(group, file, place)
    finally:
        _take_over(bundle, file, place)
    return _conclude(groups, absent, file)


def _understood(bundle: Bundle, place: Place) -> tuple[list[list[Job]], dict[str, str]]:
    """Return the groups as this host understands them, and of each model that is not here the reason."""
    found: dict[str, ModelRef] = {}
    absent: dict[str, str] = {}
    for model in {job.model.spec: job.model for group in bundle.groups for job in group}.values():
        try:
            found[model.spec] = reference(model.source, _here(model, place.models), Path("/"))
        except TokfleetError as error:
            absent[model.spec] = str(error)
    groups = [
        [replace(job, host_uid=place.host_uid, model=found[job.model.spec]) for job in group]
        for group in bundle.groups
        if group[0].model.spec in found
    ]
    return groups, absent


def _here(model: ModelRef, directory: Path) -> str:
    """Return where the model lies on this host: where the plan says, else under its name in `directory`."""
    before = PREFIX if model.source == "synthetic" and model.spec.startswith(PREFIX) else ""
    if model.source != "path" and not before:
        return model.spec
    path = Path(model.spec.removeprefix(before))
    near = directory / path.name
    return before + str(path if path.exists() or not near.exists() else near.absolute())


def _measure_group(jobs: Sequence[Job], file: RecordsFile, place: Place) -> None:
    """Measure what is left of a group; what was interrupted by another's failure is measured again."""
    left = _remaining(jobs, file)
    while left:
        _run(left, file, place)
        before, left = len(left), _remaining(jobs, file)
        if len(left) >= before:
            return


def _remaining(jobs: Sequence[Job], file: RecordsFile) -> list[Job]:
    ended = {record["job_uid"] for record in file.values("record") if not _is_interrupted(record)}
    return [job for job in jobs if job.job_uid not in ended]


def _is_interrupted(record: Event) -> bool:
    failure = record.get("failure") or {}
    return "interrupted" in (failure.get("stage"), failure.get("kind"))


def _run(jobs: Sequence[Job], file: RecordsFile, place: Place) -> None:
    tries: dict[str, int] = {}
    for record in file.values("record"):
        tries[record["job_uid"]] = max(tries.get(record["job_uid"], 0), record["number"])
    group = Group(
        group_uid=uuid.uuid4().hex,
        assignments=tuple(
            Assignment(job=job, attempt_uid=uuid.uuid4().hex, number=tries.get(job.job_uid, 0) + 1) for job in jobs
        ),
    )
    with contextlib.closing(_events(group, place)) as events:
        for event in events:
            _keep(event, file)


def _events(group: Group, place: Place) -> Generator[Event, None, None]:
    """Yield the events of the group, with the machine held for it."""
    build = find_named(group.build, place.home, place.python)
    facts = build.facts(place.home)
    with HostLock(what=f"tokfleet bundle, group {group.group_uid}").acquire(
        WAIT_SECONDS, lambda holder: _say(f"waiting for the machine: {holder.describe()}")
    ):
        yield from Supervisor(
            group=group,
            fingerprint=take(place.home, facts, holds_lock=True),
            home=place.home,
            python=place.python if build.kind == "llama-bench" else build.path,
            llama_bench=build.path if build.kind == "llama-bench" else None,
            probes=facts.method != "fake",
        ).run()


def _keep(event: Event, file: RecordsFile) -> None:
    if event["event"] == "host":
        file.add("fingerprint", event["fingerprint"])
    elif event["event"] == "probe":
        file.add("probe", event["probe"])
    elif event["event"] == "attempt_end":
        _keep_record(event["record"], file)


def _keep_record(record: Event, file: RecordsFile) -> None:
    file.add("record", record)
    failure = record.get("failure")
    _say(f"{record['job_uid'][:8]}: {failure['message'] if failure else 'measured'}")


def _take_over(bundle: Bundle, file: RecordsFile, place: Place) -> None:
    """Take into the file what dead groups of this bundle left in the journals here, and let those go."""
    attempts = {record["attempt_uid"] for record in file.values("record")}
    probes = {probe["probe_uid"] for probe in file.values("probe")}
    for event in recover(place.home):
        if event["event"] == "probe":
            if event["run_uid"] == bundle.run.run_uid and event["probe"]["probe_uid"] not in probes:
                file.add("probe", event["probe"])
        elif event["record"]["run_uid"] == bundle.run.run_uid and event["record"]["attempt_uid"] not in attempts:
            _keep_record(event["record"], file)
    trim(place.home, frozenset(record["attempt_uid"] for record in file.values("record")))


def _refuse_other_host(file: RecordsFile, place: Place) -> None:
    others = {job["host_uid"] for job in file.values("job")} - {place.host_uid}
    if others:
        raise UsageError(f"{file.path} holds the records of another host. Name another file with --records.")


def _conclude(groups: Sequence[Sequence[Job]], absent: dict[str, str], file: RecordsFile) -> int:
    n_left = sum(len(_remaining(group, file)) for group in groups)
    for spec, reason in absent.items():
        _say(f"not measured: {spec}: {reason}")
    own = {job.job_uid for group in groups for job in group}
    records = [record for record in file.values("record") if record["job_uid"] in own]
    n_measured = len({record["job_uid"] for record in records if record["status"] == "measured"})
    n_failed = len(own) - n_left - n_measured
    if not n_left and not absent and not any(file.values("end")):
        file.add("end", {"n_records": len(list(file.values("record")))})
    told = f"{n_measured} jobs measured, {n_failed} failed" + (f", {n_left} left" if n_left else "")
    _say(f"{told}. `tokfleet import {file.path}` takes them home.")
    if n_measured and not (n_failed or n_left or absent):
        return DONE
    return IN_PART if n_measured else FAILED


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error
    if len(data) > MOST_BYTES:
        raise UsageError(f"{path} is larger than {MOST_BYTES} bytes, so it is no bundle.")
    return data


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in name)[:80] or "host"


def _say(text: str) -> None:
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"tokfleet bundle: {line}\n")
        sys.stderr.flush()
