"""The hosts of a lab, one row each: what the store knows of them, beside what the cluster says now; pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from orchestrator.host_states import HostState, own_labels
from orchestrator.machine_rows import text_of
from orchestrator.members import SLOT, Member
from orchestrator.report import duration
from schema.host import Fingerprint
from worker.busy import Busy

NOT_ASKED = "not asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """One host. `state` is "free", "busy", "drained", "unusable", "gone", "away", "in the cluster" or "not asked".

    `why` says why it gets no jobs. `doing` is the job that is measured there, else who holds the machine, `since` when
    that began. `labels` are those that people gave. Times are ISO 8601 in UTC; what is not known is None.
    """

    name: str
    state: str
    doing: str | None = None
    since: str | None = None
    machine: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    seen_at: str | None = None
    why: str | None = None
    host_uid: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a host answered just now, or the `error` in the place of an answer."""

    fingerprint: Fingerprint | None = None
    busy: Busy | None = None
    error: str | None = None


def known_rows(hosts: Iterable[Mapping[str, Any]], states: Iterable[HostState]) -> list[HostRow]:
    """Return the hosts of a store (rows of its view `hosts`, and its states) without asking any of them."""
    by_uid = {state.host_uid: state for state in states}
    return [_known(row, by_uid.get(row["host_uid"], HostState(host_uid=row["host_uid"]))) for row in hosts]


def with_look(row: HostRow, look: Look) -> HostRow:
    """Return the row of a host that was looked at just now, such as this machine's own."""
    told = look.fingerprint
    return HostRow(
        name=row.name,
        state=_state(row, look),
        doing=(look.busy.job or look.busy.holder) if look.busy else None,
        since=look.busy.since if look.busy else None,
        machine=in_a_line(told) if told else row.machine,
        labels=row.labels,
        seen_at=told.taken_at if told else row.seen_at,
        why=row.why or look.error,
        host_uid=told.host_uid if told else row.host_uid,
    )


def cluster_rows(
    known: Sequence[HostRow], members: Sequence[Member], looks: Mapping[str, Look], problems: Sequence[str] = ()
) -> list[HostRow]:
    """Return the hosts of a store and of a cluster: each member once, then those that only the store knows.

    `looks` is by the member's label; one that was not asked is just "in the cluster".
    """
    rows, used = [], set()
    for member in _newest(members):
        look = looks.get(member.host or "")
        uid = look.fingerprint.host_uid if look and look.fingerprint else None
        before = _of(known, uid, member)
        used.add(before.host_uid if before else uid)
        rows.append(_member(member, before, look, problems))
    return [*rows, *(_absent(row) for row in known if row.host_uid not in used)]


def in_a_line(found: Fingerprint) -> str:
    """Return what the machine is, in a few words: processor, cores, memory, GPUs."""
    hardware = found.hardware
    return _line(
        hardware.cpu_name,
        hardware.arch,
        hardware.n_cores_physical,
        hardware.memory_gib,
        [g.name for g in hardware.gpus],
    )


def ago(moment: str | None, now: datetime) -> str | None:
    """Return how long ago `moment` (ISO 8601) was, as people say it."""
    if moment is None:
        return None
    try:
        seconds = (now - datetime.fromisoformat(moment).astimezone(UTC)).total_seconds()
    except ValueError:
        return None
    if seconds < 10:
        return "now"
    days = int(seconds // 86_400)
    return f"{days} days ago" if days > 1 else f"{duration(seconds)} ago"


def _known(row: Mapping[str, Any], state: HostState) -> HostRow:
    seen = max(filter(None, (_text(row["fingerprint_at"]), state.seen_at)), default=None)
    return HostRow(
        name=row["host"] or state.label or row["host_uid"],
        state="drained" if state.drained else NOT_ASKED,
        machine=_line(
            row["cpu_info"],
            row["arch"],
            row["n_cores_physical"],
            row["memory_gib"],
            (row["gpu_info"] or "").split(", ") if row["gpu_info"] else [],
        ),
        labels=own_labels(state.labels),
        seen_at=seen,
        why=state.describe() or _never(row),
        host_uid=row["host_uid"],
    )


def _never(row: Mapping[str, Any]) -> str | None:
    """Return that nothing is known of a host which stands in a plan, or in what somebody else measured."""
    return None if row["fingerprint_at"] else "it has never said what it is"


def _state(row: HostRow, look: Look | None) -> str:
    if look is not None and look.busy is not None:
        return "busy"
    if row.state == "drained":
        return "drained"
    return "free" if look is not None and look.error is None else "unusable"


def _member(member: Member, before: HostRow | None, look: Look | None, problems: Sequence[str]) -> HostRow:
    base = HostRow(
        name=(before.name if before else None) or member.hostname or member.address,
        state=before.state if before else NOT_ASKED,
        machine=before.machine if before else None,
        labels=own_labels(member.labels) or (before.labels if before else {}),
        seen_at=before.seen_at if before else None,
        why=before.why if before and before.state == "drained" else None,
        host_uid=before.host_uid if before else None,
    )
    if not member.alive:
        return _with_state(base, "gone", f"it left the cluster: {member.death_reason or 'the head does not say why'}")
    if not member.measures:
        return _with_state(base, "unusable", _unusable(member, problems))
    if look is None:
        return _with_state(base, "drained" if base.state == "drained" else "in the cluster", base.why)
    return with_look(base, look)


def _unusable(member: Member, problems: Sequence[str]) -> str:
    if member.resources.get(SLOT, 0) < 1:
        return f"it only coordinates: it offers no {SLOT}"
    return next((text for text in problems if member.address in text), "it has no label `host`")


def _with_state(row: HostRow, state: str, why: str | None) -> HostRow:
    return HostRow(
        name=row.name,
        state=state,
        machine=row.machine,
        labels=row.labels,
        seen_at=row.seen_at,
        why="; ".join(filter(None, dict.fromkeys((row.why, why)))) or None,
        host_uid=row.host_uid,
    )


def _absent(row: HostRow) -> HostRow:
    return _with_state(row, "drained" if row.state == "drained" else "away", row.why or "it is not in the cluster")


def _newest(members: Sequence[Member]) -> Iterator[Member]:
    """Yield the members, but for what a host was before it came back: those alive come first."""
    seen: set[str] = set()
    for member in members:
        who = member.host or member.address
        if member.alive or who not in seen:
            yield member
        seen.add(who)


def _of(known: Sequence[HostRow], uid: str | None, member: Member) -> HostRow | None:
    """Return the store's row of a member: by the uid that it told or is its label, else by its name if one has it."""
    for row in known:
        if row.host_uid and row.host_uid in (uid, member.host):
            return row
    if uid is not None:
        return None
    named = [row for row in known if row.name in (member.host, member.hostname)]
    return named[0] if len(named) == 1 else None


def _line(cpu: str | None, arch: str | None, cores: int | None, gib: int | None, gpus: Sequence[str]) -> str:
    words = [cpu or arch or "?", f"{cores} cores" if cores else "", f"{gib} GiB" if gib else ""]
    counted = [f"{gpus.count(name)} × {name}" if gpus.count(name) > 1 else name for name in dict.fromkeys(gpus)]
    return ", ".join(filter(None, (*words, *counted)))


def _text(value: Any) -> str | None:
    """Return a moment of the store as ISO 8601, whatever the view gave."""
    if value is None or isinstance(value, str):
        return value
    return text_of(value)
