"""Stores to be asked in SQL, on both databases, with the role that only reads where there are roles."""

from pathlib import Path

import pytest

from orchestrator.reader_role import see_to_reader
from orchestrator.store_url import is_postgres


def let_read(url: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return `url`, having made its reader, whose password is kept in `home`, the home of tokfleet from now on."""
    monkeypatch.setenv("TOKFLEET_HOME", str(home))
    monkeypatch.delenv("TOKFLEET_DB_READER", raising=False)
    if is_postgres(url):
        see_to_reader(url, home)
    return url
