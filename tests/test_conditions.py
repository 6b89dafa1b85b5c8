import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from schema.record import Conditions
from worker.conditions import TICKS_PER_SECOND, before, judge

PID = 42
SECOND_NS = 1_000_000_000


def machine(root: Path, *, own: int, busy: int, idle: int, steal: int, faults: int, delays: Mapping[int, int]) -> Path:
    """Write the counters of one moment: ticks, except `delays`, which are nanoseconds by thread."""
    fields = ["S", *["0"] * 8, str(faults), "0", str(own - own // 3), str(own // 3), *["0"] * 30]
    files = {
        f"proc/{PID}/stat": f"{PID} (a name) with ) (in it) {' '.join(fields)}\n",
        "proc/stat": f"cpu  {busy - 3} 0 1 {idle} 0 1 1 {steal} 0 0\ncpu0 1 2 3\n",
        "proc/loadavg": "0.52 0.58 0.59 1/97 123\n",
        "proc/meminfo": "MemTotal: 24683656 kB\nMemAvailable:   1000 kB\n",
    }
    files |= {f"proc/{PID}/task/{thread}/schedstat": f"123456 {delay} 77\n" for thread, delay in delays.items()}
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def test_shares_are_of_wall_time_and_threads(tmp_path: Path) -> None:
    hz = TICKS_PER_SECOND
    machine(tmp_path, own=5 * hz, busy=100 * hz, idle=300 * hz, steal=0, faults=7, delays={42: 0, 43: SECOND_NS})
    snapshot = before(PID, root=tmp_path, now_ns=0)
    machine(
        tmp_path,
        own=24 * hz,
        busy=122 * hz,
        idle=314 * hz,
        steal=4 * hz,
        faults=9,
        delays={42: SECOND_NS // 2, 43: SECOND_NS + SECOND_NS // 4, 44: SECOND_NS // 4},
    )

    assert snapshot.after(2, now_ns=10 * SECOND_NS) == Conditions(
        cpu_share=0.95,
        run_delay_share=0.05,
        others_busy_cores=0.3,
        steal_share=0.1,
        major_faults=2,
        load1_before=0.52,
        available_bytes_before=1024000,
    )


def test_a_system_without_proc_gives_none_for_each(tmp_path: Path) -> None:
    assert before(PID, root=tmp_path, now_ns=0).after(2, now_ns=SECOND_NS) == Conditions()


def test_a_process_that_has_ended_leaves_what_the_machine_tells(tmp_path: Path) -> None:
    machine(tmp_path, own=0, busy=10, idle=10, steal=0, faults=0, delays={42: 0})
    snapshot = before(PID, root=tmp_path, now_ns=0)
    (tmp_path / f"proc/{PID}/stat").unlink()
    (tmp_path / f"proc/{PID}/task/42/schedstat").unlink()
    found = snapshot.after(1, now_ns=SECOND_NS)

    assert (found.cpu_share, found.run_delay_share, found.others_busy_cores, found.major_faults) == (None,) * 4
    assert found.load1_before == 0.52


@pytest.mark.parametrize("content", ["", "42 (x", "cpu 1 2\n", "garbage"])
def test_garbage_in_the_counters_is_none(tmp_path: Path, content: str) -> None:
    machine(tmp_path, own=0, busy=10, idle=10, steal=0, faults=0, delays={42: 0})
    for name in (f"proc/{PID}/stat", "proc/stat", "proc/loadavg", "proc/meminfo", f"proc/{PID}/task/42/schedstat"):
        (tmp_path / name).write_text(content)

    assert before(PID, root=tmp_path, now_ns=0).after(1, now_ns=SECOND_NS) == Conditions()


def test_no_time_and_no_threads_are_no_division_by_zero(tmp_path: Path) -> None:
    machine(tmp_path, own=0, busy=10, idle=10, steal=0, faults=0, delays={42: 0})
    snapshot = before(PID, root=tmp_path, now_ns=0)

    assert snapshot.after(2, now_ns=0).cpu_share is None
    assert snapshot.after(0, now_ns=SECOND_NS).cpu_share is None


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel keeps no schedstat")
def test_a_busy_child_of_this_machine_is_seen_to_be_busy() -> None:
    ready = "import sys; sys.stdout.write('x'); sys.stdout.flush()"
    child = subprocess.Popen([sys.executable, "-c", f"{ready}\nwhile True: pass"], stdout=subprocess.PIPE)
    with child:
        assert child.stdout
        child.stdout.read(1)
        snapshot = before(child.pid)
        while (now := before(child.pid)).own_ticks == snapshot.own_ticks or now.all_ticks == snapshot.all_ticks:
            os.sched_yield()
        found = snapshot.after(1)
        child.kill()

    assert now.own_ticks
    assert found.cpu_share
    assert found.run_delay_share is not None
    assert found.others_busy_cores is not None
    assert found.steal_share is not None


QUIET = {"cpu_share": 0.97, "run_delay_share": 0.004, "others_busy_cores": 0.02, "steal_share": 0.0, "major_faults": 0}


@pytest.mark.parametrize(
    ("change", "quality", "reason"),
    [
        ({}, "clean", None),
        ({"run_delay_share": 0.03}, "noisy", "threads waited 3.0% of the time for a CPU"),
        ({"run_delay_share": 0.3}, "contended", "threads waited 30% of the time for a CPU"),
        ({"steal_share": 0.02}, "noisy", "the hypervisor took 2.0% of the CPU time"),
        ({"steal_share": 0.2}, "contended", "the hypervisor took 20% of the CPU time"),
        ({"others_busy_cores": 0.3}, "noisy", "other processes kept 0.30 CPUs busy"),
        ({"others_busy_cores": 1.5}, "contended", "other processes needed 1.50 CPUs more than were free"),
        ({"major_faults": 3}, "noisy", "3 pages had to be read from disk"),
        ({"cpu_share": 0.4}, "clean", None),
        ({"cpu_share": 0.4, "run_delay_share": None}, "contended", "threads ran only 40% of the time"),
    ],
)
def test_the_verdict_follows_the_worst_sign(change: dict[str, float], quality: str, reason: str | None) -> None:
    found = judge(Conditions(**{**QUIET, **change}), n_threads=2, n_cpus=2)  # type: ignore[arg-type]

    assert found == (quality, (reason,) if reason else ())


def test_others_that_fit_beside_the_threads_do_not_contend() -> None:
    busy = Conditions(**{**QUIET, "others_busy_cores": 0.5})  # type: ignore[arg-type]

    assert judge(busy, n_threads=8, n_cpus=16)[0] == "clean"
    assert judge(busy, n_threads=16, n_cpus=16)[0] == "noisy"


def test_more_threads_than_we_may_use_are_limited_and_not_an_error() -> None:
    assert judge(Conditions(), 8, 4) == ("limited", ("8 threads share 4 CPUs",))
    assert judge(Conditions(), 4, 8, quota_cores=2.5) == ("limited", ("4 threads have a quota of 2.5 CPUs",))


def test_every_reason_is_given_and_the_worst_names_the_quality() -> None:
    quality, reasons = judge(Conditions(run_delay_share=0.5, major_faults=9), 4, 2)

    assert quality == "contended"
    assert len(reasons) == 3


def test_conditions_that_nothing_tells_are_clean_for_want_of_any_sign() -> None:
    assert judge(Conditions(), 4, None) == ("clean", ())
