"""What a host does with a group: hold the host, measure in a child, journal every event, hand it on.

Events that leave here, in this order: `host` once; then per attempt `attempt_start`, any number of
`stage` and `sample`, and `attempt_end` with the whole record. Everything but `stage` is in the host's
journal, fsynced, before it is handed on.
"""

import time
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from schema.errors import ModelError
from schema.host import Fingerprint
from schema.job import Assignment, Group
from schema.record import Failure, ModelFacts, Placement, Record
from worker import conditions, doubts, failures
from worker.attempt import MALFORMED, Attempt
from worker.child import Child, Deadline
from worker.exit import Exit
from worker.fingerprint.take import n_threads_all, n_threads_physical
from worker.journal import Journal
from worker.models import Resolved
from worker.recovery import utc_now
from worker.resolving import resolving

Event = dict[str, Any]
KILLED_TOO_SECONDS = 3.0


@dataclass(slots=True)
class Course:
    """What has become of the assignments that one process was given: `attempt` is the one that runs."""

    waiting: dict[str, Assignment]
    resolved: Resolved
    deadline: Deadline
    child_pid: int | None = None
    attempt: Attempt | None = None
    ended: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """One group on this host: what every attempt of it shares."""

    group: Group
    fingerprint: Fingerprint
    home: Path
    python: str
    llama_bench: str | None = None
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
            resolved = yield from resolving(self.group.model, self.home)
        except ModelError as error:
            failure = Failure(stage="model", message=str(error))
            yield from self._failed_at_once(self.group.assignments, failure)
            return
        remaining = list(self.group.assignments)
        while remaining:
            ended = yield from self._one_child(remaining, resolved)
            remaining = [a for a in remaining if a.attempt_uid not in ended]

    def _failed_at_once(self, assignments: Iterable[Assignment], failure: Failure) -> Iterator[Event]:
        for assignment in assignments:
            attempt = Attempt(assignment, utc_now())
            yield attempt.start_event()
            yield self._end_event(attempt, {}, failure, None)

    def _one_child(self, remaining: list[Assignment], resolved: Resolved) -> Generator[Event, None, set[str]]:
        """Measure `remaining` in one process until it ends; returns the uids of the attempts that ended."""
        first = remaining[0].job
        course = Course({a.attempt_uid: a for a in remaining}, resolved, Deadline(first.timeout_seconds))
        try:
            child = Child(self.python, self._request(remaining, resolved), first.settings.environment)
        except OSError as error:
            failure = Failure(stage="start", message=f"{self.python} cannot be started: {error.strerror}")
            yield from self._failed_at_once(remaining[:1], failure)
            return {remaining[0].attempt_uid}
        course.child_pid = child.process.pid
        with child:
            for event in child.events(course.deadline):
                try:
                    answer = self._hear(event, course)
                except MALFORMED as error:
                    child.refuse(str(error) if isinstance(error, ValueError) else repr(error))
                    continue
                if answer is not None:
                    yield answer
                child.go_on()
            end = child.exit()
        if end.signal_name == "SIGKILL" and end.kind == "signal":
            # When a run is cancelled, Ray kills this process's child a moment before this process. Whoever
            # is still alive after that moment was not cancelled; else the attempt stays open: interrupted.
            time.sleep(KILLED_TOO_SECONDS)
        yield from self._close(course, remaining, end)
        return course.ended

    def _close(self, course: Course, remaining: list[Assignment], end: Exit) -> Iterator[Event]:
        """End the attempt that the process's end cut short, and those that would end the same way."""
        attempt = course.attempt
        if attempt is None and not course.ended:
            attempt = Attempt(remaining[0], utc_now(), child_pid=course.child_pid)
            yield attempt.start_event()
        if attempt is None:
            return
        failure = failures.of_exit(attempt.stage, end, attempt.timeout_seconds)
        yield self._end_event(attempt, {}, failure, course.resolved)
        course.ended.add(attempt.uid)
        if end.signal_name == "SIGILL":  # every process of this build would end so
            rest = [a for a in remaining if a.attempt_uid not in course.ended]
            yield from self._failed_at_once(rest, failures.not_tried(failure))
            course.ended |= {a.attempt_uid for a in rest}

    def _hear(self, event: Event, course: Course) -> Event | None:
        """Return what an event of the child means to those who wait; raises one of MALFORMED where it is none."""
        attempt = course.attempt
        if event["event"] == "attempt_start":
            if attempt is not None:
                raise ValueError("the start of an attempt in the middle of another")
            course.attempt = Attempt(course.waiting.pop(event["attempt_uid"]), utc_now(), child_pid=course.child_pid)
            course.deadline.restart(course.attempt.timeout_seconds)
            return course.attempt.start_event()
        if attempt is None:
            return None
        if event["event"] == "attempt_end":
            failure = failures.of_error(attempt.stage, event["error"]) if "error" in event else None
            answer = self._end_event(attempt, event, failure, course.resolved)
            course.attempt = None
            course.ended.add(attempt.uid)
            return answer
        if "fill" in (attempt.stage, event.get("stage")):  # filling is not measured: it has no limit
            course.deadline.restart(attempt.timeout_seconds)
        return attempt.follow(event)

    def _request(self, remaining: list[Assignment], resolved: Resolved) -> dict[str, Any]:
        symbols = {"physical": n_threads_physical(self.fingerprint), "all": n_threads_all(self.fingerprint)}
        spec: dict[str, Any] = {"path": str(resolved.path), "n_threads": symbols}
        if self.llama_bench is not None:
            spec["llama_bench"] = self.llama_bench
        return {"spec": spec, "assignments": [asdict(assignment) for assignment in remaining]}

    def _end_event(self, attempt: Attempt, event: Event, failure: Failure | None, resolved: Resolved | None) -> Event:
        record = attempt.record(event, failure, self.placement, self._ids())
        if resolved is not None:
            record = replace(record, model=_model_facts(resolved, event.get("model", {})))
        if failure is None:
            record = self._judge(record, attempt.before)
        return {"event": "attempt_end", "record": asdict(record)}

    def _ids(self) -> dict[str, Any]:
        build = self.fingerprint.build
        return {
            "hardware_id": self.fingerprint.hardware.hardware_id,
            "allocation_id": self.fingerprint.allocation.allocation_id,
            "environment_id": self.fingerprint.environment.environment_id,
            "build_id": build.build_id if build else None,
        }

    def _judge(self, record: Record, before: conditions.Snapshot | None) -> Record:
        """Say how quiet the machine was, and what of the figures themselves is doubtful; the notes come last."""
        hardware, allowed = self.fingerprint.hardware, self.fingerprint.allocation
        unsteady = doubts.unsteady(record.samples)
        unheeded = doubts.unheeded(record.resolved, record.in_effect, bool(hardware.gpus))
        notes = (*unheeded, *record.quality_reasons)
        if before is None:
            return replace(record, quality_reasons=(*unsteady, *notes))
        n_threads = int(record.resolved["n_threads"] or 1)
        found = before.after(n_threads)
        quality, reasons = conditions.judge(found, n_threads, allowed.n_cpus, allowed.cpu_quota_cores)
        doubtful = (*doubts.loaded(found.load1_before, hardware.n_cores_logical), *unsteady)
        if quality == "clean" and doubtful:
            quality = "noisy"
        return replace(record, conditions=found, quality=quality, quality_reasons=(*reasons, *doubtful, *notes))


def _model_facts(resolved: Resolved, told: dict[str, Any]) -> ModelFacts:
    return ModelFacts(
        sha256=resolved.sha256,
        filename=resolved.path.name,
        file_bytes=resolved.file_bytes,
        synthetic=resolved.synthetic,
        **told,
    )
