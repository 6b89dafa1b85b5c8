from pathlib import Path

from schema.host import Cache
from tests.trees import write
from worker.fingerprint import caches, cpuinfo, topology
from worker.fingerprint.evidence import Notes

CPUS = "sys/devices/system/cpu"
TREE = "proc/device-tree"


def read(root: Path) -> tuple[tuple[Cache, ...], Notes]:
    notes, path = Notes(), root / "proc/cpuinfo"
    blocks = cpuinfo.parse(path.read_text()) if path.exists() else []
    return caches.read(root, notes, topology.read(root, notes, blocks), blocks), notes


def listed(cpu: int, index: int, level: int, size: str, shared: str) -> dict[str, str | bytes]:
    place = f"{CPUS}/cpu{cpu}/cache/index{index}"
    kind = "Unified" if level > 1 else "Data"
    return {
        f"{place}/level": str(level),
        f"{place}/type": kind,
        f"{place}/size": size,
        f"{place}/shared_cpu_list": shared,
    }


def cells(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in numbers)


def test_two_sizes_of_one_level_are_two_entries(tmp_path: Path) -> None:
    files = listed(0, 0, 1, "48K", "0") | listed(1, 0, 1, "32K", "1") | listed(2, 0, 1, "32K", "2")
    for n in range(3):
        files |= listed(n, 3, 3, "24M", "0-2")
    found, _ = read(write(tmp_path, files))

    assert found == (
        Cache(level=1, kind="data", size_bytes=32 << 10, instances=2),
        Cache(level=1, kind="data", size_bytes=48 << 10, instances=1),
        Cache(level=3, kind="unified", size_bytes=24 << 20, instances=1),
    )


def test_caches_of_cpus_that_are_off_do_not_count_and_do_not_split_others(tmp_path: Path) -> None:
    files = listed(0, 3, 3, "8M", "0-1") | listed(1, 3, 3, "8M", "0-3") | listed(3, 3, 3, "8M", "3")
    found, _ = read(write(tmp_path, {**files, f"{CPUS}/online": "0-1"}))

    assert [one.instances for one in found] == [1]


def test_fast_memory_in_front_of_slow_memory_is_a_cache(tmp_path: Path) -> None:
    side = "sys/devices/system/node/node{}/memory_side_cache/index1/size"
    found, _ = read(write(tmp_path, {side.format(n): str(96 << 30) for n in (0, 1)}))

    assert found == (Cache(level=1, kind="memory-side", size_bytes=96 << 30, instances=2),)


def device_tree(n_cpus: int) -> dict[str, str | bytes]:
    """Cores with their own first-level caches and pairs of them with a second level."""
    files: dict[str, str | bytes] = {}
    for n in range(n_cpus):
        node = f"{TREE}/cpus/cpu@{n}"
        files |= {
            f"{node}/device_type": b"cpu\0",
            f"{node}/d-cache-size": cells(32 << 10),
            f"{node}/i-cache-size": cells(48 << 10),
            f"{node}/next-level-cache": cells(7 + n // 2),
        }
    for pair in range(n_cpus // 2):
        node = f"{TREE}/cpus/l2-cache{pair}"
        files |= {
            f"{node}/phandle": cells(7 + pair),
            f"{node}/cache-unified": b"",
            f"{node}/cache-size": cells(1 << 20),
        }
    return files


def numbered(n_cpus: int) -> dict[str, str | bytes]:
    block = "processor : {}\nCPU implementer : 0x41\nCPU part : 0xd08\n\n"
    return {"proc/cpuinfo": "".join(block.format(n) for n in range(n_cpus))}


def test_the_device_tree_stands_in_where_sys_shows_no_caches(tmp_path: Path) -> None:
    found, notes = read(write(tmp_path, device_tree(4) | numbered(4)))

    assert found == (
        Cache(level=1, kind="data", size_bytes=32 << 10, instances=4),
        Cache(level=1, kind="instruction", size_bytes=48 << 10, instances=4),
        Cache(level=2, kind="unified", size_bytes=1 << 20, instances=2),
    )
    assert notes.sources["caches"] == "device tree"


def test_a_device_tree_with_other_cores_than_those_that_run_tells_nothing(tmp_path: Path) -> None:
    found, notes = read(write(tmp_path, device_tree(4) | numbered(3)))

    assert found == ()
    assert any(line.startswith("caches:") for line in notes.errors)


def test_a_device_tree_whose_caches_refer_to_each_other_ends(tmp_path: Path) -> None:
    files = device_tree(2) | numbered(2)
    files[f"{TREE}/cpus/l2-cache0/next-level-cache"] = cells(7)
    files[f"{TREE}/cpus/cpu@0/d-cache-size"] = b"\x01\x02"
    found, _ = read(write(tmp_path, files))

    assert [(one.level, one.kind, one.instances) for one in found] == [
        (1, "data", 1),
        (1, "instruction", 2),
        (2, "unified", 1),
    ]


def test_a_mainframe_describes_its_caches_once_and_tells_whose_they_are(tmp_path: Path) -> None:
    text = (
        "vendor_id       : IBM/S390\n# processors    : 2\n"
        "cache0          : level=1 type=Data scope=Private size=128K line_size=256 associativity=8\n"
        "cache1          : level=3 type=Unified scope=Shared size=24576K line_size=256 associativity=12\n"
        "processor 0: version = FF,  identification = 1C8C12,  machine = 2964\n"
        "processor 1: version = FF,  identification = 1C8C12,  machine = 2964\n"
    )
    found, _ = read(write(tmp_path, {"proc/cpuinfo": text}))

    assert found == (
        Cache(level=1, kind="data", size_bytes=128 << 10, instances=2),
        Cache(level=3, kind="unified", size_bytes=24 << 20, instances=1),
    )


def test_odd_sizes_and_levels_are_left_out(tmp_path: Path) -> None:
    files = listed(0, 0, 1, "huge", "0") | listed(0, 1, 0, "32K", "0") | listed(0, 2, 2, "0K", "0")
    assert read(write(tmp_path, files))[0] == ()


def test_a_mask_counts_and_not_the_list_beside_it_and_an_empty_one_means_the_core(tmp_path: Path) -> None:
    files = listed(0, 2, 2, "2048K", "0") | listed(1, 2, 2, "2048K", "1")
    files |= {f"{CPUS}/cpu{n}/cache/index2/shared_cpu_map": "00000000,00000003" for n in (0, 1)}
    for n in (0, 1):
        files |= listed(n, 3, 3, "9216K", "") | {f"{CPUS}/cpu{n}/cache/index3/shared_cpu_map": "00000000"}
        files[f"{CPUS}/cpu{n}/topology/thread_siblings"] = "3"
    found, _ = read(write(tmp_path, files))

    assert [(one.level, one.instances) for one in found] == [(2, 1), (3, 1)]


def test_what_a_service_wrote_of_a_xeon_phis_fast_memory_is_each_nodes_with_cpus(tmp_path: Path) -> None:
    nodes = {f"sys/devices/system/node/node{n}/cpulist": cpus for n, cpus in enumerate(("0-7", "8-15", ""))}
    told = {"var/run/hwloc/knl_memoryside_cache": "version: 2\ncache_size: 2147483648\nline_size: 64\n"}
    found, _ = read(write(tmp_path, {**nodes, **told}))

    assert found == (Cache(level=1, kind="memory-side", size_bytes=2 << 30, instances=2),)
