"""Who is in the cluster: its nodes as the head lists them, and which of them are hosts that measure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator import cluster, dispatch, on_host
from schema.accept import accept_fingerprint
from schema.errors import TokfleetError
from schema.host import Fingerprint
from schema.lab_host import Launcher

LABEL = "host"
"""The label by which a host is known: it stays when the host comes back under a new NodeID."""

SLOT = "bench_slot"
FINGERPRINT_SECONDS = 90.0
"""How long a host may take to say who it is; the first answer waits for our code and for py-cpuinfo."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One node as the head knows it. `host` is its label; None where it was started without one."""

    node_id: str
    host: str | None
    alive: bool
    address: str
    hostname: str
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    death_reason: str | None = None

    @property
    def measures(self) -> bool:
        """Whether it is a host that we may measure on: it is there, has the label and offers a slot."""
        return self.alive and self.host is not None and self.resources.get(SLOT, 0) >= 1


def members() -> tuple[Member, ...]:
    """Return every node that is or was in the connected cluster, those alive first."""
    return members_of(cluster.nodes())


def members_of(nodes: Iterable[Mapping[str, Any]]) -> tuple[Member, ...]:
    """Return the members in what `ray.nodes()` tells, those alive first."""
    return tuple(sorted((_member(node) for node in nodes), key=lambda member: not member.alive))


def hosts_of(found: Iterable[Member]) -> dict[str, Member]:
    """Return the members that measure, by label; of several that are alive with one label, none: see `problems_of`."""
    usable = [member for member in found if member.measures]
    n_of = Counter(member.host for member in usable)
    return {member.host: member for member in usable if member.host is not None and n_of[member.host] == 1}


def problems_of(found: Iterable[Member]) -> tuple[str, ...]:
    """Return why living members that offer a slot cannot be measured on, a sentence each with what to do."""
    offering = [member for member in found if member.alive and member.resources.get(SLOT, 0) >= 1]
    n_of = Counter(member.host for member in offering)
    nameless = [
        f"{member.hostname} ({member.address}) has no label `{LABEL}`: start it with --labels {LABEL}=NAME."
        for member in offering
        if member.host is None
    ]
    shared = [
        f"Several nodes have the label {LABEL}={label}, so none of them is used: give each its own."
        for label in n_of
        if label is not None and n_of[label] > 1
    ]
    return (*nameless, *shared)


def ways_of(found: Iterable[Member], launchers: Mapping[str, Launcher]) -> dict[str, dispatch.Way]:
    """Return how each host that has no Ray is reached, where the host `via` which that goes is there."""
    nodes = hosts_of(found)
    by_name = {member.hostname: label for label, member in nodes.items()} | {label: label for label in nodes}
    return {
        name: dispatch.Way(node=by_name[launcher.via], launcher=launcher)
        for name, launcher in launchers.items()
        if launcher.via in by_name
    }


def behind(found: Iterable[Member], launchers: Mapping[str, Launcher]) -> tuple[Member, ...]:
    """Return the hosts that are reached through a launcher, each as a member: it comes and goes with its neighbour."""
    nodes = hosts_of(found)
    return tuple(
        Member(
            node_id=nodes[way.node].node_id,
            host=name,
            alive=True,
            address=nodes[way.node].address,
            hostname=name,
            resources={SLOT: 1},
        )
        for name, way in ways_of(found, launchers).items()
    )


def fingerprints(
    hosts: Iterable[str], python: str | None = None, seconds: float = FINGERPRINT_SECONDS
) -> dict[str, Fingerprint | TokfleetError]:
    """Return by label what each of `hosts` says of itself now, or why it said nothing within `seconds`.

    Each looks for its own default build of llama.cpp (its TOKFLEET_PYTHON, or `python`); without one `build` is None.
    """
    found: dict[str, Fingerprint | TokfleetError] = {}
    for label, answer in dispatch.ask(hosts, on_host.fingerprint, python, seconds=seconds).items():
        try:
            found[label] = answer if isinstance(answer, TokfleetError) else accept_fingerprint(answer)
        except TokfleetError as error:
            found[label] = error
    return found


def _member(node: Mapping[str, Any]) -> Member:
    labels = {str(key): str(value) for key, value in (node.get("Labels") or {}).items()}
    return Member(
        node_id=str(node.get("NodeID", "")),
        host=labels.get(LABEL) or None,
        alive=bool(node.get("Alive")),
        address=str(node.get("NodeManagerAddress", "")),
        hostname=str(node.get("NodeManagerHostname", "")),
        resources={str(key): float(value) for key, value in (node.get("Resources") or {}).items()},
        labels=labels,
        death_reason=str(node["DeathReasonMessage"]) if node.get("DeathReasonMessage") else None,
    )
