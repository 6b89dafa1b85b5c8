"""Replays what NVML answers: there was no GPU here. See recorded_nvml."""

from typing import Any

import pytest

from schema.host import Gpu
from tests.recorded_nvml import A100, A100_IN_SLICES, GB10, LOST_GPU, T4, VIRTUAL, BrokenNvml, RecordedNvml, StuckNvml
from worker.fingerprint import nvml
from worker.fingerprint.evidence import Notes
from worker.fingerprint.gpu_found import Told

GIB = 1 << 30


def told(*devices: dict[str, Any], machine: int | None = None, notes: Notes | None = None) -> Told:
    answer = nvml.read(RecordedNvml(*devices), notes or Notes(), machine)
    assert answer is not None
    return answer


def test_a_t4_as_replayed_tells_all_that_a_roofline_needs() -> None:
    (found,) = told(T4).found

    assert found.gpu == Gpu(
        vendor="NVIDIA",
        name="Tesla T4",
        vram_bytes=15 * GIB,
        pci_id="10de:1eb8",
        memory_bus_bits=256,
        max_memory_clock_hz=5_001_000_000,
        architecture="7.5",
        pcie_max="gen3 x16",
        n_cores=2560,
    )
    assert found.gpu.theoretical_bandwidth_bytes_per_second == 320_064_000_000
    assert (found.bus_id, found.uuid) == ("0000:00:1e.0", "GPU-00000000-1111-2222-3333-444444444444")
    assert found.settings == "power limit 70 W, ECC on, persistence off"


def test_an_a100_as_replayed_has_the_bandwidth_of_its_data_sheet() -> None:
    (found,) = told(A100).found

    assert found.gpu.theoretical_bandwidth_bytes_per_second == 2_039_040_000_000
    assert (found.gpu.architecture, found.gpu.pcie_max, found.gpu.mig_profile) == ("8.0", "gen4 x16", None)


def test_driver_and_runtime_are_named_with_their_versions() -> None:
    answer = told(T4)

    assert (answer.driver, answer.runtime) == ("nvidia 535.54.03", "CUDA 12.2")


def test_a_gpu_cut_into_slices_is_its_slices_with_profile_and_own_memory() -> None:
    small, shared = told(A100_IN_SLICES).found

    assert small.gpu.name == "NVIDIA A100-SXM4-80GB MIG 1g.10gb"
    assert (small.gpu.mig_profile, small.gpu.vram_bytes) == ("1g.10gb", 10 * GIB)
    assert (shared.gpu.mig_profile, shared.gpu.vram_bytes) == ("1c.2g.20gb", 20 * GIB)
    # The width and the clock are the whole card's, of which a slice has an unknown part.
    assert small.gpu.theoretical_bandwidth_bytes_per_second is None
    assert small.uuid == "MIG-aaaaaaaa-0000-0000-0000-000000000001"


def test_slices_of_two_profiles_are_two_kinds_of_hardware() -> None:
    small, shared = told(A100_IN_SLICES).found

    assert small.gpu.hardware_facts != shared.gpu.hardware_facts


def test_mig_mode_without_an_instance_leaves_nothing_to_compute_on() -> None:
    answer = told({**A100_IN_SLICES, "slices": {}})

    assert (answer.found, answer.unusable) == ((), ("GPU 0 is in MIG mode and has no instance",))


def test_a_gpu_without_memory_of_its_own_has_the_machines() -> None:
    notes = Notes()
    (found,) = told(GB10, machine=128 * GIB, notes=notes).found

    assert (found.gpu.unified, found.gpu.vram_bytes) == (True, 128 * GIB)
    assert found.gpu.memory_bus_bits is None
    assert found.bus_id == "000f:01:00.0"
    assert "nvml: nvmlDeviceGetMemoryInfo: Not Supported" in notes.errors


def test_a_virtual_gpu_that_hides_its_memory_does_not_have_the_machines() -> None:
    (found,) = told(VIRTUAL, machine=64 * GIB).found

    assert (found.gpu.unified, found.gpu.vram_bytes, found.gpu.max_memory_clock_hz) == (False, None, None)


def test_a_lost_gpu_is_named_and_the_others_stay() -> None:
    answer = told(LOST_GPU, T4)

    assert [one.gpu.name for one in answer.found] == ["Tesla T4"]
    assert answer.unusable == ("GPU 0 is lost to its driver",)


def test_a_gpu_that_refuses_everything_but_its_name_is_there_without_facts() -> None:
    (found,) = told({"DeviceGetName": b"NVIDIA A10", "DeviceGetVirtualizationMode": 2}).found

    assert found.gpu == Gpu(vendor="NVIDIA", name="NVIDIA A10")
    assert (found.bus_id, found.uuid, found.settings) == (None, None, None)


def test_every_refused_call_is_named_once() -> None:
    notes = Notes()
    told(GB10, GB10, notes=notes)

    assert len(notes.errors) == len(set(notes.errors))
    assert any("nvmlDeviceGetMemoryBusWidth: Not Supported" in line for line in notes.errors)


@pytest.mark.parametrize("broken", [None, "", b"\xff\xfe\0", 7, [], "x" * 5000, "\x1b[31mred\n"])
def test_an_answer_of_the_wrong_kind_is_no_answer(broken: object) -> None:
    wrong = {name: broken for name in A100 if name != "DeviceGetMigMode"}
    (found,) = told({**wrong, "DeviceGetMigMode": broken}).found

    assert found.gpu.name.isprintable()
    assert len(found.gpu.name) <= 100
    assert found.gpu.vram_bytes is None


def test_an_old_binding_that_lacks_a_function_leaves_one_fact_empty() -> None:
    class Old(RecordedNvml):
        def __getattr__(self, name: str) -> Any:
            if name == "nvmlDeviceGetMemoryBusWidth":
                raise AttributeError(name)
            return super().__getattr__(name)

    answer = nvml.read(Old(T4), Notes(), None)

    assert answer is not None
    assert answer.found[0].gpu.memory_bus_bits is None
    assert answer.found[0].gpu.n_cores == 2560


def test_a_library_that_is_not_there_is_a_note() -> None:
    notes = Notes()

    assert nvml.read(BrokenNvml("pynvml"), notes, None) is None
    assert notes.errors == ["nvml: nvmlInit: code 12"]


def test_a_driver_that_never_answers_is_left_behind() -> None:
    stuck, notes = StuckNvml(), Notes()
    answer = nvml.read(stuck, notes, None, seconds=0.05)
    stuck.released.set()

    assert answer == Told(unusable=("NVIDIA's driver does not answer",))
    assert notes.errors == ["nvml: the driver did not answer within 0.05 s"]
