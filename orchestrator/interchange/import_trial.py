"""What an import would add, file by file, without adding it (pure)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.interchange.doubles import Identity, Sorted, sort_out
from orchestrator.interchange.found import Row


@dataclass(slots=True)
class Trial:
    """The rows of the files so far, as the store would have them; what it has already is given with each file."""

    rows: dict[str, Identity] = field(default_factory=dict)
    by_key: dict[str, list[str]] = field(default_factory=dict)

    def sort_out(
        self,
        rows: Sequence[tuple[Row, Identity]],
        stored: Iterable[Identity] = (),
        measured: frozenset[str] = frozenset(),
        *,
        distinct: bool = False,
    ) -> Sorted:
        """Tell the rows of the next file apart, as `doubles.sort_out` does, and remember them."""
        have = {one.import_key: one for one in (*stored, *self._near(who for _, who in rows))}
        told = sort_out(rows, have.values(), measured, distinct)
        have |= {who.import_key: who for _, who in told.fresh}
        changed = {who.import_key: who for _, who in told.fresh}
        for poorer, richer in told.doubles:
            changed[poorer] = replace(changed.get(poorer, have[poorer]), same_as=richer)
        hosts = {who.host for _, who in rows}
        for key in told.placed:
            changed[key] = replace(changed.get(key, have[key]), host=next(iter(hosts)))
        for row, one in told.fuller:
            changed[one.import_key] = replace(changed.get(one.import_key, one), n_facts=row.n_facts)
        for key in told.freed:
            changed[key] = replace(changed.get(key, have[key]), same_as=None)
        for one in changed.values():
            self._remember(one)
        return told

    def _remember(self, one: Identity) -> None:
        if one.import_key not in self.rows:
            for key in {one.import_key, one.printed_key, one.timed_key}:
                self.by_key.setdefault(key or "", []).append(one.import_key)
        self.rows[one.import_key] = one

    def _near(self, rows: Iterable[Identity]) -> Iterator[Identity]:
        """Yield what may be among `rows`, or the same as one of them, and the results of which those are doubles."""
        near: dict[str, None] = {}
        for who in rows:
            for each in (*who.keys, who.printed_key, who.timed_key):
                near |= dict.fromkeys(self.by_key.get(each, ()) if each else ())
        for key in near:
            one = self.rows[key]
            yield one
            if one.same_as in self.rows:
                yield self.rows[one.same_as]
