"""What an import found, took and refused, file by file, as people and programs read it (pure)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.interchange.doubles import Sorted
from orchestrator.interchange.found import Found
from orchestrator.tables import escape

COUNTS = ("found", "new", "known", "likely", "held", "refused")
COLUMNS = ("file", *COUNTS)
ALL_COLUMNS = (*COLUMNS, "formats", "incomplete", "refusals", "notes")
"""Columns for programs."""
MOST_REFUSALS = 5
MOST_LINES = 200
NO_COUNTS = (0,) * len(COUNTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One file: its name, whether somebody named it, and what became of it; its rows are not kept.

    `counts` are results found, new ones, known ones, other forms of known ones, good ones kept back, pieces refused.
    `own` says in a sentence what became of a file that tokfleet itself wrote, whose rows are not counted here.
    """

    name: str
    found: Found
    named: bool = False
    counts: tuple[int, ...] = NO_COUNTS
    formats: tuple[str, ...] = ()
    n_doubtful: int = 0
    elsewhere: int = 0
    is_taken: bool = False
    own: str | None = None

    @property
    def says_something(self) -> bool:
        """Whether anything of the file is worth a line."""
        return self.own is None and (self.named or self.counts != NO_COUNTS)

    @property
    def lacks_something(self) -> bool:
        """Whether a result of the file, or all that somebody hoped for, is not in the store."""
        lost = any(refusal.severity != "foreign" for refusal in self.found.refusals)
        return lost or bool(self.found.held) or (self.named and not self.is_taken)


def outcome_of(name: str, found: Found, told: Sorted, named: bool) -> Outcome:
    """Return what became of a file of llama-bench's, without its rows, of which a folder may have many."""
    again = len(found.again)
    known, held = (told.n_known, found.held + again) if found.held else (told.n_known + again, 0)
    n_found = len(found.rows) + found.held + again
    return Outcome(
        name=name,
        found=replace(found, rows=()),
        named=named,
        counts=(n_found, told.n_new, known, told.n_likely, held, found.n_refused),
        formats=found.formats,
        n_doubtful=sum(bool(row.doubts) for row, _ in told.fresh),
        elsewhere=told.elsewhere,
        is_taken=bool(found.rows),
    )


def status(outcomes: Sequence[Outcome]) -> int:
    """Return the exit status: 0 all of it is in the store, 3 some of it, 1 none."""
    if not any(outcome.is_taken for outcome in outcomes):
        return 1
    return 3 if any(outcome.lacks_something for outcome in outcomes) else 0


def table(outcomes: Sequence[Outcome]) -> Iterator[tuple[Any, ...]]:
    """Yield a row of COLUMNS for each file that says something."""
    for outcome in outcomes:
        if outcome.says_something:
            yield (outcome.name, *outcome.counts)


def whole_table(outcomes: Sequence[Outcome]) -> Iterator[tuple[Any, ...]]:
    """Yield a row of ALL_COLUMNS for each file."""
    for outcome in outcomes:
        found = outcome.found
        refusals = [
            {"line": refusal.line, "reason": refusal.reason, "severity": refusal.severity} for refusal in found.refusals
        ]
        notes = [*found.notes, *([outcome.own] if outcome.own else [])]
        yield (outcome.name, *outcome.counts, list(outcome.formats), found.incomplete, refusals, notes)


def remarks(outcomes: Sequence[Outcome], salvage: bool) -> list[str]:
    """Return a line for each thing that was refused or is worth knowing, with file and line, fit for a terminal."""
    lines = [line for outcome in outcomes if outcome.says_something for line in _remarks(outcome, salvage)]
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], *([f"and {more} more; --format json has all"] if more > 0 else [])]


def _remarks(outcome: Outcome, salvage: bool) -> Iterator[str]:
    name, found = escape(outcome.name), outcome.found
    for refusal in found.refusals[:MOST_REFUSALS]:
        place = f"{name}:{refusal.line}" if refusal.line else name
        yield f"{place}: {escape(refusal.reason)}"
    if found.n_refused > MOST_REFUSALS:
        yield f"{name}: {found.n_refused - MOST_REFUSALS} more refusals"
    if found.held and not salvage:
        yield f"{name}: {_counted(found.held, 'good row')} kept back because of it; --salvage takes them"
    if outcome.elsewhere:
        yield f"{name}: {_counted(outcome.elsewhere, 'row')} known as measured on another host; that stays"
    if found.incomplete and outcome.is_taken:
        yield f"{name}: the run did not end as it should, or goes on: what it has so far is taken"
    for note in found.notes:
        yield f"{name}: {escape(note)}"


def summary(outcomes: Sequence[Outcome], trial: bool) -> str:
    """Return what all came to, in a few sentences."""
    found, new, known, likely, held, _ = (sum(each.counts[at] for each in outcomes) for at in range(len(COUNTS)))
    files = sum(bool(outcome.counts[0]) for outcome in outcomes)
    parts = [_counted(new, "new result"), f"{known} known"]
    parts += [f"{likely} likely the same as others"] * bool(likely) + [f"{held} kept back"] * bool(held)
    sentences = [f"{_counted(found, 'result')} in {_counted(files, 'file')}: {', '.join(parts)}."]
    doubtful = sum(outcome.n_doubtful for outcome in outcomes)
    sentences += [f"Of {doubtful} the file itself gives reason to doubt: see the column `doubts`."] * bool(doubtful)
    sentences += ["Nothing was stored: this was a dry run."] * trial
    return " ".join(sentences)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
