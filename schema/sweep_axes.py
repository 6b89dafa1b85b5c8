"""A mapping of names to values in a sweep, each name an axis: what `env` and `host_settings` have in common."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from schema.sweep_reader import Reader, kind
from schema.yaml_file import Entry, Mapping, Scalar

MAX_COMBINATIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """How the mapping under `key` is read: what stands in it and how it is written, which names and values may.

    `refuse` returns what is wrong with a name, None where it may stand; `value` reads one value, or raises.
    """

    key: str
    things: str
    example: str
    refuse: Callable[[str], str | None]
    value: Callable[[Scalar], str]

    def read(self, reader: Reader, entry: Entry | None) -> dict[str, tuple[int | str, ...]]:
        """Return `{key: …}` with one text, `NAME=VALUE` joined by blanks, for each combination; {} where none is."""
        if entry is None:
            return {}
        if not isinstance(entry.value, Mapping):
            text = f"{kind(entry.value)} stands where {self.things} belong; write `{self.key}: {self.example}`."
            reader.fault(entry.line, self.key, text)
            return {}
        axes = [self._axis(reader, each) for each in sorted(entry.value.entries, key=lambda each: each.key)]
        count = 1
        for axis in axes:
            count *= max(1, len(axis))
        if count > MAX_COMBINATIONS:
            text = f"these are {count} combinations; write at most {MAX_COMBINATIONS}."
            reader.fault(entry.line, self.key, text)
            return {}
        return {self.key: tuple(" ".join(pairs) for pairs in itertools.product(*axes))} if axes else {}

    def _axis(self, reader: Reader, entry: Entry) -> list[str]:
        where = f"{self.key}.{entry.key}"
        refusal = self.refuse(entry.key)
        if refusal is not None:
            reader.fault(entry.line, where, refusal)
        return [f"{entry.key}={value}" for value in reader.list_of(entry, where, self.value)]
