"""llama-bench's sql, and dumps of databases made of it: read as text, never executed (pure).

Columns go by the names in each INSERT, or by the CREATE TABLE above where a dump gives none. Nothing else in the file
is looked at.
"""

import bisect
import re
from collections.abc import Iterator

from orchestrator.interchange.bench_fields import KNOWN
from orchestrator.interchange.bench_row import row_of
from orchestrator.interchange.found import Part, RefusedError

OWN, OLD = "llama_bench", "test"
"""What llama-bench calls its table, and called it at first."""
LEAST_KNOWN = 8
MOST_CHARACTERS = 1 << 20

_START = re.compile(r"^[ \t]*(INSERT|REPLACE|CREATE)\b", re.IGNORECASE | re.MULTILINE)
_TOKEN = re.compile(
    r"""(?P<blank>[ \t\n\f\r]+|--[^\n]*|/\*[^*]*\*+(?:[^/*][^*]*\*+)*/)
    |'(?P<text>(?:[^'\n]|'')*)'
    |"(?P<name>(?:[^"\n]|"")*)"|`(?P<tick>[^`\n]*)`|\[(?P<square>[^\]\n]*)\]
    |(?P<number>[+-]?[0-9][0-9A-Za-z.+-]*|[+-]?\.[0-9][0-9A-Za-z.+-]*)
    |(?P<word>[+-]?[A-Za-z_][A-Za-z0-9_]*)
    |(?P<mark>[(),;.])""",
    re.VERBOSE,
)
_ENDED_EARLY = "the statement is cut off or damaged"

Token = tuple[str, str]


def read_sql(text: str) -> Part:
    """Return the rows of every INSERT in `text` whose columns are llama-bench's."""
    part = Part()
    created: dict[str, tuple[str, ...]] = {}
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    at, end = 0, len(text.rstrip())
    while (match := _START.search(text, at)) is not None:
        begin = match.start(1)
        line = bisect.bisect_right(starts, begin)
        statement = _Statement(text, begin)
        if match[1].upper() == "CREATE":
            statement.create(created)
        else:
            _insert(statement, created, line, part)
        at = max(match.end(), statement.at)
        if not statement.mine and at >= end:
            at = begin
            break
        if statement.mine:
            part.lines |= {*range(line, bisect.bisect_right(starts, at - 1) + 1)}
    if part.lines:
        _tail(text, at, starts, part)
    return part


def _tail(text: str, at: int, starts: list[int], part: Part) -> None:
    rest = text[at:].strip()
    first = rest.partition("\n")[0].upper()
    if (
        first
        and not rest.endswith(";")
        and any(word.startswith(first[: len(word)]) for word in ("INSERT INTO", "CREATE TABLE"))
    ):
        line = bisect.bisect_right(starts, at + text[at:].index(rest[0]))
        part.refuse(line, "the statement is cut off: the file ends within it", first)


def _insert(statement: "_Statement", created: dict[str, tuple[str, ...]], line: int, part: Part) -> None:
    begin, rows, fault = statement.at, [], None
    try:
        rows = statement.insert(created)
    except RefusedError as error:
        fault = error
    raw = statement.text[begin : statement.at]
    if fault is not None and statement.mine:
        part.refuse(line, str(fault), raw)
    for values in rows if statement.mine else ():
        try:
            part.take(row_of(_cells(statement.columns, values), form="sql", line=line, raw=raw))
        except RefusedError as error:
            part.refuse(line, str(error), raw, error.severity)


def _cells(columns: tuple[str, ...], values: list[str]) -> dict[str, str]:
    if len(values) != len(columns):
        raise RefusedError(f"{len(values)} values for {len(columns)} columns")
    return {name: value for name, value in zip(columns, values, strict=True) if value}


class _Statement:
    """One statement, read token by token from where it begins; `at` is how far it was understood."""

    def __init__(self, text: str, at: int) -> None:
        self.text, self.at, self.begin = text, at, at
        self.table = ""
        self.columns: tuple[str, ...] = ()
        self.tokens = self._tokens()

    @property
    def mine(self) -> bool:
        """Whether it is about llama-bench's rows, as far as it was read."""
        known, table = len({*self.columns} & KNOWN), self.table.lower()
        return known >= LEAST_KNOWN or table == OWN or (table == OLD and (known > 0 or not self.columns))

    def _tokens(self) -> Iterator[Token]:
        while self.at - self.begin < MOST_CHARACTERS:
            match = _TOKEN.match(self.text, self.at)
            if match is None:
                break
            self.at = match.end()
            kind = str(match.lastgroup)
            if kind != "blank":
                yield ("name" if kind in ("tick", "square") else kind), match[kind]
        while True:
            yield "end", ""

    def _expect(self, *wanted: str) -> None:
        for word in wanted:
            kind, text = next(self.tokens)
            if kind not in ("word", "mark") or text.upper() != word:
                raise RefusedError(_ENDED_EARLY)

    def _name(self) -> str:
        kind, text = next(self.tokens)
        if kind not in ("word", "name", "text"):
            raise RefusedError(_ENDED_EARLY)
        return text

    def create(self, created: dict[str, tuple[str, ...]]) -> None:
        """Note the columns of a CREATE TABLE; the first of a name is the one that a database has."""
        words = [next(self.tokens) for _ in range(3)]
        if words[1][1].upper() != "TABLE":
            return
        if words[2][1].upper() == "IF":
            words += [next(self.tokens) for _ in range(3)]
        if next(self.tokens) != ("mark", "("):
            return
        columns, depth, first = [], 1, True
        for kind, text in self.tokens:
            depth += {"(": 1, ")": -1}.get(text, 0) if kind == "mark" else 0
            if kind == "end":
                return
            if depth == 0:
                break
            if first:
                columns.append(text)
            first = kind == "mark" and text == "," and depth == 1
        self.table, self.columns = words[-1][1], tuple(columns)
        created.setdefault(self.table.lower(), self.columns)

    def insert(self, created: dict[str, tuple[str, ...]]) -> list[list[str]]:
        """Return the values of each row; RefusedError where the statement is not a plain INSERT, whole."""
        _, verb = next(self.tokens)
        following = next(self.tokens)[1].upper()
        if verb.upper() == "INSERT" and following == "OR":
            next(self.tokens)
            following = next(self.tokens)[1].upper()
        if following != "INTO":
            raise RefusedError(_ENDED_EARLY)
        self.table = self._name()
        kind, text = next(self.tokens)
        if (kind, text) == ("mark", "."):
            self.table, (kind, text) = self._name(), next(self.tokens)
        if (kind, text) == ("mark", "("):
            self.columns = self._columns()
            kind, text = next(self.tokens)
        else:
            self.columns = created.get(self.table.lower(), ())
        if kind != "word" or text.upper() != "VALUES":
            raise RefusedError(_ENDED_EARLY)
        return self._rows()

    def _columns(self) -> tuple[str, ...]:
        while True:
            self.columns += (self._name(),)
            kind, text = next(self.tokens)
            if (kind, text) == ("mark", ")"):
                return self.columns
            if (kind, text) != ("mark", ","):
                raise RefusedError(_ENDED_EARLY)

    def _rows(self) -> list[list[str]]:
        if len({*self.columns}) < len(self.columns):
            raise RefusedError("a column is named twice")
        rows = []
        while True:
            self._expect("(")
            rows.append(self._values())
            kind, text = next(self.tokens)
            if (kind, text) == ("mark", ";"):
                return rows
            if (kind, text) != ("mark", ","):
                raise RefusedError(_ENDED_EARLY)

    def _values(self) -> list[str]:
        values = []
        while True:
            kind, text = next(self.tokens)
            if kind not in ("text", "number") and (kind != "word" or text.upper() != "NULL"):
                raise RefusedError(_ENDED_EARLY if kind in ("end", "mark") else f"{text!r:.40} is no plain value")
            values.append("" if kind == "word" else text.replace("''", "'").strip(" \t"))
            kind, text = next(self.tokens)
            if (kind, text) == ("mark", ")"):
                return values
            if (kind, text) != ("mark", ","):
                raise RefusedError(_ENDED_EARLY)
