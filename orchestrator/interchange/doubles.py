"""Which rows of a file the store has not yet, and which of them are likely a result that it has in another form (pure).

A row of which another form of the same result has more (a table beside its json, a csv that lost columns) is a
double: kept, but no result of its own. Two equal rows of one form in one file are two measurements.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.interchange.found import Row
from schema.canonical import digest

MOST_ALIKE = 1000
"""So many results are looked at that may be the same as one; a file of nothing but equal rows must not take long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells a result from another: its key, what a table prints of it, when it ran, and how much is known of it.

    `host` is the host_uid that somebody gave for it, `same_as` the key of the row whose double it is.
    """

    import_key: str
    printed_key: str
    timed_key: str | None = None
    tested_at: str | None = None
    build_commit: str | None = None
    n_facts: int = 0
    host: str | None = None
    same_as: str | None = None

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys that the row may have in a store: a row without a time may have one of its host's own."""
        own = self.host is not None and self.tested_at is None
        return (self.import_key, *([key_on(self.import_key, self.host or "")] if own else []))


def identity(row: Row, host: str | None = None) -> Identity:
    """Return who `row` is, measured on `host` as far as somebody says so."""
    return Identity(
        import_key=row.import_key,
        printed_key=row.printed_key,
        timed_key=row.timed_key,
        tested_at=row.tested_at,
        build_commit=row.build_commit,
        n_facts=row.n_facts,
        host=host,
    )


def key_on(import_key: str, host: str) -> str:
    """Return the key of a row without a time on `host`, where another host's row reads the same."""
    return digest(["on host", import_key, host])[:32]


def likely_same(one: Identity, other: Identity) -> bool:
    """Say whether two rows may be one result in two forms.

    Either they ran at the same second and took the same nanoseconds, or one of them was kept without its time, as a
    table is, and a table would print both alike. Rows of two hosts, or of two builds, are two results.
    """
    if one.host and other.host and one.host != other.host:
        return False
    if one.timed_key and one.timed_key == other.timed_key:
        return True
    if (one.tested_at and other.tested_at) or one.printed_key != other.printed_key:
        return False
    a, b = one.build_commit, other.build_commit
    return a is None or b is None or a.startswith(b) or b.startswith(a)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorted:
    """The rows of a file told apart: the new ones with who they are, and how many are known.

    `doubles` are pairs of keys: a row, new or stored, and the row that has more of the same result. Of stored rows,
    `placed` had no host, and have one now; `freed` were doubles, and are results of their own now; `fuller` are known
    here with more than is stored of them, such as samples. `elsewhere` counts known rows that are another host's.
    """

    fresh: tuple[tuple[Row, Identity], ...] = ()
    doubles: tuple[tuple[str, str], ...] = ()
    placed: tuple[str, ...] = ()
    freed: tuple[str, ...] = ()
    fuller: tuple[tuple[Row, Identity], ...] = ()
    n_known: int = 0
    elsewhere: int = 0

    @property
    def n_likely(self) -> int:
        """How many rows are another form of a result that is there, with less in it or with more."""
        return len(self.doubles)

    @property
    def n_new(self) -> int:
        """How many results there are now that were not there."""
        return len(self.fresh) + len(self.freed) - len(self.doubles)


def identified(rows: Iterable[Row], host: str | None = None) -> list[tuple[Row, Identity]]:
    """Return each row with who it is."""
    return [(row, identity(row, host)) for row in rows]


def sort_out(
    rows: Sequence[tuple[Row, Identity]],
    stored: Iterable[Identity],
    measured: frozenset[str] = frozenset(),
    distinct: bool = False,
) -> Sorted:
    """Tell the `identified` rows of one file apart.

    `stored` is all that the store has of their keys, or that may be the same as one of them; `measured` are the keys
    of rows that it has from a measurement of its own. With `distinct` no row is a
    double of another.
    """
    have = {one.import_key: one for one in stored}
    fresh: list[tuple[Row, Identity]] = []
    known: list[tuple[Row, Identity]] = []
    hosts: list[tuple[str, Identity]] = []
    n_measured = 0
    for row, given in rows:
        who = _named(given, have)
        if who.import_key in have:
            known.append((row, have[who.import_key]))
            if given.host:
                hosts.append((given.host, have[who.import_key]))
        elif given.import_key in measured:
            n_measured += 1
        else:
            fresh.append((row, who))
    freed = tuple(one.import_key for _, one in known if distinct and one.same_as)
    return Sorted(
        fresh=tuple(fresh),
        doubles=() if distinct else tuple(_Pairing(have).pairs(fresh, known)),
        placed=tuple(one.import_key for host, one in hosts if not one.host),
        freed=freed,
        fuller=tuple((row, one) for row, one in known if row.n_facts > one.n_facts),
        n_known=len(known) + n_measured - len(freed),
        elsewhere=sum(1 for host, one in hosts if one.host and one.host != host),
    )


def _named(who: Identity, have: Mapping[str, Identity]) -> Identity:
    """Return `who` under a key of its host's own, where another host has a row without a time that reads the same."""
    other = have.get(who.import_key)
    if other is None or who.tested_at or not who.host or not other.host or other.host == who.host:
        return who
    return replace(who, import_key=key_on(who.import_key, who.host))


@dataclass(slots=True)
class _Pairing:
    """Finds doubles among what is stored and the rows of one file; each result takes in one row of each form of it."""

    have: dict[str, Identity]
    alike: dict[str, list[str]] = field(default_factory=dict)
    taken: dict[str, set[str]] = field(default_factory=dict)
    passed: dict[tuple[str, str], int] = field(default_factory=dict)

    def pairs(
        self, fresh: Sequence[tuple[Row, Identity]], known: Iterable[tuple[Row, Identity]]
    ) -> Iterator[tuple[str, str]]:
        """Yield (double, the row that has more of it), those of the richest rows first."""
        for one in self.have.values():
            self._list(one)
        for row, one in known:
            self._take(row.format, self._root(one))
        for row, who in sorted(fresh, key=lambda pair: -pair[1].n_facts):
            twin = self._twin(row.format, who)
            richer = who if twin is None or who.n_facts > twin.n_facts else twin
            self.have[who.import_key] = who
            self._list(who)
            self._take(row.format, richer)
            if twin is not None:
                poorer = twin if richer is who else who
                self.have[poorer.import_key] = replace(poorer, same_as=richer.import_key)
                for form in self.taken.get(poorer.import_key, ()):
                    self._take(form, richer)
                yield poorer.import_key, richer.import_key

    def _list(self, one: Identity) -> None:
        for key in (one.printed_key, one.timed_key):
            if key:
                self.alike.setdefault(key, []).append(one.import_key)

    def _take(self, form: str, one: Identity) -> None:
        self.taken.setdefault(one.import_key, set()).add(form)

    def _root(self, one: Identity) -> Identity:
        """Return the row that counts as the result."""
        while one.same_as and one.same_as in self.have:
            one = self.have[one.same_as]
        return one

    def _twin(self, form: str, who: Identity) -> Identity | None:
        """Return the result that `who` may be another form of, unless a row of this file and form is it already."""
        for key in (who.timed_key, who.printed_key):
            listed = self.alike.get(key or "", [])
            first = self.passed.get((key or "", form), 0)
            for at in range(first, min(len(listed), first + MOST_ALIKE)):
                other = self.have[listed[at]]
                root = self._root(other)
                if form in self.taken.get(root.import_key, ()):
                    if at == self.passed.get((key or "", form), 0):
                        self.passed[(key or "", form)] = at + 1
                elif likely_same(who, other):
                    return root
        return None
