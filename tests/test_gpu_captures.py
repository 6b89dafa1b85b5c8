"""Every collected capture of nvidia-smi and rocm-smi is read, where the recorded machines are at hand."""

from pathlib import Path

import pytest

from tests.shared import unpacked
from worker.fingerprint.gpu import read_capture


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    target = unpacked(tmp_path_factory.mktemp("captures"), "*tg-gpu-*")
    return [path for path in sorted(target.rglob("*")) if path.suffix in (".xml", ".json") and _is_capture(path)]


def _is_capture(path: Path) -> bool:
    text = path.read_text("utf-8", "replace")
    return "<nvidia_smi_log" in text or '"card0"' in text or "gpu_data" in text


def test_every_capture_tells_each_gpus_name_memory_and_chip(captures: list[Path]) -> None:
    assert len(captures) >= 10
    for path in captures:
        told = read_capture(path.read_text("utf-8", "replace"))
        assert told.status == "present", path
        assert told.gpus, path
        assert told.driver or "driver_version" not in path.read_text("utf-8", "replace"), path
        for gpu in told.gpus:
            assert not gpu.name.startswith("unnamed"), path
            assert gpu.vram_bytes, path
            assert gpu.pci_id or gpu.vendor == "NVIDIA", path


def test_the_ids_of_two_captures_of_one_card_agree(captures: list[Path]) -> None:
    cards = {path.parent.parent.name: read_capture(path.read_text("utf-8", "replace")).gpus for path in captures}
    radeons = {name: gpus for name, gpus in cards.items() if "rx6700xt" in name}

    assert len(radeons) == 3
    assert len({tuple(gpu.hardware_facts for gpu in gpus) for gpus in radeons.values()}) <= 1
