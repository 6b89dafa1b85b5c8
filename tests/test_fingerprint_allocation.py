from pathlib import Path

import pytest

from schema.host import Allocation
from tests.trees import write
from worker.fingerprint import allocation, cgroups
from worker.fingerprint.evidence import Notes

GIB = 1 << 30
V2 = "31 22 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = (
    "34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "36 31 0:33 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
NO_LIMIT = "9223372036854771712\n"


def read(root: Path, installed: int | None = 24 * GIB) -> tuple[Allocation, Notes]:
    notes = Notes()
    return allocation.read(root, notes, installed), notes


def limits(root: Path, installed: int | None = 24 * GIB) -> tuple[float | None, int | None]:
    found, _ = read(root, installed)
    return found.cpu_quota_cores, found.memory_limit_bytes


def test_the_tightest_limit_of_all_ancestors_counts(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/lab.slice/user.slice/job-7.scope"
    files = {
        "proc/self/cgroup": "0::/lab.slice/user.slice/job-7.scope\n",
        "proc/self/mountinfo": V2,
        f"{group}/memory.max": "max\n",
        f"{group}/cpu.max": "400000 100000\n",
        "sys/fs/cgroup/lab.slice/user.slice/memory.max": f"{12 * GIB}\n",
        "sys/fs/cgroup/lab.slice/user.slice/cpu.max": "max 100000\n",
        "sys/fs/cgroup/lab.slice/memory.max": f"{8 * GIB}\n",
        "sys/fs/cgroup/lab.slice/cpu.max": "500000 200000\n",
    }

    assert limits(write(tmp_path, files)) == (2.5, 8 * GIB)


def test_a_group_without_the_controller_is_limited_by_its_parents(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/a/b/c\n",
        "proc/self/mountinfo": V2,
        "sys/fs/cgroup/a/b/c/cgroup.procs": "1\n",
        "sys/fs/cgroup/a/cpu.max": "150000 100000\n",
    }

    assert limits(write(tmp_path, files)) == (1.5, None)


def test_version_1_is_read_inside_a_container_that_sees_only_its_own_group(tmp_path: Path) -> None:
    mounts = (
        "40 30 0:33 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n"
        "41 30 0:34 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
    )
    files = {
        "proc/self/cgroup": "9:memory:/docker/abc\n8:cpu,cpuacct:/docker/abc\n0::/\n",
        "proc/self/mountinfo": mounts,
        "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{4 * GIB}\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "150000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }

    assert limits(write(tmp_path, files)) == (1.5, 4 * GIB)


def test_version_1_knows_the_limits_of_ancestors_that_cannot_be_seen(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "9:memory:/\n",
        "proc/self/mountinfo": HYBRID,
        "sys/fs/cgroup/memory/memory.limit_in_bytes": NO_LIMIT,
        "sys/fs/cgroup/memory/memory.stat": f"cache 0\nhierarchical_memory_limit {3 * GIB}\ntotal_cache 0\n",
    }

    assert limits(write(tmp_path, files)) == (None, 3 * GIB)


def test_both_versions_mounted_at_once_are_both_read(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/pod\n1:cpu:/pod\n0::/pod\n",
        "proc/self/mountinfo": HYBRID,
        "sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/pod/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "300000\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/unified/pod/cpu.max": "50000 100000\n",
        "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": f"{2 * GIB}\n",
    }

    assert limits(write(tmp_path, files)) == (0.5, 2 * GIB)


def test_a_namespace_whose_root_is_its_own_group_is_read_at_the_mount(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/\n",
        "proc/self/mountinfo": V2,
        "sys/fs/cgroup/cgroup.type": "domain\n",
        "sys/fs/cgroup/cpu.max": "200000 100000\n",
        "sys/fs/cgroup/memory.max": "max\n",
    }
    found, notes = read(write(tmp_path, files))

    assert (found.cpu_quota_cores, found.memory_limit_bytes) == (2.0, None)
    assert notes.sources["memory_limit_bytes"] == "no control group that is visible from here limits it"


def test_a_hierarchy_mounted_elsewhere_with_a_blank_in_its_name_is_found(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/a b\n",
        "proc/self/mountinfo": "31 22 0:26 / /mnt/my\\040groups rw - cgroup2 none rw\n",
        "mnt/my groups/a b/cpu.max": "100000 100000\n",
    }

    assert limits(write(tmp_path, files))[0] == 1.0


def test_a_mount_of_somebody_elses_group_limits_nothing(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/user.slice\n",
        "proc/self/mountinfo": V2 + "50 22 0:26 /other.slice /run/other rw - cgroup2 cgroup2 rw\n",
        "sys/fs/cgroup/user.slice/cpu.max": "max 100000\n",
        "run/other/cpu.max": "10000 100000\n",
    }

    assert limits(write(tmp_path, files))[0] is None


def test_a_path_above_the_namespace_is_not_looked_for_below_the_mount(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "0::/../sibling\n",
        "proc/self/mountinfo": V2,
        "sys/fs/cgroup/sibling/cpu.max": "10000 100000\n",
        "sys/fs/sibling/cpu.max": "10000 100000\n",
        "sys/fs/cgroup/cpu.max": "300000 100000\n",
    }

    assert limits(write(tmp_path, files))[0] == 3.0


def test_old_lists_of_mounts_serve_where_there_is_no_mountinfo(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "2:memory:/job\n",
        "proc/mounts": "cgroup /dev/cgroup cgroup rw,memory 0 0\n",
        "dev/cgroup/job/memory.limit_in_bytes": f"{GIB}\n",
    }

    assert limits(write(tmp_path, files))[1] == GIB


def test_no_limit_and_a_limit_that_cannot_be_known_are_two_answers(tmp_path: Path) -> None:
    files = {
        "proc/self/cgroup": "4:memory:/a\n3:cpu:/a\n0::/\n",
        "proc/self/mountinfo": HYBRID,
        "sys/fs/cgroup/memory/a/memory.limit_in_bytes": NO_LIMIT,
        "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/a/cpu.cfs_period_us": "100000\n",
    }
    free, told = read(write(tmp_path / "a", files))
    unknown, silent = read(write(tmp_path / "b", {"proc/self/status": "Cpus_allowed_list:\t0\n"}))

    assert (free.cpu_quota_cores, free.memory_limit_bytes) == (unknown.cpu_quota_cores, unknown.memory_limit_bytes)
    assert told.sources["cpu_quota_cores"] == told.sources["memory_limit_bytes"] == "no control group limits it"
    assert {line.split(":")[0] for line in silent.errors} >= {"cpu_quota_cores", "memory_limit_bytes"}
    assert "cpu_quota_cores" not in silent.sources


def test_a_limit_above_the_memory_is_no_limit_whatever_the_kernel_keeps(tmp_path: Path) -> None:
    files = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2, "sys/fs/cgroup/memory.max": f"{16 * GIB}\n"}
    root = write(tmp_path, files)

    assert [limits(root, size)[1] for size in (8 * GIB, 16 * GIB, 24 * GIB, None)] == [None, None, 16 * GIB, 16 * GIB]


@pytest.mark.parametrize("content", ["", "garbage", "0::\n", "::::\n0", "0::/../../..\n", "0::/a\0b\n"])
@pytest.mark.parametrize("limit", ["", "many", "0 0", "-1 100000", "9" * 40])
def test_garbage_about_control_groups_is_survived(tmp_path: Path, content: str, limit: str) -> None:
    files = {
        "proc/self/cgroup": content,
        "proc/self/mountinfo": V2 + "x - y\n - cgroup2\n",
        "sys/fs/cgroup/cpu.max": limit,
        "sys/fs/cgroup/memory.max": limit,
    }

    assert limits(write(tmp_path, files)) == (None, None)


@pytest.mark.parametrize(
    ("files", "n_cpus"),
    [
        ({"proc/self/status": "Cpus_allowed:\tf\nCpus_allowed_list:\t0-3\n"}, 4),
        ({"proc/self/status": "Cpus_allowed_list:\t0-255\n", "sys/devices/system/cpu/online": "0-7\n"}, 8),
        (
            {
                "proc/self/status": "Cpus_allowed_list:\t0-7\n",
                "proc/self/cgroup": "0::/job\n",
                "proc/self/mountinfo": V2,
                "sys/fs/cgroup/job/cpuset.cpus.effective": "2-3,6\n",
                "sys/fs/cgroup/cpuset.cpus.effective": "0-7\n",
            },
            3,
        ),
        (
            {
                "proc/self/status": "Cpus_allowed_list:\t0-7\n",
                "proc/self/cgroup": "5:cpuset:/lab/job\n",
                "proc/self/mountinfo": HYBRID,
                "sys/fs/cgroup/cpuset/lab/job/cpuset.cpus": "\n",
                "sys/fs/cgroup/cpuset/lab/cpuset.cpus": "4-7\n",
            },
            4,
        ),
        ({"proc/self/status": "Cpus_allowed_list:\t4-5\n", "sys/devices/system/cpu/online": "0-3\n"}, 2),
        (
            {
                "proc/self/cpuset": "/job\n",
                "proc/mounts": "none /cgroup/unified cgroup2 rw 0 0\n",
                "cgroup/unified/job/cpuset.cpus.effective": "2-11\n",
            },
            10,
        ),
        ({"proc/self/status": "Name:\tpython\n"}, None),
    ],
)
def test_the_cpus_are_those_of_the_affinity_mask_that_are_online_and_in_the_cpuset(
    tmp_path: Path, files: dict[str, str | int], n_cpus: int | None
) -> None:
    assert read(write(tmp_path, files))[0].n_cpus == n_cpus


def test_the_cpus_are_counted_by_core_type(tmp_path: Path) -> None:
    types = {"Cortex-A76": frozenset({4, 5, 6, 7}), "Cortex-A55": frozenset({0, 1, 2, 3})}
    root = write(tmp_path, {"proc/self/status": "Cpus_allowed_list:\t2-5\n"})
    found = allocation.read(root, Notes(), core_types=types, n_gpus=2)

    assert found.cpus_by_type == {"Cortex-A76": 2, "Cortex-A55": 2}
    assert found.n_gpus == 2


def test_cpus_of_no_known_type_leave_the_types_unknown(tmp_path: Path) -> None:
    notes = Notes()
    root = write(tmp_path, {"proc/self/status": "Cpus_allowed_list:\t2-5\n"})

    assert allocation.read(root, notes, core_types={"Cortex-A55": frozenset({0, 1, 2})}).cpus_by_type == {}
    assert any(line.startswith("cpus_by_type:") for line in notes.errors)


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ({"proc/self/status": "Mems_allowed_list:\t0-1\n"}, 2),
        ({"proc/self/status": "Mems_allowed_list:\t0-63\n", "sys/devices/system/node/has_memory": "0,2\n"}, 2),
        (
            {
                "proc/self/status": "Mems_allowed_list:\t0-1\n",
                "proc/self/cgroup": "5:cpuset:/job\n",
                "proc/self/mountinfo": HYBRID,
                "sys/fs/cgroup/cpuset/job/cpuset.mems": "1\n",
            },
            1,
        ),
        ({}, None),
    ],
)
def test_the_numa_nodes_are_those_with_memory_that_the_cpuset_allows(
    tmp_path: Path, files: dict[str, str | int], count: int | None
) -> None:
    assert read(write(tmp_path, files))[0].n_numa_nodes == count


def test_the_last_mount_at_a_place_covers_the_others(tmp_path: Path) -> None:
    covered = "31 22 0:26 / /sys/fs/cgroup rw - cgroup cgroup rw,cpu\n" + V2
    files = {"proc/self/cgroup": "1:cpu:/\n0::/\n", "proc/self/mountinfo": covered, "sys/fs/cgroup/cpu.max": "max 1\n"}
    found = cgroups.groups(write(tmp_path, files), "cpu")

    assert found.directories == (tmp_path / "sys/fs/cgroup",)


def test_this_machine_lets_us_use_at_least_one_cpu() -> None:
    found, notes = read(Path("/"), None)

    assert found.n_cpus
    assert found.container
    assert "cpu_quota_cores" in notes.sources
