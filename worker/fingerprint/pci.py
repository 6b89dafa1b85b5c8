"""A device of the PCI bus as /sys shows it: its place, its number and the driver that has it."""

import re
from pathlib import Path

from worker.fingerprint import evidence

PLACE = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


def place(device: Path) -> str | None:
    """Return the device's place on the bus, such as `0000:c1:00.0`; None where it is on none."""
    told = re.search(r"^PCI_SLOT_NAME=(\S+)$", evidence.text(device / "uevent") or "", re.M)
    found = told[1] if told else _linked(device)
    return found if PLACE.fullmatch(found) else None


def number(device: Path) -> str:
    """Return the maker's number for the kind of device, four small hexadecimal digits; "" where it is not told."""
    match = re.fullmatch(r"0x([0-9a-f]{4})", (evidence.text(device / "device") or "").lower())
    return match[1] if match else ""


def driver(device: Path) -> str | None:
    """Return the name of the driver that has the device."""
    told = re.search(r"^DRIVER=(\S+)$", evidence.text(device / "uevent") or "", re.M)
    return told[1] if told else _linked(device / "driver") or None


def _linked(path: Path) -> str:
    """Return the name of what a link leads to; "" where there is nothing."""
    try:
        return path.resolve(strict=True).name
    except (OSError, RuntimeError):
        return ""
