"""Installs lock files into the environment of the Python that runs this: exactly the locked files, as wheels.

Usage, in the repository's folder: .venv/bin/python -m scripts.install_locked requirements/run.lock
"""

import os
import re
import sys
import time
from pathlib import Path

from scripts import step

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
EXACTLY = ["--require-hashes", "--only-binary", ":all:", "--no-deps", "--progress-bar", "off"]

ADVICE = [
    (
        r"No matching distribution|Could not find a version",
        "This package has no wheel for this machine or Python, or the package index does not have it. "
        "The locks are for Linux (x86_64 and aarch64, glibc 2.28 or newer) and macOS (arm64), Python 3.11 to 3.13.",
    ),
    (
        r"THESE PACKAGES DO NOT MATCH THE HASHES",
        "The package index served another file than the locked one. Clear pip's cache (pip cache purge) and try "
        "again; if it stays so, do not trust that index.",
    ),
    (r"No space left on device", "The disk is full: about 1 GB is needed. Free some and run the same command again."),
]


class Reader:
    """Counts packages in pip's output."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.done = 0

    def read(self, line: str) -> step.State | None:
        """Return how far pip is after this line, or None when the line says nothing of it."""
        if line.startswith("Ignoring "):
            self.total -= 1
            return None
        if re.match(r"(Collecting|Requirement already satisfied)", line):
            self.done += 1
        found = re.match(r"\s+Downloading (\S+?)-\d\S* \((\d.*)\)|Collecting (\S+?)==", line)
        if found:
            return step.State(self.done, self.total, f" {found[1]}, {found[2]}" if found[1] else f" {found[3]}")
        if line.startswith("Installing collected packages"):
            return step.State(self.total, self.total, " unpacking")
        return None


def install(lock: Path) -> None:
    """Install one lock file and print a line about it; exits with pip's words when it fails."""
    started = time.monotonic()
    reader = Reader(len(re.findall(r"^[\w.-]+==", lock.read_text(encoding="utf-8"), re.MULTILINE)))
    progress = step.Progress(f"installing {lock.stem} packages")
    step.run([*PIP, "install", *EXACTLY, "-r", str(lock)], progress, reader.read, os.environ, ADVICE)
    print(f"installed {reader.total} {lock.stem} packages ({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        install(Path(name))
