"""What a block of /proc/cpuinfo says of a core's design: who made it, its model's key, its name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from schema.cpu_name import cpu_key

NAME_KEYS = ("model name", "Model Name", "cpu model", "uarch", "cpu", "family", "Processor")
RISCV_VENDORS = {0x489: "SiFive", 0x5B7: "T-Head", 0x31E: "Andes", 0x710: "SpacemiT", 0x61F: "Ventana"}
MAINFRAMES = {
    "2064": "z900",
    "2066": "z800",
    "2084": "z990",
    "2086": "z890",
    "2094": "z9 EC",
    "2096": "z9 BC",
    "2097": "z10 EC",
    "2098": "z10 BC",
    "2817": "z196",
    "2818": "z114",
    "2827": "zEC12",
    "2828": "zBC12",
    "2964": "z13",
    "2965": "z13s",
    "3906": "z14",
    "3907": "z14 ZR1",
    "8561": "z15",
    "8562": "z15 T02",
    "3931": "z16",
    "3932": "z16 A02",
    "9175": "z17",
}
"""Names of IBM's mainframes by machine type, which is all that their /proc/cpuinfo tells."""


@dataclass(frozen=True, slots=True)
class Design:
    """What makes cores the same: two CPUs of equal designs are of one type."""

    vendor: str | None = None
    key: str | None = None
    name: str | None = None
    kind: str | None = None


def of_block(block: Mapping[str, str]) -> Design:
    """Return the design that the block describes; an ARM core is told by its MIDR instead."""
    return Design(vendor=vendor(block), key=_key(block), name=brand(block))


def tidy(name: object) -> str | None:
    """Return the name with single blanks; None where it is one that any machine could have."""
    tidied = " ".join(name.split()) if isinstance(name, str) else ""
    return None if cpu_key(tidied) is None else tidied


def brand(block: Mapping[str, str]) -> str | None:
    """Return the first name in the block that is one, None where it holds none."""
    found = (tidy(block[key]) for key in NAME_KEYS if key in block)
    return next((name for name in found if name), None) or _mainframe(block)


def vendor(block: Mapping[str, str]) -> str | None:
    """Return the maker as the block names it, a RISC-V number by its name where that is known."""
    number = re.fullmatch(r"0x([0-9a-fA-F]{1,16})", block.get("mvendorid", ""))
    if number and int(number[1], 16):
        return RISCV_VENDORS.get(int(number[1], 16), number[0])
    named = block.get("vendor_id") or block.get("vendor") or ("IBM" if "POWER" in block.get("cpu", "") else "")
    return named.strip() or None


def _key(block: Mapping[str, str]) -> str | None:
    """Return what identifies the model within its architecture."""
    for keys in (("cpu family", "model", "stepping"), ("family", "model", "revision"), ("mvendorid", "marchid")):
        if keys[1] in block and (keys[0] in block or keys[-1] in block):
            return "-".join(block.get(key, "?") for key in keys)
    version = re.search(r"pvr ([0-9a-f]{4} [0-9a-f]{4})", block.get("revision", ""))
    if version:
        return version[1].replace(" ", "-")
    machine = _machine(block)
    return machine or block.get("uarch") or block.get("CPU Revision") or block.get("cpu model")


def _machine(block: Mapping[str, str]) -> str | None:
    """Return the mainframe's machine type, four digits."""
    lines = [value for key, value in block.items() if key.startswith("processor ")]
    found = [re.search(r"machine = (\w{4})\b", line) for line in lines]
    found.append(re.fullmatch(r"(\d{4})", block.get("machine", "")))
    return next((match[1] for match in found if match), None)


def _mainframe(block: Mapping[str, str]) -> str | None:
    machine = _machine(block)
    if machine is None:
        return None
    return f"IBM {MAINFRAMES[machine]}" if machine in MAINFRAMES else f"IBM/S390 machine {machine}"
