"""One submission of a sweep (stdlib only)."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A sweep file as it was submitted once: its text is kept, so that a run can be resumed without the file."""

    run_uid: str
    name: str
    sweep_text: str
    sweep_sha256: str
    created_at: str
    tokfleet_version: str
    tags: dict[str, str] = field(default_factory=dict)
