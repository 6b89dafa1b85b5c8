"""Who this machine is: a random id kept in home, else one derived from what only this machine has."""

import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from schema.canonical import digest
from schema.host import Evidence
from worker.fingerprint import evidence, kept, marks, recognition
from worker.fingerprint.boot import boot_id
from worker.fingerprint.evidence import Notes
from worker.fingerprint.kept import Kept
from worker.fingerprint.placeholders import is_placeholder

HEARTBEAT = timedelta(minutes=10)
"""How old the moment that is kept may get: that two machines share an identity shows in that both are seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """`stored` lasts as long as home, `derived` as long as the system, `volatile` until the next boot."""

    host_uid: str
    uid_source: Literal["stored", "derived", "volatile"]
    hostname: str
    cloned_from: str | None = None
    probable_same_as: str | None = None


def read(home: Path, root: Path, notes: Notes, now: Evidence | None = None, hardware_id: str | None = None) -> Identity:
    """Return the machine's identity, making and keeping it in `home` at first; where that fails, deriving it.

    `now` is what is unique here: a home that was copied from another machine gives a new identity, a machine that
    was installed anew gets its old one back where its home knows it and `hardware_id` is that of then.
    """
    seen = now or marks.read(root, datetime.now(UTC))
    hostname = _hostname(root)
    found = _stored(home, root, notes, seen, hardware_id)
    if found:
        notes.found("host_uid", "home")
        return Identity(
            host_uid=found.host_uid,
            uid_source="stored",
            hostname=hostname,
            cloned_from=found.cloned_from,
            probable_same_as=found.probable_same_as,
        )
    machine = _first_own(_system_ids(root)) or _first_own(_addresses(root))
    if machine:
        source, value = machine
        notes.found("host_uid", source)
        return Identity(host_uid=_keyed_uuid(source, value), uid_source="derived", hostname=hostname)
    notes.missing("host_uid", "home cannot keep it and nothing here is unique; it changes with the next boot")
    volatile = _keyed_uuid("boot_id", f"{boot_id(root) or uuid.uuid4()} {hostname}")
    return Identity(host_uid=volatile, uid_source="volatile", hostname=hostname)


def system_name(root: Path) -> str:
    """Return a name that differs by machine, because a home on the network is the home of several."""
    system = _first_own(_system_ids(root))
    return marks.keyed(*system).hex()[:12] if system else "unnamed"


def _hostname(root: Path) -> str:
    recorded = evidence.first_text([root / "proc/sys/kernel/hostname", root / "etc/hostname"])
    if evidence.is_live(root):
        return socket.gethostname() or "unnamed"
    return (evidence.short(recorded[0].splitlines()[0]) if recorded else None) or "unnamed"


def _first_own(facts: Iterator[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the first fact that is this machine's alone, with its source."""
    return next(((source, value) for source, value in facts if not is_placeholder(value)), None)


def _system_ids(root: Path) -> Iterator[tuple[str, str]]:
    for place in ("etc/machine-id", "var/lib/dbus/machine-id", "proc/device-tree/serial-number"):
        yield f"/{place}", evidence.text(root / place) or ""


def _addresses(root: Path) -> Iterator[tuple[str, str]]:
    yield from ((f"/sys/class/net/{card}/address", address) for card, address in marks.permanent_addresses(root))


def _keyed_uuid(source: str, value: str) -> str:
    return str(uuid.UUID(bytes=marks.keyed(source, value)[:16], version=4))


def _stored(home: Path, root: Path, notes: Notes, now: Evidence, hardware_id: str | None) -> Kept | None:
    """Return the identity that home keeps for this machine, made now if there was none; None where it cannot."""
    system = system_name(root)
    path = home / (kept.NAME if system == "unnamed" else f"{kept.NAME}-{system}")
    everyone = list(kept.all_in(home))
    mine = [(place, value) for place, value in everyone if _is_of(path, place)]
    chosen = _mine(mine, now)
    if chosen:
        return _seen_again(*chosen, now, hardware_id)
    value = Kept(host_uid=str(uuid.uuid4()), evidence=now, hardware_id=hardware_id)
    if mine:
        # The copied files stay, for a home on the network that both machines use.
        path = path.with_name(f"{path.name}.{_specimen(now)}")
        value = replace(value, cloned_from=mine[0][1].host_uid)
    else:
        value = _reinstalled(value, [other for _, other in everyone], now)
    try:
        return kept.create(path, value)
    except OSError as error:
        notes.missing("host_uid", f"{home} cannot keep it ({error.strerror or error})")
        return None


def _is_of(path: Path, place: Path) -> bool:
    return place.name == path.name or place.name.startswith(f"{path.name}.")


def _mine(candidates: list[tuple[Path, Kept]], now: Evidence) -> tuple[Path, Kept] | None:
    """Return the identity that is this machine's: one that is recognised, else one that nothing speaks against."""
    verdicts = [
        (recognition.recognise(value.evidence, now) if value.evidence else "unknown", place, value)
        for place, value in candidates
    ]
    for wanted in ("same", "reinstalled", "unknown"):
        for verdict, place, value in verdicts:
            if verdict == wanted:
                return place, value
    return None


def _seen_again(path: Path, value: Kept, now: Evidence, hardware_id: str | None) -> Kept:
    """Return the identity with what is known of its machine now, kept where that is new or the last time long ago."""
    merged = _merged(value.evidence, now)
    latest = replace(value, evidence=merged, hardware_id=hardware_id or value.hardware_id)
    if _without_times(latest) != _without_times(value) or _is_old(value.evidence, now):
        kept.update(path, latest)
    return latest


def _merged(known: Evidence | None, now: Evidence) -> Evidence:
    """Return what is seen now, and of what cannot be seen now what was seen before, as by root."""
    if known is None:
        return now
    seen = {field.name: getattr(now, field.name) or getattr(known, field.name) for field in fields(Evidence)}
    return Evidence(**seen)


def _without_times(value: Kept) -> Kept:
    known = value.evidence
    return replace(value, evidence=replace(known, booted_at=None, seen_at=None) if known else None)


def _is_old(known: Evidence | None, now: Evidence) -> bool:
    if known is None or known.seen_at is None or now.seen_at is None:
        return True
    return abs(datetime.fromisoformat(now.seen_at) - datetime.fromisoformat(known.seen_at)) > HEARTBEAT


def _specimen(now: Evidence) -> str:
    """Return a name for this very machine, the same for processes that start on it at once."""
    parts = {name: getattr(now, name) for name in (*recognition.UNIQUE, "weak_macs")}
    return digest(parts if any(parts.values()) else now.boot_id)[:8]


def _reinstalled(value: Kept, others: list[Kept], now: Evidence) -> Kept:
    """Return `value`, or what it becomes where it is known that this machine was another host before."""
    known = ((other.host_uid, other.hardware_id, other.evidence) for other in others if other.evidence)
    found = recognition.former(known, now, value.hardware_id)
    if found is None:
        return value
    if found.is_sure:
        return replace(value, host_uid=found.host_uid)
    return replace(value, probable_same_as=found.host_uid)
