"""Replays files of Intel's drivers and texts of macOS; there was no GPU here."""

import json
from pathlib import Path
from typing import Any

from schema.host import Gpu
from tests.trees import write
from worker.fingerprint import apple_gpu, gpu
from worker.fingerprint.evidence import Notes
from worker.fingerprint.gpu import read_capture

GIB = 1 << 30
INTEGRATED = {
    "sys/class/drm/card0/device/vendor": "0x8086\n",
    "sys/class/drm/card0/device/device": "0x4680\n",
    "sys/class/drm/card0/device/uevent": "DRIVER=i915\nPCI_CLASS=30000\nPCI_SLOT_NAME=0000:00:02.0\n",
    "usr/share/misc/pci.ids": (
        "8085  Other\n\t4680  Wrong\n8086  Intel Corporation\n\t4680  AlderLake-S GT1 [UHD Graphics 770]\n"
        "\t\t1028 0b10  Precision\n8087  Next\n\t4680  Wrong\n"
    ),
    "proc/meminfo": "MemTotal:       65500000 kB\n",
}
DISCRETE = {
    "sys/class/drm/card1/device/vendor": "0x8086\n",
    "sys/class/drm/card1/device/device": "0xe20b\n",
    "sys/class/drm/card1/device/uevent": "DRIVER=xe\nPCI_SLOT_NAME=0000:03:00.0\n",
    "sys/class/drm/card1/device/tile0/physical_vram_size_bytes": f"{12 * GIB - 5}\n",
    "sys/class/drm/card1/device/max_link_speed": "2.5 GT/s PCIe\n",
    "sys/class/drm/card1/device/max_link_width": "1\n",
}


def test_a_part_on_the_processor_has_the_machines_memory(tmp_path: Path) -> None:
    told = gpu.read(write(tmp_path, INTEGRATED), Notes(), {})

    assert told.gpus == (
        Gpu(vendor="Intel", name="Intel UHD Graphics 770", vram_bytes=64 * GIB, pci_id="8086:4680", unified=True),
    )
    assert told.driver == "i915 of the kernel"


def test_a_card_has_memory_of_its_own_and_its_false_link_is_left_out(tmp_path: Path) -> None:
    (card,) = gpu.read(write(tmp_path, DISCRETE), Notes(), {}).gpus

    assert card == Gpu(vendor="Intel", name="Intel Arc B580", vram_bytes=12 * GIB, pci_id="8086:e20b")


def test_a_card_without_a_size_is_measured_by_its_resizable_window(tmp_path: Path) -> None:
    window = "0x6000000000 0x6000ffffff 0x14220c\n0x0 0x0 0x0\n0x4000000000 0x43ffffffff 0x14220c\n"
    files = {name: text for name, text in DISCRETE.items() if "vram" not in name}
    large = write(tmp_path / "large", files | {"sys/class/drm/card1/device/resource": window})
    small = write(tmp_path / "small", files | {"sys/class/drm/card1/device/resource": window.replace("43ff", "400f")})

    assert gpu.read(large, Notes(), {}).gpus[0].vram_bytes == 16 * GIB
    assert gpu.read(small, Notes(), {}).gpus[0].vram_bytes is None


def test_a_gpu_that_no_driver_has_is_not_visible(tmp_path: Path) -> None:
    files = {
        "sys/bus/pci/devices/0000:00:02.0/vendor": "0x8086\n",
        "sys/bus/pci/devices/0000:00:02.0/class": "0x030000\n",
    }

    assert gpu.read(write(tmp_path, files), Notes(), {}).status == "not visible"


def test_intels_other_accelerators_are_no_gpus(tmp_path: Path) -> None:
    files = {
        "sys/bus/pci/devices/0000:00:0b.0/vendor": "0x8086\n",
        "sys/bus/pci/devices/0000:00:0b.0/class": "0x120000\n",
    }

    assert gpu.read(write(tmp_path, files), Notes(), {}).status == "none"


MAC: dict[str, Any] = {
    "SPDisplaysDataType": [
        {
            "_name": "Apple M2 Max",
            "spdisplays_mtlgpufamilysupport": "spdisplays_metal3",
            "spdisplays_ndrvs": [{"_name": "Color LCD"}],
            "spdisplays_vendor": "sppci_vendor_Apple",
            "sppci_bus": "spdisplays_builtin",
            "sppci_cores": "38",
            "sppci_device_type": "spdisplays_gpu",
            "sppci_model": "Apple M2 Max",
        }
    ]
}


def test_a_mac_tells_its_gpu_and_the_machines_memory() -> None:
    told = apple_gpu.read(MAC, "hw.memsize: 103079215104\niogpu.wired_limit_mb: 81920\n")

    assert told is not None
    assert [one.gpu for one in told.found] == [
        Gpu(
            vendor="Apple",
            name="Apple M2 Max",
            vram_bytes=96 * GIB,
            unified=True,
            usable_bytes=80 * GIB,
            n_cores=38,
        )
    ]


def test_a_wired_limit_of_zero_leaves_it_to_the_system() -> None:
    told = apple_gpu.read(MAC, "hw.memsize: 17179869184\niogpu.wired_limit_mb: 0\n")

    assert told is not None
    assert (told.found[0].gpu.vram_bytes, told.found[0].gpu.usable_bytes) == (16 * GIB, None)


def test_the_limit_changes_no_hardware() -> None:
    told = [apple_gpu.read(MAC, f"hw.memsize: {GIB}\niogpu.wired_limit_mb: {limit}") for limit in (0, 900)]

    assert len({one.found[0].gpu.hardware_facts for one in told if one}) == 1


def test_an_older_mac_has_a_card_with_memory_of_its_own() -> None:
    card = {
        "_name": "kHW_AMDRadeonPro5500MItem",
        "spdisplays_vendor": "sppci_vendor_amd",
        "spdisplays_vram": "8 GB",
        "sppci_model": "AMD Radeon Pro 5500M",
    }
    (found,) = read_capture(json.dumps({"SPDisplaysDataType": [card, "x", {}]})).gpus

    assert found == Gpu(vendor="AMD", name="AMD Radeon Pro 5500M", vram_bytes=8 * GIB)
