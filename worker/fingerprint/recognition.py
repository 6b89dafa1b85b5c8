"""Whether a machine is the one that some evidence was taken of: the same, a copy's new place, or installed anew (pure).

A copy of a home, a disk or a virtual machine brings the identity of another machine along; a system installed
anew has lost its own. Neither a hostname nor equal hardware says anything here: a rack holds many twins.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from schema.host import Evidence, Fingerprint

Verdict = Literal["same", "clone", "reinstalled", "unknown"]

UNIQUE = ("instance_id", "product_uuid", "board_serial", "gpu_uuids", "macs")
"""What belongs to one machine and stays with it through a reinstall."""

KEYS_TO_ATTACH = 2
"""How many unique parts a machine installed anew must have in common with a known host to be taken for it."""

CLOCK_ERROR = timedelta(minutes=5)
AT_ONCE = ("lifetime", "boot")
"""That both ran at once weighs as much as two parts: a clock may have been wrong."""


@dataclass(frozen=True, slots=True)
class Former:
    """The host that a machine was before; where that is not sure, its results must not be mixed with those of now."""

    host_uid: str
    is_sure: bool


def recognise(known: Evidence, now: Evidence) -> Verdict:
    """Return what the machine with the evidence `now` is to the one that `known` was taken of.

    `same`: it is that machine, perhaps with parts replaced. `clone`: it is another machine with a copy of that
    one's files: more of what is unique contradicts than agrees, the cloud calls it another instance, or both ran
    at once. `reinstalled`: that machine with another system. `unknown`: nothing says that they are one machine.
    """
    agreeing, contradicting = agreements(known, now), tuple(_contradictions(known, now))
    other_system = _differ(known.machine_id, now.machine_id)
    if "instance_id" in contradicting or len(contradicting) > len(agreeing):
        return "unknown" if other_system else "clone"
    if known.boot_id is not None and known.boot_id == now.boot_id:
        return "same"
    if agreeing:
        return "reinstalled" if other_system else "same"
    return _by_system(known, now)


def former(known: Iterable[tuple[str, str | None, Evidence]], now: Evidence, hardware_id: str | None) -> Former | None:
    """Return which of the `known` hosts (id, hardware id, evidence) a machine without an id was before, if any.

    Hardware that is not equal is another machine with parts of that one, except in the same boot: two systems in
    one boot are containers of one machine.
    """
    for host_uid, hardware_id_then, then in known:
        verdict = recognise(then, now)
        if verdict == "same" and then.boot_id == now.boot_id:
            return Former(host_uid, is_sure=True)
        if verdict == "reinstalled" and hardware_id is not None and hardware_id == hardware_id_then:
            return Former(host_uid, is_sure=len(agreements(then, now)) >= KEYS_TO_ATTACH)
    return None


def agreements(known: Evidence, now: Evidence) -> tuple[str, ...]:
    """Return the names of what is unique and equal on both sides; of several GPUs or network cards one suffices."""
    return tuple(name for name in UNIQUE if _members(known, name) & _members(now, name))


def said(fingerprint: Fingerprint) -> Iterator[str]:
    """Yield in sentences what its user should know of the host's identity; nothing where there is nothing to say."""
    if fingerprint.cloned_from:
        yield (
            f"This home was copied from host {fingerprint.cloned_from}, which is another machine. Results of this "
            f"machine are kept under a name of its own, {fingerprint.host_uid}; the other's stay as they are."
        )
    if fingerprint.probable_same_as:
        yield (
            f"This machine is probably host {fingerprint.probable_same_as}, installed anew: one of its parts is known. "
            f"That is too little to be sure, so its results are kept under a new name, {fingerprint.host_uid}."
        )


def _contradictions(known: Evidence, now: Evidence) -> Iterator[str]:
    for name in UNIQUE:
        before, after = _members(known, name), _members(now, name)
        if before and after and not before & after:
            yield name
    if _ran_at_once(known, now):
        yield from AT_ONCE


def _members(evidence: Evidence, name: str) -> frozenset[str]:
    value = getattr(evidence, name)
    return frozenset(value if isinstance(value, tuple) else () if value is None else (value,))


def _ran_at_once(known: Evidence, now: Evidence) -> bool:
    """Return whether this boot began before the other was last seen; a clock that went back tells nothing."""
    if not _differ(known.boot_id, now.boot_id) or not (known.seen_at and now.seen_at and now.booted_at):
        return False
    last, booted, present = map(datetime.fromisoformat, (known.seen_at, now.booted_at, now.seen_at))
    return booted + CLOCK_ERROR < last <= present


def _by_system(known: Evidence, now: Evidence) -> Verdict:
    """Judge where nothing that is unique can be compared."""
    if _differ(known.machine_id, now.machine_id):
        return "unknown"
    if known.weak_macs and now.weak_macs and not set(known.weak_macs) & set(now.weak_macs):
        return "clone"
    if _differ(known.root_uuid, now.root_uuid):
        return "unknown"
    return "same" if known.machine_id and now.machine_id else "unknown"


def _differ(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one != other
