"""llama-bench's json and jsonl, and batched-bench's jsonl, with whatever else was printed between the objects (pure).

An object that is whole is read wherever it stands; one that is not, and an array that does not end, are named.
Numbers stay as written until their field is known, so nothing is rounded on the way, and `inf` and `nan` are seen.
"""

import bisect
import json
import re
from collections.abc import Iterator
from typing import Any

from orchestrator.interchange.batched_bench import FIELDS as BATCHED
from orchestrator.interchange.batched_bench import batched_rows
from orchestrator.interchange.bench_fields import KNOWN
from orchestrator.interchange.bench_row import FIELD, row_of
from orchestrator.interchange.found import Part, RefusedError

MOST_CHARACTERS = 65_536
"""Of an object that is damaged, or has words that JSON does not know; and read at once of any other."""
LONGEST_TOKEN = 5000
MOST_OF_A_ROW = 1 << 20
LEAST_KNOWN = 3
"""Fields of llama-bench's that make an object one of its rows, whole or not."""
LEAST_OF_BATCHED = 8

_OBJECT = re.compile(r'\{\s*(?="|\Z)')
_BARE = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?<![\w.])[+-]?(?:inf(?:inity)?|nan(?:\([a-z0-9]*\))?)(?!\w)', re.IGNORECASE)
_BARE_WORD = re.compile(r"[+-]?(?:inf|nan)", re.IGNORECASE)
_KEY = re.compile(r'"([a-z_]{2,24})"\s*:')
_PUNCTUATION = " \t[],"


class _Written(str):
    """A number as written."""

    __slots__ = ()


class _Object(dict[str, Any]):
    """An object that remembers the keys that came twice."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        seen: set[str] = set()
        self.twice = [key for key, _ in pairs if key in seen or seen.add(key)]  # type: ignore[func-returns-value]


_DECODER = json.JSONDecoder(
    object_pairs_hook=_Object, parse_float=_Written, parse_int=_Written, parse_constant=_Written, strict=True
)


def read_json(text: str) -> Part:
    """Return the rows of every object in `text` that is one of llama-bench's or batched-bench's."""
    return _Reader(text).read()


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.part = Part()
        self.starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.budget = 8 * len(text) + (1 << 20)
        self.open = 0
        self.opened_at = 0
        self.told = False

    def line(self, at: int) -> int:
        return bisect.bisect_right(self.starts, at)

    def read(self) -> Part:
        at = 0
        while (match := _OBJECT.search(self.text, at)) is not None:
            begin = match.start()
            end = self._object(begin)
            if end:
                self._between(at if self.told else 0, begin)
            at = end or begin + 1
            self.told |= bool(end)
            if self.budget < 0:
                self.part.refuse(self.line(begin), "from here on there are too many objects that are none of ours")
                break
        if self.told:
            self._between(at, len(self.text))
        if self.open > 0:
            self.part.refuse(self.opened_at, "the array that begins here does not end: the file is cut off")
        return self.part

    def _object(self, at: int) -> int:
        """Take the object at `at` where it is one of ours; return its end, or 0."""
        self.budget -= 32
        whole, end = self._decoded(at)
        if whole is None:
            return self._broken(at)
        if not _is_row(whole) and not _is_batched(whole):
            return 0
        line, raw = self.line(at), self.text[at:end]
        self.part.lines |= {*range(line, self.line(end) + 1)}
        try:
            self._take(whole, line, raw)
        except RefusedError as error:
            self.part.refuse(line, str(error), raw, error.severity)
        return end

    def _decoded(self, at: int) -> tuple[_Object | None, int]:
        """Return the object at `at` and its end, or None and 0."""
        window = self.text[at : at + MOST_CHARACTERS]
        try:
            whole, end = _DECODER.raw_decode(window)
        except (ValueError, RecursionError) as error:
            place = getattr(error, "pos", len(window))
            self.budget -= place
        else:
            self.budget -= end
            return whole, at + end
        if _BARE_WORD.match(window, place):
            return self._decoded_with_bare_words(window, at)
        if place < len(window) - LONGEST_TOKEN or at + len(window) == len(self.text):
            return None, 0
        return self._decoded_whole(at)

    def _decoded_whole(self, at: int) -> tuple[_Object | None, int]:
        """Return the same for an object that is longer than a window."""
        self.budget -= len(self.text) - at
        try:
            return _DECODER.raw_decode(self.text, at)
        except (ValueError, RecursionError):
            return None, 0

    def _decoded_with_bare_words(self, window: str, at: int) -> tuple[_Object | None, int]:
        """Return the same for a flat object in which `inf` or `nan` stands where JSON has none."""
        end = window.find("}") + 1
        self.budget -= end
        try:
            return _DECODER.decode(_BARE.sub(_quoted, window[:end])), at + end
        except (ValueError, RecursionError):
            return None, 0

    def _broken(self, at: int) -> int:
        following = _OBJECT.search(self.text, at + 1, at + MOST_CHARACTERS)
        end = following.start() if following else min(len(self.text), at + MOST_CHARACTERS)
        piece = self.text[at:end]
        self.budget -= len(piece)
        if not {*_KEY.findall(piece)} & {*KNOWN, "n_kv_max", "is_pp_shared"} and not (
            self.told and end == len(self.text)
        ):
            return 0
        first = self.line(at)
        self.part.refuse(first, "an object that is cut off or damaged", piece)
        self.part.lines |= {*range(first, self.line(end - 1) + 1)}
        return end

    def _take(self, whole: _Object, line: int, raw: str) -> None:
        if whole.twice:
            raise RefusedError(f"it has {whole.twice[0]!r:.60} twice")
        odd = [key for key in whole if not FIELD.fullmatch(key)]
        if odd:
            raise RefusedError(f"{odd[0]!r:.60} is no name of a field")
        if len(raw) > MOST_OF_A_ROW:
            raise RefusedError("it is too long for a row")
        if _is_batched(whole):
            for row in batched_rows(_cells(whole), line, raw, self.part):
                self.part.take(row)
            return
        form = "json" if "\n" in raw else "jsonl"
        samples = (_list(whole, "samples_ns"), _list(whole, "samples_ts"))
        self.part.take(row_of(_cells(whole), form=form, line=line, raw=raw, samples=samples))

    def _between(self, begin: int, end: int) -> None:
        """Count the brackets of what stands between objects, and name a piece of an object that lost its brace."""
        gap = self.text[begin:end]
        keys = [match for match in _KEY.finditer(gap) if match[1] in KNOWN]
        if len(keys) >= LEAST_KNOWN:
            self.part.refuse(self.line(begin + keys[0].start()), "a piece of a row outside any object")
        for bracket in _brackets(gap, self.told):
            if bracket == "[":
                self.opened_at = self.opened_at if self.open else self.line(begin + gap.rindex("["))
                self.open += 1
            elif self.open:
                self.open -= 1


def _is_row(whole: _Object) -> bool:
    return "avg_ts" in whole or len({*whole} & KNOWN) >= LEAST_KNOWN


def _is_batched(whole: _Object) -> bool:
    return len({*whole} & BATCHED) >= LEAST_OF_BATCHED and "avg_ts" not in whole


def _brackets(gap: str, after: bool) -> Iterator[str]:
    """Yield the brackets of JSON in `gap`: those next to an object, and those on lines of their own."""
    lines = gap.split("\n")
    for number, line in enumerate(lines):
        if number == 0 and after:
            line = line[: len(line) - len(line.lstrip(_PUNCTUATION))]
        elif number == len(lines) - 1:
            line = line[len(line.rstrip(_PUNCTUATION)) :]
        elif line.strip(_PUNCTUATION):
            continue
        yield from (mark for mark in line if mark in "[]")


def _quoted(match: re.Match[str]) -> str:
    return match[0] if match[0].startswith('"') else f'"{match[0]}"'


def _cells(whole: _Object) -> dict[str, str]:
    """Return the plain values as text; what is null or empty is not there, lists and objects are left out."""
    plain = {key: value for key, value in whole.items() if isinstance(value, str | bool)}
    cells = {
        key: str(value).lower() if isinstance(value, bool) else str(value).strip(" \t") for key, value in plain.items()
    }
    return {key: value for key, value in cells.items() if value}


def _list(whole: _Object, key: str) -> tuple[str, ...]:
    values = whole.get(key, [])
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise RefusedError(f"{key} is no list of numbers")
    return tuple(str(value) for value in values)
