"""Which attempt speaks for a job (pure): at most one is final, and a late one never takes its place."""

from collections.abc import Sequence
from dataclasses import dataclass

from schema.record import Record

DISTURBED = "contended"
"""The quality of a result that others disturbed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """An attempt that is stored already."""

    number: int
    status: str
    final: bool
    quality: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How a new attempt is stored; `replaces` says that the final one up to now is final no longer."""

    number: int
    final: bool
    superseded: bool
    replaces: bool


def stand(record: Record, others: Sequence[Standing]) -> Verdict:
    """Return how `record` stands among the `others` of its job.

    The first measured attempt is final and stays so, unless others disturbed it: then a later measured one takes
    its place. Until there is one, the failed attempt with
    the highest number is, but never an interrupted one: its job is still to be done. A number that
    is taken, as when a lost attempt turns up after another was begun, becomes the next free one.
    """
    taken = {other.number for other in others}
    number = record.number if record.number not in taken else max(taken) + 1
    final = next((other for other in others if other.final), None)
    if final is None:
        return Verdict(number=number, final=not _interrupted(record), superseded=False, replaces=False)
    if final.status == "measured" and final.quality == DISTURBED and record.status == "measured":
        later = record.number > final.number
        return Verdict(number=number, final=later, superseded=not later, replaces=later)
    if final.status == "measured":
        return Verdict(number=number, final=False, superseded=True, replaces=False)
    if _interrupted(record):
        return Verdict(number=number, final=False, superseded=False, replaces=False)
    wins = record.status == "measured" or record.number > final.number
    return Verdict(number=number, final=wins, superseded=not wins, replaces=wins)


def _interrupted(record: Record) -> bool:
    return record.failure is not None and "interrupted" in (record.failure.stage, record.failure.kind)
