"""A run that is handed over to the head: its sweep as text, in the description of the Ray job that drives it (pure).

Ray gives the description to the job's process in one variable, so the sweep travels with it and needs no disk that both
machines see.
"""

import base64
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from schema.canonical import decode
from schema.errors import ClusterError, UsageError

JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Where Ray leaves the description of a job for its process."""

KEY = "tokfleet"
MAX_BYTES = 96_000
"""Of the description: Linux allows 128 KiB for one variable."""

MAX_TEXT_BYTES = 1 << 20
PREFIX = "tokfleet-"
_ID = re.compile(r"tokfleet-([0-9a-f]{32})-([0-9]{1,6})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What the head is to do. Without `sweep` it is to go on with the run `run_uid`, which its store has.

    `base` is the directory from which relative paths of the sweep are taken, `filename` what messages call the file.
    `course` has the options of `tokfleet run` on how it goes.
    """

    run_uid: str
    sweep: str | None = None
    filename: str = "sweep"
    base: str = "/"
    yes: bool = False
    db: str | None = None
    course: dict[str, Any] = field(default_factory=dict)


def submission_id(run_uid: str, number: int) -> str:
    """Return the id of the `number`-th job that drives the run: Ray refuses it a second time."""
    return f"{PREFIX}{run_uid}-{number}"


def run_and_number(submission: str) -> tuple[str, int] | None:
    """Return which run a job drives and the how manieth of it it is; None where it is no job of ours."""
    found = _ID.fullmatch(submission)
    return (found[1], int(found[2])) if found else None


def as_metadata(handover: Handover) -> dict[str, str]:
    """Return the description of the job; UsageError where the sweep is too large for it."""
    values = asdict(handover) | {"sweep": None if handover.sweep is None else _packed(handover.sweep)}
    text = json.dumps(values, separators=(",", ":"))
    if len(text) > MAX_BYTES:
        raise UsageError(
            f"The sweep {handover.filename} is too large to be handed over ({len(text)} bytes packed, {MAX_BYTES} are "
            "possible). Copy it to the head and `tokfleet run` it there, or split it."
        )
    return {KEY: text}


def from_environment(environment: Mapping[str, str]) -> Handover:
    """Return what the job of this process is to do; ClusterError where it was not handed over by us."""
    try:
        return from_metadata(json.loads(environment[JOB_VARIABLE])["metadata"])
    except (KeyError, ValueError, TypeError) as error:
        raise ClusterError(
            "There is nothing to drive here: this command is started by `tokfleet submit`, through Ray."
        ) from error


def from_metadata(metadata: Mapping[str, Any]) -> Handover:
    """Return the handover that a job's description holds; ValueError, KeyError or TypeError where it is none."""
    values = dict(json.loads(metadata[KEY]))
    if values.get("sweep") is not None:
        values["sweep"] = _unpacked(values["sweep"])
    return decode(Handover, values)


def _packed(text: str) -> str:
    return base64.b85encode(zlib.compress(text.encode(), 9)).decode()


def _unpacked(text: str) -> str:
    """Return the text again; ValueError where it is none, or larger than a sweep may be."""
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b85decode(text), MAX_TEXT_BYTES)
    except zlib.error as error:
        raise ValueError("the sweep is damaged") from error
    if inflater.unconsumed_tail:
        raise ValueError("the sweep is too large")
    return data.decode()
