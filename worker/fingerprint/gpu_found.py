"""What every reader of GPUs gives back, and the few conversions that they share."""

import re
from dataclasses import dataclass

from schema.host import Gpu

GIB = 1 << 30
MIB = 1 << 20
TRANSFERS_PER_SECOND_TO_GENERATION = {"2.5": 1, "5": 2, "8": 3, "16": 4, "32": 5, "64": 6, "128": 7}


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One GPU with what belongs to this specimen or its set-up, and not to what it is.

    `bus_id` is its place on the PCI bus, `uuid` its maker's number for it, `settings` what the administrator can
    change: power limit, error correction, persistence.
    """

    gpu: Gpu
    bus_id: str | None = None
    uuid: str | None = None
    settings: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What one source tells: its GPUs, those that cannot be used (in words), and the versions of driver and runtime."""

    source: str = ""
    found: tuple[Found, ...] = ()
    driver: str | None = None
    runtime: str | None = None
    unusable: tuple[str, ...] = ()


def whole_gib(total: int | None) -> int | None:
    """Return the memory up to the next GiB: drivers keep different amounts, with ECC or without, for themselves."""
    return -(-total // GIB) * GIB if total and total > 0 else None


def mebibytes(text: str | None) -> int | None:
    """Return the bytes of a text such as `81920 MiB`, `19.5 GB` or `16384`, which counts MiB; None for others."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)\s*(?:([KMGT])i?B)?", (text or "").strip(), re.I)
    if not match:
        return None
    return int(float(match[1]) * (1 << {"K": 10, "M": 20, "G": 30, "T": 40}[(match[2] or "M").upper()])) or None


def hertz(text: str | None) -> int | None:
    """Return the clock of a text such as `5001 MHz`, `1200Mhz` or `1.2 GHz`; None for others."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*([MG])Hz", (text or "").strip(), re.I)
    return round(float(match[1]) * {"M": 1e6, "G": 1e9}[match[2].upper()]) or None if match else None


def link(transfers: str | None, width: str | int | None) -> str | None:
    """Return a PCIe link as `gen4 x16` from a speed such as `16.0 GT/s PCIe` and a width such as `16`."""
    speed = re.match(r"(\d{1,3}(?:\.\d)?)", (transfers or "").strip())
    generation = TRANSFERS_PER_SECOND_TO_GENERATION.get(speed[1].removesuffix(".0")) if speed else None
    return lanes(generation, width)


def lanes(generation: object, width: object) -> str | None:
    """Return a PCIe link as `gen4 x16`; None where either number is none."""
    first, second = (re.search(r"\d{1,2}", str(value)) if value is not None else None for value in (generation, width))
    return f"gen{int(first[0])} x{int(second[0])}" if first and second and int(first[0]) and int(second[0]) else None


def settings(power_watts: float | None, error_correction: bool | None, persistence: bool | None) -> str | None:
    """Return in words what an administrator can set and what changes rates, as far as it is known."""
    told = [f"power limit {power_watts:g} W"] if power_watts is not None else []
    for name, value in (("ECC", error_correction), ("persistence", persistence)):
        told += [f"{name} {'on' if value else 'off'}"] if value is not None else []
    return ", ".join(told) or None


def slice_of(whole: Found, profile: str | None, total: int | None, uuid: str | None = None) -> Found:
    """Return the MIG slice of `whole` with this profile, memory in bytes and UUID."""
    gpu = Gpu(
        vendor=whole.gpu.vendor,
        name=f"{whole.gpu.name} MIG {profile or 'slice'}",
        vram_bytes=whole_gib(total),
        pci_id=whole.gpu.pci_id,
        architecture=whole.gpu.architecture,
        pcie_max=whole.gpu.pcie_max,
        mig_profile=profile,
    )
    return Found(gpu=gpu, bus_id=whole.bus_id, uuid=uuid, settings=whole.settings)


def count(text: str | None, digits: int) -> int | None:
    """Return the number that the text is, of at most so many digits; None for 0 and for anything else."""
    return int(text) or None if text and re.fullmatch(rf"\d{{1,{digits}}}", text) else None


def name_of(text: object, vendor: str) -> str:
    """Return the name with single blanks and without what cannot be shown, at most 100 characters of it."""
    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    shown = "".join(c if c.isprintable() else " " for c in decoded) if isinstance(decoded, str) else ""
    tidy = " ".join(shown.split())[:100]
    return f"unnamed {vendor} GPU" if tidy.lower() in ("", "n/a", "unknown", "unknown error", "err!", "none") else tidy
