"""Names of GPUs: drivers and back ends call one chip differently, and unlike chips alike (stdlib only)."""

import re

AMD_TRANSFERS = {
    **dict.fromkeys(("gfx900", "gfx906", "gfx908", "gfx90a"), 2),
    "gfx942": 4,
    **dict.fromkeys(("gfx1030", "gfx1031", "gfx1032", "gfx1034"), 16),
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1102", "gfx1200", "gfx1201"), 16),
}
"""AMD's target → transfers per memory clock, as its driver counts the clock: HBM2 2, HBM3 4, GDDR6 16.

Checked against AMD's data sheets: MI100 1200 MHz × 4096 bit × 2 → 1229 GB/s, MI300X 1300 × 8192 × 4 → 5325,
RX 6700 XT 1000 × 192 × 16 → 384, RX 7900 XTX 1249 × 384 × 16 → 959. Others, integrated ones too, are not listed.
"""

_ASIDE = re.compile(r"\((?!device id|\d+ ?[mg]i?b|mobile|laptop|max-q|oem)[^()]*\)|[®™]|/pcie/sse2|,\s*gfx\w+.*")
"""What says nothing of the chip: (R), (TM), the driver's name, the target, the device's code name."""

_BRANDS = re.compile(
    r"^(mesa|nvidia( corporation)?|amd|ati|advanced micro devices,? inc\.?( \[amd/ati\])?|intel|apple|geforce|tesla)\s+"
)
_TAILS = re.compile(r"\s+(gpu|graphics|generation)$")
_GENERIC = re.compile(
    r"(unnamed.*|unknown|n/a|none|-|0+|gpu|radeon|arc|uhd|nvidia|amd|intel"
    r"|((uhd|iris|hd|radeon|vega|arc) )?graphics( (device|processor))?|(vga compatible|3d|display)( controller)?"
    r"|gpu [0-9a-f]{4}:[0-9a-f]{4}|device [0-9a-f]{4})?"
)
_MEMORY = re.compile(r"\s*\((\d+) ?([mg])i?b[^)]*\)")
_DEVICE_ID = re.compile(r"\s*\(device id (?:0x)?([0-9a-f]{4})[^)]*\)")
_ALIKE = 0.94
"""Two totals of one memory differ by less than this: a driver and a runtime keep different amounts to themselves."""


def gpu_key(name: str | None) -> str | None:
    """Return the name in small letters without vendor, marks and driver; None where any GPU could have it.

    Words that tell chips apart stay: Quadro, Laptop, Ada, Max-Q, memory sizes, MIG profiles.
    """
    key = " ".join(_ASIDE.sub(" ", (name or "").lower()).split())
    while _BRANDS.search(key):
        key = _BRANDS.sub("", key)
    while _TAILS.search(key) and not _GENERIC.fullmatch(key):
        key = _TAILS.sub("", key)
    return None if _GENERIC.fullmatch(key) else key


def amd_target(text: str | None) -> str | None:
    """Return AMD's target that a description holds, such as gfx1151."""
    found = re.search(r"\bgfx[0-9a-f]{3,5}\b", (text or "").lower())
    return found[0] if found else None


def same_gpu(one: str | None, other: str | None) -> bool | None:
    """Return whether two names are of one kind of GPU; None where the names cannot tell.

    A memory size or PCI device id in parentheses counts too, where both names have one.
    """
    targets = {amd_target(one), amd_target(other)} - {None}
    first, second = gpu_key(one), gpu_key(other)
    if len(targets) == 2:
        return False
    if first is None or second is None:
        return None
    if _spelt(first) != _spelt(second):
        return False
    if _DEVICE_ID.findall(first) != _DEVICE_ID.findall(second):
        return None
    sizes = [_bytes(key) for key in (first, second)]
    if all(sizes):
        return min(sizes) / max(sizes) > _ALIKE
    return None if any(sizes) else True


def _spelt(key: str) -> str:
    """Return the key as it compares: without what stands in parentheses for itself, blanks and hyphens."""
    return re.sub(r"[\s_-]+", "", _DEVICE_ID.sub("", _MEMORY.sub("", key)))


def _bytes(key: str) -> int:
    found = _MEMORY.search(key)
    return int(found[1]) << {"m": 20, "g": 30}[found[2]] if found else 0
