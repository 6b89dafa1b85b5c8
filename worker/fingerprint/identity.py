"""Who this machine is: a random id kept in home, else one derived from what only this machine has."""

import contextlib
import hashlib
import hmac
import os
import re
import socket
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from worker.fingerprint import evidence
from worker.fingerprint.evidence import Notes

APP_KEY = b"tokfleet host identity 1"
"""machine-id is to be treated as confidential (man machine-id): only a keyed hash of it leaves the machine."""

JUNK = re.compile(
    r"(uninitialized|none|unknown|default string|not specified|to be filled by o\.?e\.?m\.?|[0\-:]+|[fF\-:]+)?"
    r"|03000200-0400-0500-0006-000700080009",
    re.I,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """`stored` lasts as long as home, `derived` as long as the system, `volatile` until the next boot."""

    host_uid: str
    uid_source: Literal["stored", "derived", "volatile"]
    hostname: str


def read(home: Path, root: Path, notes: Notes) -> Identity:
    """Return the machine's identity, making and keeping it in `home` at first; where that fails, deriving it."""
    hostname = _hostname(root)
    system = _first_own(_system_ids(root))
    kept = _stored(home / _file_name(system), notes)
    if kept:
        notes.found("host_uid", "home")
        return Identity(host_uid=kept, uid_source="stored", hostname=hostname)
    machine = system or _first_own(_addresses(root))
    if machine:
        source, value = machine
        notes.found("host_uid", source)
        return Identity(host_uid=_keyed_uuid(source, value), uid_source="derived", hostname=hostname)
    notes.missing("host_uid", "home cannot keep it and nothing here is unique; it changes with the next boot")
    boot_id = evidence.text(root / "proc/sys/kernel/random/boot_id") or str(uuid.uuid4())
    volatile = _keyed_uuid("boot_id", f"{boot_id} {hostname}")
    return Identity(host_uid=volatile, uid_source="volatile", hostname=hostname)


def _hostname(root: Path) -> str:
    recorded = evidence.first_text([root / "proc/sys/kernel/hostname", root / "etc/hostname"])
    if evidence.is_live(root):
        return socket.gethostname() or "unnamed"
    return recorded[0].splitlines()[0] if recorded else "unnamed"


def _first_own(facts: Iterator[tuple[str, str]]) -> tuple[str, str] | None:
    """Return the first fact that is this machine's alone, with its source."""
    return next(((source, value) for source, value in facts if not JUNK.fullmatch(value)), None)


def _system_ids(root: Path) -> Iterator[tuple[str, str]]:
    for place in ("etc/machine-id", "var/lib/dbus/machine-id", "proc/device-tree/serial-number"):
        yield f"/{place}", evidence.text(root / place) or ""


def _addresses(root: Path) -> Iterator[tuple[str, str]]:
    for card in evidence.entries(root / "sys/class/net"):
        address = evidence.text(card / "address") or ""
        # Bit 1 of the first byte marks addresses that software made up: many machines share those.
        own = re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", address) and not int(address[:2], 16) & 0b10
        if own and (card / "device").exists():
            yield f"/sys/class/net/{card.name}/address", address


def _keyed(source: str, value: str) -> bytes:
    return hmac.new(APP_KEY, f"{source}={value}".encode(), hashlib.sha256).digest()


def _keyed_uuid(source: str, value: str) -> str:
    return str(uuid.UUID(bytes=_keyed(source, value)[:16], version=4))


def _file_name(system: tuple[str, str] | None) -> str:
    """Return a name that differs by machine, because a home on the network is the home of several."""
    return f"host_uid-{_keyed(*system).hex()[:12]}" if system else "host_uid"


def _stored(path: Path, notes: Notes) -> str | None:
    """Return the id in the file, made now if there was none; None, with a note, where home cannot keep one."""
    known = _uid_in(path)
    if known:
        return known
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Asked anew, in this order: a file that another process has made since then is whole, not damaged.
        damaged = path.exists() and _uid_in(path) is None
        _create(path, str(uuid.uuid4()), replace=damaged)
    except OSError as error:
        notes.missing("host_uid", f"{path.parent} cannot keep it ({error.strerror or error})")
        return None
    # What another process made in the same moment counts too.
    return _uid_in(path)


def _uid_in(path: Path) -> str | None:
    try:
        return str(uuid.UUID(evidence.text(path) or ""))
    except ValueError:
        return None


def _create(path: Path, content: str, replace: bool) -> None:
    """Write the whole file under another name (mode 0600), then give it its own, which only one process can."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(content + "\n")
            file.flush()
            os.fsync(file.fileno())
        if replace:
            # The old file held no id: it was damaged.
            os.replace(name, path)
        else:
            _link(Path(name), path)
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
