"""The processor's own energy counters (RAPL), in joules; only root may read them, and they begin again at times."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from worker.conditions.counters import number, text

PLACE = "sys/class/powercap"
PACKAGE = re.compile(r"package-\d+(-die-\d+)?")


@dataclass(frozen=True, slots=True)
class Domain:
    """One counter: a package of cores with all that is in it, or its memory, which is not."""

    name: str
    path: str
    range_uj: int


@dataclass(frozen=True, slots=True)
class Rapl:
    """The counters of the machine at `root` that can be read; none where there are none, or we are not root."""

    root: Path
    domains: tuple[Domain, ...] = ()

    @classmethod
    def find(cls, root: Path = Path("/")) -> "Rapl":
        """Return packages and their memory: parts of a package are in it already, `psys` holds both and more.

        The same counters reached by another way (`intel-rapl-mmio`) are left out.
        """
        return cls(root, tuple(_domains(root)))

    def read(self) -> dict[str, int]:
        """Return the microjoules of each counter that answers."""
        found = ((domain.name, number(self.root, f"{domain.path}/energy_uj")) for domain in self.domains)
        return {name: value for name, value in found if value is not None}

    def added(self, earlier: dict[str, int], later: dict[str, int]) -> dict[str, float]:
        """Return the joules between two readings; a counter that began again meanwhile has passed its range once."""
        ranges = {domain.name: domain.range_uj for domain in self.domains}
        grown = {name: later[name] - earlier[name] for name in later if name in earlier}
        return {name: (uj if uj >= 0 else uj + ranges[name]) / 1e6 for name, uj in grown.items()}


@dataclass(slots=True)
class Joules:
    """Adds up what the counters added while it was told to count."""

    rapl: Rapl
    total: dict[str, float] = field(default_factory=dict)
    _last: dict[str, int] = field(default_factory=dict)
    _begun: bool = False

    def begin(self) -> None:
        """Count from now on."""
        self._last = self.rapl.read()

    def add(self) -> None:
        """Count until now; to be called more often than a counter comes around, which takes minutes."""
        now = self.rapl.read()
        added = self.rapl.added(self._last, now)
        self.total = {
            name: joules + self.total.get(name, 0.0)
            for name, joules in added.items()
            if name in self.total or not self._begun
        }
        self._last, self._begun = now, True


def _domains(root: Path) -> Iterator[Domain]:
    for zone in _zones(root, PLACE, r"intel-rapl:\d+"):
        name = text(root, f"{zone}/name").strip()
        if not PACKAGE.fullmatch(name):
            continue
        yield from _domain(root, zone, name)
        for part in _zones(root, zone, r"intel-rapl:\d+:\d+"):
            if text(root, f"{part}/name").strip() == "dram":
                yield from _domain(root, part, f"dram of {name}")


def _domain(root: Path, place: str, name: str) -> Iterator[Domain]:
    most = number(root, f"{place}/max_energy_range_uj")
    if most and most > 0 and number(root, f"{place}/energy_uj") is not None:
        yield Domain(name, place, most)


def _zones(root: Path, place: str, pattern: str) -> list[str]:
    try:
        names = os.listdir(f"{root}/{place}")
    except OSError:
        return []
    return [f"{place}/{name}" for name in sorted(names) if re.fullmatch(pattern, name)]
