from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from schema.host import Gpu
from tests.recorded_nvml import A100, GB10, LOST_GPU, T4, BrokenNvml, RecordedNvml, StuckNvml
from tests.trees import write
from worker.fingerprint import gpu, nvml
from worker.fingerprint.evidence import Notes

GIB = 1 << 30
VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
BUS = "sys/bus/pci/devices"
CARD = {f"{BUS}/0000:07:00.0/vendor": "0x10de\n", f"{BUS}/0000:07:00.0/device": "0x20b0\n"}
ON_THE_BUS = {**CARD, f"{BUS}/0000:07:00.0/class": "0x030200\n"}
BMC = {f"{BUS}/0000:03:00.0/vendor": "0x1a03\n", f"{BUS}/0000:03:00.0/class": "0x030000\n"}
INFORMATION = "Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 100\nBus Location: \t 0000:07:00.0\n"
DRIVER = {
    **ON_THE_BUS,
    "proc/driver/nvidia/version": VERSION,
    "proc/driver/nvidia/gpus/0000:07:00.0/information": INFORMATION,
}


def answer(root: Path, environ: Mapping[str, str] | None = None, nvml: ModuleType | None = None) -> gpu.Gpus:
    return gpu.read(root, Notes(), environ or {}, nvml)


def test_nvml_is_asked_first_and_let_go(tmp_path: Path) -> None:
    nvml = RecordedNvml(A100)
    found = answer(write(tmp_path, {**DRIVER, "dev/nvidia0": ""}), nvml=nvml)

    assert (found.status, [one.name for one in found.gpus]) == ("present", ["NVIDIA A100-SXM4-80GB"])
    assert (found.driver, found.runtime, found.n_visible) == ("nvidia 535.54.03", "CUDA 12.2", 1)
    assert nvml.shut_down


def test_the_order_in_which_the_driver_counts_does_not_matter(tmp_path: Path) -> None:
    root = write(tmp_path, DRIVER)

    assert answer(root, nvml=RecordedNvml(T4, A100)) == answer(root, nvml=RecordedNvml(A100, T4))


def test_a_gpu_without_memory_of_its_own_has_as_much_as_the_machine(tmp_path: Path) -> None:
    root = write(tmp_path, {**DRIVER, "proc/meminfo": "MemTotal:  125400000 kB\n"})
    (gb10,) = answer(root, nvml=RecordedNvml(GB10)).gpus

    assert (gb10.unified, gb10.vram_bytes) == (True, 128 * GIB)


def test_a_lost_gpu_beside_a_sound_one_is_noted(tmp_path: Path) -> None:
    notes = Notes()
    found = gpu.read(write(tmp_path, DRIVER), notes, {}, RecordedNvml(LOST_GPU, T4))

    assert (found.status, [one.name for one in found.gpus]) == ("present", ["Tesla T4"])
    assert "gpus: GPU 0 is lost to its driver" in notes.errors


def test_a_machine_whose_only_gpu_is_lost_has_one_that_is_not_visible(tmp_path: Path) -> None:
    assert answer(write(tmp_path, DRIVER), nvml=RecordedNvml(LOST_GPU)).status == "not visible"


def test_without_nvml_the_driver_is_read_where_a_device_node_lets_us_use_it(tmp_path: Path) -> None:
    found = answer(write(tmp_path, {**DRIVER, "dev/nvidia0": ""}))

    assert found.status == "present"
    assert found.gpus == (Gpu(vendor="NVIDIA", name="NVIDIA A100-SXM4-40GB", pci_id="10de:20b0"),)


@pytest.mark.parametrize(
    "files",
    [DRIVER, ON_THE_BUS, {"dev/dxg": ""}, {"proc/device-tree/compatible": "nvidia,p3450\0nvidia,tegra210\0"}],
    ids=["container without devices", "no driver", "Windows subsystem", "Tegra"],
)
def test_a_gpu_that_we_cannot_use_is_not_visible_which_is_not_none(tmp_path: Path, files: dict[str, str]) -> None:
    notes = Notes()
    found = gpu.read(write(tmp_path, files), notes, {})

    assert found == gpu.Gpus(status="not visible", n_visible=0, driver=found.driver)
    assert any("cannot be used from here" in line for line in notes.errors)


def test_a_machine_with_a_bus_and_no_gpu_has_none(tmp_path: Path) -> None:
    assert answer(write(tmp_path, BMC)) == gpu.Gpus(status="none", n_visible=0)


def test_a_system_that_shows_no_devices_is_unknown(tmp_path: Path) -> None:
    assert answer(tmp_path) == gpu.Gpus(status="unknown")


@pytest.mark.parametrize(
    ("value", "status", "n_visible"),
    [
        ("-1", "not visible", 0),
        ("", "not visible", 0),
        ("NoDevFiles", "not visible", 0),
        ("void", "not visible", 0),
        ("0", "present", 1),
        ("1,0", "present", 2),
        ("all", "present", 2),
        ("0,-1", "present", 1),
        ("GPU-5555", "present", 1),
        ("GPU-5d5ba0d6", "not visible", 0),
        ("GPU-", "not visible", 0),
    ],
)
def test_a_variable_may_hide_gpus_by_index_or_by_the_beginning_of_a_uuid(
    tmp_path: Path, value: str, status: str, n_visible: int
) -> None:
    notes = Notes()
    found = gpu.read(write(tmp_path, DRIVER), notes, {"CUDA_VISIBLE_DEVICES": value}, RecordedNvml(T4, A100))

    assert (found.status, found.n_visible) == (status, n_visible)
    # The machine has both, whatever is hidden of them.
    assert len(found.gpus) == (2 if status == "present" else 0)
    assert any(f"CUDA_VISIBLE_DEVICES={value}" in line for line in notes.errors) == (n_visible < 2)


def test_the_container_runtimes_own_variable_may_be_void(tmp_path: Path) -> None:
    root = write(tmp_path, DRIVER)

    assert answer(root, {"NVIDIA_VISIBLE_DEVICES": "void"}, RecordedNvml(A100)).status == "not visible"
    assert answer(root, {"NVIDIA_VISIBLE_DEVICES": "all"}, RecordedNvml(A100)).status == "present"
    assert answer(root, {"NVIDIA_VISIBLE_DEVICES": "GPU-other"}, RecordedNvml(A100)).status == "present"


def test_a_driver_that_fails_is_noted_and_not_raised(tmp_path: Path) -> None:
    notes = Notes()
    found = gpu.read(write(tmp_path, DRIVER), notes, {}, BrokenNvml("pynvml"))

    assert found.status == "not visible"
    assert any("nvmlInit: code 12" in line for line in notes.errors)


def test_a_driver_that_never_answers_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = StuckNvml()
    monkeypatch.setattr(nvml, "SECONDS", 0.05)
    notes = Notes()
    found = gpu.read(write(tmp_path, DRIVER), notes, {}, stuck)
    stuck.released.set()

    assert found.status == "not visible"
    assert "nvml: the driver did not answer within 0.05 s" in notes.errors


def test_hiding_one_vendor_leaves_the_other(tmp_path: Path) -> None:
    card = "sys/class/drm/card0/device"
    amd = {f"{card}/vendor": "0x1002", f"{card}/device": "0x744c", f"{card}/mem_info_vram_total": f"{8 * GIB}"}
    found = answer(write(tmp_path, {**DRIVER, **amd}), {"CUDA_VISIBLE_DEVICES": "-1"}, RecordedNvml(A100))

    assert (found.status, [one.vendor for one in found.gpus]) == ("present", ["AMD"])


def test_what_is_kept_for_a_boot_is_dropped_when_a_driver_appears(tmp_path: Path) -> None:
    before = gpu.cache_key(write(tmp_path, ON_THE_BUS), {})
    after = gpu.cache_key(write(tmp_path, {**DRIVER, "dev/nvidia0": ""}), {})

    assert before != after
    assert after == gpu.cache_key(tmp_path, {})
    assert after != gpu.cache_key(tmp_path, {"CUDA_VISIBLE_DEVICES": "-1"})
