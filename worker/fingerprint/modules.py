"""The memory modules: from what udev wrote down for every user, else the firmware's tables, else the controllers."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from schema.host import MemoryModules
from worker.fingerprint import evidence, smbios
from worker.fingerprint.evidence import Notes

UDEV = Path("run/udev/data/+dmi:id")
ENTRIES = Path("sys/firmware/dmi/entries")
TABLES = Path("sys/firmware/dmi/tables/DMI")
CONTROLLERS = Path("sys/devices/system/edac/mc")
DIRECT = re.compile(r"(LP)?DDR\d?X?|SDRAM|RDRAM|HBM\d?E?", re.I)
"""What memory of programs is built of. Virtual machines name others ("DRAM", "RAM"), firmware also lists its flash."""

CHANNEL = re.compile(r".*?channel[ _-]*[A-Z0-9]+", re.I)
SOCKET = re.compile(r"(?:cpu|socket|node|proc|\bP) ?_?\d+", re.I)
MODULES_PER_CHANNEL = 3
LARGEST = {"SIZE": 1 << 46, "DATA_WIDTH": 1024, "CONFIGURED_SPEED_MTS": 1_000_000}
"""What no module exceeds: 64 TiB, the bits of a stack of HBM, and transfers in millions per second."""

UNITS = {"kB": 1 << 10, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
DMIDECODE = {
    "Size": "SIZE",
    "Data Width": "DATA_WIDTH",
    "Locator": "LOCATOR",
    "Bank Locator": "BANK_LOCATOR",
    "Type": "TYPE",
    "Speed": "SPEED_MTS",
    "Configured Memory Speed": "CONFIGURED_SPEED_MTS",
    "Configured Clock Speed": "CONFIGURED_SPEED_MTS",
}
"""dmidecode's names, and those of udev that mean the same."""

Device = dict[str, str]


def read(root: Path, notes: Notes, is_virtual: bool = False) -> MemoryModules | None:
    """Return the modules of the machine at `root`; None where nothing describes them to this user.

    Where `is_virtual`, what is read is the hypervisor's invention: its channels are not taken for real.
    """
    for source, devices in (
        ("udev", from_udev(evidence.text(root / UDEV) or "")),
        ("firmware tables", _from_tables(root)),
        ("EDAC", _from_controllers(root)),
    ):
        found = modules(source, devices, is_virtual)
        if found:
            notes.found("memory_modules", source)
            return found
    notes.missing("memory_modules", "udev wrote nothing of them down, and only root can read the firmware's tables")
    return None


def modules(source: str, devices: Iterable[Device], is_virtual: bool = False) -> MemoryModules | None:
    """Return what `devices`, with udev's names for their fields, are together; None where no module is among them."""
    slots = [device for device in devices if _is_memory(device)]
    filled = [device for device in slots if _number(device, "SIZE")]
    if not filled:
        return None
    channels = {} if is_virtual else _channels(filled)
    kinds = {kind for device in filled if (kind := _kind(device))}
    speeds = [_number(device, "CONFIGURED_SPEED_MTS") for device in filled]
    return MemoryModules(
        source=source,
        kind="+".join(sorted(kinds)) or None,
        n_modules=None if any("ranks" in device for device in filled) else len(filled),
        n_slots=len(slots),
        module_bytes=tuple(sorted(size for device in filled if (size := _number(device, "SIZE")))),
        configured_mts=min((speed for speed in speeds if speed), default=None) if all(speeds) else None,
        n_channels=len(channels) or None,
        bus_bits=sum(channels.values()) or None,
    )


def from_udev(text: str) -> list[Device]:
    """Return the memory devices in what `udevadm info -q property` prints or udev keeps of /sys/class/dmi/id."""
    devices: dict[int, Device] = {}
    for number, name, value in re.findall(r"^(?:E: ?)?MEMORY_DEVICE_(\d{1,4})_(\w+)=(.*)$", text, re.M):
        devices.setdefault(int(number), {})[name] = value.strip()
    return [device for _, device in sorted(devices.items())]


def from_dmidecode(text: str) -> list[Device]:
    """Return the memory devices in what `dmidecode` or `dmidecode -t 17` prints."""
    blocks = re.split(r"\n\s*\n", text)
    return [_of_block(block) for block in blocks if re.search(r"^Memory Device$", block, re.M)]


def _of_block(block: str) -> Device:
    device = {}
    for name, value in re.findall(r"^\s+([\w ]+): (.*)$", block, re.M):
        key = DMIDECODE.get(name)
        if key and value not in ("Unknown", "None", "Not Specified"):
            device[key] = str(_bytes(value)) if key == "SIZE" else value.strip()
    return device


def _bytes(value: str) -> int:
    """Return the bytes of dmidecode's size; 0 for "No Module Installed"."""
    match = re.fullmatch(r"(\d{1,9}) (\wB)", value.strip())
    return int(match[1]) * UNITS.get(match[2], 0) if match else 0


def _from_tables(root: Path) -> Iterator[Device]:
    entries = evidence.entries(root / ENTRIES, f"{smbios.TYPE_MEMORY_DEVICE}-*")
    tables = [_content(entry / "raw") for entry in entries] or [_content(root / TABLES)]
    for table in tables:
        yield from smbios.memory_devices(table)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(evidence.MAX_BYTES)
    except OSError:
        return b""


def _from_controllers(root: Path) -> Iterator[Device]:
    """Yield what the memory controllers' drivers call a module; by chip-select rows those are ranks, not modules."""
    for controller in evidence.entries(root / CONTROLLERS, "mc[0-9]*"):
        for place in evidence.entries(controller, "dimm[0-9]*"):
            megabytes = evidence.number(place / "size") or 0
            location = evidence.text(place / "dimm_location") or ""
            kind = re.search(r"DDR\d?", evidence.text(place / "dimm_mem_type") or "")
            channel = re.findall(r"channel \d+", location)[:1]
            device = {"SIZE": str(megabytes << 20), "BANK_LOCATOR": " ".join([controller.name, *channel])}
            yield device | ({"TYPE": kind[0]} if kind else {}) | ({"ranks": "yes"} if "csrow" in location else {})


def _is_memory(device: Mapping[str, str]) -> bool:
    """Return whether the device is memory of programs: flash, ROM and non-volatile modules are listed beside it."""
    kind = device.get("TYPE", "")
    return not re.search(r"flash|rom\b|non-volatile|cache", f"{kind} {device.get('LOCATOR', '')}", re.I)


def _kind(device: Mapping[str, str]) -> str | None:
    """Return the type; what older systemd does not know ("<OUT OF SPEC>") and what hypervisors make up is none."""
    kind = DIRECT.match(device.get("TYPE", ""))
    return kind[0].upper() if kind else None


def _number(device: Mapping[str, str], name: str) -> int | None:
    """Return the number that the field begins with ("64 bits", "4800 MT/s", "17179869184")."""
    match = re.match(r"\d{1,18}(?=$| )", device.get(name, ""))
    number = int(match[0]) if match else 0
    return number if 0 < number <= LARGEST[name] else None


def _channels(filled: list[Device]) -> dict[str, int]:
    """Return the width in bits of each channel with a module; empty where not every module names its channel.

    Only texts with the word count: "BANK 0" and "DIMM_A1" are sockets, of which a channel may have two.
    """
    members: dict[str, list[int]] = {}
    for device in filled:
        name = _channel(device)
        if name is None:
            return {}
        members.setdefault(name, []).append(_number(device, "DATA_WIDTH") or 64)
    # More modules than a channel takes: several channels are called the same.
    if any(len(widths) > MODULES_PER_CHANNEL for widths in members.values()):
        return {}
    return {name: max(widths) for name, widths in members.items()}


def _channel(device: Mapping[str, str]) -> str | None:
    """Return the channel's name with the processor's, which may stand in the other text."""
    texts = [device.get("BANK_LOCATOR", ""), device.get("LOCATOR", "")]
    named = [match[0] for text in texts if (match := CHANNEL.match(text))]
    sockets = [match[0] for text in texts if (match := SOCKET.search(text))]
    return " ".join([*sockets[:1], named[0]]).lower() if named else None
