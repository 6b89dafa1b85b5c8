"""Reads a tree of texts into values and goes on after a fault, so that all faults are known at the end."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from schema.problem import Problem, show
from schema.sweep_keys import GROUPS, LEVELS, explain, meant
from schema.sweep_values import BadValueError
from schema.yaml_file import Entry, Mapping, Node, Scalar, Sequence

T = TypeVar("T")

MAX_VALUES = 256


class Reader:
    """Appends each fault to the list it is given, and returns what could be read."""

    def __init__(self, problems: list[Problem]) -> None:
        self._problems = problems

    @property
    def n_faults(self) -> int:
        """How many faults there are so far."""
        return len(self._problems)

    def fault(self, line: int, key: str, text: str) -> None:
        """Note a fault and go on."""
        self._problems.append(Problem(line, key, text))

    def check_keys(self, mapping: Mapping, level: str, prefix: str) -> None:
        """Note every key that `level` does not have; at the top, keys that start with `x-` or `.` are free."""
        for entry in mapping.entries:
            if entry.key in LEVELS.get(level, ()) or (not level and entry.key.startswith(("x-", "."))):
                continue
            text = explain(entry.key, level)
            if not level and entry.anchored:
                text += f" A key that only holds an anchor may be called `x-{entry.key}`."
            self.fault(entry.line, prefix + entry.key, text)
            self._check_below(entry, level)

    def _check_below(self, entry: Entry, level: str) -> None:
        """Name the bad keys inside a mapping whose own key is wrong, where it is clear what they should be."""
        below = entry.key.lower() if entry.key.lower() in GROUPS else meant(entry.key, level)
        if not level and isinstance(entry.value, Mapping) and below in (*GROUPS, "tests", "params"):
            self.check_keys(entry.value, below or "", f"{entry.key}.")

    def attempt(self, scalar: Scalar, key: str, read: Callable[[Scalar], T]) -> T | None:
        """Return what `read` makes of the text, or None after a fault."""
        try:
            return read(scalar)
        except BadValueError as error:
            self.fault(scalar.line, key, str(error))
            return None

    def one(self, entry: Entry | None, read: Callable[[Scalar], T], prefix: str = "") -> T | None:
        """Return what `read` makes of the entry's only value, or None."""
        if entry is None:
            return None
        key = prefix + entry.key
        if not isinstance(entry.value, Scalar):
            self.fault(entry.line, key, f"{kind(entry.value)} stands where one value belongs.")
            return None
        return self.attempt(entry.value, key, read)

    def items(self, entry: Entry, key: str) -> tuple[Node, ...]:
        """Return the list's items; anything else is a list of one."""
        if not isinstance(entry.value, Sequence):
            return (entry.value,)
        items = entry.value.items
        if not items:
            self.fault(entry.line, key, "the list is empty; write at least one value, or leave the key out.")
        if len(items) > MAX_VALUES:
            self.fault(entry.line, key, f"the list has {len(items)} values; write at most {MAX_VALUES}.")
        return items[:MAX_VALUES]

    def list_of(self, entry: Entry | None, key: str, read: Callable[[Scalar], T]) -> tuple[T, ...]:
        """Return the readable values of a list (or of one value standing for it), each once."""
        if entry is None:
            return ()
        found: list[tuple[int, T]] = []
        for item in self.items(entry, key):
            if isinstance(item, Scalar):
                value = self.attempt(item, key, read)
                found += [] if value is None else [(item.line, value)]
            else:
                self.fault(item.line, key, f"{kind(item)} stands where one value belongs.")
        return self.distinct(found, key)

    def distinct(self, found: Iterable[tuple[int, T]], key: str, name: Callable[[T], str] = str) -> tuple[T, ...]:
        """Return the values without their lines; one that comes again is a fault, so that no job doubles silently."""
        values: list[T] = []
        for line, value in found:
            if value in values:
                twice = f"{name(value)} stands in the list twice; keep one, and see `repeat` for more runs."
                self.fault(line, key, twice)
            else:
                values.append(value)
        return tuple(values)

    def mapping(self, entry: Entry | None) -> Mapping | None:
        """Return the mapping under `entry` after a look at its keys, or None."""
        if entry is None:
            return None
        if isinstance(entry.value, Mapping):
            self.check_keys(entry.value, entry.key, f"{entry.key}.")
            return entry.value
        known = LEVELS.get(entry.key, ("name",))
        text = f"{kind(entry.value)} stands where keys belong; write `{entry.key}: {{{known[0]}: …}}`."
        self.fault(entry.line, entry.key, text)
        return None


def kind(node: Node) -> str:
    """Return what stands there, for the start of a message."""
    if isinstance(node, Scalar):
        return "no value" if node.is_null else f"the text {show(node.text)}"
    return "a list" if isinstance(node, Sequence) else "a mapping"
