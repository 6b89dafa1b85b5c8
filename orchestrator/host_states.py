"""What a lab says of its hosts besides their fingerprints: which are drained, and what they told the cluster last.

A drained host gets no new jobs; what it is measuring it may finish. The store keeps it, so that every driver, and the
next one, sees it.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, select

from orchestrator.inserts import insert_into
from orchestrator.machine_rows import instant, text_of
from schema.errors import HostError
from schema.tables import host, host_state

MOST_LABELS = 64
MOST_CHARACTERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class HostState:
    """One host of the store. `label` is its name in the cluster, `labels` what it told there; times are ISO 8601."""

    host_uid: str
    hostname: str | None = None
    drained: bool = False
    why: str | None = None
    who: str | None = None
    changed_at: str | None = None
    label: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    seen_at: str | None = None

    def describe(self) -> str:
        """Return why the host gets no jobs, in words; empty where it gets them."""
        if not self.drained:
            return ""
        who = f" by {self.who}" if self.who else ""
        since = f" since {self.changed_at}" if self.changed_at else ""
        return f"drained{who}{since}{f': {self.why}' if self.why else ''}"


def drained(states: Iterable[HostState]) -> frozenset[str]:
    """Return the host_uids that get no new jobs."""
    return frozenset(state.host_uid for state in states if state.drained)


def labels_of(states: Iterable[HostState]) -> dict[str, Mapping[str, str]]:
    """Return the labels of each host that has any, by host_uid, as `orchestrator.hosts.select` takes them."""
    return {state.host_uid: state.labels for state in states if state.labels}


def find(states: Sequence[HostState], name: str) -> HostState:
    """Return the host called `name`: its name, its label in the cluster, its uid or the start of it.

    Raises HostError where none is, with the nearest name, or where several are.
    """
    by_name = [state for state in states if name in (state.host_uid, state.hostname, state.label)]
    found = by_name or [state for state in states if len(name) >= 4 and state.host_uid.startswith(name)]
    if len(found) > 1:
        raise HostError(
            f"Several hosts are called {name!r}. Give the uid of one: {', '.join(state.host_uid for state in found)}."
        )
    if not found:
        raise HostError(f"No host {name!r} is known in this store. {_hint(states, name)}")
    return found[0]


def all_states(connection: Connection) -> list[HostState]:
    """Return every host that the store knows, in the order in which it met them."""
    columns = (host.c.host_uid, host.c.hostname, *(column for column in host_state.c if column.name != "host_id"))
    query = select(*columns).outerjoin(host_state, host_state.c.host_id == host.c.id).order_by(host.c.id)
    return [_state(row) for row in connection.execute(query).mappings()]


def set_drained(connection: Connection, host_uid: str, is_drained: bool, why: str | None, who: str, at: str) -> None:
    """Say that the host gets no new jobs, or gets them again."""
    values = {"drained": is_drained, "why": why, "who": who, "changed_at": instant(at)}
    _put(connection, host_uid, values)


def set_seen(connection: Connection, host_uid: str, label: str | None, labels: Mapping[str, str], at: str) -> None:
    """Keep what a host told the cluster: its name there and its labels, as many and as long as are of use."""
    kept = {key[:MOST_CHARACTERS]: value[:MOST_CHARACTERS] for key, value in sorted(labels.items())[:MOST_LABELS]}
    _put(connection, host_uid, {"label": label, "labels": kept, "seen_at": instant(at)})


def own_labels(labels: Mapping[str, str], hidden: Collection[str] = ("host",)) -> dict[str, str]:
    """Return the labels that people gave: without Ray's own and those `hidden`."""
    return {key: value for key, value in labels.items() if not key.startswith("ray.io/") and key not in hidden}


def _put(connection: Connection, host_uid: str, values: Mapping[str, Any]) -> None:
    host_id = connection.execute(select(host.c.id).where(host.c.host_uid == host_uid)).scalar()
    if host_id is None:
        raise HostError(f"No host {host_uid!r} is known in this store.")
    statement = insert_into(connection, host_state).values({"host_id": host_id, **values})
    connection.execute(statement.on_conflict_do_update(index_elements=["host_id"], set_=dict(values)))


def _state(row: Mapping[Any, Any]) -> HostState:
    return HostState(
        host_uid=row["host_uid"],
        hostname=row["hostname"],
        drained=bool(row["drained"]),
        why=row["why"],
        who=row["who"],
        changed_at=text_of(row["changed_at"]) if row["changed_at"] else None,
        label=row["label"],
        labels=row["labels"] or {},
        seen_at=text_of(row["seen_at"]) if row["seen_at"] else None,
    )


def _hint(states: Iterable[HostState], name: str) -> str:
    names = sorted({known for state in states for known in (state.hostname, state.label) if known})
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"Known: {', '.join(names[:10])}." if names else "Hosts become known when they first measure."
