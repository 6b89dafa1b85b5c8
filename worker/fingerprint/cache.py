"""Facts kept in home while the machine does not restart, because finding them takes a second."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any

from worker.fingerprint import evidence
from worker.fingerprint.boot import boot_id
from worker.fingerprint.kept import written

VERSION = 2
"""Raise it when a reader changes what it returns, so that facts of an older reader are not used."""


class BootCache:
    """JSON values below `home`, one file per name; each holds for one boot and one key."""

    def __init__(self, home: Path, machine: str, root: Path) -> None:
        self._boot_id = boot_id(root)
        # A home on the network is the home of several machines.
        self._directory = home / "fingerprint" / machine

    def get(self, name: str, key: Any) -> Any | None:
        """Return what was kept under `name` in this boot with an equal `key`, else None."""
        try:
            kept = json.loads(evidence.text(self._directory / f"{name}.json") or "null")
        except ValueError:
            return None
        known = isinstance(kept, dict) and self._boot_id is not None and kept.get("key") == self._full(key)
        return kept.get("value") if known else None

    def put(self, name: str, key: Any, value: Any) -> None:
        """Keep `value`; where home is not writable, or the boot has no id, nothing is kept."""
        if self._boot_id is None:
            return
        with contextlib.suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._directory / f"{name}.json"
            with written(path, json.dumps({"key": self._full(key), "value": value})) as made:
                os.replace(made, path)

    def _full(self, key: Any) -> list[Any]:
        return [VERSION, self._boot_id, key]
