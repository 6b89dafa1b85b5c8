"""What hosts' journals hold of runs in this store: kept here, and forgotten there once it is safe."""

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from orchestrator.fleet import Event
from orchestrator.intake import Intake
from orchestrator.store import Store
from schema.errors import StoreError, StoreUnavailableError
from schema.job import Job
from schema.record import Failure, Record
from worker.recovery import utc_now

MALFORMED = (KeyError, TypeError, AttributeError)
MAX_REASON = 2000


class Journals:
    """The journals of all hosts of a run; `tell` hears what of them cannot be kept."""

    def __init__(self, store: Store, intake: Intake, run_uid: str, tell: Callable[[str], None]) -> None:
        self.intake = intake
        self._store, self._run_uid, self._tell = store, run_uid, tell

    def keep(self, events: Iterable[Event]) -> Iterator[Record]:
        """Keep the probes and records of runs in this store, and yield the records.

        What is none is told and left out: one damaged line must not keep a host from ever measuring again.
        """
        known = {self._run_uid: True}
        for event in events:
            try:
                is_probe = event["event"] == "probe"
                run_uid = event["run_uid"] if is_probe else event["record"]["run_uid"]
                if run_uid not in known:
                    known[run_uid] = self._known(run_uid) is not None
                if known[run_uid] and is_probe:
                    self.intake.put_probe(event["probe"])
                elif known[run_uid]:
                    yield self.intake.put_record(event["record"])
            except StoreUnavailableError:
                raise
            except (*MALFORMED, StoreError) as error:
                self._tell(f"A line of a host's journal was left out: {error}")

    def safe(self, held: Mapping[str, Any]) -> frozenset[str]:
        """Return which of the attempts that hosts hold, by host as `on_host.held` tells, are in the store."""
        answers = [answer for answer in held.values() if isinstance(answer, dict)]
        stored = [self._known(run_uid) or frozenset() for run_uid in {run for each in answers for run in each.values()}]
        return frozenset(uid for answer in answers for uid in answer).intersection(frozenset[str]().union(*stored))

    def _known(self, run_uid: Any) -> frozenset[str] | None:
        """Return the attempts of a run that are stored; None where the run is another store's."""
        try:
            return self._store.attempt_uids(self._store.run(str(run_uid)).run_uid)
        except StoreError:
            return None


def lost_record(job: Job, number: int, reason: str) -> Record:
    """Return the record of a job that has no result for its host's or the network's sake."""
    now = utc_now()
    return Record(
        attempt_uid=uuid.uuid4().hex,
        job_uid=job.job_uid,
        run_uid=job.run_uid,
        host_uid=job.host_uid,
        number=number,
        started_at=now,
        ended_at=now,
        status="failed",
        failure=Failure(stage="host lost", message=reason[:MAX_REASON], kind="host lost"),
    )
