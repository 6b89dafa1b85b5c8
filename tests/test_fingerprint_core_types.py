import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from schema.host import CoreType
from tests.shared import CASES, needs_cases
from tests.trees import write
from worker.fingerprint import cpu
from worker.fingerprint.cpu import Cpu
from worker.fingerprint.evidence import Notes

KINDS = ("cpu_core", "cpu_atom")
CPUS = "sys/devices/system/cpu"

ARM = """\
processor\t: {n}
Features\t: fp asimd asimddp
CPU implementer\t: {implementer}
CPU architecture: 8
CPU variant\t: {variant}
CPU part\t: {part}
CPU revision\t: 0

"""
X86 = """\
processor\t: {n}
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: {model}
model name\t: {name}
stepping\t: 2
flags\t\t: fpu lm avx avx2

"""


def read(root: Path, answers: Mapping[str, object] | None = None) -> Cpu:
    return cpu.read(root, Notes(), answers or {})


def counts(found: Cpu) -> list[tuple[str | None, int | None, int | None]]:
    return [(one.kind, one.n_cores, one.threads_per_core) for one in found.core_types]


def threads(cores: list[list[int]]) -> dict[str, str]:
    """Return the topology of cores with these CPUs."""
    return {f"{CPUS}/cpu{n}/topology/thread_siblings_list": ",".join(map(str, core)) for core in cores for n in core}


def x86_cpuinfo(n: int, model: int = 186, name: str = "13th Gen Intel(R) Core(TM) i7-1370P") -> dict[str, str]:
    return {"proc/cpuinfo": "".join(X86.format(n=i, model=model, name=name) for i in range(n))}


def second_level(n: int, size: str, shared: str, clock: int) -> dict[str, str]:
    index = f"{CPUS}/cpu{n}/cache/index2"
    return {
        f"{index}/level": "2",
        f"{index}/type": "Unified",
        f"{index}/size": size,
        f"{index}/shared_cpu_list": shared,
        f"{CPUS}/cpu{n}/cpufreq/cpuinfo_max_freq": str(clock),
    }


def hybrid_without_lists() -> dict[str, str]:
    """Two fast cores with two threads, one of which is sold to clock higher, and four saving cores with one cache."""
    files = threads([[0, 1], [2, 3], [4], [5], [6], [7]]) | x86_cpuinfo(8)
    for n, pair, clock in ((0, "0-1", 5000000), (1, "0-1", 5000000), (2, "2-3", 5200000), (3, "2-3", 5200000)):
        files |= second_level(n, "1280K", pair, clock)
    for n in range(4, 8):
        files |= second_level(n, "2048K", "4-7", 3900000)
    return files


def test_the_kernels_lists_tell_the_kinds_of_a_hybrid_and_each_has_its_own_name(tmp_path: Path) -> None:
    lists = {"sys/devices/cpu_core/cpus": "0-3", "sys/devices/cpu_atom/cpus": "4-5", f"{CPUS}/online": "0-5"}
    found = read(write(tmp_path, threads([[0, 1], [2, 3], [4], [5]]) | x86_cpuinfo(6) | lists))

    assert found.core_types == (
        CoreType(
            vendor="GenuineIntel", key="6-186-2", name="Raptor Cove", kind="performance", n_cores=2, threads_per_core=2
        ),
        CoreType(
            vendor="GenuineIntel", key="6-186-2", name="Gracemont", kind="efficiency", n_cores=2, threads_per_core=1
        ),
    )
    assert found.name == "13th Gen Intel(R) Core(TM) i7-1370P"
    assert found.cpus_by_type == {"Gracemont": (4, 5), "Raptor Cove": (0, 1, 2, 3)}


def test_a_hybrid_that_no_table_knows_is_named_by_its_brand_and_kind(tmp_path: Path) -> None:
    lists = {"sys/devices/cpu_core/cpus": "0", "sys/devices/cpu_atom/cpus": "1", f"{CPUS}/online": "0-1"}
    found = read(write(tmp_path, threads([[0], [1]]) | x86_cpuinfo(2, model=250, name="Intel(R) Next 9000") | lists))

    assert [one.name for one in found.core_types] == [
        "Intel(R) Next 9000 performance core",
        "Intel(R) Next 9000 efficiency core",
    ]


def test_without_the_lists_cache_and_clock_together_tell_the_kinds(tmp_path: Path) -> None:
    found = read(write(tmp_path, hybrid_without_lists()))

    assert counts(found) == [("performance", 2, 2), ("efficiency", 4, 1)]


def test_old_and_new_kernels_find_the_same_types(tmp_path: Path) -> None:
    old = write(tmp_path / "old", hybrid_without_lists())
    new = write(tmp_path / "new", hybrid_without_lists())
    write(new, {"sys/devices/cpu_core/cpus": "0-3", "sys/devices/cpu_atom/cpus": "4-5"})
    write(new, {"sys/devices/cpu_lowpower/cpus": "6-7"})

    assert read(old).core_types == read(new).core_types


def test_equal_cores_that_boost_unequally_are_one_type(tmp_path: Path) -> None:
    files = threads([[0, 1], [2, 3]]) | x86_cpuinfo(4, model=158)
    for n in range(4):
        files |= second_level(n, "256K", "0-1" if n < 2 else "2-3", 5000000 if n < 2 else 4800000)
    found = read(write(tmp_path, files))

    assert counts(found) == [(None, 2, 2)]


def test_unequal_caches_alone_make_no_second_type(tmp_path: Path) -> None:
    files = threads([[0], [1], [2]]) | x86_cpuinfo(3, model=23)
    for n, shared in ((0, "0-1"), (1, "0-1"), (2, "2")):
        files |= second_level(n, "6144K", shared, 3000000)
    found = read(write(tmp_path, files))

    assert counts(found) == [(None, 3, 1)]


def arm_cpuinfo(*cores: tuple[str, str, str]) -> dict[str, str]:
    blocks = [ARM.format(n=n, implementer=i, part=p, variant=v) for n, (i, p, v) in enumerate(cores)]
    return {"proc/cpuinfo": "".join(blocks)}


def test_arm_types_are_told_by_every_block_and_ranked_by_what_they_are_made_for(tmp_path: Path) -> None:
    little, middle, big = ("0x41", "0xd46", "0x1"), ("0x41", "0xd4d", "0x1"), ("0x41", "0xd4e", "0x1")
    found = read(write(tmp_path, arm_cpuinfo(*[little] * 3, *[middle] * 4, big)))

    assert [(one.key, one.name, one.kind, one.n_cores) for one in found.core_types] == [
        ("0x41-0xd4d-0x1", "Cortex-A715", "performance", 4),
        ("0x41-0xd4e-0x1", "Cortex-X3", "performance", 1),
        ("0x41-0xd46-0x1", "Cortex-A510", "efficiency", 3),
    ]
    assert (found.n_packages, found.n_cores_physical, found.n_cores_logical) == (1, 8, 8)


def test_the_capacity_of_a_core_makes_no_type(tmp_path: Path) -> None:
    files = arm_cpuinfo(*[("0x41", "0xd87", "0x0")] * 2, *[("0x41", "0xd85", "0x0")] * 2)
    files |= {f"{CPUS}/cpu{n}/cpu_capacity": str(c) for n, c in enumerate((718, 731, 997, 1024))}
    found = read(write(tmp_path, files))

    assert [(one.name, one.kind, one.n_cores) for one in found.core_types] == [
        ("Cortex-X925", "performance", 2),
        ("Cortex-A725", "efficiency", 2),
    ]


def test_the_register_in_sys_stands_in_for_blocks_that_are_missing(tmp_path: Path) -> None:
    register = "regs/identification/midr_el1"
    files = {f"{CPUS}/cpu{n}/{register}": "0x00000000414fd0b1\n" for n in range(4)} | threads([[n] for n in range(4)])
    found = read(write(tmp_path, files))

    assert [(one.key, one.name, one.n_cores) for one in found.core_types] == [("0x41-0xd0b-0x4", "Cortex-A76", 4)]
    assert (found.name, found.vendor) == ("Cortex-A76", "ARM")


def test_unknown_designs_are_ranked_by_their_highest_clock(tmp_path: Path) -> None:
    files = arm_cpuinfo(*[("0x51", "0x001", "0x4")] * 2, *[("0x51", "0x001", "0x3")] * 2)
    files |= {f"{CPUS}/cpu{n}/cpufreq/cpuinfo_max_freq": "3532800" if n < 2 else "4320000" for n in range(4)}
    found = read(write(tmp_path, files))

    assert [(one.key, one.kind) for one in found.core_types] == [
        ("0x51-0x001-0x3", "performance"),
        ("0x51-0x001-0x4", "efficiency"),
    ]


def test_a_text_that_describes_one_core_for_all_is_noted(tmp_path: Path) -> None:
    notes = Notes()
    old = "processor : 0\n\nprocessor : 1\n\nFeatures : neon\nCPU implementer : 0x41\nCPU part : 0xc07\n"
    found = cpu.read(write(tmp_path, {"proc/cpuinfo": old}), notes, {})

    assert [(one.name, one.n_cores) for one in found.core_types] == [("Cortex-A7", 2)]
    assert any(line.startswith("core_types:") for line in notes.errors)


def test_cores_without_topology_are_cpus_unless_their_design_runs_threads(tmp_path: Path) -> None:
    single = read(write(tmp_path / "a", arm_cpuinfo(*[("0x41", "0xd0c", "0x3")] * 4)))
    threaded = read(write(tmp_path / "b", arm_cpuinfo(*[("0x43", "0x0af", "0x1")] * 4)))

    assert (single.n_cores_physical, threaded.n_cores_physical) == (4, None)


ANSWERS = {"vendor_id_raw": "GenuineIntel", "brand_raw": "13th Gen Intel(R) Core(TM) i7-1370P", "family": 6}


def test_py_cpuinfo_is_the_source_where_it_answers_and_the_values_are_the_same(tmp_path: Path) -> None:
    root = write(tmp_path, threads([[0, 1]]) | x86_cpuinfo(2))
    answers = {**ANSWERS, "model": 186, "stepping": 2, "flags": ["amx_tile", "avx", "avx2"]}
    asked, not_asked = Notes(), Notes()

    assert cpu.read(root, asked, answers) == cpu.read(root, not_asked, {})
    fields = ("cpu_name", "cpu_vendor", "isa", "core_types")
    assert {name: asked.sources[name] for name in fields} == {
        "cpu_name": "py-cpuinfo",
        "cpu_vendor": "py-cpuinfo",
        "isa": "py-cpuinfo",
        "core_types": "py-cpuinfo and /sys",
    }
    assert "py-cpuinfo" not in {not_asked.sources[name] for name in fields}
    assert asked.errors == not_asked.errors


def test_py_cpuinfo_never_says_a_number_that_is_zero_so_it_is_taken_from_the_text(tmp_path: Path) -> None:
    zero = {"proc/cpuinfo": X86.format(n=0, model=1, name="AMD EPYC 7451").replace("stepping\t: 2", "stepping\t: 0")}
    found = read(write(tmp_path, zero), {**ANSWERS, "brand_raw": "AMD EPYC 7451", "model": 1})

    assert found.core_types[0].key == "6-1-0"


def test_where_cpus_differ_the_first_ones_answer_is_not_everyones(tmp_path: Path) -> None:
    mixed = X86.format(n=0, model=85, name="Xeon 5") + X86.format(n=1, model=106, name="Xeon 6")
    root = write(tmp_path, {"proc/cpuinfo": mixed})

    assert read(root, {**ANSWERS, "brand_raw": "Xeon 5", "model": 85}) == read(root)
    assert read(root).name == "Xeon 5 + Xeon 6"


def test_without_proc_the_answers_are_all_there_is(tmp_path: Path) -> None:
    found = read(tmp_path, {**ANSWERS, "flags": ["avx512vnni", "sse"]})

    assert (found.name, found.vendor, found.isa) == (ANSWERS["brand_raw"], "GenuineIntel", ("avx512_vnni",))


@pytest.mark.parametrize(
    ("core", "atom", "cores", "expected"),
    [
        ("0-7", "8-19", "20", [("performance", 8, 1), ("efficiency", 12, 1)]),
        ("0-15", "16-31", "24", [("performance", 8, 2), ("efficiency", 16, 1)]),
    ],
)
def test_two_lists_and_the_sum_of_cores_are_enough_for_the_counts(
    tmp_path: Path, core: str, atom: str, cores: str, expected: list[tuple[str, int, int]]
) -> None:
    lists = {"sys/devices/cpu_core/cpus": core, "sys/devices/cpu_atom/cpus": atom}
    last = int(atom.split("-")[1])
    block = X86.format(n=0, model=198, name="Intel(R) Core(TM) Ultra 7 265K").replace(
        "flags", f"cpu cores : {cores}\nflags"
    )
    text = "".join(block.replace("processor\t: 0", f"processor\t: {n}") for n in range(last + 1))
    found = read(write(tmp_path, {"proc/cpuinfo": text, **lists}))

    assert counts(found) == expected
    assert (found.n_cores_physical, found.n_cores_logical) == (int(cores), last + 1)


@needs_cases
def test_hybrids_that_people_reported_with_wrong_thread_counts(tmp_path: Path) -> None:
    expected = json.loads((CASES / "D3/expected.json").read_text())
    for name in ("arrowlake", "i9_smt"):
        facts = dict(re.findall(r"(.+?):\s+(.+)", (CASES / "D3" / name / "lscpu.txt").read_text()))
        block = X86.replace("flags", f"cpu cores : {facts['Core(s) per socket']}\nflags")
        text = "".join(block.format(n=n, model=198, name=facts["Model name"]) for n in range(int(facts["CPU(s)"])))
        lists = {
            f"sys/devices/{kind}/cpus": (CASES / f"D3/{name}/sys/devices/{kind}/cpus").read_text() for kind in KINDS
        }
        found = read(write(tmp_path / name, {"proc/cpuinfo": text, **lists}))
        known = expected[name]

        assert found.n_cores_logical == known["logical"]
        assert [one.n_cores for one in found.core_types] == [known["performance"], known["efficiency"]]
        assert known.get("physical", found.n_cores_physical) == found.n_cores_physical


@needs_cases
def test_lists_alone_leave_open_how_many_threads_a_fast_core_runs() -> None:
    found = read(CASES / "D3/i9_smt")

    assert counts(found) == [("performance", None, None), ("efficiency", 16, 1)]
    assert found.cpus_by_type == {"efficiency core": tuple(range(16, 32)), "performance core": tuple(range(16))}


@needs_cases
def test_a_board_with_big_and_little_cores_has_both(tmp_path: Path) -> None:
    text = (CASES / "D3/rk3588/cpuinfo.txt").read_text()
    clocks = {
        f"{CPUS}/cpu{n}/cpufreq/cpuinfo_max_freq": (
            CASES / f"D3/rk3588/{CPUS}/cpu{n}/cpufreq/cpuinfo_max_freq"
        ).read_text()
        for n in range(8)
    }
    found = read(write(tmp_path, {"proc/cpuinfo": text, **clocks}))

    assert [(one.name, one.kind, one.n_cores) for one in found.core_types] == [
        ("Cortex-A76", "performance", 4),
        ("Cortex-A55", "efficiency", 4),
    ]
    assert (found.n_cores_physical, found.n_cores_logical) == (8, 8)
