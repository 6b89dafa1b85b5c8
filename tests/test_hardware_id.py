import dataclasses
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from schema.host import Cache, CoreType, Hardware, Numa
from tests.trees import write
from worker.fingerprint.take import take

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
DMI = "sys/class/dmi/id"
INSTALLED_KIB = 48 << 20

BLOCK = """\
processor\t: {n}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 186
model name\t: 13th Gen Intel(R) Core(TM) i7-1370P
stepping\t: 2
flags\t\t: fpu lm avx avx2 fma hypervisor

"""


def listed(cpus: list[int]) -> str:
    return ",".join(map(str, sorted(cpus)))


def machine(order: list[int], total_kib: int = INSTALLED_KIB) -> dict[str, str]:
    """Two nodes, each of one fast core with two threads and two saving cores; `order` numbers the eight CPUs."""
    cores = [[0, 1], [2], [3], [4, 5], [6], [7]]
    files = {
        f"{CPUS}/online": "0-7",
        "sys/devices/cpu_core/cpus": listed([order[n] for n in (0, 1, 4, 5)]),
        "sys/devices/cpu_atom/cpus": listed([order[n] for n in (2, 3, 6, 7)]),
        "proc/cpuinfo": "".join(BLOCK.format(n=n) for n in range(8)),
        "proc/meminfo": f"MemTotal:       {total_kib} kB\n",
        "proc/sys/kernel/osrelease": "6.1.0",
        f"{DMI}/sys_vendor": "HP",
        f"{DMI}/product_name": "EliteBook",
        "sys/bus/pci/devices/0000:00:00.0/vendor": "0x8086\n",
    }
    for core in cores:
        numbers = [order[n] for n in core]
        size = "1280K" if len(core) == 2 else "2048K"
        for cpu in numbers:
            files |= {
                f"{CPUS}/cpu{cpu}/topology/thread_siblings_list": listed(numbers),
                f"{CPUS}/cpu{cpu}/topology/physical_package_id": "0",
                f"{CPUS}/cpu{cpu}/cache/index0/level": "2",
                f"{CPUS}/cpu{cpu}/cache/index0/type": "Unified",
                f"{CPUS}/cpu{cpu}/cache/index0/size": size,
                f"{CPUS}/cpu{cpu}/cache/index0/shared_cpu_list": listed(numbers),
                f"{CPUS}/cpu{cpu}/cpufreq/scaling_governor": "powersave",
            }
    for number, half in enumerate((order[:4], order[4:])):
        files[f"{NODES}/node{number}/cpulist"] = listed(half)
        files[f"{NODES}/node{number}/meminfo"] = f"Node {number} MemTotal: {total_kib // 2} kB\n"
    return files


def id_of(root: Path, files: Mapping[str, str]) -> str:
    return take(root / "home", None, root=write(root, files)).hardware.hardware_id


@pytest.fixture
def usual(tmp_path: Path) -> str:
    return id_of(tmp_path / "usual", machine(list(range(8))))


def test_the_numbering_of_cpus_does_not_move_the_id(tmp_path: Path, usual: str) -> None:
    for seed in range(20):
        order = list(range(8))
        random.Random(seed).shuffle(order)
        assert id_of(tmp_path / str(seed), machine(order)) == usual


@pytest.mark.parametrize("percent", [0, 0.5, 1, 2, 3, 4, 5, 6])
def test_what_a_kernel_keeps_of_the_memory_does_not_move_the_id(tmp_path: Path, usual: str, percent: float) -> None:
    assert id_of(tmp_path, machine(list(range(8)), int(INSTALLED_KIB * (1 - percent / 100)))) == usual


@pytest.mark.parametrize(
    "change",
    [
        {f"{DMI}/sys_vendor": "", f"{DMI}/product_name": ""},
        {f"{DMI}/product_serial": "CND1234567", f"{DMI}/product_uuid": "2f1c3a60-1111-2222-3333-444455556666"},
        {"proc/sys/kernel/osrelease": "6.18.0", "proc/version": "Linux version 6.18.0"},
        {f"{CPUS}/cpu{n}/cpufreq/scaling_governor": "performance" for n in range(8)},
        {"sys/hypervisor/type": "xen"},
    ],
    ids=["no DMI", "root", "kernel", "governor", "hypervisor named"],
)
def test_what_only_some_can_see_does_not_move_the_id(tmp_path: Path, usual: str, change: dict[str, str]) -> None:
    assert id_of(tmp_path, machine(list(range(8))) | change) == usual


CORE = CoreType(vendor="GenuineIntel", key="6-186-2", name="Raptor Cove", n_cores=2, threads_per_core=2)
HOST = Hardware(
    arch="x86_64",
    cpu_name="Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz",
    n_packages=1,
    n_cores_physical=2,
    n_cores_logical=4,
    core_types=(CORE,),
    caches=(Cache(level=3, kind="unified", size_bytes=1 << 20, instances=1),),
    numa=(Numa(n_cpus=4, memory_gib=8),),
    memory_gib=8,
)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: {"cpu_name": "Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz"},
        lambda one: {"n_cores_logical": 2},
        lambda one: {"core_types": (dataclasses.replace(CORE, n_cores=1), dataclasses.replace(CORE, n_cores=1))},
        lambda one: {"core_types": (dataclasses.replace(CORE, key="6-186-3"),)},
        lambda one: {"core_types": (dataclasses.replace(CORE, threads_per_core=1),)},
        lambda one: {"caches": (dataclasses.replace(one.caches[0], instances=2),)},
        lambda one: {"numa": (Numa(n_cpus=2, memory_gib=4), Numa(n_cpus=2, memory_gib=4))},
        lambda one: {"memory_gib": 16},
    ],
)
def test_what_a_machine_is_made_of_moves_the_id(change: Callable[[Hardware], dict[str, object]]) -> None:
    other = dataclasses.replace(HOST, **change(HOST))  # type: ignore[arg-type]
    assert other.hardware_id != HOST.hardware_id


def test_a_name_that_our_table_learns_later_does_not_move_the_id() -> None:
    core = CoreType(
        vendor="0x77", key="0x77-0x001-0x0", name="unknown ARM CPU (implementer 0x77 part 0x001)", n_cores=4
    )
    before = dataclasses.replace(HOST, arch="aarch64", cpu_name=core.name, cpu_vendor="0x77", core_types=(core,))
    learned = dataclasses.replace(core, name="Cortex-Z1", vendor="Zed")
    after = dataclasses.replace(before, cpu_name="Cortex-Z1", cpu_vendor="Zed", core_types=(learned,))

    assert after.hardware_id == before.hardware_id


def test_the_id_of_this_machine_is_stable(tmp_path: Path) -> None:
    assert len({take(tmp_path, None).hardware.hardware_id for _ in range(20)}) == 1
