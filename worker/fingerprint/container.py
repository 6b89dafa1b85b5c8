"""Which kind of container this process is in: apart from the virtual machine that may be around it."""

import re
import sys
from pathlib import Path

from worker.fingerprint import evidence
from worker.fingerprint.evidence import Notes

MARKS = (
    ("run/secrets/kubernetes.io", "kubernetes"),
    ("var/run/secrets/kubernetes.io", "kubernetes"),
    ("run/.containerenv", "podman"),
    (".singularity.d", "apptainer"),
    (".dockerenv", "docker"),
)
GROUPS = (
    (r"kubepods", "kubernetes"),
    (r"/libpod[-_/]", "podman"),
    (r"/docker[-/]", "docker"),
    (r"/lxc(\.payload)?[./]", "lxc"),
    (r"/machine\.slice/systemd-nspawn", "systemd-nspawn"),
)
"""Names that each manager gives to its control groups; a private namespace hides them."""


def read(root: Path, notes: Notes) -> str | None:
    """Return the kind of container, "none" outside of one, None where nothing tells."""
    group = evidence.text(root / "proc/self/cgroup")
    if group and re.search("kubepods", group):
        return _noted(notes, "kubernetes", "/proc/self/cgroup")
    for place, kind in MARKS:
        if (root / place).exists():
            return _noted(notes, kind, f"/{place}")
    named = evidence.line(root / "run/systemd/container")
    if named:
        return _noted(notes, named.split()[0], "/run/systemd/container")
    for pattern, kind in GROUPS:
        if re.search(pattern, group or ""):
            return _noted(notes, kind, "/proc/self/cgroup")
    if group or (evidence.is_live(root) and sys.platform == "darwin"):
        return _noted(notes, "none", "no sign of one")
    notes.missing("container", "/proc/self/cgroup cannot be read")
    return None


def _noted(notes: Notes, kind: str, source: str) -> str:
    notes.found("container", source)
    return kind
