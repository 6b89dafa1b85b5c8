"""A group as a host measures it from beginning to end: hold the host, wait until it is quiet, supervise."""

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schema.job import Group
from schema.lab_host import SettingCommands
from schema.record import Placement
from worker.builds import find_named
from worker.fingerprint.take import take
from worker.journal import is_revoked
from worker.lock import WAIT_SECONDS, HostLock
from worker.quiet import wait_until_quiet
from worker.supervisor import Supervisor

Event = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Errand:
    """A group, and how a host is to measure it: `python` without a build of its own, what its admin lets be set.

    `quiet_seconds`: wait at most so long until nobody else loads the machine; 0 does not wait.
    """

    group: Group
    python: str
    commands: Mapping[str, SettingCommands] = field(default_factory=dict)
    quiet_seconds: float = 0.0
    placement: Placement = field(default_factory=Placement)

    @property
    def what(self) -> str:
        """What the host's lock says of it to those who wait."""
        return f"tokfleet group {self.group.group_uid}"


def measure(
    errand: Errand, home: Path, quiet: Callable[[float], Generator[Event, None, Any]] = wait_until_quiet
) -> Generator[Event, None, None]:
    """Measure the errand's group on this host and yield its events, as `worker.supervisor` makes them.

    Waits for the host's lock as long as others hold it, then until it is quiet, telling why it waits. Yields
    nothing more where the group was given up meanwhile. Raises HostError where the host cannot measure it.
    """
    lock = HostLock()
    holder = lock.try_acquire(errand.what)
    if holder is not None:
        yield {"event": "stage", "stage": "wait", "text": f"waiting for the host: {holder.describe()}"}
        lock.acquire(WAIT_SECONDS)
    with lock:
        if is_revoked(home, errand.group.group_uid):
            return
        build = find_named(errand.group.build, home, errand.python)
        facts = build.facts(home)
        if errand.quiet_seconds:
            yield from quiet(errand.quiet_seconds)
        yield from Supervisor(
            group=errand.group,
            fingerprint=take(home, facts, holds_lock=True),
            home=home,
            python=errand.python if build.kind == "llama-bench" else build.path,
            llama_bench=build.path if build.kind == "llama-bench" else None,
            placement=errand.placement,
            probes=facts.method != "fake",  # around the stand-in, which measures nothing, there is nothing to compare
            commands=errand.commands,
        ).run()
