import ctypes
import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.estimate import capacity_bytes
from schema.devices import gpu_memory_bytes, one_each
from schema.host import Build, Device, Fingerprint, Gpu
from tests.factories import make_build, make_fingerprint
from tests.shared import CASES, needs_cases
from worker import backend
from worker.llama_bench import find_llama_bench
from worker.llama_log import LogText

GIB = 1 << 30


def names(devices: list[Device]) -> list[list[str]]:
    return [[device.name for device in group] for group in one_each(devices)]


def test_one_gpu_under_the_names_of_two_back_ends_is_one() -> None:
    devices = [
        Device(name="CUDA0", description="NVIDIA GeForce RTX 3090"),
        Device(name="Vulkan0", description="NVIDIA GeForce RTX 3090 (NVK GA102)"),
    ]

    assert names(devices) == [["CUDA0", "Vulkan0"]]


def test_one_part_under_three_names_is_one() -> None:
    devices = [
        Device(name="ROCm0", description="AMD Radeon Graphics, gfx1151 (0x1151)"),
        Device(name="Vulkan0", description="Radeon 8060S Graphics (RADV GFX1151)"),
        Device(name="SYCL0", description="Radeon 8060S Graphics (AMD open-source driver)"),
    ]

    assert names(devices) == [["ROCm0", "Vulkan0", "SYCL0"]]


def test_two_cards_of_one_kind_are_two_under_each_back_end() -> None:
    devices = [Device(name=name, description="Tesla T4") for name in ("CUDA0", "CUDA1", "Vulkan0", "Vulkan1")]

    assert names(devices) == [["CUDA0", "Vulkan0"], ["CUDA1", "Vulkan1"]]


def test_places_on_the_bus_decide_before_names() -> None:
    devices = [
        Device(name="CUDA0", description="Tesla T4", bus_id="0000:01:00.0"),
        Device(name="CUDA1", description="Tesla T4", bus_id="0000:02:00.0"),
        Device(name="Vulkan0", description="Tesla T4", bus_id="0000:02:00.0"),
        Device(name="Vulkan1", description="AMD Radeon Graphics", bus_id="0000:01:00.0"),
    ]

    assert names(devices) == [["CUDA0", "Vulkan1"], ["CUDA1", "Vulkan0"]]


def test_a_name_without_meaning_is_not_matched_where_there_are_several() -> None:
    devices = [
        Device(name="ROCm0", description="AMD Radeon Graphics"),
        Device(name="Vulkan0", description="AMD Radeon RX 6900 XT"),
        Device(name="Vulkan1", description="Radeon 8060S Graphics"),
    ]

    assert len(names(devices)) == 3


def test_a_device_of_another_machine_is_never_one_of_ours() -> None:
    devices = [
        Device(name="CUDA0", description="Tesla T4"),
        Device(name="RPC0", description="127.0.0.1:50052"),
    ]

    assert names(devices) == [["CUDA0"], ["RPC0"]]


@needs_cases
def test_the_collected_part_with_three_names_is_one_device() -> None:
    lines = (CASES / "G9/one_apu_three_names.txt").read_text().splitlines()
    told = {line.partition(": ")[0].strip(): line.partition(": ")[2].strip() for line in lines}
    rocm = told["ROCm"].partition(": ")[2].partition(", VMM")[0]
    vulkan = [told[f"Vulkan ({driver})"].partition("= ")[2].partition(" | ")[0] for driver in ("radv", "amdvlk")]
    devices = [Device(name=f"{kind}0", description=text) for kind, text in zip("abc", [rocm, *vulkan], strict=True)]

    assert len(one_each(devices)) == 1


@needs_cases
def test_the_collected_box_of_four_makers_has_four_devices() -> None:
    gpus = json.loads((CASES / "G9/mixed_box.json").read_text())["gpus"]
    devices = [Device(name=f"Vulkan{one['index']}", description=one["name"]) for one in gpus]
    cuda = [Device(name=f"CUDA{n}", description=gpus[index]["name"]) for n, index in enumerate((0, 2))]

    assert names([*devices, *cuda]) == [["Vulkan0", "CUDA0"], ["Vulkan1"], ["Vulkan2", "CUDA1"], ["Vulkan3"]]


def with_devices(*devices: Device, gpus: tuple[Gpu, ...] = ()) -> Fingerprint:
    fingerprint = make_fingerprint(build=make_build(offload_devices=devices))
    return with_gpus(fingerprint, gpus)


def with_gpus(fingerprint: Fingerprint, gpus: tuple[Gpu, ...]) -> Fingerprint:
    return replace(fingerprint, hardware=replace(fingerprint.hardware, gpus=gpus, memory_gib=64))


T4 = Gpu(vendor="NVIDIA", name="Tesla T4", vram_bytes=15 * GIB)
GB10 = Gpu(vendor="NVIDIA", name="NVIDIA GB10", vram_bytes=64 * GIB, unified=True)
HALO = Gpu(vendor="AMD", name="Radeon 8060S", vram_bytes=64 * GIB, unified=True, usable_bytes=48 * GIB)


def test_what_the_engines_device_reports_counts_before_the_driver() -> None:
    device = Device(name="CUDA0", description="Tesla T4", memory_bytes=14 * GIB)

    assert gpu_memory_bytes(with_devices(device, gpus=(T4,))) == (14 * GIB, 0)


def test_one_gpu_under_two_back_ends_is_counted_once() -> None:
    devices = [Device(name=name, description="Tesla T4", memory_bytes=14 * GIB) for name in ("CUDA0", "Vulkan0")]

    assert gpu_memory_bytes(with_devices(*devices, gpus=(T4,))) == (14 * GIB, 0)


def test_a_device_that_does_not_tell_its_memory_leaves_it_to_the_driver() -> None:
    assert gpu_memory_bytes(with_devices(Device(name="CUDA0", description="Tesla T4"), gpus=(T4,))) == (15 * GIB, 0)


def test_memory_behind_rpc_is_not_this_machines() -> None:
    device = Device(name="RPC0", description="127.0.0.1:50052", memory_bytes=99 * GIB)

    assert gpu_memory_bytes(with_devices(device)) == (0, 0)


@pytest.mark.parametrize(
    ("gpu", "layers", "gib"),
    [(GB10, "all", 64), (GB10, 10, 64), (HALO, "all", 48), (HALO, 10, 64), (T4, "all", 15), (T4, 10, 79)],
)
def test_memory_shared_with_the_machine_is_counted_once(gpu: Gpu, layers: int | str, gib: int) -> None:
    fingerprint = with_gpus(make_fingerprint(), (gpu,))

    assert capacity_bytes(fingerprint, layers, True) == gib * GIB


def test_a_build_is_the_same_with_another_card_beside_it() -> None:
    one = Build(binding="b", offload_devices=(Device(name="CUDA0", description="Tesla T4"),))
    other = Build(binding="b")

    assert one.build_id == other.build_id


class FakeLibrary:
    """Stands for ggml with devices given as (name, description, type, bytes, place)."""

    def __init__(self, *devices: tuple[str, str, int, int, str | None], shift: bool = False) -> None:
        self.rows, self.shift = devices, shift

    def ggml_backend_dev_count(self) -> int:
        return len(self.rows)

    def ggml_backend_dev_get(self, index: int) -> int:
        return index

    def ggml_backend_dev_name(self, handle: int) -> bytes:
        return self.rows[handle][0].encode()

    def ggml_backend_dev_description(self, handle: int) -> bytes:
        return self.rows[handle][1].encode()

    def ggml_backend_dev_type(self, handle: int) -> int:
        return self.rows[handle][2]

    def ggml_backend_dev_memory(self, handle: int, free: object, total: object) -> None:
        total._obj.value = self.rows[handle][3]  # type: ignore[attr-defined]

    def ggml_backend_dev_get_props(self, handle: int, reference: object) -> None:
        name, _, kind, total, place = self.rows[handle]
        properties = reference._obj  # type: ignore[attr-defined]
        properties.name, properties.type = name.encode(), kind
        properties.memory_total = 0 if self.shift else total
        if place:
            self.kept = ctypes.create_string_buffer(place.encode())
            properties.device_id = ctypes.addressof(self.kept)


def test_devices_tell_their_memory_and_their_place() -> None:
    library = FakeLibrary(
        ("CUDA0", "NVIDIA GeForce RTX 5080", backend.GPU, 16 * GIB, "0000:01:00.0"),
        ("Metal", "Apple M2 Max", backend.IGPU, 72 * GIB, "Apple M2 Max"),
        ("BLAS", "OpenBLAS", 3, 0, None),
        ("CPU", "AMD EPYC", backend.CPU, 64 * GIB, None),
    )

    assert backend.offload_devices(library) == (
        Device(
            name="CUDA0",
            description="NVIDIA GeForce RTX 5080",
            memory_bytes=16 * GIB,
            bus_id="0000:01:00.0",
            unified=False,
        ),
        Device(name="Metal", description="Apple M2 Max", memory_bytes=72 * GIB, unified=True),
    )


def test_a_library_whose_structure_is_another_tells_no_place() -> None:
    library = FakeLibrary(("CUDA0", "Tesla T4", backend.GPU, 15 * GIB, "0000:01:00.0"), shift=True)

    assert [device.bus_id for device in backend.offload_devices(library)] == [None]


def test_the_log_names_the_devices_so_that_another_card_does_not_change_what_a_result_says() -> None:
    log = LogText()
    for text in (
        "CUDA0 (NVIDIA GeForce RTX 5080) (0000:01:00.0) - 15000 MiB free\n",
        "Vulkan1 (Radeon 8060S Graphics (RADV GFX1151)) (unknown id) - 9 MiB free\n",
        "CUDA1 (NVIDIA GeForce GTX 1060 6GB) - 6000 MiB free\n",
    ):
        log.add(2, f"llama_model_load_from_file_impl: using device {text}")

    assert log.devices_named() == [
        "CUDA0 (NVIDIA GeForce RTX 5080) (0000:01:00.0)",
        "Vulkan1 (Radeon 8060S Graphics (RADV GFX1151))",
        "CUDA1 (NVIDIA GeForce GTX 1060 6GB)",
    ]
    assert log.devices_used() == ["CUDA0", "Vulkan1", "CUDA1"]


def test_a_llama_bench_lists_its_devices_with_their_memory(tmp_path: Path) -> None:
    program = tmp_path / "llama-bench"
    program.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "--help) echo '  -p, --n-prompt <n>';;\n"
        "--list-devices) echo 'Available devices:'\n"
        "  echo '  CUDA0: NVIDIA GeForce RTX 3090 (24126 MiB, 23000 MiB free)'\n"
        "  echo '  BLAS: OpenBLAS (0 MiB, 0 MiB free)';;\n"
        "esac\n"
    )
    program.chmod(0o755)

    assert find_llama_bench(str(program)).offload_devices == (
        Device(name="CUDA0", description="NVIDIA GeForce RTX 3090", memory_bytes=24126 << 20),
    )
