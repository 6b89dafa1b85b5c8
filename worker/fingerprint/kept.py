"""An identity as home keeps it: one small file, whole at every moment, for its user alone."""

import contextlib
import json
import os
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schema import canonical
from schema.host import Evidence
from worker.fingerprint import evidence

NAME = "host_uid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A host's id with what was known of its machine when it was last seen; older files hold the id alone."""

    host_uid: str
    evidence: Evidence | None = None
    hardware_id: str | None = None
    cloned_from: str | None = None
    probable_same_as: str | None = None


def load(path: Path) -> Kept | None:
    """Return the identity in the file; None where it is absent or damaged."""
    content = evidence.text(path) or ""
    with contextlib.suppress(ValueError):
        return Kept(host_uid=str(uuid.UUID(content)))
    try:
        fields = json.loads(content)
        return Kept(
            host_uid=str(uuid.UUID(fields["host_uid"])),
            evidence=_evidence(fields.get("evidence")),
            **{name: _text(fields.get(name)) for name in ("hardware_id", "cloned_from", "probable_same_as")},
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def all_in(home: Path) -> Iterator[tuple[Path, Kept]]:
    """Yield every identity that is kept in `home`, with its file, in order of name."""
    for path in evidence.entries(home, f"{NAME}*"):
        found = load(path)
        if found:
            yield path, found


def create(path: Path, value: Kept) -> Kept | None:
    """Keep `value` in a file that is not there or damaged; return what is kept then, another process's value too.

    Raises OSError where the directory cannot keep it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Asked in this order: a file that another process has made since is whole, not damaged.
    damaged = path.exists() and load(path) is None
    with written(path, canonical.to_json(value)) as made:
        if damaged:
            os.replace(made, path)
        else:
            _link(made, path)
    return load(path)


def update(path: Path, value: Kept) -> None:
    """Put `value` in place of what is kept; a directory that cannot be written leaves it as it is."""
    with contextlib.suppress(OSError), written(path, canonical.to_json(value)) as made:
        os.replace(made, path)


@contextlib.contextmanager
def written(path: Path, content: str) -> Iterator[Path]:
    """Write the whole content under another name (mode 0600), and take that name away in the end."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(content + "\n")
            file.flush()
            os.fsync(file.fileno())
        yield Path(name)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _link(made: Path, path: Path) -> None:
    try:
        path.hardlink_to(made)
    except FileExistsError:
        return
    except OSError:
        # File systems without hard links: the last of several processes wins.
        os.replace(made, path)


def _evidence(value: Any) -> Evidence | None:
    """Return the evidence; None where another version of us wrote what this one does not know."""
    try:
        return canonical.decode(Evidence, value) if isinstance(value, dict) else None
    except TypeError:
        return None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
