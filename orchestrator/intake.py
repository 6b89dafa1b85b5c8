"""What hosts send, checked and put on this machine's disk before anything else is made of it."""

from dataclasses import asdict
from typing import Any

from orchestrator.fleet import Event, Kept
from orchestrator.spool import Spool
from schema.accept import accept_fingerprint, accept_probe, accept_record
from schema.canonical import digest
from schema.errors import StoreError
from schema.job import Group
from schema.record import Record


class Intake:
    """Keeps fingerprints, probes and records in a spool; its methods may be called from any thread."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool

    def keep(self, event: Event, group: Group) -> Kept:
        """Keep what must not be lost of an event of `group`; when this returns it is on the disk.

        Raises StoreError where it is no record, or the record of something that was not asked for, and
        StoreUnavailableError where this machine cannot keep it.
        """
        kind = event.get("event")
        if kind == "host":
            self.put_fingerprint(event["fingerprint"])
        elif kind == "probe":
            return Kept(remark=self.put_probe(event["probe"]))
        elif kind == "attempt_end":
            return Kept(record=self.put_record(event["record"], group))
        return Kept()

    def put_fingerprint(self, payload: Event) -> None:
        """Keep a host's fingerprint."""
        accept_fingerprint(payload)
        self._spool.put("fingerprint", digest(payload), payload)

    def put_probe(self, payload: Event) -> str | None:
        """Keep a probe; returns what is wrong with it instead of raising: a run is worth more than a probe."""
        try:
            probe = accept_probe(payload)
        except StoreError as error:
            return str(error)
        self._spool.put("probe", probe.probe_uid, payload)
        return None

    def put(self, record: Record) -> None:
        """Keep a record of our own."""
        self._spool.put("record", record.attempt_uid, asdict(record))

    def put_record(self, payload: Event, group: Group | None = None) -> Record:
        """Keep a record and return it; with `group`, StoreError where it is of no assignment of that."""
        record = accept_record(payload)
        if group is not None:
            _check_asked_for(record, group)
        self._spool.put("record", record.attempt_uid, payload)
        return record


def _check_asked_for(record: Record, group: Group) -> None:
    told: Any = (record.attempt_uid, record.job_uid, record.run_uid, record.host_uid)
    for assignment in group.assignments:
        job = assignment.job
        if assignment.attempt_uid == record.attempt_uid and told[1:] == (job.job_uid, job.run_uid, job.host_uid):
            return
    raise StoreError(f"The record of attempt {record.attempt_uid!r:.80} was refused: nobody asked this host for it.")
