"""Which boot of the machine this is."""

import sys
from pathlib import Path

from worker.fingerprint import evidence, program
from worker.fingerprint.evidence import Notes


def boot_id(root: Path) -> str | None:
    """Return the random id of the running boot; None where the system gives it none."""
    known = evidence.line(root / "proc/sys/kernel/random/boot_id")
    if known is None and evidence.is_live(root) and sys.platform == "darwin":
        known = (program.output(["sysctl", "-n", "kern.bootsessionuuid"], Notes()) or "").strip() or None
    return known
