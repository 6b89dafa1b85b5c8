"""What a host does with a group: hold the host, measure in a child, journal every event, hand it on.

Events that leave here, in this order: `host` once; then per attempt `attempt_start`, any number of
`stage` and `sample`, and `attempt_end` with the whole record. Everything but `stage` is in the host's
journal, fsynced, before it is handed on.
"""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from schema.canonical import decode
from schema.errors import ModelError, TokfleetError
from schema.host import Fingerprint
from schema.job import Assignment, Group, ModelRef
from schema.record import Effective, Failure, Latency, Memory, ModelFacts, Placement, Record, Sample
from worker import conditions
from worker.child import Child, Deadline, Exit
from worker.fingerprint.take import n_threads_all, n_threads_physical
from worker.journal import Journal
from worker.models import Resolved, resolve
from worker.recovery import utc_now

Event = dict[str, Any]
KILLED_TOO_SECONDS = 3.0
TIMED = ("prefill", "decode", "verify")
OUT_OF_MEMORY = (
    "out of memory",
    "failed to allocate",
    "unable to allocate",
    "cannot allocate",
    "memoryerror",
    "bad_alloc",
)
"""How llama.cpp, the C++ library and Python say that memory ran out."""


@dataclass(slots=True)
class Attempt:
    """An attempt while it runs: what is known of it so far."""

    assignment: Assignment
    started_at: str
    stage: str = "start"
    samples: list[Sample] = field(default_factory=list)
    child_pid: int | None = None
    before: conditions.Snapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """One group on this host: what every attempt of it shares."""

    group: Group
    fingerprint: Fingerprint
    home: Path
    python: str
    placement: Placement = field(default_factory=Placement)

    def run(self) -> Iterator[Event]:
        """Measure the group; yields events, never raises for what a job does wrong.

        Raises HostError when this host cannot keep what it measures.
        """
        with Journal(self.home, self.group.group_uid) as book:
            book.write({"event": "group", "group": asdict(self.group), **self._ids()})
            yield {"event": "host", "fingerprint": asdict(self.fingerprint)}
            for event in self._events():
                if event["event"] != "stage":
                    book.write(event)
                yield event

    def _events(self) -> Iterator[Event]:
        try:
            resolved = yield from _resolve_with_progress(self.group.model, self.home)
        except ModelError as error:
            for assignment in self.group.assignments:
                failure = Failure(stage="model", message=str(error))
                yield from self._failed_at_once(assignment, failure)
            return
        remaining = list(self.group.assignments)
        while remaining:
            ended = yield from self._one_child(remaining, resolved)
            remaining = [a for a in remaining if a.attempt_uid not in ended]

    def _failed_at_once(self, assignment: Assignment, failure: Failure) -> Iterator[Event]:
        attempt = Attempt(assignment, utc_now())
        yield self._start_event(attempt)
        yield self._end_event(attempt, {}, failure, None)

    def _one_child(self, remaining: list[Assignment], resolved: Resolved) -> Generator[Event, None, set[str]]:
        """Measure `remaining` in one process until it ends; returns the uids of the attempts that ended."""
        ended: set[str] = set()
        attempt: Attempt | None = None
        by_uid = {a.attempt_uid: a for a in remaining}
        deadline = Deadline(remaining[0].job.timeout_seconds)
        try:
            variables = remaining[0].job.settings.environment
            child = Child(self.python, self._request(remaining, resolved), variables)
        except OSError as error:
            failure = Failure(stage="start", message=f"{self.python} cannot be started: {error.strerror}")
            yield from self._failed_at_once(remaining[0], failure)
            return {remaining[0].attempt_uid}
        with child:
            for event in child.events(deadline):
                if event["event"] == "attempt_start":
                    attempt = Attempt(by_uid[event["attempt_uid"]], utc_now(), child_pid=child.process.pid)
                    deadline.restart(attempt.assignment.job.timeout_seconds)
                    yield self._start_event(attempt)
                elif attempt is not None and event["event"] == "attempt_end":
                    yield self._ended(attempt, event, resolved)
                    ended.add(attempt.assignment.attempt_uid)
                    attempt = None
                elif attempt is not None:
                    if "fill" in (attempt.stage, event.get("stage")):  # filling is not measured: it has no limit
                        deadline.restart(attempt.assignment.job.timeout_seconds)
                    yield self._follow(attempt, event)
                child.go_on()
            end = child.exit()
        if end.signal_name == "SIGKILL" and end.kind == "signal":
            # When a run is cancelled, Ray kills this process's child a moment before this process. Whoever
            # is still alive after that moment was not cancelled; else the attempt stays open: interrupted.
            time.sleep(KILLED_TOO_SECONDS)
        if attempt is None and not ended:
            attempt = Attempt(remaining[0], utc_now(), child_pid=child.process.pid)
            yield self._start_event(attempt)
        if attempt is not None:
            yield self._end_event(attempt, {}, self._failure(attempt, end), resolved)
            ended.add(attempt.assignment.attempt_uid)
        return ended

    def _request(self, remaining: list[Assignment], resolved: Resolved) -> dict[str, Any]:
        symbols = {"physical": n_threads_physical(self.fingerprint), "all": n_threads_all(self.fingerprint)}
        spec = {"path": str(resolved.path), "n_threads": symbols}
        return {"spec": spec, "assignments": [asdict(assignment) for assignment in remaining]}

    def _follow(self, attempt: Attempt, event: Event) -> Event:
        """Take over a `stage` or `sample`; the machine is watched from the first timed stage on."""
        if event["event"] == "sample":
            attempt.samples.append(decode(Sample, event["sample"]))
            return event
        attempt.stage = event["stage"]
        if attempt.stage in TIMED and attempt.child_pid:
            attempt.before = conditions.before(attempt.child_pid)
        return {"event": "stage", "attempt_uid": attempt.assignment.attempt_uid, "stage": attempt.stage}

    def _ended(self, attempt: Attempt, event: Event, resolved: Resolved) -> Event:
        failure = None
        if "error" in event:
            kind = "oom" if _says_out_of_memory(event["error"]) else "error"
            failure = Failure(stage=attempt.stage, message=event["error"], kind=kind)
        return self._end_event(attempt, event, failure, resolved)

    def _failure(self, attempt: Attempt, end: Exit) -> Failure:
        words = end.describe(attempt.assignment.job.timeout_seconds)
        return Failure(
            stage=attempt.stage,
            message=f"The measuring process {words} (stage: {attempt.stage}).",
            kind="oom" if _says_out_of_memory("\n".join(end.log_tail[-3:])) and end.returncode else end.kind,
            signal=end.signal_name,
            exit_code=end.returncode if end.returncode >= 0 else None,
            log_tail=end.log_tail,
        )

    def _start_event(self, attempt: Attempt) -> Event:
        uid = attempt.assignment.attempt_uid
        return {"event": "attempt_start", "attempt_uid": uid, "started_at": attempt.started_at}

    def _end_event(self, attempt: Attempt, event: Event, failure: Failure | None, resolved: Resolved | None) -> Event:
        record = self._record(attempt, event, failure)
        if resolved is not None:
            record = replace(record, model=_model_facts(resolved, event.get("model", {})))
        if failure is None and attempt.before is not None:
            record = self._judge(record, attempt.before)
        return {"event": "attempt_end", "record": asdict(record)}

    def _record(self, attempt: Attempt, event: Event, failure: Failure | None) -> Record:
        job = attempt.assignment.job
        return Record(
            attempt_uid=attempt.assignment.attempt_uid,
            job_uid=job.job_uid,
            run_uid=job.run_uid,
            host_uid=job.host_uid,
            number=attempt.assignment.number,
            started_at=attempt.started_at,
            ended_at=utc_now(),
            status="failed" if failure else "measured",
            samples=tuple(attempt.samples),
            failure=failure,
            resolved=event.get("resolved", {}),
            in_effect={name: decode(Effective, value) for name, value in event.get("in_effect", {}).items()},
            latency=decode(Latency, event["latency"]) if event.get("latency") else None,
            memory=decode(Memory, event["memory"]) if event.get("memory") else None,
            env=event.get("env", {}),
            first_token_ns=event.get("first_token_ns"),
            tokenize_ts=event.get("tokenize_ts"),
            load_seconds=event.get("load_seconds"),
            fill_seconds=event.get("fill_seconds"),
            warmup_seconds=event.get("warmup_seconds"),
            warmup_passes=event.get("warmup_passes"),
            placement=replace(self.placement, child_pid=attempt.child_pid),
            **self._ids(),
        )

    def _ids(self) -> dict[str, Any]:
        build = self.fingerprint.build
        return {
            "hardware_id": self.fingerprint.hardware.hardware_id,
            "allocation_id": self.fingerprint.allocation.allocation_id,
            "environment_id": self.fingerprint.environment.environment_id,
            "build_id": build.build_id if build else None,
        }

    def _judge(self, record: Record, before: conditions.Snapshot) -> Record:
        n_threads = int(record.resolved["n_threads"] or 1)
        found = before.after(n_threads)
        allowed = self.fingerprint.allocation
        quality, reasons = conditions.judge(found, n_threads, allowed.n_cpus, allowed.cpu_quota_cores)
        return replace(record, conditions=found, quality=quality, quality_reasons=tuple(reasons))


def _model_facts(resolved: Resolved, told: dict[str, Any]) -> ModelFacts:
    return ModelFacts(
        sha256=resolved.sha256,
        filename=resolved.path.name,
        file_bytes=resolved.file_bytes,
        synthetic=resolved.synthetic,
        **told,
    )


def _says_out_of_memory(text: str) -> bool:
    return any(words in text.lower() for words in OUT_OF_MEMORY)


def _resolve_with_progress(model: ModelRef, home: Path) -> Generator[Event, None, Resolved]:
    """Make the model's file ready; yields `stage` events while that takes long, returns the file."""
    told: SimpleQueue[Callable[[], Event | Resolved]] = SimpleQueue()

    def work() -> None:
        try:
            found = resolve(model, home, _tell)
            told.put(lambda: found)
        except (TokfleetError, OSError) as error:
            told.put(lambda error=error: _raise(error))  # type: ignore[misc]

    last = -1.0

    def _tell(text: str, fraction: float) -> None:
        nonlocal last
        if fraction - last >= 0.02 or fraction < last:
            last = fraction
            told.put(lambda: {"event": "stage", "stage": "model", "text": text, "fraction": fraction})

    Thread(target=work, daemon=True).start()
    while True:
        item = told.get()()
        if isinstance(item, Resolved):
            return item
        yield item


def _raise(error: Exception) -> Any:
    if isinstance(error, TokfleetError):
        raise error if isinstance(error, ModelError) else ModelError(str(error)) from error
    raise ModelError(f"The model cannot be made ready: {error}") from error
