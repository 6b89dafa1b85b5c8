"""The hosts of a connected cluster before a run: who is there, and what each answers to one question."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator import dispatch, on_host
from orchestrator.gates import lab_host
from orchestrator.members import Member, behind, hosts_of, members, problems_of, ways_of
from orchestrator.place import Place
from schema.lab_host import Lab

DESCRIBE_SECONDS = 120.0
"""How long a host may take to say who it is, which llama.cpp it runs and which models it sees, asked the first time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RollCall:
    """Who is in the cluster at one moment. `python` measures where a host is not to choose its own."""

    lab: Lab
    python: str | None
    nodes: tuple[Member, ...]

    @classmethod
    def now(cls, lab: Lab, python: str | None) -> "RollCall":
        """Ask the head."""
        return cls(lab=lab, python=python, nodes=members())

    @property
    def hosts(self) -> dict[str, Member]:
        """The hosts that measure, those behind a launcher among them, by label."""
        return hosts_of((*self.nodes, *behind(self.nodes, self.lab.launchers)))

    @property
    def problems(self) -> tuple[str, ...]:
        """Why others do not, a sentence each."""
        return problems_of(self.nodes)

    def describe(self, words: tuple[Any, ...]) -> dict[str, Any]:
        """Return by label what each host answers to `on_host.describe`, asked with `words` and its own Python."""
        ways = ways_of(self.nodes, self.lab.launchers)
        found: dict[str, Any] = {}
        for python, labels in self._by_python().items():
            found |= dispatch.ask(labels, on_host.describe, *words, python, seconds=DESCRIBE_SECONDS, ways=ways)
        return {label: found[label] for label in self.hosts}

    def labels(self) -> dict[str, Mapping[str, str]]:
        """Return what each host told the cluster of itself and the lab's file says of it, by label."""
        return dict(self._labels())

    def _labels(self) -> Iterator[tuple[str, Mapping[str, str]]]:
        for label, member in self.hosts.items():
            yield label, {**member.labels, **lab_host(self.lab, Place(label=label, name=member.hostname)).labels}

    def _by_python(self) -> dict[str | None, list[str]]:
        found: dict[str | None, list[str]] = {}
        for label, member in self.hosts.items():
            own = lab_host(self.lab, Place(label=label, name=member.hostname)).python
            found.setdefault(self.python or own, []).append(label)
        return found
