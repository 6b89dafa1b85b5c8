"""An attempt while it runs: what is known of it so far, and the record that it becomes."""

from dataclasses import dataclass, field, replace
from typing import Any

from schema.canonical import decode
from schema.job import Assignment
from schema.record import STAGES, Effective, Failure, Latency, Memory, Placement, Record, Sample
from worker.conditions.meters import Meters
from worker.conditions.watch import Watch
from worker.recovery import utc_now

Event = dict[str, Any]
TIMED = ("prefill", "decode", "verify")
MALFORMED = (ValueError, TypeError, KeyError, AttributeError)
"""What is raised where a measuring process told something else than it should."""


@dataclass(slots=True)
class Attempt:
    """An attempt while it runs: what is known of it so far."""

    assignment: Assignment
    started_at: str
    stage: str = "start"
    samples: list[Sample] = field(default_factory=list)
    child_pid: int | None = None
    meters: Meters | None = None
    watch: Watch | None = None

    @property
    def uid(self) -> str:
        """The attempt's name."""
        return self.assignment.attempt_uid

    @property
    def timeout_seconds(self) -> float:
        """How long it may take."""
        return self.assignment.job.timeout_seconds

    def start_event(self) -> Event:
        """Return the event that opens it."""
        return {"event": "attempt_start", "attempt_uid": self.uid, "started_at": self.started_at}

    def follow(self, event: Event) -> Event:
        """Take over a `stage` or `sample` and return it; the machine is watched from the first timed stage on.

        Not where another process than ours computes (`elsewhere`): what ours does says nothing of it.

        Raises one of MALFORMED for anything else, so also for a repetition with fewer tokens than asked:
        it is no sample of this test.
        """
        if event["event"] == "sample":
            sample = decode(Sample, event["sample"])
            test = self.assignment.job.test
            if sample.n_tokens != test.n_tokens:
                raise ValueError(f"a repetition of {sample.n_tokens} tokens where {test.name} has {test.n_tokens}")
            if min(ns for ns in (sample.elapsed_ns, sample.prompt_ns, sample.gen_ns) if ns is not None) <= 0:
                raise ValueError("a repetition that took no time")
            self.samples.append(sample)
            if self.watch is not None:
                self.watch.end()
            return event
        if event["event"] != "stage" or event["stage"] not in STAGES:
            raise ValueError(f"{event['event']} {event.get('stage')}")
        self.stage = event["stage"]
        if self.stage in TIMED and self.watch is None and not event.get("elsewhere"):
            self._begin_watch()
        return {"event": "stage", "attempt_uid": self.uid, "stage": self.stage}

    def _begin_watch(self) -> None:
        if self.child_pid is not None and self.meters is not None:
            self.watch = Watch(self.child_pid, self.meters)

    def go_on(self) -> None:
        """The process is about to have leave to go on."""
        if self.watch is not None:
            if self.stage in TIMED and len(self.samples) < self.assignment.job.repetitions:
                self.watch.begin()
            else:
                self.watch.drop()

    def record(self, event: Event, failure: Failure | None, placement: Placement, ids: dict[str, Any]) -> Record:
        """Return the whole attempt, with what its `attempt_end` tells; raises one of MALFORMED where that is none."""
        job = self.assignment.job
        if failure is None and not self.samples:
            raise ValueError("the end of an attempt without a sample")
        return Record(
            attempt_uid=self.uid,
            job_uid=job.job_uid,
            run_uid=job.run_uid,
            host_uid=job.host_uid,
            number=self.assignment.number,
            started_at=self.started_at,
            ended_at=utc_now(),
            status="failed" if failure else "measured",
            samples=tuple(self.samples),
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
            placement=replace(placement, child_pid=self.child_pid),
            quality_reasons=tuple(event.get("notes", ())),
            **ids,
        )
