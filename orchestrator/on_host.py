"""What runs in a Ray worker on a host besides measuring: short questions, answered in plain values.

Only `schema` and `worker` are imported here: a host has no database and no command line.
"""

import contextlib
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from schema.errors import HostError, ModelError
from schema.host import Build
from worker import journal
from worker.builds import DEFAULT, find_named
from worker.fingerprint.take import take
from worker.home import home_or_nowhere, writable_home
from worker.lock import HostLock
from worker.models import describe as describe_model
from worker.models import reference
from worker.recovery import recover, trim

Event = dict[str, Any]
Source = Literal["path", "synthetic", "hf"]
END_SECONDS = 20.0


def own_python(python: str | None) -> str:
    """Return the Python that measures here: `python`, else this host's TOKFLEET_PYTHON, else the one that runs us."""
    return os.path.expanduser(python or os.environ.get("TOKFLEET_PYTHON") or sys.executable)


def fingerprint(python: str | None) -> dict[str, Any]:
    """Return this host's fingerprint as plain values, with its default build where it has one that runs."""
    home = home_or_nowhere()
    build = _build(DEFAULT, home, own_python(python))
    return asdict(take(home, build if isinstance(build, Build) else None))


def describe(builds: tuple[str, ...], models: tuple[tuple[Source, str], ...], python: str | None) -> dict[str, Any]:
    """Return what this host can measure, as plain values: `fingerprint`, and by name `builds` and by spec `models`.

    A build is its facts; a model has `ref` and `sizes`. Where there is none, a sentence says why. Nothing is built.
    """
    home = home_or_nowhere()
    found = {name: _build(name, home, own_python(python)) for name in builds}
    default = found.get(DEFAULT)
    return {
        "fingerprint": asdict(take(home, default if isinstance(default, Build) else None)),
        "builds": {name: asdict(build) if isinstance(build, Build) else build for name, build in found.items()},
        "models": {spec: _model(source, spec) for source, spec in models},
    }


def _build(name: str, home: Path, python: str) -> Build | str:
    try:
        return find_named(name, home, python).facts(home)
    except HostError as error:
        return str(error)


def _model(source: Source, spec: str) -> dict[str, Any] | str:
    try:
        ref = reference(source, spec, Path("/"))
        sizes = describe_model(ref)
    except (ModelError, HostError) as error:
        return str(error)
    return {"ref": asdict(ref), "sizes": asdict(sizes) | {"sliding_layers": sorted(sizes.sliding_layers)}}


def any_lives(group_uids: list[str]) -> bool:
    """Return whether a process of this host still writes the journal of one of the groups."""
    return any(journal.lives(writable_home(), group_uid) for group_uid in group_uids)


def settle(group_uids: list[str], identify: bool) -> dict[str, Any]:
    """Make this host ready for a driver: end the groups that it gave up, and return what its journals hold.

    Returns `events`, those of `worker.recovery.recover`, whichever run they are of, and `host_uid` and `hostname`,
    which are None where it is not to `identify` itself, since that takes a second.
    Raises HostError where one of the groups cannot be ended.
    """
    for group_uid in group_uids:
        if not end_group(group_uid):
            raise HostError(f"A process of an earlier group, {group_uid}, still measures on this host.")
    found = take(home_or_nowhere(), None) if identify else None
    who = {"host_uid": found.host_uid, "hostname": found.hostname} if found else {"host_uid": None, "hostname": None}
    return {**who, "events": recovered()}


def end_group(group_uid: str) -> bool:
    """End the group's processes where they still run or wait here; return whether they are gone.

    For a group that was given up while the host could not be reached. Only the process that the host's lock
    names as this very group's is killed.
    """
    home = writable_home()
    journal.revoke(home, group_uid)
    deadline = time.monotonic() + END_SECONDS
    while journal.lives(home, group_uid):
        lock = HostLock()
        holder = lock.try_acquire()
        lock.release()
        if holder is not None and holder.pid and group_uid in (holder.what or ""):
            with contextlib.suppress(ProcessLookupError):
                os.kill(holder.pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def recovered() -> list[Event]:
    """Return what dead groups left in this host's journals, whichever run they were of."""
    return list(recover(writable_home()))


def held() -> dict[str, str]:
    """Return which attempts this host's dead journals hold, each with its run."""
    ends = (event["record"] for event in recovered() if event["event"] == "attempt_end")
    return {record["attempt_uid"]: record["run_uid"] for record in ends}


def acknowledge(attempt_uids: frozenset[str]) -> None:
    """Forget what is safe elsewhere."""
    trim(writable_home(), attempt_uids)
