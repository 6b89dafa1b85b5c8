from pathlib import Path

import pytest

from tests.trees import write
from worker.fingerprint import memory
from worker.fingerprint.evidence import Notes

MIB, GIB = 1 << 20, 1 << 30
BLOCKS = "sys/devices/system/memory"
SIZES_GIB = (1, 2, 4, 6, 7, 8, 10, 12, 16, 20, 24, 28, 32, 48, 64, 96, 128, 1024)
BUILT = [512 * MIB, 768 * MIB, *(n * GIB for n in SIZES_GIB)]


def meminfo(size: int) -> dict[str, str]:
    return {"proc/meminfo": f"MemTotal:       {size // 1024} kB\nMemFree:        23818848 kB\n"}


def blocks(count: int, size: int = 128 * MIB) -> dict[str, str | int]:
    states: dict[str, str | int] = {f"{BLOCKS}/memory{n}/state": "online\n" for n in range(count)}
    return {**states, f"{BLOCKS}/block_size_bytes": f"{size:x}\n"}


def installed(root: Path) -> int | None:
    return memory.installed_bytes(root, Notes())


def test_memory_is_counted_in_blocks_where_the_kernel_shows_them(tmp_path: Path) -> None:
    root = write(tmp_path, {**meminfo(24 * GIB - 800 * MIB), **blocks(192), f"{BLOCKS}/auto_online_blocks": "online"})
    notes = Notes()

    assert memory.installed_bytes(root, notes) == 24 * GIB
    assert notes.sources["memory_bytes"] == "/sys/devices/system/memory"


def test_blocks_give_sizes_that_no_rounding_would(tmp_path: Path) -> None:
    assert installed(write(tmp_path, {**meminfo(9 * GIB - MIB), **blocks(72)})) == 9 * GIB


@pytest.mark.parametrize("size", BUILT)
def test_kernels_that_keep_up_to_six_per_cent_see_the_memory_that_is_built_in(size: int) -> None:
    seen = {memory.rounded_up(int(size * (1 - kept / 1000))) for kept in range(61)}

    assert seen == {size}


def test_the_next_larger_size_is_another_one() -> None:
    assert [memory.rounded_up(size + 1) for size in (GIB, 10 * GIB, 28 * GIB)] == [GIB * 5 // 4, 12 * GIB, 32 * GIB]
    assert memory.rounded_up(1) == MIB


def test_without_blocks_memtotal_is_rounded_up(tmp_path: Path) -> None:
    notes = Notes()

    assert memory.installed_bytes(write(tmp_path, meminfo(15_800 * MIB)), notes) == 16 * GIB
    assert notes.sources["memory_bytes"] == "MemTotal"


@pytest.mark.parametrize(
    "odd",
    [
        blocks(3),
        {f"{BLOCKS}/block_size_bytes": "no number\n", f"{BLOCKS}/memory0/state": "online"},
        {f"{BLOCKS}/block_size_bytes": "8000000\n"},
        {f"{BLOCKS}/memory0/state": "online"},
    ],
)
def test_blocks_that_are_not_all_or_have_no_size_are_passed_over(tmp_path: Path, odd: dict[str, str | int]) -> None:
    assert installed(write(tmp_path, {**meminfo(8 * GIB - 300 * MIB), **odd})) == 8 * GIB


def test_memory_that_nothing_tells_is_none_with_a_reason(tmp_path: Path) -> None:
    notes = Notes()

    assert memory.installed_bytes(tmp_path, notes) is None
    assert notes.errors == ["memory_bytes: neither memory blocks in /sys nor MemTotal can be read"]


def test_gibibytes_are_rounded_up() -> None:
    assert [memory.in_gib(size) for size in (None, 512 * MIB, 24 * GIB)] == [None, 1, 24]
    assert memory.in_gib(memory.rounded_up(15_500 * MIB)) == 16


def test_this_machine_has_memory() -> None:
    found = installed(Path("/"))

    assert found
    assert found >= (memory.total_bytes(Path("/")) or 0)
