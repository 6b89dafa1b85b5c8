"""Bandwidth from timed pieces, what a curve says, the memory that is read, and the process that measures."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from schema.accept import accept_probe
from schema.canonical import decode, to_json
from schema.errors import HostError, StoreError
from schema.host import Allocation, Cache, Gpu
from schema.probe import Point, Probe, change
from tests.factories import make_fingerprint, make_hardware
from worker.probe import cpus, estimate, result, take, working_set
from worker.probe.course import Course
from worker.probe.estimate import Track, binned, cache_suspect, core_limited, point, saturated
from worker.probe.gpus import gpu_probes
from worker.probe.kernels import DOT, MEMCHR, Kernels, Memory
from worker.probe.process import ask, dropped
from worker.probe.region import Region, piece_bytes
from worker.probe.request import Request
from worker.probe.threads import best_of, repeating, together

MIB = 1 << 20
MS = 1_000_000
TINY = Request(counts=(1,), working_set_bytes=MIB, most_bytes=4 * MIB, step_seconds=0.01, budget_seconds=1.0)


def steady(n_pieces: int, each_ns: int, start_ns: int = 0, size: int = MIB, share: float | None = 1.0) -> Track:
    """Return a thread that takes the same time for every piece."""
    ends = [start_ns + each_ns * (number + 1) for number in range(n_pieces)]
    cpu = None if share is None else int(share * n_pieces * each_ns)
    return Track(start_ns=start_ns, ends_ns=ends, piece_bytes=size, cpu_ns=cpu)


def a_point(n_threads: int, gb_per_s: float, share: float = 1.0, size: int = 256 * MIB, kernel: str = DOT) -> Point:
    """Return a stretch in which every bin but the fastest was equal."""
    rate = gb_per_s * 1e9
    return Point(
        n_threads=n_threads,
        kernel=kernel,
        working_set_bytes=size,
        seconds=0.25,
        p95_bytes_per_s=rate,
        max_bytes_per_s=1.2 * rate,
        top_bytes_per_s=1.1 * rate,
        median_bytes_per_s=rate,
        mean_bytes_per_s=rate,
        min_cpu_share=share,
    )


def a_probe(*points: Point, **fields: Any) -> Probe:
    """Return a probe with these points."""
    defaults: dict[str, Any] = {
        "probe_uid": "probe-1",
        "host_uid": "host-1",
        "taken_at": "2026-01-02T03:04:05Z",
        "kind": "memory_read",
        "method": "a test",
        "version": 1,
        "value": 1e9,
        "n_threads": 1,
    }
    return Probe(**(defaults | fields), points=points)


def test_every_bin_of_a_steady_thread_has_its_rate() -> None:
    rates = binned([steady(n_pieces=100, each_ns=MS // 4)])
    assert len(rates) == 12
    assert rates == pytest.approx([4000 * MIB] * 12)


def test_pieces_longer_than_a_bin_are_spread_over_the_bins_that_they_took() -> None:
    rates = binned([steady(n_pieces=4, each_ns=7 * MS)])
    assert rates == pytest.approx([1e9 / (7 * MS) * MIB] * 14)


def test_only_the_time_when_all_threads_work_is_counted() -> None:
    late = steady(n_pieces=40, each_ns=MS // 2, start_ns=10 * MS)
    rates = binned([steady(n_pieces=40, each_ns=MS // 2), late])
    assert len(rates) == 5
    assert rates == pytest.approx([2 * 2000 * MIB] * 5)


def test_threads_that_never_ran_together_are_counted_over_their_whole_time() -> None:
    rates = binned([steady(n_pieces=4, each_ns=MS), steady(n_pieces=4, each_ns=MS, start_ns=50 * MS)])
    assert sum(rates) * 0.002 == pytest.approx(8 * MIB)


def test_a_stretch_shorter_than_a_bin_is_one_bin() -> None:
    assert binned([steady(n_pieces=1, each_ns=1000)]) == pytest.approx([MIB * 1e6])


def test_a_clock_that_stands_still_divides_by_nothing() -> None:
    assert binned([Track(start_ns=5, ends_ns=[5, 5, 5], piece_bytes=8)])[0] > 0


def test_time_without_a_cpu_lowers_the_mean_and_not_the_high_percentile() -> None:
    quick, stopped = MS // 4, 50 * MS
    ends = [quick * (number + 1) for number in range(400)]
    ends += [ends[-1] + stopped + quick * number for number in range(400)]
    found = point([Track(start_ns=0, ends_ns=ends, piece_bytes=MIB, cpu_ns=200 * MS)], DOT, 256 * MIB)
    assert found.p95_bytes_per_s == pytest.approx(4000 * MIB, rel=0.01)
    assert found.mean_bytes_per_s == pytest.approx(800 * MIB / 0.25, rel=0.01)
    assert found.min_cpu_share == pytest.approx(0.8, abs=0.01)
    assert found.contended
    assert found.bytes_per_s == found.top_bytes_per_s


def test_the_share_is_that_of_the_thread_that_ran_least() -> None:
    tracks = [steady(n_pieces=20, each_ns=MS), steady(n_pieces=20, each_ns=MS, share=0.5)]
    assert point(tracks, DOT, MIB).min_cpu_share == pytest.approx(0.5)
    assert point([steady(n_pieces=20, each_ns=MS, share=None)], DOT, MIB).min_cpu_share is None


def test_two_threads_that_give_twice_one_are_limited_by_their_cores() -> None:
    curve = {1: 38.0, 2: 76.0}
    assert core_limited(curve, 2) is True
    assert saturated(curve) is False


def test_a_last_doubling_that_gains_little_is_saturated() -> None:
    curve = {1: 20.0, 8: 60.0, 16: 62.0}
    assert saturated(curve) is True
    assert core_limited(curve, 16) is False


def test_a_step_that_is_no_doubling_is_judged_by_what_it_should_have_gained() -> None:
    assert saturated({1: 10.0, 8: 40.0, 10: 42.0}) is False
    assert saturated({1: 10.0, 8: 40.0, 10: 41.0}) is True


def test_second_threads_of_cores_do_not_count_against_the_cores() -> None:
    assert core_limited({1: 10.0, 2: 20.0, 4: 20.5}, n_cores=2) is True


def test_one_thread_tells_nothing_of_limits() -> None:
    assert saturated({1: 10.0}) is None
    assert core_limited({1: 10.0}, 1) is None
    assert core_limited({}, 1) is None


def test_a_hidden_cache_is_suspected_when_more_memory_reads_slower_each_time() -> None:
    base, double = a_point(2, 100.0), a_point(2, 80.0, size=512 * MIB)
    assert cache_suspect([base, double, a_point(2, 79.0, size=1024 * MIB)], 2) is True
    assert cache_suspect([base, double, a_point(2, 101.0, size=1024 * MIB)], 2) is False
    assert cache_suspect([base, a_point(2, 97.0, size=512 * MIB)], 2) is False
    assert cache_suspect([base, a_point(1, 20.0, size=512 * MIB)], 2) is None
    assert cache_suspect([base, a_point(2, 60.0, share=0.4, size=512 * MIB)], 2) is None


def test_a_disturbed_curve_tells_no_limit() -> None:
    known = result.common(make_fingerprint(), "2026-01-02T03:04:05Z")
    read = result.read_probe(result.Heard(points=(a_point(1, 38.0, share=0.5), a_point(2, 76.0))), 2, known)
    assert (read.contended, read.core_limited, read.saturated) == (True, None, None)


def test_the_curve_takes_undisturbed_stretches_and_of_suspected_ones_the_largest() -> None:
    points = (a_point(1, 30.0), a_point(1, 90.0, share=0.4), a_point(2, 50.0, share=0.4))
    assert a_probe(*points).curve() == {1: 30e9, 2: pytest.approx(55e9)}
    large = a_point(1, 25.0, size=512 * MIB)
    assert a_probe(*points, large, cache_suspect=True).curve()[1] == 25e9


def test_between_two_numbers_of_threads_the_bandwidth_lies_on_the_line() -> None:
    probe = a_probe(a_point(2, 20.0), a_point(4, 30.0))
    assert [probe.at(n) for n in (0, 1, 2, 3, 4, 9)] == [None, 10e9, 20e9, 25e9, 30e9, 30e9]
    assert a_probe().at(1) is None


def test_a_series_is_unsteady_beyond_ten_percent_in_either_direction() -> None:
    before = a_probe(a_point(1, 10.0), a_point(2, 40.0))
    assert change(before, a_probe(a_point(1, 1.0), a_point(2, 36.5))) is None
    reason = "the memory bandwidth of this machine changed from 40.0 to 35.0 GB/s around this series"
    assert change(before, a_probe(a_point(2, 35.0))) == reason
    assert change(a_probe(a_point(2, 35.0)), before) is not None
    assert change(before, a_probe(a_point(8, 1.0))) is None
    assert change(before, a_probe()) is None


def test_where_others_took_cpus_a_series_must_differ_more_to_be_unsteady() -> None:
    before, disturbed = a_probe(a_point(2, 40.0)), a_probe(a_point(2, 30.0, share=0.5), contended=True)
    assert disturbed.curve() == {2: pytest.approx(33e9)}
    assert change(before, disturbed) is None
    assert change(disturbed, a_probe(a_point(2, 42.0))) is not None


def test_a_probe_goes_through_json_and_the_border_unharmed() -> None:
    probe = a_probe(a_point(1, 30.0), device=None, moment="before", series_uid="s", details={"numpy": None, "n": 1.5})
    assert decode(Probe, json.loads(to_json(probe))) == probe
    assert accept_probe(json.loads(to_json(probe))) == probe


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"value": 0.0}, "value is 0.0"),
        ({"kind": "gemm"}, "kind"),
        ({"taken_at": "now"}, "taken_at"),
        ({"probe_uid": ""}, "probe_uid is empty"),
    ],
)
def test_a_probe_that_makes_no_sense_is_refused_by_field(fields: dict[str, Any], words: str) -> None:
    payload = json.loads(to_json(a_probe())) | fields
    with pytest.raises(StoreError, match=words):
        accept_probe(payload)


@pytest.mark.parametrize(
    ("caches", "free_mib", "wanted_mib", "most_mib"),
    [
        ([(3, "unified", 32 * MIB, 1)], 100_000, 256, 1024),
        ([(3, "unified", 16 * MIB, 16), (2, "unified", MIB, 64)], 100_000, 1024, 4096),
        ([(3, "unified", 16 * MIB, 96)], 100_000, 2048, 8192),
        ([(3, "unified", 105 * MIB, 1), (2, "unified", 2 * MIB, 56)], 100_000, 448, 1792),
        ([(2, "unified", 512 * 1024, 1)], 900, 225, 225),
        ([(3, "unified", 32 * MIB, 1)], 100, 64, 64),
        ([(3, "unified", 32 * MIB, 1)], None, 256, 256),
        ([], 100_000, 256, 1024),
        ([(1, "instruction", 9_000_000 * MIB, 9), (3, "unified", 0, 0)], 100_000, 256, 1024),
    ],
)
def test_the_memory_to_read_exceeds_all_caches_and_spares_the_machine(
    caches: list[tuple[int, str, int, int]], free_mib: int | None, wanted_mib: int, most_mib: int
) -> None:
    found = working_set.choose(
        [Cache(level=level, kind=kind, size_bytes=size, instances=count) for level, kind, size, count in caches],
        None if free_mib is None else free_mib * MIB,
    )
    assert (found.n_bytes // MIB, found.most_bytes // MIB) == (wanted_mib, most_mib)


def test_a_working_set_that_the_caches_nearly_hold_is_doubtful() -> None:
    cache = Cache(level=3, kind="unified", size_bytes=96 * MIB, instances=1)
    assert working_set.choose([cache], 400 * MIB).doubtful
    assert not working_set.choose([cache], 4000 * MIB).doubtful


def files(root: Path, **contents: str) -> Path:
    """Write files below `root`; `__` in a name stands for a slash."""
    for name, content in contents.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_free_memory_is_the_least_of_the_machine_and_its_control_groups(tmp_path: Path) -> None:
    files(
        tmp_path,
        proc__meminfo="MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n",
        proc__self__cgroup="0::/a\n",
        proc__self__mountinfo="30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    )
    assert working_set.free_bytes(tmp_path) == 4_096_000_000
    group = tmp_path / "sys/fs/cgroup/a"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("1000000000\n")
    (group / "memory.current").write_text("900000000\n")
    (group / "memory.stat").write_text("anon 100\ninactive_file 300000000\n")
    assert working_set.free_bytes(tmp_path) == 400_000_000
    (group / "memory.max").write_text("max\n")
    assert working_set.free_bytes(tmp_path) == 4_096_000_000


def test_a_machine_without_proc_does_not_say_what_is_free(tmp_path: Path) -> None:
    assert working_set.free_bytes(tmp_path) is None


def test_every_core_comes_before_the_second_thread_of_any(tmp_path: Path) -> None:
    for number, siblings in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        files(tmp_path / f"sys/devices/system/cpu/cpu{number}", topology__core_cpus_list=siblings)
    order = cpus.ordered(tmp_path, {0, 1, 2, 3})
    assert [cpu.number for cpu in order] == [0, 2, 1, 3]
    assert cpus.counts(order, None) == (1, 2, 4)
    # A CPU whose sibling is not ours is a core of its own.
    assert [cpu.thread for cpu in cpus.ordered(tmp_path, {1, 3})] == [0, 0]


def test_fast_cores_come_first_and_nearly_equal_ones_are_equal(tmp_path: Path) -> None:
    for number, capacity in enumerate((731, 718, 997, 1024)):
        files(tmp_path / f"sys/devices/system/cpu/cpu{number}", cpu_capacity=str(capacity))
    order = cpus.ordered(tmp_path, {0, 1, 2, 3})
    assert [cpu.number for cpu in order] == [2, 3, 0, 1]
    assert cpus.counts(order, None) == (1, 2, 4)


def test_the_kernels_own_list_of_fast_cores_is_taken(tmp_path: Path) -> None:
    files(tmp_path, sys__devices__cpu_core__cpus="1\n")
    assert [cpu.number for cpu in cpus.ordered(tmp_path, {0, 1})] == [1, 0]


@pytest.mark.parametrize(("quota", "counts"), [(None, (1, 2)), (2.0, (1, 2)), (1.5, (1,)), (0.2, (1,))])
def test_a_quota_caps_the_curve(tmp_path: Path, quota: float | None, counts: tuple[int, ...]) -> None:
    assert cpus.counts(cpus.ordered(tmp_path, {0, 1}), quota) == counts


def test_more_threads_than_cpus_are_not_tried() -> None:
    assert cpus.capped([64, 2], 2, None) == (2,)
    assert cpus.capped([], 2, None) == (1,)


def test_threads_read_what_lies_at_their_own_node() -> None:
    region = Region(4, 64 * 1024, 64 * 1024, nodes=[0, 1, 0, 1])
    region.write(64 * 1024, 1.0)
    whole = region.offsets(4)
    assert [len(offsets) for offsets in whole] == [2, 2, 2, 2]
    assert region.offsets(2) == [whole[0] + whole[2], whole[1] + whole[3]]
    assert region.offsets(1) == [whole[0] + whole[2]]


def test_memory_grows_where_it_is_and_no_further_than_its_room() -> None:
    region = Region(2, 64 * 1024, 128 * 1024)
    region.write(64 * 1024, 1.0)
    first = region.offsets(2)
    region.write(1 << 40, 1.0)
    assert [offsets[: len(first[0])] for offsets in region.offsets(2)] == first
    assert sum(map(len, region.offsets(2))) * region.piece_bytes == region.room_bytes == 128 * 1024


def test_writing_stops_when_its_time_is_over() -> None:
    moments = iter(range(1000))
    region = Region(1, MIB, MIB)
    region.piece_bytes = 4096
    region.write(MIB, 0.5, clock=lambda: float(next(moments)))
    assert len(region.offsets(1)[0]) == 2


def test_pieces_are_short_of_few_threads_and_longer_of_many() -> None:
    assert piece_bytes(2, 256 * MIB) == 4 * MIB
    assert piece_bytes(32, 2048 * MIB) == 16 * MIB
    assert piece_bytes(64, 64 * MIB) == MIB // 2
    assert piece_bytes(1000, MIB) == 4096


def test_a_thread_goes_round_its_pieces_until_its_time_is_over() -> None:
    moments = iter(range(0, 1000 * MS, MS))
    seen: list[int] = []
    work = repeating(seen.append, [(1,), (2,), (3,)], 8, 0.005, clock=lambda: next(moments))
    track = work(lambda: None)
    assert seen == [1, 2, 3, 1, 2]
    assert (track.start_ns, list(track.ends_ns)) == (0, [MS, 2 * MS, 3 * MS, 4 * MS, 5 * MS])


def test_the_quickest_call_counts_and_there_is_at_least_one() -> None:
    moments = iter((0, 7, 10, 30))
    assert best_of(lambda: None, 20e-9, clock=lambda: next(moments))(lambda: None) == 3
    moments = iter((0, 9))
    assert best_of(lambda: None, 0.0, clock=lambda: next(moments))(lambda: None) == 9


def test_a_thread_that_fails_does_not_keep_the_others_waiting() -> None:
    def fails(_ready: Any) -> int:
        raise MemoryError("no more")

    def waits(ready: Any) -> int:
        ready()
        return 1

    with pytest.raises(MemoryError, match="no more"):
        together([waits, fails], ())


def test_a_cpu_that_cannot_be_had_pins_nothing() -> None:
    before = os.sched_getaffinity(0)
    assert together([lambda ready: 1], [123_456]) == [1]
    assert os.sched_getaffinity(0) == before


def events_of(request: Request, kernels: Kernels) -> list[dict[str, Any]]:
    """Return what a course on this machine tells."""
    found: list[dict[str, Any]] = []
    Course(request, kernels, found.append).run()
    return found


def test_a_whole_course_reads_with_every_kernel_copies_and_multiplies() -> None:
    heard = result.hear(events_of(TINY, Kernels()))
    assert [each.kernel for each in heard.points[:2]] == [DOT, MEMCHR]
    assert heard.points[-1].kernel == "memmove"
    assert {each.working_set_bytes for each in heard.points} >= {MIB, 2 * MIB}
    assert all(each.p95_bytes_per_s > 0 for each in heard.points)
    assert heard.products[0]["flops"] > 0


def test_without_numpy_memory_is_read_by_the_c_library_and_that_is_said() -> None:
    kernels = Kernels(numpy=False)
    told = {"event": "kernels", "numpy": kernels.numpy, "blas": kernels.blas(), "missing": "No module named numpy"}
    heard = result.hear([told, *events_of(TINY, kernels)])
    assert {each.kernel for each in heard.points} == {MEMCHR, "memmove"}
    assert heard.products == ()
    read = result.read_probe(heard, 1, result.common(make_fingerprint(), "2026-01-02T03:04:05Z"))
    assert read.value is not None
    assert "numpy cannot be used (No module named numpy)" in read.errors[0]


def test_both_kernels_read_every_byte_that_they_claim() -> None:
    kernels, memory = Kernels(), Memory(4 * MIB)
    memory.write(0, 4 * MIB)
    left, right = kernels.pieces(DOT, memory, [0], 4 * MIB)[0]
    assert left.nbytes + right.nbytes == 4 * MIB
    assert left[0] == right[-1] > 1e-300
    assert kernels.function(MEMCHR)(*kernels.pieces(MEMCHR, memory, [0], 4 * MIB)[0]) is None


def test_a_course_without_time_leaves_out_what_is_not_needed() -> None:
    short = Request(counts=(1,), working_set_bytes=MIB, most_bytes=4 * MIB, step_seconds=0.01, budget_seconds=0.0)
    told = events_of(short, Kernels())
    assert [event["event"] for event in told if event["event"] != "step"] == ["point"] * 3 + ["gemm"]


def test_a_brief_course_reads_once_for_each_number_of_threads() -> None:
    brief = Request(counts=(1, 2), working_set_bytes=MIB, most_bytes=MIB, step_seconds=0.01, brief=True)
    points = result.hear(events_of(brief, Kernels())).points
    assert [(each.n_threads, each.kernel) for each in points] == [(1, DOT), (2, DOT)]


def test_the_process_measures_with_clean_variables_and_tells_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    steps: list[str] = []
    events = ask(TINY, 60.0, steps.append)
    assert dropped()["OPENBLAS_CORETYPE"] == "Haswell"
    assert events[0]["numpy"]
    assert steps[0] == "filling memory"
    assert result.hear(events[:-1]).points


def python_that(body: str) -> tuple[str, ...]:
    """Return a command that runs `body` in place of the probing process."""
    return (sys.executable, "-c", f"import json, os, sys, time\n{body}")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("time.sleep(60)", "was not done within 0.5 s and was ended"),
        ("sys.exit('the numbers are gone')", "the numbers are gone"),
        ("sys.exit(3)", "it ended with exit code 3"),
        ("os.abort()", "it was ended by signal 6"),
        ("print('{]')", "it ended with exit code 0"),
        ("print('[1]'); print('{\"event\": \"point\"}')", "it ended with exit code 0"),
    ],
)
def test_a_process_that_fails_is_one_plain_error(body: str, words: str) -> None:
    limit = 0.5 if "sleep" in body else 60.0
    with pytest.raises(HostError, match=words):
        ask(TINY, limit, command=python_that(body))


def test_a_process_that_cannot_be_started_is_one_plain_error() -> None:
    with pytest.raises(HostError, match="cannot be started"):
        ask(TINY, 1.0, command=("/no/such/python",))


def test_a_process_that_tells_without_end_is_ended() -> None:
    with pytest.raises(HostError, match="failed"):
        ask(TINY, 60.0, command=python_that("while True: print('x' * 65536)"))


def test_the_environment_of_the_process_is_that_of_one_thread() -> None:
    names = ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    body = f"print(json.dumps({{'event': 'end', 'env': {{n: os.environ.get(n) for n in {names}}}}}))"
    found = ask(TINY, 60.0, command=python_that(body))[-1]["env"]
    assert found == dict.fromkeys(names, "1") | {"OPENBLAS_CORETYPE": None}


def told_by(monkeypatch: pytest.MonkeyPatch, *points: Point) -> list[Request]:
    """Let the probing process tell `points`; return the list of what it is asked from now on."""
    asked: list[Request] = []

    def answer(request: Request, limit_seconds: float, told: Any = None) -> list[dict[str, Any]]:
        asked.append(request)
        kernels = {"event": "kernels", "numpy": "2.4", "blas": None, "missing": None}
        return [kernels, *({"event": "point", "point": json.loads(to_json(each))} for each in points), {"event": "end"}]

    monkeypatch.setattr(take, "ask", answer)
    monkeypatch.setattr(cpus, "allowed", lambda: frozenset({0, 1}))
    return asked


def test_the_short_form_answers_for_the_threads_of_the_attempts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = told_by(monkeypatch, a_point(1, 40.0), a_point(2, 39.0))
    probe = take.brief(make_fingerprint(), [2, 1], "series-1", "after", root=tmp_path)
    assert asked[0].counts == (1, 2)
    assert asked[0].brief
    assert asked[0].step_seconds == pytest.approx(0.2)
    assert (probe.value, probe.n_threads, probe.series_uid, probe.moment) == (39e9, 2, "series-1", "after")
    assert probe.core_limited is None


def test_the_short_form_keeps_to_the_largest_three_numbers_of_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = told_by(monkeypatch, a_point(8, 40.0))
    monkeypatch.setattr(cpus, "allowed", lambda: frozenset(range(16)))
    take.brief(make_fingerprint(), [1, 2, 4, 8, 64], "series-1", "before", root=tmp_path)
    assert asked[0].counts == (4, 8, 16)


def test_a_short_form_that_fails_has_no_value_and_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: Any) -> None:
        raise HostError("The probe of this machine failed: it rains.")

    monkeypatch.setattr(take, "ask", fail)
    probe = take.brief(make_fingerprint(), [1], "series-1", "before", root=tmp_path)
    assert probe.value is None
    assert probe.errors == ("The probe of this machine failed: it rains.",)
    assert accept_probe(json.loads(to_json(probe))) == probe


def test_a_point_of_nonsense_is_one_plain_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(take, "ask", lambda *_: [{"event": "point", "point": {"n_threads": 1}}, {"event": "end"}])
    with pytest.raises(HostError, match="makes no sense"):
        take.full(make_fingerprint(), root=tmp_path)


def test_a_whole_probe_holds_the_curve_its_verdict_and_each_gpu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told_by(monkeypatch, a_point(1, 40.0), a_point(2, 78.0), a_point(2, 60.0, kernel="memmove"))
    t4 = Gpu(vendor="NVIDIA", name="Tesla T4", memory_bus_bits=256, max_memory_clock_hz=5_001_000_000)
    fingerprint = make_fingerprint(hardware=make_hardware(gpus=(t4, Gpu(vendor="Intel", name="UHD"))))
    read, copy, gemm, gpu = take.full(fingerprint, root=tmp_path)
    assert (read.value, read.n_threads, read.core_limited, read.saturated) == (78e9, 2, True, False)
    assert (copy.value, copy.kind) == (60e9, "memory_copy")
    assert gemm.value is None
    assert gpu.value == pytest.approx(320.064e9)
    assert (gpu.theoretical, gpu.device) == (True, "0: Tesla T4")
    assert len({probe.probe_uid for probe in (read, copy, gemm, gpu)}) == 4
    for probe in (read, copy, gemm, gpu):
        assert accept_probe(json.loads(to_json(probe))) == probe


def test_a_quota_and_short_memory_are_heeded_and_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = told_by(monkeypatch, a_point(1, 40.0))
    files(tmp_path, proc__meminfo="MemAvailable: 500000 kB\n")
    hardware = make_hardware(caches=(Cache(level=3, kind="unified", size_bytes=96 * MIB, instances=1),))
    fingerprint = make_fingerprint(hardware=hardware, allocation=Allocation(cpu_quota_cores=1.5))
    read = take.full(fingerprint, root=tmp_path)[0]
    assert asked[0].counts == (1,)
    assert asked[0].working_set_bytes == 128_000_000
    assert "not twice as large as the caches" in read.errors[0]


def test_a_gpu_whose_driver_is_silent_has_no_bandwidth() -> None:
    assert gpu_probes((Gpu(vendor="NVIDIA", name="vGPU"),), {}) == ()


def test_a_disturbed_point_counts_only_where_there_is_no_other() -> None:
    heard = result.Heard(points=(a_point(1, 40.0, share=0.5), a_point(2, 70.0)))
    known = result.common(make_fingerprint(), "2026-01-02T03:04:05Z")
    assert result.read_probe(heard, 2, known).contended is True
    again = result.Heard(points=(*heard.points, a_point(1, 39.0)))
    assert result.read_probe(again, 2, known).contended is False


def test_percentiles_are_values_that_were_there() -> None:
    assert estimate.percentile([1.0, 2.0, 3.0], 0.5) == 2.0
    assert estimate.percentile([1.0], 0.95) == 1.0
