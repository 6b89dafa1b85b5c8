from collections.abc import Mapping
from pathlib import Path

import pytest

from schema.host import Allocation
from worker.fingerprint import memory
from worker.fingerprint.evidence import Notes

GIB = 1 << 30
MEMINFO = {"proc/meminfo": "MemTotal:       24683656 kB\nMemFree:        23818848 kB\n"}
V2_MOUNT = "31 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_memory_is_counted_in_blocks_where_the_kernel_shows_them(tmp_path: Path) -> None:
    blocks = {f"sys/devices/system/memory/memory{n}/state": "online" for n in range(192)}
    root = tree(tmp_path, {**MEMINFO, **blocks, "sys/devices/system/memory/block_size_bytes": "8000000\n"})
    notes = Notes()

    assert memory.installed_gib(root, notes) == 24
    assert notes.sources["memory_gib"] == "/sys/devices/system/memory"


def test_without_blocks_memtotal_is_rounded_up(tmp_path: Path) -> None:
    assert memory.installed_gib(tree(tmp_path, MEMINFO), Notes()) == 24


def test_kernels_that_keep_different_amounts_see_the_same_memory(tmp_path: Path) -> None:
    totals = (63_900_000, 65_500_000, 66_000_000)
    roots = [tree(tmp_path / str(kb), {"proc/meminfo": f"MemTotal: {kb} kB\n"}) for kb in totals]

    assert [memory.installed_gib(root, Notes()) for root in roots] == [61, 63, 63]


def test_memory_that_nothing_tells_is_none_with_a_reason(tmp_path: Path) -> None:
    notes = Notes()

    assert memory.installed_gib(tmp_path, notes) is None
    assert notes.errors == ["memory_gib: neither memory blocks in /sys nor MemTotal can be read"]


def test_the_tightest_limit_of_all_ancestors_counts(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/lab.slice/job-7.scope"
    root = tree(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/lab.slice/job-7.scope\n",
            "proc/self/mountinfo": V2_MOUNT,
            "proc/self/status": "Name:\tpython\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3\n",
            f"{group}/memory.max": "max\n",
            f"{group}/cpu.max": "400000 100000\n",
            "sys/fs/cgroup/lab.slice/memory.max": f"{8 * GIB}\n",
            "sys/fs/cgroup/lab.slice/cpu.max": "250000 100000\n",
        },
    )

    assert memory.allocation(root, Notes()) == Allocation(
        n_cpus=4, cpu_quota_cores=2.5, memory_limit_bytes=8 * GIB, container=None
    )


def test_version_1_limits_are_read_inside_a_container_that_sees_only_its_own_group(tmp_path: Path) -> None:
    mounts = (
        "40 30 0:33 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "41 30 0:34 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    )
    root = tree(
        tmp_path,
        {
            **MEMINFO,
            ".dockerenv": "",
            "proc/self/cgroup": "9:memory:/docker/abc\n8:cpu,cpuacct:/docker/abc\n0::/\n",
            "proc/self/mountinfo": mounts,
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    found = memory.allocation(root, Notes())

    assert (found.memory_limit_bytes, found.cpu_quota_cores, found.container) == (4 * GIB, 1.5, "docker")


def test_no_limit_in_either_version_is_none(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "4:memory:/a\n3:cpu:/a\n0::/\n",
            "proc/self/mountinfo": V2_MOUNT
            + "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
            + "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
            "sys/fs/cgroup/cpu.max": "max 100000\n",
        },
    )
    found = memory.allocation(root, Notes())

    assert (found.memory_limit_bytes, found.cpu_quota_cores) == (None, None)


def test_a_limit_above_the_memory_is_no_limit(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            **MEMINFO,
            "proc/self/cgroup": "0::/\n",
            "proc/self/mountinfo": V2_MOUNT,
            "sys/fs/cgroup/memory.max": f"{64 * GIB}\n",
        },
    )

    assert memory.allocation(root, Notes()).memory_limit_bytes is None


@pytest.mark.parametrize("content", ["", "garbage", "0::\n", "::::\n0", "0::/../../..\n"])
def test_garbage_about_control_groups_is_survived(tmp_path: Path, content: str) -> None:
    root = tree(tmp_path, {"proc/self/cgroup": content, "proc/self/mountinfo": V2_MOUNT + "x - y\n - cgroup2\n"})

    assert memory.allocation(root, Notes()) == Allocation()


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"run/.containerenv": ""}, "podman"),
        ({"run/systemd/container": "lxc\n"}, "lxc"),
        ({"proc/self/cgroup": "0::/kubepods.slice/pod1\n", ".dockerenv": ""}, "kubernetes"),
        ({"proc/self/cgroup": "4:memory:/docker/1f\n"}, "docker"),
        ({}, None),
    ],
)
def test_containers_are_told_apart(tmp_path: Path, files: dict[str, str], kind: str | None) -> None:
    assert memory.allocation(tree(tmp_path, files), Notes()).container == kind


def test_this_machine_lets_us_use_at_least_one_cpu() -> None:
    found = memory.allocation(Path("/"), Notes())

    assert found.n_cpus
    assert memory.installed_gib(Path("/"), Notes())
