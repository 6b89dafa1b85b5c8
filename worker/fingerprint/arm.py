"""Names of ARM cores by the implementer and part number of their main ID register (MIDR_EL1).

The numbers are public: Arm's technical reference manuals, the vendors' manuals and the Linux kernel's
arch/arm64/include/asm/cputype.h. /proc/cpuinfo shows them where it shows no name.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

IMPLEMENTERS = {
    0x41: "ARM",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "APM",
    0x51: "Qualcomm",
    0x53: "Samsung",
    0x54: "Texas Instruments",
    0x56: "Marvell",
    0x61: "Apple",
    0x66: "Faraday",
    0x69: "Intel",
    0x6D: "Microsoft",
    0x70: "Phytium",
    0xC0: "Ampere",
}

PARTS = {
    0x41: {
        0x920: "ARM920T",
        0x922: "ARM922T",
        0x926: "ARM926EJ-S",
        0x940: "ARM940T",
        0x946: "ARM946E-S",
        0x966: "ARM966E-S",
        0xA22: "ARM1022E",
        0xA26: "ARM1026EJ-S",
        0xB02: "ARM11 MPCore",
        0xB36: "ARM1136",
        0xB56: "ARM1156",
        0xB76: "ARM1176",
        0xC05: "Cortex-A5",
        0xC07: "Cortex-A7",
        0xC08: "Cortex-A8",
        0xC09: "Cortex-A9",
        0xC0D: "Cortex-A12",
        0xC0E: "Cortex-A17",
        0xC0F: "Cortex-A15",
        0xC14: "Cortex-R4",
        0xC15: "Cortex-R5",
        0xC17: "Cortex-R7",
        0xC18: "Cortex-R8",
        0xD01: "Cortex-A32",
        0xD02: "Cortex-A34",
        0xD03: "Cortex-A53",
        0xD04: "Cortex-A35",
        0xD05: "Cortex-A55",
        0xD06: "Cortex-A65",
        0xD07: "Cortex-A57",
        0xD08: "Cortex-A72",
        0xD09: "Cortex-A73",
        0xD0A: "Cortex-A75",
        0xD0B: "Cortex-A76",
        0xD0C: "Neoverse-N1",
        0xD0D: "Cortex-A77",
        0xD0E: "Cortex-A76AE",
        0xD13: "Cortex-R52",
        0xD15: "Cortex-R82",
        0xD16: "Cortex-R52+",
        0xD40: "Neoverse-V1",
        0xD41: "Cortex-A78",
        0xD42: "Cortex-A78AE",
        0xD43: "Cortex-A65AE",
        0xD44: "Cortex-X1",
        0xD46: "Cortex-A510",
        0xD47: "Cortex-A710",
        0xD48: "Cortex-X2",
        0xD49: "Neoverse-N2",
        0xD4A: "Neoverse-E1",
        0xD4B: "Cortex-A78C",
        0xD4C: "Cortex-X1C",
        0xD4D: "Cortex-A715",
        0xD4E: "Cortex-X3",
        0xD4F: "Neoverse-V2",
        0xD80: "Cortex-A520",
        0xD81: "Cortex-A720",
        0xD82: "Cortex-X4",
        0xD83: "Neoverse-V3AE",
        0xD84: "Neoverse-V3",
        0xD85: "Cortex-X925",
        0xD87: "Cortex-A725",
        0xD88: "Cortex-A520AE",
        0xD89: "Cortex-A720AE",
        0xD8A: "C1-Nano",
        0xD8B: "C1-Pro",
        0xD8C: "C1-Ultra",
        0xD8E: "Neoverse-N3",
        0xD8F: "Cortex-A320",
        0xD90: "C1-Premium",
    },
    0x42: {0x00F: "Brahma-B15", 0x100: "Brahma-B53", 0x516: "ThunderX2 Vulcan"},
    0x43: {
        0x0A0: "ThunderX",
        0x0A1: "ThunderX 88XX",
        0x0A2: "ThunderX 81XX",
        0x0A3: "ThunderX 83XX",
        0x0AF: "ThunderX2 99xx",
        0x0B8: "ThunderX3 T110",
    },
    0x46: {0x001: "A64FX", 0x003: "MONAKA"},
    0x48: {
        0xD01: "TaiShan v110",
        0xD02: "TaiShan v120",
        0xD06: "HIP12",
        0xD40: "Cortex-A76",
        0xD41: "Cortex-A77",
    },
    0x4E: {0x000: "Denver", 0x003: "Denver 2", 0x004: "Carmel", 0x010: "Olympus"},
    0x50: {0x000: "X-Gene"},
    0x51: {
        0x001: "Oryon",
        0x00F: "Scorpion",
        0x02D: "Scorpion",
        0x04D: "Krait",
        0x06F: "Krait",
        0x201: "Kryo Silver",
        0x205: "Kryo Gold",
        0x211: "Kryo Silver",
        0x800: "Kryo 2xx Gold",
        0x801: "Kryo 2xx Silver",
        0x802: "Kryo 3xx Gold",
        0x803: "Kryo 3xx Silver",
        0x804: "Kryo 4xx Gold",
        0x805: "Kryo 4xx Silver",
        0xC00: "Falkor",
        0xC01: "Saphira",
    },
    0x53: {0x001: "Exynos M1", 0x002: "Exynos M3", 0x003: "Exynos M4", 0x004: "Exynos M5"},
    0x56: {0x131: "Feroceon 88FR131", 0x581: "PJ4", 0x584: "PJ4B-MP"},
    0x61: {
        0x001: "Cyclone (A7)",
        0x002: "Typhoon (A8)",
        0x003: "Typhoon (A8X)",
        0x004: "Twister (A9)",
        0x005: "Twister (A9)",
        0x006: "Hurricane and Zephyr (A10)",
        0x007: "Hurricane and Zephyr (A10X)",
        0x008: "Monsoon (A11)",
        0x009: "Mistral (A11)",
        0x00B: "Vortex (A12)",
        0x00C: "Tempest (A12)",
        0x012: "Lightning (A13)",
        0x013: "Thunder (A13)",
        0x020: "Icestorm (A14)",
        0x021: "Firestorm (A14)",
        0x022: "Icestorm (M1)",
        0x023: "Firestorm (M1)",
        0x024: "Icestorm (M1 Pro)",
        0x025: "Firestorm (M1 Pro)",
        0x028: "Icestorm (M1 Max)",
        0x029: "Firestorm (M1 Max)",
        0x030: "Blizzard (A15)",
        0x031: "Avalanche (A15)",
        0x032: "Blizzard (M2)",
        0x033: "Avalanche (M2)",
        0x034: "Blizzard (M2 Pro)",
        0x035: "Avalanche (M2 Pro)",
        0x038: "Blizzard (M2 Max)",
        0x039: "Avalanche (M2 Max)",
        0x042: "Sawtooth (M3)",
        0x043: "Everest (M3)",
        0x044: "Sawtooth (M3 Pro)",
        0x045: "Everest (M3 Pro)",
        0x048: "Sawtooth (M3 Max)",
        0x049: "Everest (M3 Max)",
        0x052: "Donan (M4 E core)",
        0x053: "Donan (M4 P core)",
        0x054: "Brava (M4 Pro E core)",
        0x055: "Brava (M4 Pro P core)",
        0x058: "Brava (M4 Max E core)",
        0x059: "Brava (M4 Max P core)",
    },
    0x66: {0x526: "FA526", 0x626: "FA626"},
    0x6D: {0xD49: "Azure Cobalt 100"},
    0x70: {
        0x303: "FTC310",
        0x660: "FTC660",
        0x661: "FTC661",
        0x662: "FTC662",
        0x663: "FTC663",
        0x664: "FTC664",
        0x862: "FTC862",
    },
    0xC0: {0xAC3: "Ampere-1", 0xAC4: "Ampere-1a", 0xAC5: "Ampere-1b"},
}


LITTLE = re.compile(
    r"Cortex-A(5|7|32|34|35|53|55|320|510|520|520AE)|C1-Nano|(Icestorm|Blizzard|Sawtooth|Thunder|Tempest|Mistral) .*"
    r"|.* Silver|.*\(M\d[^)]*E core\)"
)
LARGE = re.compile(r"Cortex-X.*|C1-(Ultra|Premium)|(Firestorm|Avalanche|Everest) .*|Exynos M\d|.*\(M\d[^)]*P core\)")
THREADED = frozenset(
    {(0x41, 0xD06), (0x41, 0xD43), (0x41, 0xD4A), (0x42, 0x516), (0x43, 0x0AF), (0x43, 0x0B8), (0x48, 0xD02)}
    | {(0x4E, 0x010)}
)
"""Cores that can run two threads or more; of every other, a CPU of the kernel is a core."""


@dataclass(frozen=True, slots=True, order=True)
class Midr:
    """What identifies a core's design: the fields of MIDR_EL1 without the revision."""

    implementer: int
    part: int
    variant: int | None = None

    @property
    def key(self) -> str:
        """Implementer, part and variant as /proc/cpuinfo writes them."""
        variant = "?" if self.variant is None else f"0x{self.variant:x}"
        return f"0x{self.implementer:02x}-0x{self.part:03x}-{variant}"

    @property
    def name(self) -> str:
        """The core's name, or a text that holds both numbers so that two unknown cores never look alike."""
        known = PARTS.get(self.implementer, {}).get(self.part)
        return known or f"unknown ARM CPU (implementer 0x{self.implementer:02x} part 0x{self.part:03x})"

    @property
    def vendor(self) -> str:
        """Who designed the core, or the implementer's number."""
        return IMPLEMENTERS.get(self.implementer, f"0x{self.implementer:02x}")

    @property
    def rank(self) -> int | None:
        """0 for cores made to save power, 2 for those made to be fast, 1 between; None for unknown ones."""
        if self.part not in PARTS.get(self.implementer, {}) or self.name == "Oryon":
            return None
        return 0 if LITTLE.fullmatch(self.name) else 2 if LARGE.fullmatch(self.name) else 1

    @property
    def may_thread(self) -> bool:
        """Return whether one core may be several CPUs of the kernel."""
        return (self.implementer, self.part) in THREADED


def of_block(block: Mapping[str, str]) -> list[Midr]:
    """Return the cores that a block of /proc/cpuinfo names: one, or several where a kernel lists all parts once."""
    implementer, variant = (_hexadecimal(block.get(key, "")) for key in ("CPU implementer", "CPU variant"))
    if not implementer:
        return []
    parts = _hexadecimal(block.get("CPU part", ""))
    return [Midr(implementer[0], part, variant[0] if variant else None) for part in parts]


def of_register(content: str | None) -> Midr | None:
    """Return the core of the kernel's text of MIDR_EL1, such as `0x00000000410fd0b1`; None where it is none."""
    match = re.fullmatch(r"0x([0-9a-fA-F]{1,16})", content or "")
    value = int(match[1], 16) if match else 0
    return Midr(value >> 24 & 0xFF, value >> 4 & 0xFFF, value >> 20 & 0xF) if value else None


def _hexadecimal(content: str) -> list[int]:
    """Return the numbers of a text such as `0xd03` or `0xd03 & 0xd08`."""
    return [int(digits, 16) for digits in re.findall(r"\b0x([0-9a-fA-F]{1,4})\b", content)]


def is_key(key: str) -> bool:
    """Return whether `key` is one of `Midr.key`."""
    return re.fullmatch(r"0x[0-9a-f]{2}-0x[0-9a-f]{3}-(\?|0x[0-9a-f]{1,4})", key) is not None
