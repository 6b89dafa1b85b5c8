"""What each host measures next: one queue a host, at most one group of jobs in flight in each; pure.

Time is given to every method, in seconds of any clock that goes on, so a whole lab can be tried in a moment.
A job stands in the queue of its host and nowhere else, so it is never measured twice at once.
"""

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.order import GROUP_SECONDS, Expected, group_size
from schema.job import Job

MOST_FRUITLESS = 3
Unit = tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What bounds a run.

    Of the hosts of a group in `limits` only so many measure at once; `groups_of` is by host_uid. `tries` is how
    often a job is begun that its host or the network cuts short, and how often a host may end a group without
    having begun one job; three times as often it may end one without having ended a job. A host that was lost is
    waited for `wait_seconds`. Once `seconds` have passed no group is
    begun any more. A result that others disturbed is measured again up to `contended_tries` times.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    groups_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tries: int = 3
    wait_seconds: float = 900.0
    seconds: float | None = None
    contended_tries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Jobs that a host is to begin now, in one process."""

    host_uid: str
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """A job that will not be measured in this run, and why: a sentence."""

    job: Job
    reason: str


@dataclass(slots=True)
class _Host:
    """One host's queue: `jobs` from `next` on wait, `busy` are in flight, `seconds` is what waits."""

    uid: str
    jobs: list[Job] = field(default_factory=list)
    next: int = 0
    seconds: float = 0.0
    busy: dict[str, Job] = field(default_factory=dict)
    in_flight: bool = False
    here: bool = False
    held: bool = False
    waited_for: bool = True
    away_since: float | None = None
    why_away: str = ""
    fruitless: int = 0
    barren: int = 0
    ended_one: bool = False
    until: float | None = None

    @property
    def has_work(self) -> bool:
        return self.next < len(self.jobs)

    def put_first(self, jobs: Sequence[Job]) -> None:
        self.jobs[: self.next] = jobs
        self.next = 0


class Queues:
    """The queues of all hosts of a run. Hosts are named by their host_uid, and known once they have jobs."""

    def __init__(self, rules: Rules | None = None, began: float = 0.0) -> None:
        """Begin a run at the moment `began`."""
        self.rules = rules or Rules()
        self._began = began
        self._hosts: dict[str, _Host] = {}
        self._seconds: dict[str, float] = {}
        self._done: set[str] = set()
        self._tries: dict[str, int] = {}
        self._contended: dict[str, int] = {}
        self._given_up: list[GivenUp] = []
        self._measuring: dict[str, int] = {}
        self._ready: dict[tuple[str, ...], list[tuple[float, str]]] = {}
        self._away: set[str] = set()
        self._n_in_flight = 0

    def add(self, jobs: Iterable[Expected]) -> None:
        """Put jobs, in their planned order and with their expected seconds, into the queues of their hosts.

        What shares a model and a build stays together, and of these the longest comes first; what alternates in
        blocks keeps its order.
        """
        by_host: dict[str, dict[Unit, list[Expected]]] = {}
        for job, seconds in jobs:
            unit: Unit = ("across",) if job.across else (job.model.identity, job.build)
            by_host.setdefault(job.host_uid, {}).setdefault(unit, []).append((job, seconds))
        for uid, units in by_host.items():
            host = self._hosts.setdefault(uid, _Host(uid))
            for unit_jobs in sorted(units.values(), key=lambda those: -sum(seconds for _, seconds in those)):
                self._append(host, unit_jobs)
            self._offer(host)

    def _append(self, host: _Host, jobs: Iterable[Expected]) -> None:
        for job, seconds in jobs:
            uid = job.job_uid
            if uid not in self._seconds and uid not in self._done:
                self._seconds[uid] = seconds
                host.jobs.append(job)
                host.seconds += seconds

    def starts(self, now: float) -> Iterator[Start]:
        """Yield what is to begin now: of the hosts that may, the one with the longest queue first."""
        if self._is_late(now):
            return
        for groups, ready in self._ready.items():
            while ready and self._have_room(groups):
                host = self._hosts[heapq.heappop(ready)[1]]
                if self._may_start(host) and (host.until is None or now < host.until):
                    yield self._start(host, groups, now)

    def _have_room(self, groups: tuple[str, ...]) -> bool:
        return all(self._measuring.get(group, 0) < self.rules.limits[group] for group in groups)

    def _limited(self, host: _Host) -> tuple[str, ...]:
        """Return the groups of a host that have a limit."""
        return tuple(group for group in self.rules.groups_of.get(host.uid, ()) if group in self.rules.limits)

    def _may_start(self, host: _Host) -> bool:
        return host.here and not host.held and not host.in_flight and host.has_work

    def _start(self, host: _Host, groups: tuple[str, ...], now: float) -> Start:
        size = group_size(host.jobs, host.next, self._seconds, self._most_seconds(host, now))
        jobs = host.jobs[host.next : host.next + size]
        host.next += size
        host.busy = {job.job_uid: job for job in jobs}
        host.seconds -= sum(self._seconds[uid] for uid in host.busy)
        host.in_flight, host.ended_one = True, False
        self._n_in_flight += 1
        for group in groups:
            self._measuring[group] = self._measuring.get(group, 0) + 1
        return Start(host_uid=host.uid, jobs=tuple(jobs))

    def _most_seconds(self, host: _Host, now: float) -> float:
        """Return how long a group may take: less where the run or the host's time is nearly over."""
        ends = [end for end in (host.until, self._end()) if end is not None]
        return min([GROUP_SECONDS, *(max(end - now, 0.0) for end in ends)])

    def _end(self) -> float | None:
        return None if self.rules.seconds is None else self._began + self.rules.seconds

    def _is_late(self, now: float) -> bool:
        end = self._end()
        return end is not None and now >= end

    def finished(self, job_uid: str, host_uid: str, contended: bool = False) -> bool:
        """Note that a job has its result or its failure; return whether it is to be measured again all the same."""
        host = self._hosts.get(host_uid)
        job = host.busy.pop(job_uid, None) if host is not None else None
        if host is not None and job is not None:
            host.ended_one = True
            if contended and self._again(job_uid):
                host.jobs.append(job)
                host.seconds += self._seconds[job_uid]
                return True
        elif host is not None:
            self._strike(host, job_uid)
        self._done.add(job_uid)
        return False

    def _strike(self, host: _Host, job_uid: str) -> None:
        """Take a job that has ended elsewhere out of the queue: it was found in the host's journal."""
        if job_uid in self._seconds and job_uid not in self._done:
            left = [job for job in host.jobs[host.next :] if job.job_uid != job_uid]
            host.seconds -= self._seconds[job_uid] * (len(host.jobs) - host.next - len(left))
            host.jobs, host.next = left, 0

    def _again(self, job_uid: str) -> bool:
        n = self._contended[job_uid] = self._contended.get(job_uid, 0) + 1
        return n <= self.rules.contended_tries

    def ended(self, host_uid: str) -> None:
        """Note that a host has come to the end of its group.

        Jobs of it without an end took turns with one that failed: they come next, unless nothing at all had ended.
        """
        host = self._hosts[host_uid]
        left = list(host.busy.values())
        self._free(host)
        if left and host.ended_one:
            self._put_back(host, left)
        if host.ended_one:
            host.fruitless = host.barren = 0
        self._offer(host)

    def lost(self, host_uid: str, now: float, why: str, begun: Collection[str] = ()) -> None:
        """Note that a host cannot be reached or has cut its group; it begins nothing until it `came`.

        `begun` are the jobs (by uid) whose attempts had begun. What was not ended is to be done once more, but no
        job more often than the rules allow, and `why` says why it is not.
        """
        host = self._hosts.setdefault(host_uid, _Host(host_uid))
        was_busy, left = host.in_flight, list(host.busy.values())
        self._free(host)
        host.here = False
        host.why_away = why
        host.away_since = now if host.away_since is None else host.away_since
        self._away.add(host_uid)
        if was_busy:
            self._count(host, left, begun, why)

    def _count(self, host: _Host, left: Sequence[Job], begun: Collection[str], why: str) -> None:
        host.fruitless = 0 if host.ended_one else host.fruitless + 1
        host.barren = 0 if host.ended_one or begun else host.barren + 1
        again = []
        for job in left:
            uid = job.job_uid
            self._tries[uid] = self._tries.get(uid, 0) + (uid in begun)
            if self._tries[uid] < self.rules.tries:
                again.append(job)
            else:
                self._give_up(job, f"It was begun {self._tries[uid]} times and cut each time: {why}")
        self._put_back(host, again)
        if host.barren >= self.rules.tries or host.fruitless >= MOST_FRUITLESS * self.rules.tries:
            self._give_up_all(host, f"The host ended {host.fruitless} groups without any result: {why}")

    def came(self, host_uid: str, now: float) -> None:
        """Note that a host is there (again), with nothing of ours running and its journals taken over."""
        host = self._hosts.setdefault(host_uid, _Host(host_uid))
        host.here, host.away_since = True, None
        self._away.discard(host_uid)
        self._offer(host)

    def hold(self, host_uid: str, wait: bool) -> None:
        """Begin nothing on a host until `release`; `wait` says whether the run waits for that."""
        host = self._hosts.setdefault(host_uid, _Host(host_uid))
        host.held, host.waited_for = True, wait

    def release(self, host_uid: str, until: float | None = None) -> None:
        """Go on with a host; its groups are cut so that they end at about `until`."""
        host = self._hosts.setdefault(host_uid, _Host(host_uid))
        host.held, host.waited_for, host.until = False, True, until
        self._offer(host)

    def given_up(self, now: float) -> list[GivenUp]:
        """Return the jobs that are given up since this was asked last: what waited too long for its host among them."""
        for uid in tuple(self._away):
            host = self._hosts[uid]
            if host.away_since is not None and now - host.away_since >= self.rules.wait_seconds:
                minutes = self.rules.wait_seconds / 60
                self._give_up_all(host, f"The host did not come back within {minutes:.3g} minutes: {host.why_away}")
                self._away.discard(uid)
        found, self._given_up = self._given_up, []
        return found

    def over(self, now: float) -> bool:
        """Return whether nothing is in flight and nothing can be begun any more, now or when a host comes back."""
        if self._n_in_flight or self._given_up:
            return False
        return self._is_late(now) or not any(self._counts(host) for host in self._hosts.values() if host.has_work)

    def _counts(self, host: _Host) -> bool:
        """Return whether the run goes on for this host's sake."""
        if host.held:
            return host.waited_for
        return host.here or host.away_since is not None

    def waiting(self) -> dict[str, int]:
        """Return how many jobs wait in each host's queue, for hosts that have any."""
        return {uid: len(host.jobs) - host.next for uid, host in self._hosts.items() if host.has_work}

    def _offer(self, host: _Host) -> None:
        if self._may_start(host):
            heapq.heappush(self._ready.setdefault(self._limited(host), []), (-host.seconds, host.uid))

    def _free(self, host: _Host) -> None:
        if host.in_flight:
            host.in_flight = False
            self._n_in_flight -= 1
            for group in self._limited(host):
                self._measuring[group] -= 1
        host.busy = {}

    def _put_back(self, host: _Host, jobs: Sequence[Job]) -> None:
        host.put_first(jobs)
        host.seconds += sum(self._seconds[job.job_uid] for job in jobs)

    def _give_up(self, job: Job, reason: str) -> None:
        if job.job_uid not in self._done:
            self._done.add(job.job_uid)
            self._given_up.append(GivenUp(job=job, reason=reason))

    def _give_up_all(self, host: _Host, reason: str) -> None:
        for job in host.jobs[host.next :]:
            self._give_up(job, reason)
        host.jobs, host.next, host.seconds = [], 0, 0.0
