from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from schema.host import Gpu
from worker.fingerprint import gpu
from worker.fingerprint.evidence import Notes

GIB = 1 << 30
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
BUS = "sys/bus/pci/devices"
A100 = {f"{BUS}/0000:07:00.0/vendor": "0x10de\n", f"{BUS}/0000:07:00.0/device": "0x20b0\n"}
ON_THE_BUS = {**A100, f"{BUS}/0000:07:00.0/class": "0x030200\n"}
BMC = {f"{BUS}/0000:03:00.0/vendor": "0x1a03\n", f"{BUS}/0000:03:00.0/class": "0x030000\n"}
INFORMATION = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 100\nBus Location: \t 0000:07:00.0\n"
DRIVER = {
    **ON_THE_BUS,
    "proc/driver/nvidia/version": VERSION,
    "proc/driver/nvidia/gpus/0000:07:00.0/information": INFORMATION,
}


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def answer(root: Path, environ: Mapping[str, str] | None = None, nvml: ModuleType | None = None) -> gpu.Gpus:
    return gpu.read(root, Notes(), environ or {}, nvml)


class FakeNvml(ModuleType):
    """Stands for pynvml with the devices given as (name, bytes, packed PCI id); None is `not supported`."""

    def __init__(self, *devices: tuple[Any, int | None, int | None]) -> None:
        super().__init__("pynvml")
        self.devices = devices
        self.shut_down = False

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's own name
        pass

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shut_down = True

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, handle: int) -> Any:  # noqa: N802
        return self.devices[handle][0]

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        if self.devices[handle][1] is None:
            raise RuntimeError("Not Supported")
        return SimpleNamespace(total=self.devices[handle][1])

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        if self.devices[handle][2] is None:
            raise RuntimeError("Not Supported")
        return SimpleNamespace(pciDeviceId=self.devices[handle][2])


class BrokenNvml(ModuleType):
    def nvmlInit(self) -> None:  # noqa: N802
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")


def test_nvml_tells_name_memory_and_pci_id(tmp_path: Path) -> None:
    nvml = FakeNvml(("NVIDIA A100-SXM4-40GB", 42_505_273_344, 0x20B010DE))

    assert answer(tree(tmp_path, DRIVER), nvml=nvml) == gpu.Gpus(
        gpus=(Gpu(vendor="NVIDIA", name="NVIDIA A100-SXM4-40GB", vram_bytes=40 * GIB, pci_id="10de:20b0"),),
        status="present",
    )
    assert nvml.shut_down


def test_a_call_that_a_device_does_not_support_leaves_one_field_empty(tmp_path: Path) -> None:
    found = answer(tree(tmp_path, DRIVER), nvml=FakeNvml((b"NVIDIA GB10", None, None)))

    assert found.gpus == (Gpu(vendor="NVIDIA", name="NVIDIA GB10"),)


def test_the_order_in_which_the_driver_counts_does_not_matter(tmp_path: Path) -> None:
    devices: list[tuple[Any, int | None, int | None]] = [("B", 8 * GIB, 0x2_10DE), ("A", 8 * GIB, 0x1_10DE)]

    assert answer(tree(tmp_path, DRIVER), nvml=FakeNvml(*devices)) == answer(tmp_path, nvml=FakeNvml(*devices[::-1]))


def test_without_nvml_the_driver_is_read_where_a_device_node_lets_us_use_it(tmp_path: Path) -> None:
    found = answer(tree(tmp_path, {**DRIVER, "dev/nvidia0": ""}))

    assert found.status == "present"
    assert found.gpus == (Gpu(vendor="NVIDIA", name="NVIDIA A100-SXM4-40GB", pci_id="10de:20b0"),)


@pytest.mark.parametrize(
    "files",
    [DRIVER, ON_THE_BUS, {"dev/dxg": ""}, {"proc/device-tree/compatible": "nvidia,p3450\0nvidia,tegra210\0"}],
    ids=["container without devices", "no driver", "Windows subsystem", "Tegra"],
)
def test_a_gpu_that_we_cannot_use_is_not_visible_which_is_not_none(tmp_path: Path, files: dict[str, str]) -> None:
    notes = Notes()
    found = gpu.read(tree(tmp_path, files), notes, {})

    assert found == gpu.Gpus(gpus=(), status="not visible")
    assert any("cannot be used from here" in line for line in notes.errors)


def test_a_machine_with_a_bus_and_no_gpu_has_none(tmp_path: Path) -> None:
    assert answer(tree(tmp_path, BMC)) == gpu.Gpus(status="none")


def test_a_system_that_shows_no_devices_is_unknown(tmp_path: Path) -> None:
    assert answer(tmp_path) == gpu.Gpus(status="unknown")


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ("-1", "not visible"),
        ("", "not visible"),
        ("NoDevFiles", "not visible"),
        ("0", "present"),
        ("GPU-5d5ba0d6", "present"),
        ("0,-1", "present"),
    ],
)
def test_a_variable_may_hide_every_gpu_by_index_or_by_uuid(tmp_path: Path, value: str, status: str) -> None:
    notes = Notes()
    nvml = FakeNvml(("NVIDIA A100", 40 * GIB, 0x20B010DE))
    found = gpu.read(tree(tmp_path, DRIVER), notes, {"CUDA_VISIBLE_DEVICES": value}, nvml)

    assert found.status == status
    assert bool(found.gpus) == (status == "present")
    assert any(f"CUDA_VISIBLE_DEVICES={value}" in line for line in notes.errors)


def test_the_container_runtimes_own_variable_may_be_void(tmp_path: Path) -> None:
    nvml = FakeNvml(("NVIDIA A100", 40 * GIB, 0x20B010DE))
    root = tree(tmp_path, DRIVER)

    assert answer(root, {"NVIDIA_VISIBLE_DEVICES": "void"}, nvml).status == "not visible"
    assert answer(root, {"NVIDIA_VISIBLE_DEVICES": "all"}, nvml).status == "present"


def test_a_driver_that_fails_is_noted_and_not_raised(tmp_path: Path) -> None:
    notes = Notes()
    found = gpu.read(tree(tmp_path, DRIVER), notes, {}, BrokenNvml("pynvml"))

    assert found.status == "not visible"
    assert any("nvmlInit: libnvidia-ml.so.1" in line for line in notes.errors)


def test_a_driver_that_never_answers_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    never = Event()

    class Stuck(ModuleType):
        def nvmlInit(self) -> None:  # noqa: N802
            never.wait()

    monkeypatch.setattr(gpu, "NVML_SECONDS", 0.05)
    notes = Notes()
    found = gpu.read(tree(tmp_path, DRIVER), notes, {}, Stuck("pynvml"))
    never.set()

    assert found.status == "not visible"
    assert "nvml: the driver did not answer within 0.05 s" in notes.errors


def test_amd_cards_are_read_from_sys_and_their_connectors_are_not_cards(tmp_path: Path) -> None:
    card = "sys/class/drm/card1"
    files = {
        f"{card}/device/vendor": "0x1002\n",
        f"{card}/device/device": "0x744c\n",
        f"{card}/device/mem_info_vram_total": f"{24 * GIB - 16 * 1024 * 1024}\n",
        f"{card}-DP-1/device/vendor": "0x1002\n",
        f"{card}-DP-1/device/mem_info_vram_total": "1\n",
    }

    assert answer(tree(tmp_path, files)) == gpu.Gpus(
        gpus=(Gpu(vendor="AMD", name="AMD GPU 1002:744c", vram_bytes=24 * GIB, pci_id="1002:744c"),), status="present"
    )


def test_hiding_one_vendor_leaves_the_other(tmp_path: Path) -> None:
    card = "sys/class/drm/card0/device"
    amd = {f"{card}/vendor": "0x1002", f"{card}/device": "0x744c", f"{card}/mem_info_vram_total": f"{8 * GIB}"}
    nvml = FakeNvml(("NVIDIA A100", 40 * GIB, 0x20B010DE))
    found = answer(tree(tmp_path, {**DRIVER, **amd}), {"CUDA_VISIBLE_DEVICES": "-1"}, nvml)

    assert (found.status, [one.vendor for one in found.gpus]) == ("present", ["AMD"])


def test_what_is_kept_for_a_boot_is_dropped_when_a_driver_appears(tmp_path: Path) -> None:
    before = gpu.cache_key(tree(tmp_path, ON_THE_BUS), {})
    after = gpu.cache_key(tree(tmp_path, {**DRIVER, "dev/nvidia0": ""}), {})

    assert before != after
    assert after == gpu.cache_key(tmp_path, {})
    assert after != gpu.cache_key(tmp_path, {"CUDA_VISIBLE_DEVICES": "-1"})
