"""Hosts that do what a story says, in place of a cluster: `orchestrator.fleet.Hosts` for tests of what drives them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from orchestrator.fleet import Answer, Heard, Message, Over, Seen
from orchestrator.intake import Intake
from orchestrator.members import Member
from schema.errors import TokfleetError
from schema.job import Group
from tests.factories import make_failure, make_record
from worker.group import Errand

Event = dict[str, Any]
Story = Callable[["ScriptedHosts"], Iterator[Message | None]]


class ScriptedHosts:
    """What is asked of them is kept; what they say is what the story yields. Their labels are their host_uids."""

    def __init__(self, intake: Intake, story: Story, *hosts: str) -> None:
        self.intake = intake
        self.clock = 0.0
        self.head_silent = 0.0
        self.here = {host: f"node-of-{host}" for host in hosts}
        self.started: dict[str, list[Group]] = {}
        self.errands: list[Errand] = []
        self.dropped: list[str] = []
        self.asked: list[tuple[str, str, tuple[Any, ...]]] = []
        self.journals: dict[str, list[Event]] = {}
        self.acknowledged: set[str] = set()
        self.cancelled = False
        self._story = story(self)

    def now(self) -> float:
        return self.clock

    def members(self) -> tuple[Member, ...]:
        return tuple(
            Member(
                node_id=node, host=host, alive=True, address="", hostname=f"box-{host}", resources={"bench_slot": 1.0}
            )
            for host, node in self.here.items()
        )

    def head_silent_seconds(self) -> float:
        return self.head_silent

    def next(self, seconds: float) -> Message | None:
        return next(self._story)

    def start(self, host: str, errand: Errand) -> None:
        self.errands.append(errand)
        self.started.setdefault(host, []).append(errand.group)

    def drop(self, host: str) -> None:
        self.dropped.append(host)

    def ask(self, host: str, question: Callable[..., Any], *arguments: Any) -> None:
        self.asked.append((host, question.__name__, arguments))

    def ask_all(self, hosts: Iterable[str], question: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        if question.__name__ == "acknowledge":
            self.acknowledged |= set(arguments[0])
        answers = {"settle": self.settled, "held": self._held}
        return {host: answers.get(question.__name__, lambda _: None)(host) for host in hosts}

    def cancel_all(self) -> None:
        self.cancelled = True

    def settled(self, host: str) -> dict[str, Any]:
        """Return what the host answers to `on_host.settle`."""
        return {"host_uid": host, "hostname": f"box-{host}", "events": self.journals.get(host, [])}

    def _held(self, host: str) -> dict[str, str]:
        return {e["record"]["attempt_uid"]: e["record"]["run_uid"] for e in self.journals.get(host, [])}

    def group(self, host: str) -> Group:
        """Return the group that the host was given last."""
        return self.started[host][-1]

    def begins(self, host: str, n: int) -> Message:
        """Return that the n-th attempt of the host's group begins."""
        event = {"event": "attempt_start", "attempt_uid": self.group(host).assignments[n].attempt_uid}
        return self._heard(host, self.group(host), event)

    def ends(self, host: str, n: int, group: Group | None = None, **fields: Any) -> Message:
        """Return that the n-th attempt of the host's group (or of `group`) ends, measured unless `fields` say else."""
        group = group or self.group(host)
        return self._heard(host, group, end_of(group, n, **fields))

    def over(self, host: str, error: TokfleetError | None = None) -> Message:
        """Return that the host's group is over."""
        return Over(host=host, group_uid=self.group(host).group_uid, error=error)

    def seen(self) -> Message:
        """Return who is there now."""
        return Seen(members=self.members())

    def answers(self, value: Any = None) -> Message:
        """Return the answer to the last question: `value`, or what `settled` says."""
        host, question, _ = self.asked[-1]
        return Answer(host=host, question=question, value=self.settled(host) if value is None else value)

    def whole_group(self, host: str) -> Iterator[Message]:
        """Yield all that the host says when its group goes well."""
        for n in range(len(self.group(host).assignments)):
            yield self.begins(host, n)
            yield self.ends(host, n)
        yield self.over(host)

    def _heard(self, host: str, group: Group, event: Event) -> Message:
        return Heard(host=host, group_uid=group.group_uid, event=event, kept=self.intake.keep(event, group))


def end_of(group: Group, n: int, **fields: Any) -> Event:
    """Return the event with which the n-th attempt of the group ends."""
    assignment = group.assignments[n]
    own = {"attempt_uid": assignment.attempt_uid, "number": assignment.number}
    return {"event": "attempt_end", "record": asdict(make_record(assignment.job, **(own | fields)))}


def cut(group: Group, n: int) -> Event:
    """Return how the n-th attempt of the group is closed by a host that was cut."""
    return end_of(group, n, failure=make_failure(stage="interrupted", kind="interrupted"))
