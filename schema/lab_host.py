"""A host as its lab describes it: when it may measure, beside whom, through what, and what may be set on it.

Values alone, which a driver may send to the host: what reads them from the lab's file is `schema.lab`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from schema.lab_windows import Closed, Window, closed, closes_at


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingCommands:
    """What a host's admin installed for one setting: `set` has {value} in its words, `get` prints what is in force."""

    set: tuple[str, ...]
    get: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How the host `via` starts a process on another: `command`, then what is to run there.

    `shell`: a shell takes the words apart once more there, as behind ssh. `home` is TOKFLEET_HOME there, None its own.
    """

    host: str
    command: tuple[str, ...]
    via: str
    python: str = "python3"
    shell: bool = False
    home: str | None = None

    @property
    def words(self) -> str:
        """The command as people read it."""
        return " ".join(self.command)


@dataclass(frozen=True, slots=True, kw_only=True)
class LabHost:
    """One host. Without `windows` it may always measure; a `launcher` says that it has no Ray of its own.

    `python` is what measures there, None for the host's own choice, such as that of its launcher. `models` are folders
    to look for models in.
    """

    name: str
    launcher: Launcher | None = None
    python: str | None = None
    windows: tuple[Window, ...] = ()
    zone: str = "UTC"
    groups: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    labels: dict[str, str] = field(default_factory=dict)
    host_settings: dict[str, SettingCommands] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """What is known of hosts besides what they say themselves; `limits`: how many of a group measure at once."""

    hosts: dict[str, LabHost] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)

    def host(self, name: str) -> LabHost:
        """Return the entry of `name`; of a host without one, an entry that says nothing."""
        return self.hosts.get(name) or LabHost(name=name)

    @property
    def launchers(self) -> dict[str, Launcher]:
        """The launchers of the hosts that have no Ray, by the host's name."""
        return {name: host.launcher for name, host in self.hosts.items() if host.launcher is not None}

    def full(self, name: str, measuring: Iterable[str]) -> str | None:
        """Return the group of `name` of which as many hosts as are allowed at once are in `measuring`, else None."""
        others = [self.host(other).groups for other in set(measuring) - {name}]
        for group in self.host(name).groups:
            limit = self.limits.get(group)
            if limit is not None and sum(group in groups for groups in others) >= limit:
                return group
        return None


def may_start(host: LabHost, now: datetime) -> Closed | None:
    """Return why `host` may not begin to measure at `now` (aware) and until when; None where it may."""
    return closed(host.name, host.windows, host.zone, now)


def must_end(host: LabHost, now: datetime) -> datetime | None:
    """Return the instant (UTC) at which the host's present window closes; None where it has no end."""
    return closes_at(host.windows, host.zone, now)


def without_command(host: LabHost, asked: Mapping[str, str]) -> tuple[str, ...]:
    """Return which settings of those in `asked` the host's admin has installed no command for."""
    return tuple(name for name in asked if name not in host.host_settings)
