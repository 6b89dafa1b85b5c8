"""The kernel's counters and what they come to."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.trees import write
from worker.conditions import cgroup
from worker.conditions.counters import TICKS_PER_SECOND, add, growth, of_machine, of_process, text
from worker.conditions.shares import shares

PID = 42
SECOND_NS = 1_000_000_000
HZ = TICKS_PER_SECOND


def process(root: Path, *, ticks: int, faults: int, threads: Mapping[int, tuple[int, int]]) -> Path:
    """Write the counters of a process: `threads` have the nanoseconds that each ran and waited."""
    fields = ["S", *["0"] * 8, str(faults), "0", str(ticks - ticks // 3), str(ticks // 3), *["0"] * 30]
    files = {f"proc/{PID}/stat": f"{PID} (a name) with ) (in it) {' '.join(fields)}\n"}
    files |= {
        f"proc/{PID}/task/{thread}/schedstat": f"{ran} {waited} 77\n" for thread, (ran, waited) in threads.items()
    }
    return write(root, files)


def test_of_a_process_each_thread_counts_and_the_name_may_hold_anything(tmp_path: Path) -> None:
    process(tmp_path, ticks=500, faults=7, threads={42: (5, 6), 43: (7, 8)})
    found = of_process(tmp_path, PID)
    assert found == {"cpu:42": 5, "delay:42": 6, "cpu:43": 7, "delay:43": 8, "major_faults": 7, "own_ticks": 500}


def test_of_a_machine_ticks_pressure_and_swap_count(tmp_path: Path) -> None:
    padding = "nr_x 1\n" * 1000
    files = {
        "proc/stat": "cpu  100 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3\n",
        "proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=123\nfull avg10=0.00 total=9\n",
        "proc/pressure/memory": "some avg10=0.00 total=77\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
        "proc/vmstat": f"{padding}pswpin 3\npswpout 4\n",
    }
    found = of_machine(write(tmp_path, files))
    assert found == {
        "busy_ticks": 163,
        "steal_ticks": 8,
        "all_ticks": 621,
        "cpu_pressure_us": 123,
        "memory_pressure_us": 5,
        "swapped_in_pages": 3,
    }


@pytest.mark.parametrize("content", ["", "42 (x", "cpu 1 2\n", "some total=x\n", "garbage", "1 x 3", "\udcff"])
def test_garbage_is_no_count(tmp_path: Path, content: str) -> None:
    names = ("stat", "vmstat", "pressure/cpu", f"{PID}/stat", f"{PID}/cgroup", f"{PID}/task/{PID}/schedstat")
    for name in names:
        (tmp_path / "proc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc" / name).write_bytes(content.encode(errors="surrogateescape"))
    assert of_process(tmp_path, PID) == {}
    assert of_machine(tmp_path) == {}
    assert cgroup.groups(tmp_path, PID) == ()


def test_a_file_that_the_kernel_hands_out_by_the_page_is_read_to_its_end() -> None:
    assert text(Path("/"), "proc/vmstat").count("\n") == len(Path("/proc/vmstat").read_text().splitlines())
    assert text(Path("/"), "proc/no such file") == text(Path("/"), "proc") == ""


def test_growth_is_of_what_both_hold_and_of_what_has_come_since() -> None:
    earlier = {"a": 5, "gone": 1, "back": 9, "cpu:1": 10, "cpu:2": 20}
    later = {"a": 8, "new": 4, "back": 2, "cpu:1": 15, "cpu:3": 7}
    assert growth(earlier, later) == {"a": 3, "back": 0, "cpu:1": 5, "cpu:3": 7}


def test_a_sum_leaves_out_what_was_not_always_known() -> None:
    assert add(None, {"a": 1}) == {"a": 1}
    assert add({"a": 1, "b": 2, "cpu:1": 3}, {"a": 10, "c": 5, "cpu:2": 4}) == {"a": 11, "cpu:1": 3, "cpu:2": 4}


def test_shares_are_of_the_threads_that_worked_most() -> None:
    total = {
        **{"cpu:42": 9 * SECOND_NS, "delay:42": SECOND_NS // 2},
        **{"cpu:43": 8 * SECOND_NS, "delay:43": SECOND_NS},
        **{"cpu:44": SECOND_NS // 4, "delay:44": 5 * SECOND_NS},
        **{"busy_ticks": 20 * HZ, "steal_ticks": 4 * HZ, "all_ticks": 40 * HZ},
        **{"major_faults": 2, "cpu_pressure_us": 1_000_000, "memory_pressure_us": 0, "swapped_in_pages": 9},
        **{"throttles:a": 3, "throttles:b": 1, "throttled_us:a": 250_000},
    }
    assert shares(total, PID, 10.0, 2) == {
        "cpu_share": pytest.approx(0.8625),
        "run_delay_share": pytest.approx(0.075),
        "blocked_share": pytest.approx(0.05),
        "others_busy_cores": pytest.approx(0.275),
        "steal_share": pytest.approx(0.1),
        "major_faults": 2,
        "cpu_pressure_share": pytest.approx(0.1),
        "memory_pressure_share": 0.0,
        "io_pressure_share": None,
        "swapped_in_pages": 9,
        "quota_throttles": 4,
        "quota_throttled_seconds": pytest.approx(0.25),
    }


def test_ticks_stand_in_where_the_kernel_counts_no_nanoseconds() -> None:
    found = shares({"own_ticks": 19 * HZ, "busy_ticks": 22 * HZ}, PID, 10.0, 2)
    assert found["cpu_share"] == pytest.approx(0.95)
    assert found["others_busy_cores"] == pytest.approx(0.3)
    assert (found["run_delay_share"], found["blocked_share"]) == (None, None)


def test_nothing_known_is_none_for_each() -> None:
    assert set(shares({}, PID, 1.0, 1).values()) == {None}


MOUNTS = (
    "30 20 0:26 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "31 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "32 20 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)


def test_throttling_counts_in_the_own_group_and_all_above_of_both_versions(tmp_path: Path) -> None:
    files = {
        "proc/self/mountinfo": MOUNTS,
        f"proc/{PID}/cgroup": "4:memory:/m\n3:cpu,cpuacct:/a/b\n0::/pod/own\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        "sys/fs/cgroup/cpu,cpuacct/a/cpu.stat": "nr_periods 9\nnr_throttled 5\nthrottled_time 2500000\n",
        "sys/fs/cgroup/cpu,cpuacct/a/b/cpu.stat": "nr_periods 9\nnr_throttled x\n",
        "sys/fs/cgroup/unified/cpu.stat": "usage_usec 7\n",
        "sys/fs/cgroup/unified/pod/cpu.stat": "usage_usec 7\nnr_throttled 2\nthrottled_usec 900\n",
        "sys/fs/cgroup/unified/pod/own/cpu.stat": "usage_usec 7\n",
    }
    write(tmp_path, files)
    found = cgroup.of_groups(tmp_path, cgroup.groups(tmp_path, PID))
    assert found == {
        "throttles:sys/fs/cgroup/cpu,cpuacct": 0,
        "throttled_us:sys/fs/cgroup/cpu,cpuacct": 0,
        "throttles:sys/fs/cgroup/cpu,cpuacct/a": 5,
        "throttled_us:sys/fs/cgroup/cpu,cpuacct/a": 2500,
        "throttles:sys/fs/cgroup/unified/pod": 2,
        "throttled_us:sys/fs/cgroup/unified/pod": 900,
    }
