"""Drive one run to its end over all hosts: send each what is next, hear what comes of it, go on without the lost.

This sleeps on one inbox. What hosts send is on the disk before it arrives here (`orchestrator.intake`); what
comes next is decided by `orchestrator.queues`.
"""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator import on_host
from orchestrator.fleet import Answer, Broken, Heard, Hosts, Message, Over, Seen
from orchestrator.gates import lab_host
from orchestrator.journals import Journals, lost_record
from orchestrator.members import Member, hosts_of, problems_of
from orchestrator.order import Expected
from orchestrator.place import Place
from orchestrator.queues import GivenUp, Queues, Rules, Start
from orchestrator.store import Store
from orchestrator.telling import Lane, Show, Telling, show_end
from schema.errors import ClusterError, HostError, TokfleetError
from schema.job import Assignment, Group, Job
from schema.lab_host import Lab
from schema.record import Record
from worker.group import Errand

HEAD_SECONDS = 30.0
"""A head that says nothing for so long is gone."""

WAKE_SECONDS = 1.0
MOST_PATIENCE_SECONDS = 60.0
"""A host that cannot answer is asked again after some seconds, and then ever less often."""

MAX_REASON = 2000
MAX_NAME = 200

Join = Callable[[str, Any], Sequence[Expected]]
"""Takes a host's label and what it said of itself; plans and stores its share, and returns that."""


@dataclass(slots=True, kw_only=True)
class Driver:
    """One run over the hosts of a connected cluster, with the spool being drained; made ready by `driving`.

    `python` measures where a host is not to choose its own. Each group waits `quiet_seconds` at most for a quiet host.
    `join` plans the share of a host that comes late, asked with `join_words`; None where nobody joins.
    `gates` is called now and then with the driver's queues, the places and the time: it holds and releases hosts.
    """

    store: Store
    journals: Journals
    hosts: Hosts
    run_uid: str
    show: Show
    rules: Rules = field(default_factory=Rules)
    lab: Lab = field(default_factory=Lab)
    python: str | None = None
    quiet_seconds: float = 0.0
    is_local: bool = False
    planned: frozenset[str] = frozenset()
    join: Join | None = None
    join_words: tuple[Any, ...] = ()
    gates: Callable[[Queues, Iterable[Place], float], None] | None = None
    _places: dict[str, Place] = field(default_factory=dict)
    _jobs: dict[str, Job] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)
    _recorded: set[str] = field(default_factory=set)
    _tellings: dict[str, Telling] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _queues: Queues = field(default_factory=Queues)
    _uids: set[str] = field(default_factory=set)
    _by_uid: dict[str, Place] = field(default_factory=dict)
    _groups: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def measure(self, jobs: Sequence[Expected], show: Show) -> None:
        """Measure `jobs`, in their planned order, each on its host; returns when all have ended or are given up."""
        self.show = show
        now = self.hosts.now()
        self._queues = Queues(replace(self.rules, limits=self.lab.limits, groups_of=self._groups), began=now)
        self._numbers = self.store.next_numbers(self.run_uid)
        self._add(jobs)
        for place in self._places.values():
            if place.is_here and place.uid is not None:
                self._queues.came(place.uid, now)
        self._tell_absent()
        try:
            while not self._queues.over(self.hosts.now()):
                self._turn()
        except ClusterError:
            raise  # nobody can be told any more; hosts stop when they miss their head
        except BaseException:
            self.hosts.cancel_all()
            raise
        finally:
            self._jobs = {}  # what comes from now on is kept, and nobody waits to hear of it

    def _add(self, jobs: Sequence[Expected]) -> None:
        self._jobs.update((job.job_uid, job) for job, _ in jobs)
        self._uids |= {job.host_uid for job, _ in jobs}
        self._queues.add(jobs)

    def _turn(self) -> None:
        now = self.hosts.now()
        if self.gates is not None:
            self.gates(self._queues, self._places.values(), now)
        for start in self._queues.starts(now):
            self._begin(start)
        for given_up in self._queues.given_up(now):
            self._put_failed(given_up)
        message = self.hosts.next(WAKE_SECONDS)
        if message is not None:
            self._hear(message)
        if self.hosts.head_silent_seconds() > HEAD_SECONDS and not self.is_local:
            raise ClusterError(
                f"The Ray head has not answered for {HEAD_SECONDS:g} s. Nothing that was measured is lost; start it "
                f"again, then `tokfleet resume {self.run_uid[:8]}`."
            )

    def _begin(self, start: Start) -> None:
        place = self._by_uid[start.host_uid]
        group = Group(group_uid=uuid.uuid4().hex, assignments=tuple(self._assignment(job) for job in start.jobs))
        place.group, place.begun = group, set()
        self._tellings[group.group_uid] = Telling(self._lane(place), group)
        self.hosts.start(place.label, self._errand(group, place))

    def _errand(self, group: Group, place: Place) -> Errand:
        own = lab_host(self.lab, place)
        return Errand(
            group=group,
            python=self.python or own.python or "",
            commands=own.host_settings,
            quiet_seconds=self.quiet_seconds,
        )

    def _assignment(self, job: Job) -> Assignment:
        return Assignment(job=job, attempt_uid=uuid.uuid4().hex, number=self._next_number(job))

    def _next_number(self, job: Job) -> int:
        """Return the number of the job's next attempt; one that never began has left none."""
        return self._numbers.get(job.job_uid, 1)

    def _lane(self, place: Place | None) -> Lane:
        return self.show.lane(self._called(place) if place is not None and len(self._uids) > 1 else "")

    def _called(self, place: Place) -> str:
        """Return the name of a host, with its label where another has the same name."""
        name = place.name or place.label
        alike = sum(other.name == place.name for other in self._places.values())
        return f"{name} ({place.label[:8]})" if alike > 1 else name

    def _hear(self, message: Message) -> None:
        match message:
            case Heard():
                self._hear_event(message)
            case Over():
                self._hear_end(message)
            case Seen():
                self._see(message.members)
            case Answer():
                self._hear_answer(message)
            case Broken():
                raise message.error

    def _hear_event(self, heard: Heard) -> None:
        if heard.kept.remark is not None:
            self.show.note(heard.kept.remark)
        telling = self._tellings.get(heard.group_uid)
        if telling is not None:
            telling.tell(heard.event)
            if (begun := telling.begun_by(heard.event)) is not None:
                self._places[heard.host].begun.add(begun)
                self._numbers[begun] = telling.number_of(begun) + 1
        if heard.kept.record is not None:
            self._note_record(heard.kept.record)

    def _note_record(self, record: Record) -> None:
        """Take a record that is safe into account, once."""
        job = self._jobs.get(record.job_uid)
        is_known = job is not None and (job.run_uid, job.host_uid) == (record.run_uid, record.host_uid)
        if job is None or not is_known or record.attempt_uid in self._recorded:
            return
        self._recorded.add(record.attempt_uid)
        self._numbers[job.job_uid] = max(self._numbers.get(job.job_uid, 1), record.number + 1)
        if record.failure is not None and record.failure.kind == "interrupted":
            return
        if self._queues.finished(job.job_uid, job.host_uid, contended=record.quality == "contended"):
            self.show.more(1)
        show_end(self._lane(self._by_uid.get(job.host_uid)), job, record)

    def _hear_end(self, over: Over) -> None:
        place = self._places[over.host]
        if place.group is None or place.group.group_uid != over.group_uid or place.uid is None:
            return
        self._lane(place).idle()
        if over.error is None:
            self._tellings.pop(over.group_uid, None)
            place.group = None
            self._queues.ended(place.uid)
            return
        if self.is_local and isinstance(over.error, HostError):
            raise over.error
        self._lose(place, str(over.error))

    def _lose(self, place: Place, why: str) -> None:
        """Begin nothing on a host, whose group may still run there, until it has answered."""
        if not place.is_here:
            return
        place.is_here, place.why = False, why[:MAX_REASON]
        if place.group is not None:
            place.given_up.append(place.group.group_uid)
            self._tellings.pop(place.group.group_uid, None)
            self.hosts.drop(place.label)
        if place.uid is not None:
            self._queues.lost(place.uid, self.hosts.now(), place.why, place.begun)
        place.group = None
        self.show.note(f"{self._called(place)} is lost: {place.why}")

    def _see(self, members: tuple[Member, ...]) -> None:
        """Notice who is gone, who is back, perhaps under another NodeID, and who is new."""
        there = hosts_of(members)
        for problem in problems_of(members):
            self._tell_once(problem)
        for place in self._places.values():
            member = there.get(place.label)
            if member is None or (place.node_id is not None and member.node_id != place.node_id):
                self._lose(place, _why_gone(place, members))
                if self.is_local and member is None:
                    raise ClusterError(f"Ray on this machine has ended. {place.why} `tokfleet resume` goes on.")
                place.node_id = None
        for label, member in there.items():
            place = self._places.setdefault(label, Place(label=label, name=member.hostname))
            place.node_id = member.node_id
            self._ask_if_ready(place)

    def _ask_if_ready(self, place: Place) -> None:
        if not place.is_here and not place.is_asked and self.hosts.now() >= place.ask_at:
            place.is_asked = True
            self.hosts.ask(place.label, on_host.settle, list(place.given_up), place.uid is None)

    def _hear_answer(self, answer: Answer) -> None:
        place = self._places[answer.host]
        place.is_asked = False
        if isinstance(answer.value, TokfleetError):
            place.why = str(answer.value)[:MAX_REASON]
            place.n_refusals += 1
            place.ask_at = self.hosts.now() + min(2.0**place.n_refusals, MOST_PATIENCE_SECONDS)
            self._tell_once(f"{self._called(place)}: {place.why}")
            return
        if answer.question == on_host.settle.__name__:
            self._settled(place, answer.value)
        else:
            self._described(place, answer.value)

    def _settled(self, place: Place, answer: Mapping[str, Any]) -> None:
        """Go on with a host whose journals are taken over, or plan its share where it is new."""
        self._take(place, answer)
        if place.uid in self._uids or self.join is None or place.uid in self.planned:
            self._go_on(place)
        else:
            place.is_asked = True
            self.hosts.ask(place.label, on_host.describe, *self.join_words)

    def _described(self, place: Place, answer: Any) -> None:
        """Plan and begin the share of a host that came late."""
        if self.join is not None and place.uid is not None:
            self.planned |= {place.uid}
            try:
                jobs = self.join(place.label, answer)
            except TokfleetError as error:
                self._tell_once(f"{self._called(place)}, which came late, does nothing in this run: {error}")
                jobs = ()
            self._add(jobs)
            self.show.more(len(jobs), sum(seconds for _, seconds in jobs))
        self._go_on(place)

    def _go_on(self, place: Place) -> None:
        place.is_here, place.given_up, place.n_refusals = True, [], 0
        if place.uid is not None:
            self._queues.came(place.uid, self.hosts.now())

    def take_over(self) -> None:
        """Keep what dead groups of runs in this store left in the journals of all hosts that answer."""
        found = hosts_of(self.hosts.members())
        unknown = [label for label in found if label not in self._places and not self.is_local]
        known = [label for label in found if label not in unknown]
        answers = self.hosts.ask_all(known, on_host.settle, [], False)
        answers |= self.hosts.ask_all(unknown, on_host.settle, [], True)
        for label, answer in answers.items():
            place = self._places.setdefault(label, Place(label=label, name=found[label].hostname))
            place.node_id = found[label].node_id
            if isinstance(answer, TokfleetError):
                place.is_here, place.why = False, str(answer)[:MAX_REASON]
                self.show.note(f"{place.name or label}: {place.why}")
                continue
            place.is_here = True
            self._take(place, answer)

    def _take(self, place: Place, answer: Mapping[str, Any]) -> None:
        """Take over what a host's journals hold, and who it is where that was asked."""
        place.uid = place.uid or str(answer["host_uid"] or place.label)
        if place.label == place.uid and answer["hostname"]:  # made by us: people know it by its name
            place.name = str(answer["hostname"])[:MAX_NAME]
        self._by_uid[place.uid] = place
        self._groups[place.uid] = lab_host(self.lab, place).groups
        for record in self.journals.keep(answer["events"]):
            self._note_record(record)

    def acknowledge(self) -> None:
        """Let the hosts forget what is safe in the store."""
        answering = [label for label, place in self._places.items() if place.is_here]
        safe = self.journals.safe(self.hosts.ask_all(answering, on_host.held))
        if safe:
            self.hosts.ask_all(answering, on_host.acknowledge, safe)

    def _put_failed(self, given_up: GivenUp) -> None:
        """Store why a job has no result."""
        record = lost_record(given_up.job, self._next_number(given_up.job), given_up.reason)
        self.journals.intake.put(record)
        self._note_record(record)

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self.show.note(text)

    def _tell_absent(self) -> None:
        absent = self._uids - set(self._by_uid)
        n_jobs = sum(job.host_uid in absent for job in self._jobs.values())
        if not n_jobs:
            return
        if self.is_local:
            self.show.note(f"{n_jobs} jobs are another machine's; resume the run there.")
        else:
            self.show.note(f"{n_jobs} jobs are of hosts that are not in the cluster; they begin when those come.")


def _why_gone(place: Place, members: Iterable[Member]) -> str:
    """Return what the head says of a host that it does not count as there, in a sentence."""
    reasons = [member.death_reason for member in members if member.node_id == place.node_id and member.death_reason]
    return f"the head says: {reasons[0]}" if reasons else "the head does not reach it any more."
