from pathlib import Path

from schema.host import Numa
from tests.trees import write
from worker.fingerprint import numa
from worker.fingerprint.evidence import Notes

NODES = "sys/devices/system/node"
ALL = frozenset(range(8))


def node(number: int, cpus: str, kib: int) -> dict[str, str]:
    return {
        f"{NODES}/node{number}/cpulist": cpus,
        f"{NODES}/node{number}/meminfo": f"Node {number} MemTotal:       {kib} kB\n",
    }


def test_memory_without_cpus_is_a_node_of_its_own(tmp_path: Path) -> None:
    files = node(0, "0-3", 97_500_000) | node(1, "4-7", 98_900_000) | node(2, "", 16_777_216)

    assert numa.read(write(tmp_path, files), Notes(), ALL, 8, 208) == (
        Numa(n_cpus=4, memory_gib=96),
        Numa(n_cpus=4, memory_gib=96),
        Numa(n_cpus=0, memory_gib=16),
    )


def test_cpus_that_are_off_are_on_no_node(tmp_path: Path) -> None:
    files = node(0, "0-3", 1 << 20) | node(1, "4-7", 1 << 20)
    found = numa.read(write(tmp_path, files), Notes(), frozenset({0, 1, 4}), 3, 2)

    assert [one.n_cpus for one in found] == [2, 1]


def test_a_single_node_is_the_same_as_a_kernel_without_nodes(tmp_path: Path) -> None:
    with_node = write(tmp_path / "a", node(0, "0-7", 15_900_000))

    assert numa.read(with_node, Notes(), ALL, 8, 16) == numa.read(tmp_path, Notes(), ALL, 8, 16)
    assert numa.read(tmp_path, Notes(), ALL, 8, 16) == (Numa(n_cpus=8, memory_gib=16),)


def test_memory_of_a_gpu_is_no_node(tmp_path: Path) -> None:
    files = node(0, "0-7", 1 << 20) | node(255, "", 16 << 20)
    files["proc/driver/nvidia/gpus/0004:04:00.0/numa_status"] = "Node: 255\nStatus: online\n"

    assert numa.read(write(tmp_path, files), Notes(), ALL, 8, 1) == (Numa(n_cpus=8, memory_gib=1),)


def test_firmware_that_lists_all_cpus_on_each_node_has_one_memory(tmp_path: Path) -> None:
    files = node(0, "0-7", 4 << 20) | node(1, "0-7", 4 << 20)

    assert numa.read(write(tmp_path, files), Notes(), ALL, 8, 8) == (Numa(n_cpus=8, memory_gib=8),)


def test_nodes_of_cpus_alone_have_no_memory_where_memory_is_on_nodes_of_its_own(tmp_path: Path) -> None:
    files = node(0, "0-3", 0) | node(1, "4-7", 0) | node(2, "", 0) | node(3, "", 4 << 20) | node(4, "", 4 << 20)
    found = numa.read(write(tmp_path, files), Notes(), ALL, 8, 8)

    assert found == (Numa(n_cpus=0, memory_gib=4), Numa(n_cpus=0, memory_gib=4))


def test_a_node_whose_slots_are_empty_is_one_without_memory(tmp_path: Path) -> None:
    found = numa.read(write(tmp_path, node(0, "0-3", 8 << 20) | node(1, "4-7", 0)), Notes(), ALL, 8, 8)

    assert found == (Numa(n_cpus=4, memory_gib=0), Numa(n_cpus=4, memory_gib=8))


def test_nodes_that_tell_nothing_are_counted(tmp_path: Path) -> None:
    files = {f"{NODES}/node{n}/cpulist": "nonsense" for n in range(2)}
    assert numa.read(write(tmp_path, files), Notes(), ALL, 8, 8) == (Numa(n_cpus=0), Numa(n_cpus=0))


def test_nothing_known_is_no_node_and_noted(tmp_path: Path) -> None:
    notes = Notes()
    assert numa.read(tmp_path, notes, frozenset(), None, None) == ()
    assert any(line.startswith("numa:") for line in notes.errors)
