"""Machines as trees of files under a temporary root."""

from collections.abc import Mapping
from pathlib import Path


def write(root: Path, files: Mapping[str, str | int | bytes]) -> Path:
    """Write each file with its content (a number: that and a newline, as the kernel does), and return `root`."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            (root / name).write_bytes(content)
        else:
            (root / name).write_text(content if isinstance(content, str) else f"{content}\n")
    return root
