"""An attempt is watched: what happens in its repetitions counts, what happens between them does not."""

import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schema.host import Fingerprint
from schema.job import ModelRef
from tests.fakes import FakeClock
from tests.supervised import DECODE, PREFILL, group_of, python_that, records, supervise
from tests.trees import write
from worker.conditions.counters import TICKS_PER_SECOND, of_process
from worker.conditions.meters import Meters
from worker.conditions.rapl import Rapl
from worker.conditions.sensors import Sensors
from worker.conditions.verdict import Given, judge
from worker.conditions.watch import Watch

PID = 42
SECOND_NS = 1_000_000_000
HZ = TICKS_PER_SECOND


class Machine:
    """A machine in a tree, with a process of two threads, whose time passes only when a test says so."""

    def __init__(self, root: Path) -> None:
        self.root, self.clock = root, FakeClock()
        self.ran_ns, self.waited_ns, self.busy, self.faults, self.throttles = [0, 0], [0, 0], 0, 0, 0
        self.group = "/a"
        self.write()
        write(root, {"proc/loadavg": "0.52 0.58 0.59 1/97 123\n", "proc/meminfo": "MemAvailable:   1000 kB\n"})
        self.watch = Watch(PID, Meters(sensors=Sensors.find(root), rapl=Rapl.find(root)), self.clock)

    def write(self) -> None:
        fields = ["S", *["0"] * 8, str(self.faults), "0", "0", "0", *["0"] * 30]
        files = {
            f"proc/{PID}/stat": f"{PID} (x) {' '.join(fields)}\n",
            "proc/stat": f"cpu  {self.busy} 0 0 1000 0 0 0 0 0 0\n",
            f"proc/{PID}/cgroup": f"0::{self.group}\n",
            "proc/self/mountinfo": "32 20 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            "sys/fs/cgroup/a/cpu.stat": f"nr_throttled {self.throttles}\nthrottled_usec {1000 * self.throttles}\n",
            "sys/fs/cgroup/b/cpu.stat": "nr_throttled 7\nthrottled_usec 90000\n",
        }
        for thread in (0, 1):
            name = f"proc/{PID}/task/{PID + thread}/schedstat"
            files[name] = f"{self.ran_ns[thread]} {self.waited_ns[thread]} 1\n"
        write(self.root, files)

    def passes(self, seconds: float, ran: float, waited: float, busy: float) -> None:
        """Let `seconds` pass in which each thread `ran` and `waited`, and all CPUs together were `busy` so long."""
        self.clock.now += round(seconds * SECOND_NS)
        self.ran_ns = [ns + round(ran * SECOND_NS) for ns in self.ran_ns]
        self.waited_ns = [ns + round(waited * SECOND_NS) for ns in self.waited_ns]
        self.busy += round(busy * HZ)
        self.write()


def test_only_repetitions_count(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    watch = machine.watch
    watch.begin()
    machine.passes(1.0, 0.9, 0.1, 2.0)
    watch.end()
    machine.passes(5.0, 0.0, 0.0, 5.0)
    watch.begin()
    machine.faults = 2
    machine.passes(1.0, 1.0, 0.0, 2.0)
    watch.end()
    watch.begin()
    machine.passes(3.0, 0.0, 3.0, 3.0)
    watch.drop()
    watch.end()
    found = watch.conditions(2)
    assert found.watched_seconds == 2.0
    assert found.cpu_share == pytest.approx(0.95)
    assert found.run_delay_share == pytest.approx(0.05)
    assert found.others_busy_cores == pytest.approx(0.1)
    assert (found.blocked_share, found.major_faults, found.times_stopped) == (0.0, 2, 0)
    assert (found.load1_before, found.available_bytes_before) == (0.52, 1024000)


def test_an_attempt_without_a_repetition_has_what_was_before_it(tmp_path: Path) -> None:
    found = Machine(tmp_path).watch.conditions(2)
    assert (found.load1_before, found.watched_seconds, found.cpu_share, found.looks) == (0.52, None, None, 0)


def test_a_system_without_proc_gives_none_and_no_error(tmp_path: Path) -> None:
    clock = FakeClock()
    watch = Watch(PID, Meters(sensors=Sensors.find(tmp_path), rapl=Rapl.find(tmp_path)), clock)
    watch.begin()
    clock.now += SECOND_NS
    watch.look()
    watch.end()
    found = watch.conditions(4)
    assert (found.cpu_share, found.run_delay_share, found.quota_throttles, found.load1_before) == (None,) * 4
    assert (found.watched_seconds, found.looks) == (1.0, 1)
    assert judge(found, Given(n_threads=4, n_cpus=4)) == ("clean", ())


def test_a_process_that_has_ended_leaves_what_the_machine_tells(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.watch.begin()
    machine.passes(1.0, 1.0, 0.0, 2.0)
    for name in ("stat", f"task/{PID}/schedstat", f"task/{PID + 1}/schedstat"):
        (tmp_path / f"proc/{PID}" / name).unlink()
    machine.watch.end()
    found = machine.watch.conditions(2)
    assert (found.cpu_share, found.run_delay_share, found.others_busy_cores, found.major_faults) == (None,) * 4
    assert found.steal_share == 0.0


def test_looks_come_twice_a_second_and_not_between_repetitions(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    watch, moments = machine.watch, []
    assert watch.look() == math.inf
    watch.begin()
    for _ in range(4):
        seconds = watch.look()
        moments.append(round(seconds, 3))
        machine.clock.now += round(seconds * SECOND_NS)
    watch.end()
    assert watch.look() == math.inf
    watch.begin()
    assert moments == [0.1, 0.5, 0.5, 0.5]
    assert 0 < watch.look() <= 0.5
    assert watch.conditions(2).looks == 3


def test_short_repetitions_have_a_look_now_and_then_all_the_same(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    for _ in range(100):
        machine.watch.begin()
        for _ in range(4):
            machine.watch.look()
            machine.clock.now += SECOND_NS // 40
        machine.watch.end()
    assert 15 <= (machine.watch.conditions(2).looks or 0) <= 25


def test_a_quota_is_seen_also_in_a_group_that_the_process_is_put_into_meanwhile(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.throttles = 5
    machine.write()
    machine.watch.begin()
    machine.passes(1.0, 0.5, 0.0, 1.0)
    machine.watch.end()
    assert machine.watch.conditions(2).quota_throttles == 0
    machine.watch.begin()
    machine.throttles = 8
    machine.passes(1.0, 0.5, 0.0, 1.0)
    machine.watch.end()
    assert machine.watch.conditions(2).quota_throttles == 3
    machine.watch.begin()
    machine.group = "/b"
    machine.passes(1.0, 0.5, 0.0, 1.0)
    machine.watch.end()
    found = machine.watch.conditions(2)
    assert found.quota_throttles == 3 + 7
    assert found.quota_throttled_seconds == pytest.approx(0.093)
    assert judge(found, Given(n_threads=2, n_cpus=2))[0] in ("limited", "contended")


SPIN = "import sys; sys.stdout.write('x'); sys.stdout.flush()\nwhile True: pass"


@contextmanager
def spinning() -> Iterator[int]:
    """Give the process id of a child that is busy."""
    with subprocess.Popen([sys.executable, "-c", SPIN], stdout=subprocess.PIPE) as child:
        assert child.stdout
        child.stdout.read(1)
        try:
            yield child.pid
        finally:
            child.kill()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel keeps no schedstat")
def test_a_child_that_is_stopped_and_continued_is_seen_to_be() -> None:
    with spinning() as pid:
        watch = Watch(pid, Meters.find())
        watch.begin()
        os.kill(pid, signal.SIGSTOP)
        while state(pid) != "T":
            os.sched_yield()
        os.kill(pid, signal.SIGCONT)
        ran = of_process(Path("/"), pid)[f"cpu:{pid}"]
        while of_process(Path("/"), pid)[f"cpu:{pid}"] == ran:
            os.sched_yield()
        watch.end()
        found = watch.conditions(1)
    assert found.times_stopped
    quality, reasons = judge(found, Given(n_threads=1, n_cpus=1))
    assert quality == "contended"
    assert "the measuring process was stopped meanwhile, by a signal or a debugger" in reasons


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel keeps no schedstat")
def test_a_child_beside_a_hog_on_its_cpu_is_contended() -> None:
    cpu = min(os.sched_getaffinity(0))
    with spinning() as pid, spinning() as hog:
        for each in (pid, hog):
            os.sched_setaffinity(each, [cpu])
        watch = Watch(pid, Meters.find())
        watch.begin()
        delay = before = of_process(Path("/"), pid)[f"delay:{pid}"]
        while delay < before + SECOND_NS // 5:
            delay = of_process(Path("/"), pid)[f"delay:{pid}"]
            os.sched_yield()
        watch.end()
        found = watch.conditions(1)
    assert found.run_delay_share is not None
    assert found.others_busy_cores is not None
    assert judge(found, Given(n_threads=1, n_cpus=1))[0] == "contended"


def test_the_supervisor_watches_each_attempt(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path, standin_python: str
) -> None:
    first, second = records(supervise(group_of(model, PREFILL, DECODE), fingerprint, tmp_path, standin_python))
    for record in (first, second):
        assert record.conditions is not None
        assert record.quality is not None
        timed = sum(sample.elapsed_ns for sample in record.samples) / 1e9
        assert record.conditions.watched_seconds is not None
        assert record.conditions.watched_seconds >= timed


def test_an_attempt_that_is_measured_elsewhere_is_not_watched(
    model: ModelRef, fingerprint: Fingerprint, tmp_path: Path
) -> None:
    body = (
        "def say(**event):\n    tell(**event)\n    sys.stdin.readline()\n"
        "uid = json.loads(sys.stdin.readline())['assignments'][0]['attempt_uid']\n"
        "say(event='attempt_start', attempt_uid=uid)\nsay(event='stage', stage='decode', elsewhere=True)\n"
        "say(event='sample', attempt_uid=uid, sample=dict(repetition=1, n_tokens=4, elapsed_ns=10, gen_ns=10))\n"
        "say(event='attempt_end', attempt_uid=uid, resolved=dict(n_threads=1))\n"
    )
    (found,) = records(supervise(group_of(model, DECODE), fingerprint, tmp_path, python_that(tmp_path, body)))
    assert (found.conditions, found.quality) == (None, None)
