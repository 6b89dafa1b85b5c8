"""Intel's GPUs from /sys: integrated ones compute from the machine's memory, Arc, Flex and Max have their own."""

import re
from pathlib import Path

from schema.host import Gpu
from worker.fingerprint import evidence, pci
from worker.fingerprint.gpu_found import GIB, Found, Told, name_of, whole_gib

VENDOR = "0x8086"
CARDS = Path("sys/class/drm")
PCI_IDS = ("usr/share/misc/pci.ids", "usr/share/hwdata/pci.ids", "usr/share/pci.ids")
DRIVERS = ("i915", "xe")
OWN_MEMORY = ("tile0/physical_vram_size_bytes", "tile0/vram0/size_bytes", "lmem_total_bytes")
DISCRETE = {
    **{"56a0": "Arc A770", "56a1": "Arc A750", "56a2": "Arc A580", "56a5": "Arc A380", "56a6": "Arc A310"},
    **{"5690": "Arc A770M", "5691": "Arc A730M", "5692": "Arc A550M", "5693": "Arc A370M", "5694": "Arc A350M"},
    **{"e20b": "Arc B580", "e20c": "Arc B570", "e212": "Arc Pro B50", "e211": "Arc Pro B60"},
    **{"56c0": "Data Center GPU Flex 170", "56c1": "Data Center GPU Flex 140"},
    **{"0bd5": "Data Center GPU Max 1550", "0bda": "Data Center GPU Max 1100"},
}
"""PCI device numbers of the parts with memory of their own: /sys has no names."""

LOCAL_MEMORY_REGION = 2
"""The PCI region through which the processor sees a discrete GPU's memory; whole only with a resizable BAR."""


def read(root: Path, machine_memory: int | None) -> Told:
    """Return the GPUs that i915 or xe drive; `machine_memory` is what an integrated one computes from."""
    cards = [card / "device" for card in evidence.entries(root / CARDS, "card[0-9]*") if "-" not in card.name]
    own = [device for device in cards if evidence.text(device / "vendor") == VENDOR and pci.driver(device) in DRIVERS]
    names = _names(root, {pci.number(device) for device in own}) if own else {}
    found = tuple(_gpu(device, machine_memory, names) for device in own)
    drivers = sorted({str(pci.driver(device)) for device in own})
    driver = " + ".join(f"{driver} of the kernel" for driver in drivers) or None
    return Told(source="/sys/class/drm", found=found, driver=driver)


def _gpu(device: Path, machine_memory: int | None, names: dict[str, str]) -> Found:
    number = pci.number(device)
    own = next((size for size in (evidence.number(device / place) for place in OWN_MEMORY) if size), None)
    unified = number not in DISCRETE and own is None and not _is_discrete(device)
    name = DISCRETE.get(number) or names.get(number)
    return Found(
        gpu=Gpu(
            vendor="Intel",
            name=f"Intel {name_of(name, 'Intel').removeprefix('Intel ')}" if name else f"Intel GPU 8086:{number}",
            vram_bytes=machine_memory if unified else whole_gib(own or _window(device)),
            pci_id=f"8086:{number}" if number else None,
            unified=unified,
            # No pcie_max: Arc's own port says "2.5 GT/s x1" whatever the slot is, a switch on the card has the link.
        ),
        bus_id=pci.place(device),
    )


def _is_discrete(device: Path) -> bool:
    """Return whether the GPU has another place than all integrated ones of Intel: device 2 on bus 0."""
    place = pci.place(device)
    return place is not None and not place.endswith(":00:02.0")


def _window(device: Path) -> int | None:
    """Return the size of the region that shows the memory; None for the 256 MiB of one that cannot be resized."""
    lines = (evidence.text(device / "resource") or "").splitlines()
    fields = lines[LOCAL_MEMORY_REGION].split() if len(lines) > LOCAL_MEMORY_REGION else []
    if len(fields) != 3 or not all(re.fullmatch(r"0x[0-9a-f]{1,16}", field) for field in fields):
        return None
    size = int(fields[1], 16) - int(fields[0], 16) + 1
    return size if size >= GIB else None


def _names(root: Path, numbers: set[str]) -> dict[str, str]:
    """Return the names that the system's list of PCI devices has for `numbers`, those in brackets before others."""
    listed = evidence.first_text(root / place for place in PCI_IDS)
    start = re.search(r"^8086\s", listed[0], re.M) if listed else None
    if not listed or not start:
        return {}
    names = {}
    for line in listed[0][start.end() :].splitlines()[1:]:
        if re.match(r"[0-9a-f]{4}\s", line):
            break
        entry = re.match(r"\t([0-9a-f]{4})\s+(.+)", line)
        if entry and entry[1] in numbers:
            called = re.search(r"\[([^\]]+)\]\s*$", entry[2])
            names[entry[1]] = called[1] if called else entry[2]
    return names
