"""Replays files and texts in the forms of AMD's driver and programs; there was no GPU here."""

import json
from pathlib import Path
from typing import Any

import pytest

from schema.host import Gpu
from tests.trees import write
from worker.fingerprint import amd, gpu
from worker.fingerprint.evidence import Notes
from worker.fingerprint.gpu import Gpus, read_capture

GIB = 1 << 30
CARD = "sys/class/drm/card1"
DEVICE = f"{CARD}/device"

DISCRETE = {
    f"{DEVICE}/vendor": "0x1002\n",
    f"{DEVICE}/device": "0x744c\n",
    f"{DEVICE}/revision": "0xc8\n",
    f"{DEVICE}/uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:03:00.0\n",
    f"{DEVICE}/mem_info_vram_total": f"{24 * GIB - 16 * 1024 * 1024}\n",
    f"{DEVICE}/mem_info_gtt_total": f"{32 * GIB}\n",
    f"{DEVICE}/pp_dpm_mclk": "0: 96Mhz *\n1: 456Mhz\n2: 772Mhz\n3: 1249Mhz\n",
    f"{DEVICE}/max_link_speed": "16.0 GT/s PCIe\n",
    f"{DEVICE}/current_link_speed": "2.5 GT/s PCIe\n",
    f"{DEVICE}/max_link_width": "16\n",
    f"{DEVICE}/unique_id": "79ccd55167a2124a\n",
    f"{DEVICE}/power_dpm_force_performance_level": "auto\n",
    f"{DEVICE}/hwmon/hwmon3/power1_cap": "327000000\n",
    f"{CARD}-DP-1/device/vendor": "0x1002\n",
    f"{CARD}-DP-1/device/mem_info_vram_total": "1\n",
    "usr/share/libdrm/amdgpu.ids": (
        "# List\n1.0.0\n744C,\tC8,\tAMD Radeon RX 7900 XTX\n744C,\tCC,\tAMD Radeon RX 7900 XT\n"
    ),
    "sys/class/kfd/kfd/topology/nodes/0/properties": "cpu_cores_count 16\nsimd_count 0\nlocation_id 0\n",
    "sys/class/kfd/kfd/topology/nodes/1/properties": (
        "cpu_cores_count 0\nsimd_count 192\nsimd_per_cu 2\ngfx_target_version 110000\n"
        "vendor_id 4098\ndevice_id 29772\nlocation_id 768\ndomain 0\n"
    ),
    "sys/class/kfd/kfd/topology/nodes/1/mem_banks/0/properties": "heap_type 1\nwidth 384\nmem_clk_max 1249\n",
}

STRIX_HALO = {
    f"{DEVICE}/vendor": "0x1002\n",
    f"{DEVICE}/device": "0x1586\n",
    f"{DEVICE}/revision": "0xd1\n",
    f"{DEVICE}/uevent": "PCI_SLOT_NAME=0000:c5:00.0\n",
    f"{DEVICE}/mem_info_vram_total": f"{GIB // 2}\n",
    f"{DEVICE}/mem_info_gtt_total": f"{120 * GIB}\n",
    "sys/class/kfd/kfd/topology/nodes/1/properties": (
        "simd_count 80\nsimd_per_cu 2\ngfx_target_version 110501\nvendor_id 4098\nlocation_id 50432\ndomain 0\n"
    ),
    "proc/meminfo": "MemTotal:       131056000 kB\n",
}


def answer(root: Path) -> Gpus:
    return gpu.read(root, Notes(), {})


def test_a_card_is_read_from_sys_and_its_connectors_are_not_cards(tmp_path: Path) -> None:
    told = answer(write(tmp_path, DISCRETE))

    assert told.status == "present"
    assert told.gpus == (
        Gpu(
            vendor="AMD",
            name="AMD Radeon RX 7900 XTX",
            vram_bytes=24 * GIB,
            pci_id="1002:744c",
            memory_bus_bits=384,
            max_memory_clock_hz=1_249_000_000,
            architecture="gfx1100",
            pcie_max="gen4 x16",
            n_cores=96,
        ),
    )
    assert told.uuids == ("79ccd55167a2124a",)
    assert told.settings == ("AMD Radeon RX 7900 XTX: power limit 327 W, performance level auto",)


def test_the_clock_of_gddr6_counts_sixteen_transfers(tmp_path: Path) -> None:
    (card,) = answer(write(tmp_path, DISCRETE)).gpus

    assert card.theoretical_bandwidth_bytes_per_second == 959_232_000_000


def test_a_target_whose_clock_is_not_known_gives_no_bandwidth() -> None:
    card = Gpu(vendor="AMD", name="x", memory_bus_bits=256, max_memory_clock_hz=10**9, architecture="gfx1151")

    assert card.theoretical_bandwidth_bytes_per_second is None


def test_a_part_on_the_processor_has_the_machines_memory_and_says_how_much_it_may_take(tmp_path: Path) -> None:
    (card,) = answer(write(tmp_path, STRIX_HALO)).gpus

    assert card.unified
    assert card.vram_bytes == 128 * GIB
    assert card.usable_bytes == 120 * GIB + GIB // 2
    assert (card.architecture, card.n_cores) == ("gfx1151", 40)


def test_a_larger_cut_of_the_firmware_is_the_same_hardware(tmp_path: Path) -> None:
    cut = {
        f"{DEVICE}/mem_info_vram_total": f"{96 * GIB}\n",
        f"{DEVICE}/mem_info_gtt_total": f"{16 * GIB}\n",
        "proc/meminfo": "MemTotal:       32300000 kB\n",
    }
    (small,) = answer(write(tmp_path / "small", STRIX_HALO)).gpus
    (large,) = answer(write(tmp_path / "large", STRIX_HALO | cut)).gpus

    assert small.hardware_facts == large.hardware_facts
    assert large.usable_bytes == 112 * GIB


def test_a_container_that_has_no_node_of_the_gpu_cannot_use_it(tmp_path: Path) -> None:
    notes = Notes()
    told = gpu.read(write(tmp_path, DISCRETE | {"dev/null": ""}), notes, {})

    assert (told.status, told.gpus) == ("not visible", ())
    assert any("/dev has no node for the GPU of AMD" in line for line in notes.errors)
    assert gpu.read(write(tmp_path, {"dev/dri/renderD128": ""}), Notes(), {}).status == "present"


def test_names_of_targets_follow_from_their_numbers() -> None:
    numbers = {
        90010: "gfx90a",
        90402: "gfx942",
        100300: "gfx1030",
        110501: "gfx1151",
        100306: "gfx1036",
        120001: "gfx1201",
    }

    assert {number: amd.target_name(number) for number in numbers} == numbers
    assert amd.target_name(0) is None


AMD_SMI_NEW: dict[str, Any] = {
    "gpu_data": [
        {
            "gpu": 0,
            "asic": {
                "market_name": "AMD Instinct MI300X",
                "vendor_id": "0x1002",
                "device_id": "0x74a1",
                "asic_serial": "0x1234567890ABCDEF",
                "num_compute_units": 304,
                "target_graphics_version": "gfx942",
            },
            "bus": {
                "bdf": "0000:0C:00.0",
                "max_pcie_width": 16,
                "max_pcie_speed": {"value": 32, "unit": "GT/s"},
            },
            "driver": {"name": "amdgpu", "version": "6.12.12"},
            "vram": {"type": "HBM", "size": {"value": 196592, "unit": "MB"}, "bit_width": 8192},
        }
    ]
}
AMD_SMI_OLD: list[dict[str, Any]] = [
    {
        "gpu": 0,
        "asic": {"market_name": "0x73df", "device_id": "0x73df", "asic_serial": "N/A"},
        "board": {"product_name": "Navi 22 [Radeon RX 6700/6700 XT / 6800M]"},
        "bus": {"bdf": "0000:07:00.0", "max_pcie_width": "16", "max_pcie_speed": "16 GT/s"},
        "driver": {"driver_name": "amdgpu", "driver_version": "6.3.6"},
        "vram": {"vram_type": "GDDR6", "vram_size_mb": 12272},
    }
]
ROCM_SMI_OLD: dict[str, Any] = {
    "card0": {
        "GPU ID": "0x6861",
        "Unique ID": "0x2150e7d042a1124",
        "0": "8.0GT/s x16",
        "1": "8.0GT/s x16 *",
        "2": "847Mhz",
        "PCI Bus": "0000:04:00.0",
        "VRAM Total Memory (B)": "17163091968",
        "GTT Total Memory (B)": "17163091968",
        "Card model": "0xc1e",
    },
    "system": {"Driver version": "5.9.25"},
}
ROCM_SMI_NEW: dict[str, Any] = {
    "card0": {
        "Device Name": "Navi 22 [Radeon RX 6700/6700 XT / 6800M]",
        "Device ID": "0x73df",
        "Unique ID": "N/A",
        "GUID": "55069",
        "0": "2.5GT/s x1",
        "1": "16.0GT/s x16 *",
        "PCI Bus": "0000:07:00.0",
        "VRAM Total Memory (B)": "12868124672",
        "GFX Version": "gfx1031",
    },
    "system": {"Driver version": "6.3.6"},
}


def test_amd_smi_is_read_in_its_new_shape() -> None:
    told = read_capture(json.dumps(AMD_SMI_NEW))
    (card,) = told.gpus

    assert (card.name, card.vram_bytes, card.architecture) == ("AMD Instinct MI300X", 192 * GIB, "gfx942")
    assert (card.pci_id, card.pcie_max, card.n_cores, card.memory_bus_bits) == ("1002:74a1", "gen5 x16", 304, 8192)
    assert (told.driver, told.uuids) == ("amdgpu 6.12.12", ("1234567890abcdef",))


def test_amd_smi_is_read_in_its_old_shape() -> None:
    told = read_capture(json.dumps(AMD_SMI_OLD))
    (card,) = told.gpus

    assert (card.name, card.vram_bytes) == ("AMD Radeon RX 6700/6700 XT / 6800M", 12 * GIB)
    assert (card.pcie_max, told.driver, told.uuids) == ("gen4 x16", "amdgpu 6.3.6", ())


def test_rocm_smi_is_read_in_its_old_shape() -> None:
    told = read_capture(json.dumps(ROCM_SMI_OLD))
    (card,) = told.gpus

    assert (card.name, card.pci_id, card.vram_bytes) == ("AMD GPU 1002:6861", "1002:6861", 16 * GIB)
    assert (card.pcie_max, told.driver, told.uuids) == ("gen3 x16", "amdgpu 5.9.25", ("02150e7d042a1124",))


def test_rocm_smi_is_read_in_its_new_shape_after_a_warning() -> None:
    told = read_capture("WARNING: AMD GPU device(s) is/are in a low-power state.\n" + json.dumps(ROCM_SMI_NEW))
    (card,) = told.gpus

    assert (card.name, card.architecture) == ("AMD Radeon RX 6700/6700 XT / 6800M", "gfx1031")
    assert (card.vram_bytes, card.pcie_max) == (12 * GIB, "gen4 x16")


def test_a_part_on_the_processor_is_unified_in_captures_too() -> None:
    card = {"Device ID": "0x1586", "VRAM Total Memory (B)": str(GIB // 2), "GTT Total Memory (B)": str(64 * GIB)}
    (found,) = read_capture(json.dumps({"card0": card})).gpus

    assert (found.unified, found.vram_bytes, found.usable_bytes) == (True, None, 64 * GIB + GIB // 2)


@pytest.mark.parametrize("broken", [None, True, [], {}, "x", -1, "N/A", "9" * 40, "\x1b[0m"])
def test_odd_values_in_json_are_no_values(broken: object) -> None:
    for capture in (AMD_SMI_NEW["gpu_data"][0], AMD_SMI_OLD[0]):
        for section in ("asic", "bus", "vram", "driver"):
            odd = {**capture, section: dict.fromkeys(capture[section], broken)}
            told = read_capture(json.dumps([odd]))
            assert all(card.name.isprintable() for card in told.gpus)
    card = dict.fromkeys(ROCM_SMI_NEW["card0"], broken)
    assert read_capture(json.dumps({"card0": card, "system": broken})).status == "present"


def test_odd_contents_of_files_are_no_facts(tmp_path: Path) -> None:
    odd = dict.fromkeys(DISCRETE, "\x00ÿ 999999999999999999999999999999999999 \x1b[31m\n" * 3)
    kept = {f"{DEVICE}/vendor": "0x1002\n", f"{DEVICE}/mem_info_vram_total": "0\n"}
    (card,) = answer(write(tmp_path, odd | kept)).gpus

    assert card.name.isprintable()
    assert card.vram_bytes is None
