"""What becomes of the attempts that one measuring process was given: which are open, and which of them runs."""

import math
from dataclasses import dataclass, field

from schema.job import Assignment
from worker.attempt import Attempt
from worker.child import Deadline
from worker.conditions.meters import Meters
from worker.models import Resolved
from worker.recovery import utc_now


@dataclass(slots=True)
class Course:
    """The assignments of one process.

    `attempt` is the one that runs; where jobs are measured in turn, several are `open` at once. An attempt's
    time limit counts while it runs: `left` has the seconds of those that wait for their turn.
    """

    waiting: dict[str, Assignment]
    resolved: Resolved
    deadline: Deadline
    child_pid: int | None = None
    attempt: Attempt | None = None
    meters: Meters | None = None
    series_uid: str | None = None
    measured: bool = False
    open: dict[str, Attempt] = field(default_factory=dict)
    left: dict[str, float] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    def begin(self, uid: str) -> Attempt:
        """Open the attempt `uid`, which runs from now on; ValueError where others are open that take no turns."""
        takes_turns = all(other.assignment.job.interleaved for other in self.open.values())
        if not takes_turns or (self.open and not self.waiting[uid].job.interleaved):
            raise ValueError("the start of an attempt in the middle of another")
        attempt = Attempt(self.waiting.pop(uid), utc_now(), child_pid=self.child_pid, meters=self.meters)
        self.open[uid] = attempt
        self.left[uid] = attempt.timeout_seconds
        self.turn_to(uid)
        return attempt

    def turn_to(self, uid: str) -> Attempt:
        """Return the open attempt `uid`, which runs from now on; KeyError where it is not open."""
        attempt = self.open[uid]
        if attempt is not self.attempt:
            if self.attempt is not None:
                self.left[self.attempt.uid] = self.deadline.seconds_left()
            self.deadline.restart(self.left[uid])
            self.attempt = attempt
        return attempt

    def go_on(self) -> None:
        """The process is about to have leave to go on: what it does next is watched, if it is a repetition."""
        if self.attempt is not None:
            self.attempt.go_on()

    def look(self) -> float:
        """Look at the process and the machine if it is time, and return in how many seconds it will be again."""
        watch = self.attempt.watch if self.attempt is not None else None
        return math.inf if watch is None else watch.look()

    def end(self, uid: str) -> None:
        """Close the attempt `uid`; none runs until the next is turned to."""
        self.ended.add(uid)
        self.open.pop(uid, None)
        self.attempt = None
