"""How a run goes, beside its sweep, as the command line says it."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """How a run goes, beside its sweep: `address` is the cluster's, None for this machine alone.

    `python` measures here; on the hosts of a cluster only where `python_for_all` says so. No group of jobs begins after
    `max_hours`. With `when_quiet` each waits, at most half an hour, until nobody else loads its host, and what others
    disturbed all the same is measured again. Of runs in one store that want a host, that of higher `priority` has it.
    With `distribute` a host that lacks a model fetches it from another, or from the hub.
    """

    python: str = sys.executable
    python_for_all: bool = False
    address: str | None = None
    max_hours: float | None = None
    when_quiet: bool = False
    priority: int = 0
    distribute: bool = False

    def course(self) -> dict[str, Any]:
        """Return what `course_options` gave, by its names."""
        names = ("max_hours", "priority", "when_quiet", "distribute")
        return {name: getattr(self, name) for name in names}

    @property
    def python_there(self) -> str | None:
        """The Python of the hosts, None where each chooses its own."""
        return self.python if self.address is None or self.python_for_all else None


def course_options(command: F) -> F:
    """Give `command` the options on how a run goes, passed under the names in `Choices`."""
    hours = click.option(
        "--max-hours", type=click.FloatRange(0, min_open=True), metavar="HOURS", help="Begin nothing after so long."
    )
    quiet = click.option(
        "--when-quiet",
        is_flag=True,
        help="Wait, at most half an hour each time, until nobody else loads a host; measure again what was disturbed.",
    )
    priority = click.option(
        "--priority",
        type=click.IntRange(-100, 100),
        default=0,
        metavar="N",
        help="Of several runs that want a host, the one with the highest has it first.  [default: 0]",
    )
    distribute = click.option(
        "--distribute", is_flag=True, help="Let a host that lacks a model fetch it from another, or from the hub."
    )
    return hours(priority(quiet(distribute(command))))
