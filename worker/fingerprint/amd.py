"""AMD's GPUs from /sys: the card's own files, and the topology of its compute driver (KFD)."""

import re
from collections.abc import Mapping
from pathlib import Path

from schema.host import Gpu
from worker.fingerprint import evidence, memory, pci
from worker.fingerprint.gpu_found import Found, Told, link, name_of, whole_gib

VENDOR = "0x1002"
CARDS = Path("sys/class/drm")
NODES = Path("sys/class/kfd/kfd/topology/nodes")
NAMES = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids")
RUNTIME = "opt/rocm/.info/version"

INTEGRATED_TARGETS = (
    *("gfx902", "gfx909", "gfx90c", "gfx1013", "gfx1033", "gfx1035", "gfx1036", "gfx1037", "gfx1103"),
    *("gfx1150", "gfx1151", "gfx1152", "gfx1153"),
)
INTEGRATED_DEVICES = (
    *("15dd", "15d8", "1636", "1638", "164c", "163f", "164d", "164e", "1681", "1506", "15bf", "15c8", "1900", "1901"),
    *("150e", "1586", "1114", "13c0", "13fe", "143f", "74a0"),
)
"""Parts that compute from the machine's memory: Raven, Renoir, Cezanne, Van Gogh, Rembrandt, Raphael, Mendocino,
Phoenix, Hawk Point, Strix Point, Strix Halo (1586), Krackan, Granite Ridge and MI300A (74a0).
"""


def read(root: Path, memory_total: int | None) -> Told:
    """Return the cards that the driver shows; `memory_total` is the memory that the kernel has, in bytes."""
    names = _names(root)
    nodes = _nodes(root)
    found = []
    for card in evidence.entries(root / CARDS, "card[0-9]*"):
        device = card / "device"
        own = evidence.number(device / "mem_info_vram_total")
        # Connectors stand beside the cards, as card0-DP-1.
        if "-" not in card.name and evidence.text(device / "vendor") == VENDOR and own is not None:
            found.append(_card(device, own, memory_total, names, nodes))
    loaded = (root / "sys/module/amdgpu").is_dir()
    version = evidence.text(root / "sys/module/amdgpu/version")
    rocm = re.match(r"\d+(\.\d+)+", evidence.text(root / RUNTIME) or "")
    return Told(
        source="/sys/class/drm",
        found=tuple(found),
        driver=f"amdgpu {version or 'of the kernel'}" if loaded or found else None,
        runtime=f"ROCm {rocm[0]}" if rocm else None,
    )


def _card(
    device: Path, own: int, memory_total: int | None, names: Mapping[str, str], nodes: Mapping[str, Mapping[str, int]]
) -> Found:
    number = pci.number(device)
    revision = (evidence.text(device / "revision") or "").removeprefix("0x").lower()
    place = pci.place(device)
    node = nodes.get(place or "", {})
    target = target_name(node.get("gfx_target_version"))
    unified = is_integrated(target, number)
    shared = evidence.number(device / "mem_info_gtt_total") or 0
    named = evidence.text(device / "product_name") or names.get(f"{number}/{revision}")
    unique = evidence.text(device / "unique_id")
    return Found(
        gpu=Gpu(
            vendor="AMD",
            name=name_of(named, "AMD") if named else f"AMD GPU 1002:{number or 'unknown'}",
            vram_bytes=unified_memory(own, memory_total) if unified else whole_gib(own),
            pci_id=f"1002:{number}" if number else None,
            unified=unified,
            usable_bytes=own + shared if unified else None,
            memory_bus_bits=node.get("width"),
            max_memory_clock_hz=_fastest(evidence.text(device / "pp_dpm_mclk")) or _mega(node.get("mem_clk_max")),
            architecture=target,
            pcie_max=link(evidence.text(device / "max_link_speed"), evidence.text(device / "max_link_width")),
            n_cores=_compute_units(node),
        ),
        bus_id=place,
        uuid=unique.removeprefix("0x").lower() if unique else None,
        settings=_settings(device),
    )


def is_integrated(target: str | None, number: str | None) -> bool:
    """Return whether a part with this target or PCI device number computes from the machine's memory."""
    return target in INTEGRATED_TARGETS or number in INTEGRATED_DEVICES


def unified_memory(own: int, memory_total: int | None) -> int | None:
    """Return the memory of a machine whose firmware cut `own` bytes out for the GPU: the kernel has the rest.

    So it stays the same however large the cut is. None where the kernel's part is not known.
    """
    return memory.rounded_up(own + memory_total) if memory_total else None


def target_name(version: int | None) -> str | None:
    """Return `gfx90a` for KFD's 90010: major, minor and stepping have two digits each, the last in hexadecimal."""
    if not version or version < 0:
        return None
    return f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"


def _names(root: Path) -> dict[str, str]:
    """Return libdrm's names by device and revision, such as `744c/c8`."""
    listed = evidence.first_text(root / place for place in NAMES)
    names: dict[str, str] = {}
    for line in (listed[0] if listed else "").splitlines():
        fields = [field.strip() for field in line.split(",", 2)]
        if len(fields) == 3 and re.fullmatch(r"[0-9A-Fa-f]{1,4}", fields[0]):
            names[f"{fields[0].lower():0>4}/{fields[1].lower():0>2}"] = fields[2]
    return names


def _nodes(root: Path) -> dict[str, dict[str, int]]:
    """Return the properties of the compute driver's nodes and their memory by place on the PCI bus."""
    nodes = {}
    for node in evidence.entries(root / NODES, "[0-9]*"):
        facts = _properties(node / "properties")
        place = facts.get("location_id")
        if place and facts.get("vendor_id") == 0x1002:
            banks = [_properties(bank / "properties") for bank in evidence.entries(node / "mem_banks", "[0-9]*")]
            bank = banks[0] if banks else {}
            facts |= {name: bank[name] for name in ("width", "mem_clk_max") if bank.get(name)}
            name = f"{facts.get('domain', 0):04x}:{place >> 8 & 0xFF:02x}:{place >> 3 & 0x1F:02x}.{place & 7:x}"
            nodes[name] = facts
    return nodes


def _properties(path: Path) -> dict[str, int]:
    pairs = re.findall(r"^(\w+) (\d{1,20})$", evidence.text(path) or "", re.M)
    return {name: int(value) for name, value in pairs}


def _compute_units(node: Mapping[str, int]) -> int | None:
    simds, per_unit = node.get("simd_count"), node.get("simd_per_cu")
    return simds // per_unit if simds and per_unit else None


def _fastest(levels: str | None) -> int | None:
    """Return the highest of the levels in a pp_dpm file, such as `3: 1249Mhz *`, in Hz."""
    clocks = [int(clock) for clock in re.findall(r"^\s*\w+:\s*(\d{1,6})\s*Mhz", levels or "", re.M | re.I)]
    return _mega(max(clocks, default=None))


def _mega(clock: int | None) -> int | None:
    return clock * 1_000_000 if clock else None


def _settings(device: Path) -> str | None:
    limits = (evidence.number(path) for path in evidence.entries(device / "hwmon", "hwmon*/power1_cap"))
    limit = next((value for value in limits if value), None)
    level = evidence.text(device / "power_dpm_force_performance_level")
    told = [f"power limit {limit / 1e6:g} W"] if limit else []
    told += [f"performance level {name_of(level, 'AMD')}"] if level else []
    return ", ".join(told) or None
