"""What a host does with a group: hold the host, measure in a child, journal every event, hand it on.

Events that leave here, in this order: `host` once; then per attempt `attempt_start`, any number of
`stage` and `sample`, and `attempt_end` with the whole record. Before and after the attempts of one measuring
process there may be a `probe`. Everything but `stage` is in the host's
journal, fsynced, before it is handed on.
"""

import contextlib
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from schema.errors import HostError, ModelError
from schema.host import Fingerprint
from schema.job import Assignment, Group
from schema.lab_host import SettingCommands
from schema.record import Effective, Failure, ModelFacts, Placement
from schema.settings import Settings
from worker import failures
from worker.attempt import MALFORMED, Attempt
from worker.child import Child, Deadline
from worker.conditions.meters import Meters
from worker.course import Course
from worker.exit import Exit
from worker.fingerprint.take import n_threads_all, n_threads_physical
from worker.host_settings import applied
from worker.journal import Journal
from worker.judging import judged
from worker.models import Resolved
from worker.recovery import utc_now
from worker.resolving import resolving
from worker.series import Series
from worker.traffic import traffic
from worker.variables import hiding_gpus

Event = dict[str, Any]
KILLED_TOO_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """One group on this host: what every attempt of it shares. `probes`: measure the memory around each series.

    `commands` set what the host itself may be set to; `in_force` is what that is now.
    """

    group: Group
    fingerprint: Fingerprint
    home: Path
    python: str
    llama_bench: str | None = None
    placement: Placement = field(default_factory=Placement)
    probes: bool = False
    commands: Mapping[str, SettingCommands] = field(default_factory=dict)
    in_force: str | None = None

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
        with contextlib.ExitStack() as stack:
            asked = self.group.assignments[0].job.settings.of_host
            try:
                in_force = stack.enter_context(applied(asked, self.commands, self.home))
            except HostError as error:
                failure = Failure(stage="start", message=str(error))
                yield from self._failed_at_once(self.group.assignments, failure)
                return
            yield from replace(self, in_force=in_force)._measure(resolved)

    def _measure(self, resolved: Resolved) -> Iterator[Event]:
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
        series = Series(self.fingerprint, frozenset(self._n_threads(a) for a in remaining))
        if self.probes:
            yield from series.probe("before")
        waiting = {a.attempt_uid: a for a in remaining}
        # A llama-bench is not watched: what it times is told only when it is over.
        meters = Meters.find() if self.llama_bench is None else None
        course = Course(waiting, resolved, Deadline(first.timeout_seconds), meters=meters, series_uid=series.uid)
        try:
            child = Child(self.python, self._request(remaining, resolved), self._variables(first.settings))
        except OSError as error:
            failure = Failure(stage="start", message=f"{self.python} cannot be started: {error.strerror}")
            yield from self._failed_at_once(remaining[:1], failure)
            return {remaining[0].attempt_uid}
        course.child_pid = child.process.pid
        with child:
            for event in child.events(course.deadline, course.look):
                try:
                    answer = self._hear(event, course)
                except MALFORMED as error:
                    child.refuse(str(error) if isinstance(error, ValueError) else repr(error))
                    continue
                if answer is not None:
                    yield answer
                course.go_on()
                child.go_on()
            end = child.exit()
        if end.signal_name == "SIGKILL" and end.kind == "signal":
            # When a run is cancelled, Ray kills this process's child a moment before this process. Whoever
            # is still alive after that moment was not cancelled; else the attempt stays open: interrupted.
            time.sleep(KILLED_TOO_SECONDS)
        yield from self._close(course, remaining, end)
        if self.probes and course.measured:
            yield from series.probe("after")
        return course.ended

    def _close(self, course: Course, remaining: list[Assignment], end: Exit) -> Iterator[Event]:
        """End the attempt that the process's end cut short, and those that would end the same way.

        Those that took turns with it are not to blame: they are interrupted, and still to be done.
        """
        if not course.ended and not course.open:
            yield course.begin(remaining[0].attempt_uid).start_event()
        others = failures.INTERRUPTED_TURNS
        for_all = False
        attempt = course.attempt
        if attempt is not None:
            failure = failures.of_exit(attempt.stage, end, attempt.timeout_seconds)
            yield self._end_event(attempt, {}, failure, course.resolved, course.series_uid)
            course.end(attempt.uid)
            for_all = end.signal_name == "SIGILL"  # every process of this build would end so
            others = failures.not_tried(failure) if for_all else others
        for other in list(course.open.values()):
            yield self._end_event(other, {}, others, course.resolved, course.series_uid)
            course.end(other.uid)
        if for_all:
            yield from self._failed_at_once(course.waiting.values(), others)
            course.ended |= set(course.waiting)

    def _hear(self, event: Event, course: Course) -> Event | None:
        """Return what an event of the child means to those who wait; raises one of MALFORMED where it is none."""
        if event["event"] == "attempt_start":
            return course.begin(event["attempt_uid"]).start_event()
        attempt = course.turn_to(event["attempt_uid"]) if "attempt_uid" in event else course.attempt
        if attempt is None:
            return None
        if event["event"] == "attempt_end":
            failure = failures.of_error(attempt.stage, event["error"]) if "error" in event else None
            answer = self._end_event(attempt, event, failure, course.resolved, course.series_uid)
            course.measured |= failure is None
            course.end(attempt.uid)
            return answer
        if "fill" in (attempt.stage, event.get("stage")):  # filling is not measured: it has no limit
            course.deadline.restart(attempt.timeout_seconds)
        return attempt.follow(event)

    def _request(self, remaining: list[Assignment], resolved: Resolved) -> dict[str, Any]:
        spec: dict[str, Any] = {"path": str(resolved.path), "n_threads": self._symbols()}
        if self.llama_bench is not None:
            spec["llama_bench"] = self.llama_bench
        return {"spec": spec, "assignments": [asdict(assignment) for assignment in remaining]}

    def _variables(self, settings: Settings) -> dict[str, str]:
        """Return what a job asks for, and what hides the GPUs of this host from one of the CPU."""
        hidden = hiding_gpus(settings) if self.fingerprint.hardware.gpus else {}
        return {**hidden, **settings.environment}

    def _symbols(self) -> dict[str, int]:
        return {"physical": n_threads_physical(self.fingerprint), "all": n_threads_all(self.fingerprint)}

    def _n_threads(self, assignment: Assignment) -> int:
        asked = assignment.job.settings.n_threads
        return self._symbols()[asked] if isinstance(asked, str) else asked

    def _end_event(
        self,
        attempt: Attempt,
        event: Event,
        failure: Failure | None,
        resolved: Resolved | None,
        series_uid: str | None = None,
    ) -> Event:
        record = attempt.record(event, failure, self.placement, self._ids() | {"series_uid": series_uid})
        if resolved is not None:
            record = replace(record, model=_model_facts(resolved, event.get("model", {})))
        if self.in_force is not None:
            told = Effective(value=self.in_force, source="command")
            record = replace(record, in_effect={**record.in_effect, "host_settings": told})
        if failure is None:
            record = judged(record, attempt.watch, self.fingerprint, attempt.assignment.job.test)
        return {"event": "attempt_end", "record": asdict(record)}

    def _ids(self) -> dict[str, Any]:
        build = self.fingerprint.build
        return {
            "hardware_id": self.fingerprint.hardware.hardware_id,
            "allocation_id": self.fingerprint.allocation.allocation_id,
            "environment_id": self.fingerprint.environment.environment_id,
            "build_id": build.build_id if build else None,
        }


def _model_facts(resolved: Resolved, told: dict[str, Any]) -> ModelFacts:
    return ModelFacts(
        sha256=resolved.sha256,
        filename=resolved.path.name,
        file_bytes=resolved.file_bytes,
        synthetic=resolved.synthetic,
        **traffic(resolved.sizes),
        **told,
    )
