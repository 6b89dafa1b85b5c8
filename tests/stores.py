"""Stores for tests, made by the migrations as a user's store is, once per session."""

import functools
import tempfile
from pathlib import Path

from orchestrator.migrate import upgrade


@functools.cache
def _made_by_migrations() -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "runs.db"
        upgrade(str(path))
        return path.read_bytes()


def new_store(directory: Path, name: str = "runs.db") -> Path:
    """Return the path of a new, empty store in `directory`."""
    path = directory / name
    path.write_bytes(_made_by_migrations())
    return path
