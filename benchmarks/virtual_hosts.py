"""Hosts that exist only on a virtual clock, for benchmarks of what drives them: `orchestrator.fleet.Hosts` without Ray.

A job takes exactly the seconds that it is told to take, and time passes only when the driver waits.
"""

import heapq
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from orchestrator.fleet import Answer, Heard, Keep, Message, Over, Seen
from orchestrator.members import Member
from schema.host import Allocation, Build, Environment, Fingerprint, Hardware
from schema.job import Assignment, Job
from schema.record import Conditions, Effective, Latency, Memory, ModelFacts, Placement, Record, Sample
from worker.group import Errand

START = datetime(2026, 1, 1, tzinfo=UTC)
LOOK_SECONDS = 10.0
GIB = 1 << 30


def fingerprint(number: int) -> Fingerprint:
    """Return host number `number`: one of fifty kinds of machine."""
    kind = number % 50
    return Fingerprint(
        host_uid=f"{number:032x}",
        uid_source="virtual",
        hostname=f"virtual-{number:04}",
        taken_at="2026-01-01T00:00:00Z",
        hardware=Hardware(
            arch="x86_64",
            cpu_name=f"Virtual CPU {kind}",
            n_cores_physical=4 + kind,
            n_cores_logical=8 + 2 * kind,
            memory_gib=16 + kind,
            memory_bytes=(16 + kind) * GIB,
            gpu_status="none",
        ),
        allocation=Allocation(n_cpus=8 + 2 * kind),
        environment=Environment(os="Virtual 1", python="3.11.7"),
        build=Build(binding="virtual", method="fake", backends=("CPU",)),
    )


class VirtualHosts:
    """Hosts by their host_uids, which are their labels too; `seconds_of` tells how long a job takes on its host."""

    def __init__(self, hosts: Iterable[Fingerprint], keep: Keep, seconds_of: Callable[[Job], float]) -> None:
        self._hosts = {host.host_uid: host for host in hosts}
        self._keep, self._seconds_of = keep, seconds_of
        self._now = 0.0
        self._order = itertools.count()
        self._coming: list[tuple[float, int, Callable[[], Message | None]]] = []
        self._members = tuple(_member(host) for host in self._hosts.values())
        self.measuring: dict[str, str] = {}
        self.overlaps = 0
        self._at(LOOK_SECONDS, self._look)

    def now(self) -> float:
        """Return the virtual seconds that have passed."""
        return self._now

    def members(self) -> tuple[Member, ...]:
        """Return all hosts: nobody ever leaves."""
        return self._members

    def head_silent_seconds(self) -> float:
        """Return 0: the head always answers."""
        return 0.0

    def next(self, seconds: float) -> Message | None:
        """Return what happens next, however long that takes."""
        while self._coming:
            at, _, happen = heapq.heappop(self._coming)
            self._now = max(self._now, at)
            message = happen()
            if message is not None:
                return message
        self._now += seconds
        return None

    def start(self, host: str, errand: Errand) -> None:
        """Measure the errand's jobs, one after another."""
        self.overlaps += host in self.measuring
        group = errand.group
        self.measuring[host] = group.group_uid
        at = self._now
        for assignment in group.assignments:
            begun = at
            at += self._seconds_of(assignment.job)
            self._at(begun, lambda each=assignment: self._heard(host, errand, _begun(each)))  # type: ignore[misc]
            self._at(
                at,
                lambda each=assignment, since=begun, until=at: self._heard(  # type: ignore[misc]
                    host, errand, self._ended(each, since, until)
                ),
            )
        self._at(at, lambda: self._over(host, group.group_uid))

    def drop(self, host: str) -> None:
        """Do nothing: nobody is lost here."""

    def ask(self, host: str, question: Callable[..., Any], *arguments: Any) -> None:
        """Answer at once."""
        value = self._answer(host)
        self._at(self._now, lambda: Answer(host=host, question=question.__name__, value=value))

    def ask_all(self, hosts: Iterable[str], question: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Answer at once, for all."""
        return {host: self._answer(host) for host in hosts}

    def cancel_all(self) -> None:
        """Forget what would come."""
        self._coming = []

    def _answer(self, host: str) -> Mapping[str, Any]:
        return {"host_uid": host, "hostname": self._hosts[host].hostname, "events": []}

    def _at(self, at: float, happen: Callable[[], Message | None]) -> None:
        heapq.heappush(self._coming, (at, next(self._order), happen))

    def _look(self) -> Message:
        self._at(self._now + LOOK_SECONDS, self._look)
        return Seen(members=self._members)

    def _heard(self, host: str, errand: Errand, event: dict[str, Any]) -> Message:
        kept = self._keep(event, errand.group)
        return Heard(host=host, group_uid=errand.group.group_uid, event=event, kept=kept)

    def _over(self, host: str, group_uid: str) -> Message:
        del self.measuring[host]
        return Over(host=host, group_uid=group_uid)

    def _ended(self, assignment: Assignment, since: float, until: float) -> dict[str, Any]:
        return {"event": "attempt_end", "record": asdict(_record(assignment, self._hosts, since, until))}


def _member(host: Fingerprint) -> Member:
    return Member(
        node_id=host.host_uid,
        host=host.host_uid,
        alive=True,
        address="127.0.0.1",
        hostname=host.hostname,
        resources={"bench_slot": 1.0},
    )


def _begun(assignment: Assignment) -> dict[str, Any]:
    return {"event": "attempt_start", "attempt_uid": assignment.attempt_uid, "started_at": _time(0)}


def _record(assignment: Assignment, hosts: Mapping[str, Fingerprint], since: float, until: float) -> Record:
    """Return a record as full as a real one of a CPU."""
    job, host = assignment.job, hosts[assignment.job.host_uid]
    ns = int((until - since) * 1e9 / job.repetitions) or 1
    samples = tuple(
        Sample(repetition=n, n_tokens=job.test.n_tokens, elapsed_ns=ns + n, cpu_share=0.99)
        for n in range(job.repetitions)
    )
    in_effect = {name: Effective(value=1, source="getter") for name in ("n_batch", "n_ubatch", "n_threads")}
    return replace(
        _BLANK,
        attempt_uid=assignment.attempt_uid,
        job_uid=job.job_uid,
        run_uid=job.run_uid,
        host_uid=job.host_uid,
        number=assignment.number,
        started_at=_time(since),
        ended_at=_time(until),
        samples=samples,
        in_effect=in_effect,
        hardware_id=host.hardware.hardware_id,
        allocation_id=host.allocation.allocation_id,
        environment_id=host.environment.environment_id,
        build_id=host.build.build_id if host.build else None,
    )


def _time(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_BLANK = Record(
    attempt_uid="",
    job_uid="",
    run_uid="",
    host_uid="",
    number=1,
    started_at="",
    ended_at="",
    status="measured",
    model=ModelFacts(sha256="0" * 64, filename="virtual.gguf", file_bytes=GIB, synthetic=True),
    latency=Latency(p50_ns=1, p95_ns=1, p99_ns=1, max_ns=1, histogram=(1,) + (0,) * 63),
    memory=Memory(peak_rss_bytes=GIB),
    conditions=Conditions(cpu_share=0.99, others_busy_cores=0.0, watched_seconds=1.0, looks=2),
    placement=Placement(worker_pid=1, child_pid=2),
    load_seconds=1.0,
    warmup_seconds=0.1,
    warmup_passes=1,
    quality="clean",
)
