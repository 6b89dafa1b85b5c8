"""Drive one run to its end: take over what hosts still hold, dispatch what is missing, spool what comes back."""

import contextlib
import statistics
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from orchestrator import dispatch
from orchestrator.cluster import local_cluster
from orchestrator.spool import Drainer, Spool
from orchestrator.store import Store
from schema.accept import accept_fingerprint, accept_probe, accept_record
from schema.canonical import digest
from schema.errors import ClusterError, StoreError
from schema.job import Assignment, Group, Job, ModelRef
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


MODEL_WORDS = {"build": "building", "hash": "reading"}


class Show(Protocol):
    """Where the person at the terminal sees how far the run is."""

    def stage(self, text: str, fraction: float | None = None) -> None:
        """Say what is done outside any job."""

    def step(self, text: str) -> None:
        """Say what part of the current job is being done."""

    def job_started(self, index: int, label: str) -> None:
        """Say that job number `index` is being measured."""

    def sample(self, repetition: int, of: int, rate: float | None) -> None:
        """Say that one repetition is finished."""

    def job_ended(
        self, label: str, rate: float | None, spread: float | None = None, failure: str | None = None
    ) -> None:
        """Say how a job ended."""

    def note(self, text: str) -> None:
        """Print a remark that stays."""


@dataclass(slots=True)
class Driver:
    """One run on this machine, with Ray up and the spool being drained; made by `driving`."""

    store: Store
    spool: Spool
    home: Path
    host_uid: str
    run_uid: str
    python: str
    show: Show
    _rates: dict[str, list[float]] = field(default_factory=dict)
    _n_ended: int = 0
    _shown: str | None = None
    _again: list[Job] = field(default_factory=list)

    def measure(self, groups: Sequence[Sequence[Job]], show: Show) -> None:
        """Measure `groups` of jobs, each with one loaded model; returns when all have ended.

        Jobs that were interrupted by another's failure, since they took turns with it, are measured again.
        """
        self.show = show
        for jobs in groups:
            todo: Sequence[Job] = jobs
            while todo:
                self._again = []
                self._run_group(self._group(todo))
                todo = self._again if len(self._again) < len(todo) else ()

    def _group(self, jobs: Sequence[Job]) -> Group:
        numbers = self.store.next_numbers(self.run_uid)
        return Group(
            group_uid=uuid.uuid4().hex,
            assignments=tuple(
                Assignment(job=job, attempt_uid=uuid.uuid4().hex, number=numbers[job.job_uid]) for job in jobs
            ),
        )

    def _run_group(self, group: Group) -> None:
        assignments = {assignment.attempt_uid: assignment for assignment in group.assignments}
        events = dispatch.run_group(group, self.host_uid, self.home, self.python)
        with contextlib.closing(events):
            for event in events:
                self._handle(event, assignments)

    def _handle(self, event: Event, assignments: dict[str, Assignment]) -> None:
        match event["event"]:
            case "host":
                self._put_fingerprint(event["fingerprint"])
            case "probe":
                self._put_probe(event["probe"])
            case "attempt_start":
                self._show_job(event["attempt_uid"], assignments)
            case "stage":
                self._show_stage(event, assignments)
            case "sample":
                self._show_sample(event, assignments)
            case "attempt_end":
                record = self._put_record(event["record"])
                self._end(record, assignments[record.attempt_uid].job)

    def _put_fingerprint(self, payload: Event) -> None:
        accept_fingerprint(payload)
        self.spool.put("fingerprint", digest(payload), payload)

    def _put_probe(self, payload: Event) -> None:
        try:
            probe = accept_probe(payload)
        except StoreError as error:
            self.show.note(str(error))  # a run is worth more than a probe
            return
        self.spool.put("probe", probe.probe_uid, payload)

    def _put_record(self, payload: Event) -> Record:
        record = accept_record(payload)
        self.spool.put("record", record.attempt_uid, payload)
        return record

    def _show_job(self, uid: str, assignments: dict[str, Assignment]) -> None:
        """Say which job runs, where it is another than before: some take turns."""
        if uid != self._shown:
            self._shown = uid
            self.show.job_started(self._n_ended + 1, label(assignments[uid].job))

    def _show_stage(self, event: Event, assignments: dict[str, Assignment]) -> None:
        if event["stage"] == "model":
            model = next(iter(assignments.values())).job.model
            self.show.stage(f"{MODEL_WORDS[event['text']]} {model_name(model)}", event["fraction"])
        elif event["stage"] == "wait":
            self.show.stage(str(event["text"]))
        else:
            if "attempt_uid" in event:
                self._show_job(event["attempt_uid"], assignments)
            self.show.step(STAGE_WORDS.get(event["stage"], str(event["stage"])))

    def _show_sample(self, event: Event, assignments: dict[str, Assignment]) -> None:
        self._show_job(event["attempt_uid"], assignments)
        sample, job = event["sample"], assignments[event["attempt_uid"]].job
        rates = self._rates.setdefault(event["attempt_uid"], [])
        rates.append(1e9 * sample["n_tokens"] / sample["elapsed_ns"])
        self.show.sample(sample["repetition"], job.repetitions, statistics.fmean(rates))

    def _end(self, record: Record, job: Job) -> None:
        if record.failure is not None and record.failure.kind == "interrupted":
            self._rates.pop(record.attempt_uid, None)
            self._again.append(job)
            return
        self._n_ended += 1
        self._show_end(record, job)

    def _show_end(self, record: Record, job: Job) -> None:
        rates = self._rates.pop(record.attempt_uid, [])
        if record.failure is not None:
            self.show.job_ended(label(job), None, None, record.failure.message)
            return
        self.show.job_ended(label(job), statistics.fmean(rates), statistics.stdev(rates) if len(rates) > 1 else None)

    def _take_over(self) -> None:
        """Spool what dead groups of runs in this store left in the host's journals."""
        for event in dispatch.recovered(self.host_uid, self.home):
            if self._known(event["run_uid"] if event["event"] == "probe" else event["record"]["run_uid"]) is None:
                continue
            if event["event"] == "probe":
                self._put_probe(event["probe"])
            else:
                self._put_record(event["record"])

    def _acknowledge(self) -> None:
        """Let the host forget what is safe in the store."""
        held = self._held()
        safe = [self._known(run_uid) or frozenset() for run_uid in {record["run_uid"] for record in held}]
        dispatch.acknowledge(self.host_uid, self.home, frozenset().union(*safe))

    def _held(self) -> list[Event]:
        found = dispatch.recovered(self.host_uid, self.home)
        return [event["record"] for event in found if event["event"] == "attempt_end"]

    def _known(self, run_uid: str) -> frozenset[str] | None:
        """Return the attempts of a run that are stored; None where the run is another store's."""
        try:
            return self.store.attempt_uids(self.store.run(run_uid).run_uid)
        except StoreError:
            return None


@contextlib.contextmanager
def driving(driver: Driver) -> Iterator[Driver]:
    """Start Ray and the draining of the spool for the length of the block.

    Before the block everything that earlier, dead runs left on this host is in the store; after it,
    however it ends, everything that was measured is.
    """
    with Drainer(driver.spool, driver.store.save_entries) as drainer:
        driver.show.stage("starting Ray on this machine")
        with local_cluster(driver.host_uid):
            driver._take_over()
            drainer.flush()
            with contextlib.ExitStack() as at_the_end:
                at_the_end.callback(driver._acknowledge)
                at_the_end.callback(drainer.flush)
                at_the_end.callback(driver._take_over)
                try:
                    yield driver
                except ClusterError:
                    at_the_end.pop_all()  # the host is gone: its journal is taken over when it is back
                    raise


def label(job: Job) -> str:
    """Return a job as people read it: model, test, build, and what differs from the default settings."""
    return " ".join(part for part in (model_name(job.model), job.test.name, *job.deviations()) if part)


def model_name(model: ModelRef) -> str:
    """Return a model as people read it: the file's name, or shape and quantisation of a synthetic one."""
    return model.spec if model.source == "synthetic" else Path(model.spec).name
