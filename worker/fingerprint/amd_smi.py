"""AMD's GPUs from what `amd-smi static --json` or `rocm-smi --json` printed; both have changed their shapes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from schema.gpu_name import amd_target
from schema.host import Gpu
from worker.fingerprint.amd import is_integrated
from worker.fingerprint.gpu_found import Found, Told, count, link, mebibytes, name_of, whole_gib

COMMAND = ("amd-smi", "static", "--json")
_VERSION = re.compile(r"[\w.+:~-]{1,60}")


def read(parsed: Any) -> Told | None:
    """Return what the parsed JSON tells; None where it is of neither program."""
    if isinstance(parsed, dict) and isinstance(parsed.get("gpu_data"), list):
        parsed = parsed["gpu_data"]
    if isinstance(parsed, list) and any(isinstance(item, dict) and "asic" in item for item in parsed):
        return _of_amd_smi([item for item in parsed if isinstance(item, dict)])
    if isinstance(parsed, dict):
        cards = {key: value for key, value in parsed.items() if re.fullmatch(r"card\d+", key)}
        if cards or "Driver version" in _mapping(parsed.get("system")):
            return _of_rocm_smi([_mapping(card) for card in cards.values()], _mapping(parsed.get("system")))
    return None


def _of_amd_smi(items: list[dict[str, Any]]) -> Told:
    drivers = [_text(_mapping(item.get("driver")), "version", "driver_version") for item in items]
    versions = sorted({version for version in drivers if version and _VERSION.fullmatch(version)})
    return Told(
        found=tuple(_amd_smi_gpu(item) for item in items if "asic" in item),
        driver=f"amdgpu {versions[0]}" if versions else None,
    )


def _amd_smi_gpu(item: Mapping[str, Any]) -> Found:
    asic, bus, vram = (_mapping(item.get(key)) for key in ("asic", "bus", "vram"))
    board = _mapping(item.get("board"))
    number = _hex(_text(asic, "device_id"))
    target = amd_target(_text(asic, "target_graphics_version"))
    size = mebibytes(_quantity(vram, "size", "size_mb", "vram_size", "vram_size_mb"))
    unified = is_integrated(target, number)
    speed = _quantity(bus, "max_pcie_speed")
    named = [_text(asic, "market_name"), _text(board, "product_name")]
    return Found(
        gpu=Gpu(
            vendor="AMD",
            name=_best_name(named, number),
            vram_bytes=None if unified else whole_gib(size),
            pci_id=f"1002:{number}" if number else None,
            unified=unified,
            usable_bytes=size if unified else None,
            memory_bus_bits=count(_text(vram, "bit_width", "vram_bit_width"), 6),
            architecture=target,
            pcie_max=link(speed, _text(bus, "max_pcie_width")),
            n_cores=count(_text(asic, "num_compute_units"), 6),
        ),
        bus_id=_place(_text(bus, "bdf") or _text(asic, "pci_bdf")),
        uuid=_unique(_text(asic, "asic_serial")),
    )


def _of_rocm_smi(cards: list[Mapping[str, Any]], system: Mapping[str, Any]) -> Told:
    version = _VERSION.fullmatch(_text(system, "Driver version") or "")
    driver = f"amdgpu {version[0]}" if version else None
    return Told(found=tuple(_rocm_smi_gpu(card) for card in cards), driver=driver)


def _rocm_smi_gpu(card: Mapping[str, Any]) -> Found:
    facts = {key.lower(): value for key, value in card.items()}
    number = _hex(_text(facts, "device id")) or _hex(_text(facts, "gpu id"))
    target = amd_target(_text(facts, "gfx version"))
    own, shared = (_count(_text(facts, f"{kind} total memory (b)")) for kind in ("vram", "gtt"))
    unified = is_integrated(target, number)
    named = [_text(facts, key) for key in ("device name", "card series", "card model")]
    return Found(
        gpu=Gpu(
            vendor="AMD",
            name=_best_name(named, number),
            vram_bytes=None if unified else whole_gib(own),
            pci_id=f"1002:{number}" if number else None,
            unified=unified,
            usable_bytes=(own or 0) + (shared or 0) or None if unified else None,
            architecture=target,
            pcie_max=_widest(facts.values()),
        ),
        bus_id=_place(_text(facts, "pci bus")),
        uuid=_unique(_text(facts, "unique id")),
    )


def _best_name(candidates: list[str | None], number: str | None) -> str:
    """Return the first that is a name and no number; of "Navi 22 [Radeon RX 6700 XT]" what people call it."""
    names = (name for name in candidates if name and not re.fullmatch(r"0x[0-9a-fA-F]+|N/A", name))
    name = next(names, None)
    if name is None:
        return f"AMD GPU 1002:{number}" if number else "unnamed AMD GPU"
    called = re.search(r"\[([^\]]+)\]\s*$", name)
    tidy = name_of(called[1] if called else name, "AMD")
    return tidy if tidy.upper().startswith("AMD") else f"AMD {tidy}"


def _widest(values: Any) -> str | None:
    """Return the fastest link among the levels that rocm-smi lists, such as `16.0GT/s x16 *`."""
    levels = (re.match(r"([\d.]+)GT/s x(\d+)", value) for value in values if isinstance(value, str))
    links = [(float(level[1]), int(level[2])) for level in levels if level and re.fullmatch(r"\d+\.?\d*", level[1])]
    speed, width = max(links, default=(0.0, 0))
    return link(f"{speed:g}", width) if width else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(facts: Mapping[str, Any], *names: str) -> str | None:
    """Return the first of the facts that is there, as text; "N/A" is none."""
    return next(_texts(facts, names), None)


def _texts(facts: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    for name in names:
        value = facts.get(name)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            text = str(value).strip()
            if text and text.upper() != "N/A":
                yield text


def _quantity(facts: Mapping[str, Any], *names: str) -> str | None:
    """Return a number with its unit: newer versions write {"value": 16, "unit": "GB"}, older ones "16 GB" or 16384."""
    for name in names:
        value = facts.get(name)
        if isinstance(value, dict) and value.get("value") not in (None, "N/A"):
            return f"{value['value']} {value.get('unit', '')}".strip()
    return _text(facts, *names)


def _hex(text: str | None) -> str | None:
    """Return a PCI device number as four digits, small letters."""
    match = re.fullmatch(r"0x([0-9a-fA-F]{1,4})", text or "")
    return f"{match[1].lower():0>4}" if match else None


def _count(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,18}", text) else None


def _place(text: str | None) -> str | None:
    lowered = (text or "").lower()
    return lowered if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]", lowered) else None


def _unique(text: str | None) -> str | None:
    """Return the specimen's number in the form that /sys has, 16 digits without 0x."""
    digits = (text or "").lower().removeprefix("0x")
    usable = re.fullmatch(r"[0-9a-f]{1,16}", digits) and digits.strip("0")
    return f"{digits:0>16}" if usable else None
