import csv

import pytest

from schema.gpu_name import amd_target, gpu_key, same_gpu
from tests.shared import CASES, needs_cases


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 2080 Ti"),
        ("Tesla T4", "NVIDIA Tesla T4"),
        ("Tesla T4", "NVIDIA T4"),
        ("RTX 3090", "NVIDIA GeForce RTX 3090"),
        ("NVIDIA Corporation GeForce GT 1030", "GeForce GT 1030"),
        ("NVIDIA RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation"),
        ("NVIDIA A100-PCIE-40GB", "NVIDIA A100 PCIe 40GB"),
        ("AMD Radeon(TM) 780M", "AMD Radeon 780M Graphics (RADV PHOENIX)"),
        ("Radeon 8060S Graphics (RADV GFX1151)", "Radeon 8060S Graphics (AMD open-source driver)"),
        ("AMD Radeon RX 7900 XTX (radeonsi, navi31, LLVM 17.0.6, DRM 3.54)", "AMD Radeon RX 7900 XTX"),
        ("Intel(R) UHD Graphics 770", "Mesa Intel(R) UHD Graphics 770 (ADL-S GT1)"),
        ("NVIDIA GeForce RTX 3090 (24576 MiB)", "NVIDIA GeForce RTX 3090 (24252 MiB)"),
    ],
)
def test_names_of_one_gpu_are_the_same(one: str, other: str) -> None:
    assert same_gpu(one, other) is True
    assert same_gpu(other, one) is True


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("NVIDIA RTX A6000", "NVIDIA RTX 6000 Ada Generation"),
        ("Quadro RTX 6000", "NVIDIA RTX 6000 Ada Generation"),
        ("NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"),
        ("NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3060 Laptop GPU"),
        ("NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3060 Ti"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe MIG 1g.10gb"),
        ("NVIDIA GeForce RTX 3060 (12288 MiB)", "NVIDIA GeForce RTX 3060 (8192 MiB)"),
        ("NVIDIA GeForce GTX 1060 6GB", "NVIDIA GeForce GTX 1060 3GB"),
        ("NVIDIA GeForce RTX 2080 Super with Max-Q Design", "NVIDIA GeForce RTX 2080 Super"),
        ("AMD Radeon RX 7900 XT", "AMD Radeon RX 7900 XTX"),
        ("Apple M1", "Apple M1 Pro"),
        ("AMD Radeon Graphics, gfx1150", "AMD Radeon Graphics, gfx1151"),
    ],
)
def test_names_of_unlike_gpus_are_not(one: str, other: str) -> None:
    assert same_gpu(one, other) is False
    assert same_gpu(other, one) is False


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (None, "Tesla T4"),
        ("", ""),
        ("NVIDIA Graphics Device", "NVIDIA Graphics Device"),
        ("AMD Radeon Graphics", "AMD Radeon(TM) Graphics"),
        ("Intel(R) Graphics", "Intel(R) Arc(TM) Graphics"),
        ("NVIDIA GeForce GTX 1070 (device id 1B07: really P102-100)", "NVIDIA GeForce GTX 1070 (device id 1B81)"),
        ("NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3060 (12288 MiB)"),
    ],
)
def test_names_that_cannot_tell_say_so(one: str | None, other: str | None) -> None:
    assert same_gpu(one, other) is None


def test_eight_cards_with_nearly_one_name_stay_eight() -> None:
    names = [
        *("NVIDIA RTX A6000", "NVIDIA RTX 6000 Ada Generation", "NVIDIA RTX PRO 6000 Blackwell Server Edition"),
        *("NVIDIA GeForce RTX 3060", "NVIDIA GeForce RTX 3060 Laptop GPU", "Tesla V100-SXM2-16GB"),
        *("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe MIG 1g.10gb"),
    ]

    assert len({gpu_key(name) for name in names}) == 8


@pytest.mark.parametrize(
    "name", ["", "Unknown", "AMD GPU 1002:744c", "unnamed NVIDIA GPU", "N/A", "VGA compatible controller", "NVIDIA"]
)
def test_what_any_gpu_could_be_called_is_no_name(name: str) -> None:
    assert gpu_key(name) is None


def test_amds_target_is_found_in_descriptions() -> None:
    assert amd_target("AMD Radeon Graphics, gfx1151 (0x1151), VMM: no") == "gfx1151"
    assert amd_target("Radeon 8060S Graphics (RADV GFX1151)") == "gfx1151"
    assert amd_target("AMD Instinct MI210 gfx90a:sramecc+") == "gfx90a"
    assert amd_target("Tesla T4") is None


@needs_cases
def test_the_collected_pairs_of_names_come_out_as_told() -> None:
    meant = {"yes": True, "no": False, "unsure": None}
    with (CASES / "G8/pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert len(rows) == 11
    assert [(row["a"], row["b"], same_gpu(row["a"], row["b"])) for row in rows] == [
        (row["a"], row["b"], meant[row["same"]]) for row in rows
    ]
