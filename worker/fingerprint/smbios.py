"""Memory devices in the firmware's own tables (SMBIOS type 17), which only root can read."""

from collections.abc import Iterator

TYPE_MEMORY_DEVICE = 17
KIB, MIB = 1 << 10, 1 << 20
KINDS = {
    0x03: "DRAM",
    0x07: "RAM",
    0x08: "ROM",
    0x09: "Flash",
    0x0A: "EEPROM",
    0x0F: "SDRAM",
    0x11: "RDRAM",
    0x12: "DDR",
    0x13: "DDR2",
    0x14: "DDR2",
    0x18: "DDR3",
    0x1A: "DDR4",
    0x1B: "LPDDR",
    0x1C: "LPDDR2",
    0x1D: "LPDDR3",
    0x1E: "LPDDR4",
    0x1F: "Logical non-volatile device",
    0x20: "HBM",
    0x21: "HBM2",
    0x22: "DDR5",
    0x23: "LPDDR5",
    0x24: "HBM3",
}
"""Of the System Management BIOS specification, 7.18.2."""


def memory_devices(tables: bytes) -> Iterator[dict[str, str]]:
    """Yield the fields of each memory device in `tables`, one structure or many, by the names that udev gives them.

    Structures that are cut short or whose length is wrong end the reading; a field that is absent is left out.
    """
    at = 0
    while at + 4 <= len(tables):
        length = tables[at + 1]
        end = tables.find(b"\0\0", at + length)
        if length < 4 or end < 0:
            return
        if tables[at] == TYPE_MEMORY_DEVICE:
            yield _fields(tables[at : at + length], tables[at + length : end].split(b"\0"))
        at = end + 2


def _fields(structure: bytes, texts: list[bytes]) -> dict[str, str]:
    size, kind = _size(structure), KINDS.get(_byte(structure, 0x12) or 0)
    found = {
        "SIZE": None if size is None else str(size),
        "DATA_WIDTH": _plain(_word(structure, 0x0A)),
        "LOCATOR": _text(structure, 0x10, texts),
        "BANK_LOCATOR": _text(structure, 0x11, texts),
        "TYPE": kind,
        "SPEED_MTS": _speed(structure, 0x15, 0x54),
        "CONFIGURED_SPEED_MTS": _speed(structure, 0x20, 0x58),
    }
    return {name: value for name, value in found.items() if value is not None}


def _size(structure: bytes) -> int | None:
    """Return the bytes of the module, 0 where the socket is empty."""
    size = _word(structure, 0x0C)
    if size is None or size == 0xFFFF:
        return None
    if size == 0x7FFF:
        extended = _number(structure, 0x1C, 4)
        return None if extended is None else (extended & 0x7FFFFFFF) * MIB
    return (size & 0x7FFF) * (KIB if size & 0x8000 else MIB)


def _speed(structure: bytes, at: int, extended_at: int) -> str | None:
    speed = _word(structure, at)
    return _plain(_number(structure, extended_at, 4)) if speed == 0xFFFF else _plain(speed)


def _plain(number: int | None) -> str | None:
    return str(number) if number and number != 0xFFFF else None


def _text(structure: bytes, at: int, texts: list[bytes]) -> str | None:
    index = _byte(structure, at)
    return texts[index - 1].decode("utf-8", "replace").strip() if index and index <= len(texts) else None


def _byte(structure: bytes, at: int) -> int | None:
    return _number(structure, at, 1)


def _word(structure: bytes, at: int) -> int | None:
    return _number(structure, at, 2)


def _number(structure: bytes, at: int, size: int) -> int | None:
    return int.from_bytes(structure[at : at + size], "little") if at + size <= len(structure) else None
