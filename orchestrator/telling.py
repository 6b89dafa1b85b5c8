"""What the person at the terminal hears of a group while it is measured, host by host."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from schema.job import Group, Job
from schema.record import Record

Event = dict[str, Any]
STAGE_WORDS = {
    "load": "loading the model",
    "context": "making the context",
    "fill": "filling the context to its depth",
    "warmup": "warming up",
    "prefill": "prefill",
    "decode": "decode",
    "verify": "verifying",
    "end": "finishing",
    "probe": "measuring the memory",
}
MODEL_WORDS = {"build": "building", "hash": "reading", "fetch": "fetching"}
MALFORMED = (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError)


class Lane(Protocol):
    """Where one host's doings are shown."""

    def stage(self, text: str, fraction: float | None = None) -> None:
        """Say what is done outside any job."""

    def step(self, text: str) -> None:
        """Say what part of the current job is being done."""

    def job_started(self, label: str) -> None:
        """Say that a job is being measured."""

    def sample(self, repetition: int, of: int, rate: float | None) -> None:
        """Say that one repetition is finished."""

    def job_ended(
        self, label: str, rate: float | None, spread: float | None = None, failure: str | None = None
    ) -> None:
        """Say how a job ended."""

    def idle(self) -> None:
        """Say that the host does nothing for us now."""


class Show(Protocol):
    """Where the person at the terminal sees how far the run is."""

    def stage(self, text: str, fraction: float | None = None) -> None:
        """Say what is done outside any job."""

    def note(self, text: str) -> None:
        """Print a remark that stays."""

    def more(self, n_jobs: int, expected_seconds: float | None = None) -> None:
        """Count more jobs."""

    def lane(self, host: str) -> Lane:
        """Return where the host of this name is shown; "" where there is only one."""


@dataclass(slots=True)
class Telling:
    """Tells of one group on its way."""

    lane: Lane
    group: Group
    _jobs: dict[str, Job] = field(default_factory=dict)
    _rates: dict[str, list[float]] = field(default_factory=dict)
    _shown: str | None = None

    def __post_init__(self) -> None:
        self._jobs = {assignment.attempt_uid: assignment.job for assignment in self.group.assignments}

    def tell(self, event: Event) -> None:
        """Show what an event says; one that says nothing sensible is passed over."""
        try:
            match event["event"]:
                case "attempt_start":
                    self._show_job(event["attempt_uid"])
                case "stage":
                    self._show_stage(event)
                case "sample":
                    self._show_sample(event)
        except MALFORMED:
            return

    def begun_by(self, event: Event) -> str | None:
        """Return the job whose attempt the event begins, by its uid."""
        uid = event.get("attempt_uid") if event.get("event") == "attempt_start" else None
        return self._jobs[uid].job_uid if isinstance(uid, str) and uid in self._jobs else None

    def number_of(self, job_uid: str) -> int:
        """Return the number of the attempt at a job."""
        return next(each.number for each in self.group.assignments if each.job.job_uid == job_uid)

    def _show_job(self, uid: str) -> None:
        """Say which job runs, where it is another than before: some take turns."""
        if uid != self._shown:
            self._shown = uid
            self.lane.job_started(self._jobs[uid].label)

    def _show_stage(self, event: Mapping[str, Any]) -> None:
        if event["stage"] == "model":
            self.lane.stage(f"{MODEL_WORDS[event['text']]} {self.group.model.name}", event["fraction"])
        elif event["stage"] == "wait":
            self.lane.stage(str(event["text"]))
        else:
            if "attempt_uid" in event:
                self._show_job(event["attempt_uid"])
            self.lane.step(STAGE_WORDS.get(event["stage"], str(event["stage"])))

    def _show_sample(self, event: Mapping[str, Any]) -> None:
        self._show_job(event["attempt_uid"])
        sample, job = event["sample"], self._jobs[event["attempt_uid"]]
        rates = self._rates.setdefault(event["attempt_uid"], [])
        rates.append(1e9 * sample["n_tokens"] / sample["elapsed_ns"])
        self.lane.sample(sample["repetition"], job.repetitions, statistics.fmean(rates))


def show_end(lane: Lane, job: Job, record: Record) -> None:
    """Show how an attempt at `job` ended."""
    if record.failure is not None:
        lane.job_ended(job.label, None, None, record.failure.message)
        return
    rates = [1e9 * sample.n_tokens / sample.elapsed_ns for sample in record.samples]
    lane.job_ended(job.label, statistics.fmean(rates), statistics.stdev(rates) if len(rates) > 1 else None)
