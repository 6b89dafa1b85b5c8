"""One check of one host and what it found (stdlib only)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check of one host: what was found, and what to do where that is not right."""

    host: str
    check: str
    state: State
    found: str
    advice: str = ""


def problems(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return those that must be mended before the lab can be relied on."""
    return tuple(finding for finding in findings if finding.state == "problem")
