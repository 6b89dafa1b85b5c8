"""The hosts of a connected cluster as a driver meets them: what they say arrives in one inbox.

One thread reads each busy host and does nothing but keep and pass on; one looks every second at who is
there. Whoever drives sleeps on the inbox.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Protocol

from orchestrator import dispatch, on_host
from orchestrator.members import Member, behind, members, ways_of
from schema.errors import ClusterError, StoreUnavailableError, TokfleetError
from schema.job import Group
from schema.lab_host import Launcher
from schema.record import Record
from worker.group import Errand

Event = dict[str, Any]
LOOK_SECONDS = 1.0
CANCEL_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What was made of an event: the record that it held, or a remark for people."""

    record: Record | None = None
    remark: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """An event of a group; what must not be lost of it is on the disk."""

    host: str
    group_uid: str
    event: Event
    kept: Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """A group has come to its end, or to the `error` that the host or the network made."""

    host: str
    group_uid: str
    error: TokfleetError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Who the head said is there."""

    members: tuple[Member, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a host answered to a question, or the error that stands in its place."""

    host: str
    question: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """This machine itself cannot go on: its disk is full, or the like."""

    error: TokfleetError


Message = Heard | Over | Seen | Answer | Broken
Keep = Callable[[Event, Group], Kept]


class Hosts(Protocol):
    """What a driver needs of the hosts, by their labels; `Fleet` is the real one."""

    def now(self) -> float:
        """Return seconds of a clock that goes on."""

    def members(self) -> tuple[Member, ...]:
        """Return who the head says is there."""

    def head_silent_seconds(self) -> float:
        """Return how long the head has not answered."""

    def next(self, seconds: float) -> Message | None:
        """Return the next message; None when none came within `seconds`."""

    def start(self, host: str, errand: Errand) -> None:
        """Send a group to a host."""

    def drop(self, host: str) -> None:
        """Give the group of a host up."""

    def ask(self, host: str, question: Callable[..., Any], *arguments: Any) -> None:
        """Ask a host; the answer comes as a message."""

    def ask_all(self, hosts: Iterable[str], question: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Ask several hosts at once and wait, for a bounded time, for what each answers."""

    def cancel_all(self) -> None:
        """End all groups and wait until their processes are gone."""


class Fleet:
    """The hosts of the cluster that this process is connected to; used as a context manager."""

    def __init__(self, keep: Keep, launchers: Mapping[str, Launcher] | None = None) -> None:
        """Let every event pass through `keep`; `launchers` lead to the hosts that have no Ray, by their names."""
        self._keep, self._launchers = keep, launchers or {}
        self._ways: dict[str, dispatch.Way] = {}
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._running: dict[str, dispatch.Running] = {}
        self._answered_at = time.monotonic()
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="members", daemon=True)

    def __enter__(self) -> "Fleet":
        self._answered_at = time.monotonic()
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._watcher.join(2 * LOOK_SECONDS)

    def now(self) -> float:
        """Return the monotonic clock's seconds."""
        return time.monotonic()

    def members(self) -> tuple[Member, ...]:
        """Return who the head says is there, and who is behind a launcher."""
        found = members()
        self._ways = ways_of(found, self._launchers)
        return (*found, *behind(found, self._launchers))

    def head_silent_seconds(self) -> float:
        """Return how long the head has not answered."""
        return time.monotonic() - self._answered_at

    def next(self, seconds: float) -> Message | None:
        """Return the next message; None when none came within `seconds`."""
        with contextlib.suppress(Empty):
            return self._inbox.get(timeout=seconds)
        return None

    def start(self, host: str, errand: Errand) -> None:
        """Send a group to the host, and read what comes of it in a thread of its own."""
        running = dispatch.Running(errand, host, self._ways.get(host))
        self._running[host] = running
        threading.Thread(target=self._read, args=(running,), name=f"host {host}", daemon=True).start()

    def drop(self, host: str) -> None:
        """Give the group of a host up: it is ended if that can be, and its end is no message any more."""
        running = self._running.pop(host, None)
        if running is not None:
            threading.Thread(target=running.cancel, daemon=True).start()

    def ask(self, host: str, question: Callable[..., Any], *arguments: Any) -> None:
        """Ask a host in a thread of its own; the answer comes as a message."""

        def work() -> None:
            value = self.ask_all([host], question, *arguments)[host]
            self._inbox.put(Answer(host=host, question=question.__name__, value=value))

        threading.Thread(target=work, name=f"question to {host}", daemon=True).start()

    def ask_all(self, hosts: Iterable[str], question: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """Return by host what each answers, or a TokfleetError in its place."""
        every = list(hosts)
        try:
            return dispatch.ask(every, question, *arguments, ways=self._ways)
        except Exception as error:  # Ray itself is gone
            told = error if isinstance(error, TokfleetError) else ClusterError(f"The cluster cannot be asked: {error}")
            return dict.fromkeys(every, told)

    def cancel_all(self) -> None:
        """End all groups, and wait a while until their processes are gone, so that journals can be read whole."""
        cancelled = list(self._running.values())
        self._running = {}
        threads = [threading.Thread(target=running.cancel, daemon=True) for running in cancelled]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + CANCEL_SECONDS
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        hosts = [running.host for running in cancelled]
        groups = [running.errand.group.group_uid for running in cancelled]
        while hosts and time.monotonic() < deadline:
            answers = self.ask_all(hosts, on_host.any_lives, groups)
            hosts = [host for host, answer in answers.items() if answer is True]
            time.sleep(0.1 * bool(hosts))

    def _read(self, running: dispatch.Running) -> None:
        host, group = running.host, running.errand.group
        error: TokfleetError | None = None
        try:
            for event in running.events():
                kept = self._keep(event, group)
                self._inbox.put(Heard(host=host, group_uid=group.group_uid, event=event, kept=kept))
        except StoreUnavailableError as ours:
            self._inbox.put(Broken(error=ours))
            return
        except TokfleetError as theirs:
            error = theirs
        except Exception as unknown:  # whatever a host sends must not end this thread in silence
            error = ClusterError(f"Host {host} sent what cannot be understood: {unknown!r:.300}.")
        if error is not None:
            running.cancel()
        if self._running.get(host) is running:
            del self._running[host]
            self._inbox.put(Over(host=host, group_uid=group.group_uid, error=error))

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            with contextlib.suppress(Exception):  # the head does not answer: whoever drives misses the message
                seen = Seen(members=self.members())
                self._answered_at = time.monotonic()
                self._inbox.put(seen)
