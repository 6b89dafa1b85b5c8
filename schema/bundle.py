"""Jobs for a host that cannot be reached, and what it measured, as files that are carried to and fro (stdlib only).

A bundle is one JSON object with a hash. What comes back is a file of lines, each with a hash of itself and of all
lines before it: cut short anywhere, the lines that are left still prove themselves; changed, they do not.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from schema.canonical import decode, digest, to_json
from schema.errors import UsageError
from schema.job import Job
from schema.run import Run

BUNDLE = "tokfleet_bundle"
RECORDS = "tokfleet_records"
VERSION = 1
MOST_BYTES = 64 << 20
"""Of a bundle, and of a line of records."""

TO_BE_TOLD = "to be told"
"""In place of what only the host knows: its own uid, and a model's identity."""

KINDS = (RECORDS, "job", "fingerprint", "probe", "record", "end")
"""What a line can hold: the head, a job as the host understood it, what it is, what it measured, that all is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """A run's jobs in groups of one measuring process each; host and models' identities are still to be told."""

    run: Run
    groups: tuple[tuple[Job, ...], ...]

    @property
    def n_jobs(self) -> int:
        """How many jobs there are."""
        return sum(map(len, self.groups))

    @property
    def sha256(self) -> str:
        """Hash of all of it."""
        return digest([asdict(self.run), [[asdict(job) for job in group] for group in self.groups]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a file of records; `sha256` proves it and all before it."""

    kind: str
    value: Any
    sha256: str


def bundle_text(bundle: Bundle) -> str:
    """Return the bundle as one line of JSON."""
    return to_json({BUNDLE: VERSION, **asdict(bundle), "sha256": bundle.sha256})


def parse_bundle(data: bytes, name: str) -> Bundle:
    """Return the bundle in `data`; raises UsageError where it is none, was changed, or is of a newer tokfleet."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is no bundle: it is no JSON.") from error
    if not isinstance(found, dict) or BUNDLE not in found:
        raise UsageError(f"{name} is no bundle. `tokfleet plan SWEEP --bundle FILE` writes one.")
    if found[BUNDLE] != VERSION:
        raise UsageError(f"{name} is a bundle of version {found[BUNDLE]!r:.20}; this tokfleet knows {VERSION}.")
    try:
        bundle = decode(Bundle, {"run": found["run"], "groups": found["groups"]})
        whole = bundle.sha256 == found["sha256"] and bundle.n_jobs > 0
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise UsageError(f"{name} is damaged, or of another version of tokfleet: {error!s:.200}.") from error
    if not whole:
        raise UsageError(f"{name} was changed or damaged on its way: its content does not fit its hash. Copy it again.")
    return bundle


def head(bundle: Bundle) -> dict[str, Any]:
    """Return what the first line of a bundle's records holds."""
    return {"version": VERSION, "bundle": bundle.sha256, "run": asdict(bundle.run)}


def next_line(before: Line | None, kind: str, value: Any) -> Line:
    """Return the line that follows `before` (None: the first) and holds `value`, parsed JSON or what becomes it."""
    return Line(kind=kind, value=value, sha256=_chained(before.sha256 if before else "", kind, value))


def line_text(line: Line) -> str:
    """Return the line as it stands in the file, without the line break."""
    return to_json({line.kind: line.value, "sha256": line.sha256})


def parse_line(before: Line | None, text: bytes) -> Line | None:
    """Return the line in `text`, None where it is damaged or does not follow from `before` (None: it is the first)."""
    try:
        found = json.loads(text)
        (kind,) = found.keys() - {"sha256"}
        follows = found["sha256"] == _chained(before.sha256 if before else "", kind, found[kind])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    first = before is None
    if not follows or kind not in KINDS or first != (kind == RECORDS):
        return None
    return Line(kind=kind, value=found[kind], sha256=found["sha256"])


def _chained(before: str, kind: str, value: Any) -> str:
    return hashlib.sha256(f"{before}{to_json([kind, value])}".encode()).hexdigest()
