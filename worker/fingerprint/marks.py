"""What only one machine has, as keyed hashes: the evidence by which a copy of its files is told from itself."""

import hashlib
import hmac
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from schema.host import Evidence
from worker.fingerprint import board, evidence, program
from worker.fingerprint.boot import boot_id
from worker.fingerprint.evidence import Notes
from worker.fingerprint.placeholders import is_placeholder

APP_KEY = b"tokfleet host identity 1"
"""machine-id is to be treated as confidential (man machine-id): only a keyed hash of it leaves the machine."""

MACHINE_IDS = (Path("etc/machine-id"), Path("var/lib/dbus/machine-id"))
SERIALS = (Path("proc/device-tree/serial-number"), Path("sys/firmware/devicetree/base/serial-number"))
CARDS = Path("sys/class/net")
BY_UUID = Path("dev/disk/by-uuid")
CLOUD_INSTANCE = Path("var/lib/cloud/data/instance-id")
PERMANENT = "0"
MADE_UP = 0b10
"""The bit of an address's first byte that says that software made it up: many machines share those."""


def read(root: Path, now: datetime, gpu_uuids: Iterable[str] = (), properties: str = "") -> Evidence:
    """Return what can be read of the machine at `root` at `now`; some of it only root can read.

    `gpu_uuids` come from the GPUs' drivers, `properties` is what `ioreg` prints on macOS. What vendors
    and images left as they found it is left out.
    """
    permanent = {address for _, address in permanent_addresses(root)}
    weak = {address for _, address in _lasting(root)} - permanent
    booted = _booted(root, now)
    return Evidence(
        machine_id=_hash("machine-id", _first(root, MACHINE_IDS)),
        root_uuid=_hash("root-uuid", _root_uuid(root)),
        product_uuid=_hash("product-uuid", board.dmi(root, "product_uuid") or _property(properties, "UUID")),
        board_serial=_hash("board-serial", _serial(root) or _property(properties, "SerialNumber")),
        instance_id=_hash("instance-id", _instance_id(root)),
        gpu_uuids=_hashes("gpu-uuid", gpu_uuids),
        macs=_hashes("mac", permanent),
        weak_macs=_hashes("mac", weak),
        boot_id=boot_id(root),
        booted_at=_stamp(booted) if booted else None,
        seen_at=_stamp(now),
    )


def keyed(source: str, value: str) -> bytes:
    """Return HMAC-SHA256 of the value under our own key: it cannot be turned back into it, nor found elsewhere."""
    return hmac.new(APP_KEY, f"{source}={value}".encode(), hashlib.sha256).digest()


def platform_properties(notes: Notes) -> str:
    """Return what macOS says of the machine as a whole; empty on other systems."""
    return program.output(["ioreg", "-rd1", "-c", "IOPlatformExpertDevice"], notes) or ""


def _hash(source: str, value: str | None) -> str | None:
    plain = (value or "").strip().lower()
    return None if is_placeholder(plain) else keyed(source, plain).hex()[:32]


def _hashes(source: str, values: Iterable[str]) -> tuple[str, ...]:
    # A driver that does not tell a number writes question marks.
    return tuple(sorted({found for value in values if "?" not in value and (found := _hash(source, value))}))


def _first(root: Path, places: Iterable[Path]) -> str | None:
    found = evidence.first_text(root / place for place in places)
    return found[0] if found else None


def _serial(root: Path) -> str | None:
    return board.dmi(root, "board_serial") or _first(root, SERIALS)


def _property(properties: str, name: str) -> str | None:
    match = re.search(rf'"IOPlatform{name}" = "([^"]+)"', properties)
    return match[1] if match else None


def _instance_id(root: Path) -> str | None:
    """Return the cloud's name for this instance; cloud-init writes it anew where it finds itself in another one."""
    version1 = board.cloud_data(root).get("v1")
    named = version1.get("instance_id") if isinstance(version1, dict) else None
    tag = board.dmi(root, "board_asset_tag") or ""
    if re.fullmatch(r"i-[0-9a-f]{8,20}", tag):
        # Amazon puts it where everyone may read it.
        return tag
    found = named if isinstance(named, str) else evidence.text(root / CLOUD_INSTANCE)
    return None if (found or "").startswith(("iid-datasource-none", "nocloud")) else found


def _root_uuid(root: Path) -> str | None:
    """Return the UUID of the root file system, by the device's name or by its number."""
    mount = _root_mount(root)
    for link in evidence.entries(root / BY_UUID) if mount else ():
        try:
            target = os.readlink(link)
            number = os.stat(link).st_rdev if evidence.is_live(root) else None
        except OSError:
            continue
        same_number = number and mount and f"{os.major(number)}:{os.minor(number)}" == mount[0]
        if same_number or (mount and Path(target).name == Path(mount[1]).name):
            return link.name
    return None


def _root_mount(root: Path) -> tuple[str, str] | None:
    """Return number and device of what is mounted at `/`."""
    for line in (evidence.text(root / "proc/self/mountinfo") or "").splitlines():
        place, _, device = line.partition(" - ")
        fields, source = place.split(), device.split()
        if len(fields) >= 5 and fields[4] == "/" and len(source) >= 2:
            return fields[2], source[1]
    return None


def permanent_addresses(root: Path) -> Iterator[tuple[str, str]]:
    """Yield card and address of the network cards whose address is theirs alone and lasts."""
    yield from ((card, address) for card, address in _lasting(root) if not int(address[:2], 16) & MADE_UP)


def _lasting(root: Path) -> Iterator[tuple[str, str]]:
    """Yield card and address of cards that are devices of this machine and were not given another one since."""
    for card in evidence.entries(root / CARDS):
        address = (evidence.text(card / "address") or "").lower()
        kind = evidence.text(card / "addr_assign_type") or PERMANENT
        if not re.fullmatch(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", address) or kind != PERMANENT:
            continue
        # Bridges and tunnels are no devices, and what hangs on USB goes from one machine to the next.
        if (card / "device").exists() and "/usb" not in os.path.realpath(card / "device"):
            yield card.name, address


def _booted(root: Path, now: datetime) -> datetime | None:
    uptime = re.match(r"\d{1,9}\.\d+", evidence.text(root / "proc/uptime") or "")
    return now - timedelta(seconds=float(uptime[0])) if uptime else None


def _stamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
