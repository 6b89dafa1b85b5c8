import json
import os
import re
import select
import sys
from pathlib import Path

import pytest

from schema.host import Cache, Hardware
from tests.shared import unpacked
from tests.trees import write
from worker.fingerprint import board, cpu, pycpuinfo
from worker.fingerprint.cpu import Cpu
from worker.fingerprint.evidence import Notes, cpu_list, cpu_mask, number, text

WANTED = (
    *("*/proc/cpuinfo", "*/EXPECTED.lscpu", "*/cpu/online"),
    *("*/topology/physical_package_id", "*/topology/core_siblings*", "*/topology/thread_siblings*"),
    *("*/cache/index?/level", "*/cache/index?/type", "*/cache/index?/size", "*/cache/index?/shared_cpu_*"),
    *("*/dmi/id/sys_vendor", "*/dmi/id/product_name", "*/dmi/id/board_vendor"),
)

X86 = """\
processor\t: {n}
vendor_id\t: AuthenticAMD
model name\t: AMD Ryzen 9 3950X 16-Core Processor{blanks}
cache size\t: 512 KB
physical id\t: 0
core id\t\t: {core}
flags\t\t: fpu lm avx avx2 fma f16c sse4_2 some_new_flag

"""
ARM_SERVER = """\
processor\t: {n}
Features\t: fp asimd asimddp i8mm bf16 sve
CPU implementer\t: {implementer}
CPU architecture: 8
CPU variant\t: 0x1
CPU part\t: {part}
CPU revision\t: 0

"""


def read(root: Path, answers: dict[str, object] | None = None) -> tuple[Cpu, Notes]:
    notes = Notes()
    return cpu.read(root, notes, answers or {}), notes


def smt_machine(numbering: list[int]) -> dict[str, str]:
    """Two packages of one core with two threads; `numbering` names the CPUs."""
    files = {"sys/devices/system/cpu/online": ",".join(map(str, sorted(numbering)))}
    for package, pair in enumerate((numbering[:2], numbering[2:])):
        siblings = ",".join(map(str, sorted(pair)))
        for n in pair:
            place = f"sys/devices/system/cpu/cpu{n}"
            files |= {
                f"{place}/topology/physical_package_id": str(package),
                f"{place}/topology/core_siblings_list": siblings,
                f"{place}/topology/thread_siblings_list": siblings,
                f"{place}/cache/index0/level": "1",
                f"{place}/cache/index0/type": "Data",
                f"{place}/cache/index0/size": "48K",
                f"{place}/cache/index0/shared_cpu_list": siblings,
                f"{place}/cache/index3/level": "3",
                f"{place}/cache/index3/type": "Unified",
                f"{place}/cache/index3/size": "32M",
                f"{place}/cache/index3/shared_cpu_map": f"{sum(1 << m for m in pair):x}",
            }
    files["proc/cpuinfo"] = "".join(X86.format(blanks="   ", n=n, core=0) for n in sorted(numbering))
    return files


def test_packages_cores_threads_and_cache_instances_are_counted_from_sys(tmp_path: Path) -> None:
    found, notes = read(write(tmp_path, smt_machine([0, 1, 2, 3])))

    assert (found.n_packages, found.n_cores_physical, found.n_cores_logical) == (2, 2, 4)
    assert found.caches == (
        Cache(level=1, kind="data", size_bytes=48 << 10, instances=2),
        Cache(level=3, kind="unified", size_bytes=32 << 20, instances=2),
    )
    assert notes.sources["n_cores_physical"] == "/sys/devices/system/cpu/cpu*/topology"


def test_the_numbering_of_cpus_does_not_change_what_is_found(tmp_path: Path) -> None:
    one, _ = read(write(tmp_path / "a", smt_machine([0, 1, 2, 3])))
    other, _ = read(write(tmp_path / "b", smt_machine([0, 2, 1, 3])))

    assert one == other


def test_a_cpu_that_is_offline_has_no_topology_and_is_not_counted(tmp_path: Path) -> None:
    files = smt_machine([0, 1, 2, 3])
    del files["sys/devices/system/cpu/online"]
    gone = [name for name in files if "cpu3/topology" in name or "cpu3/cache" in name]
    found, _ = read(write(tmp_path, {name: content for name, content in files.items() if name not in gone}))

    assert found.n_cores_logical == 3


def test_without_sys_the_counts_come_from_cpuinfo(tmp_path: Path) -> None:
    found, notes = read(
        write(tmp_path, {"proc/cpuinfo": "".join(X86.format(blanks="   ", n=n, core=n // 2) for n in range(4))})
    )

    assert (found.n_packages, found.n_cores_physical, found.n_cores_logical) == (1, 2, 4)
    assert found.arch == "x86_64"
    assert any(line.startswith("caches:") for line in notes.errors)


def test_names_lose_blanks_and_the_clock_of_py_cpuinfo_is_no_part_of_them(tmp_path: Path) -> None:
    root = write(tmp_path, {"proc/cpuinfo": X86.format(blanks="   ", n=0, core=0)})
    raw = {"brand_raw": "AMD Ryzen 9 3950X 16-Core Processor           ", "hz_advertised": [3500000000, 0], "count": 32}
    with_it, _ = read(root, pycpuinfo.used_fields(json.dumps(raw), Notes()))
    without, _ = read(root)

    assert with_it == without
    assert without.name == "AMD Ryzen 9 3950X 16-Core Processor"


def test_only_listed_instruction_sets_are_kept_and_only_those_of_every_core(tmp_path: Path) -> None:
    lesser = X86.format(blanks="   ", n=1, core=1).replace("avx2 ", "")
    found, _ = read(write(tmp_path, {"proc/cpuinfo": X86.format(blanks="   ", n=0, core=0) + lesser}))

    assert found.isa == ("avx", "fma", "f16c")


@pytest.mark.parametrize(
    ("implementer", "part", "name", "vendor"),
    [
        ("0x41", "0xd0c", "Neoverse-N1", "ARM"),
        ("0x43", "0x0a1", "ThunderX 88XX", "Cavium"),
        ("0x61", "0x022", "Icestorm (M1)", "Apple"),
        ("0x43", "0x999", "unknown ARM CPU (implementer 0x43 part 0x999)", "Cavium"),
        ("0x77", "0x001", "unknown ARM CPU (implementer 0x77 part 0x001)", "0x77"),
    ],
)
def test_arm_cores_are_named_by_implementer_and_part(
    tmp_path: Path, implementer: str, part: str, name: str, vendor: str
) -> None:
    content = "".join(ARM_SERVER.format(n=n, implementer=implementer, part=part) for n in range(4))
    found, _ = read(write(tmp_path, {"proc/cpuinfo": content}), {"brand_raw": "AArch64 Processor rev 0 (aarch64)"})

    assert (found.arch, found.name, found.vendor) == ("aarch64", name, vendor)
    assert found.isa == ("asimd", "asimddp", "i8mm", "bf16", "sve")


def test_every_core_type_of_a_mixed_chip_is_named_and_it_is_one_package(tmp_path: Path) -> None:
    parts = ["0xd05"] * 4 + ["0xd0b"] * 4
    content = "".join(ARM_SERVER.format(n=n, implementer="0x41", part=part) for n, part in enumerate(parts))
    clusters = {
        f"sys/devices/system/cpu/cpu{n}/topology/{name}": "0-3" if n < 4 else "4-7"
        for n in range(8)
        for name in ("core_siblings_list", "physical_package_id")
    }
    found, _ = read(write(tmp_path, {"proc/cpuinfo": content, **clusters}))

    assert found.name == "4× Cortex-A55 + 4× Cortex-A76"
    assert (found.n_packages, found.n_cores_physical, found.n_cores_logical) == (1, 8, 8)


@pytest.mark.parametrize("name", ["", "-", "0000", "CPU", "Intel(R)", "ARMv7 Processor rev 4 (v7l)", "Unknown"])
def test_a_name_that_any_machine_could_have_is_no_name(tmp_path: Path, name: str) -> None:
    found, notes = read(write(tmp_path, {"proc/cpuinfo": f"processor : 0\nmodel name : {name}\n"}), {"brand_raw": name})

    assert found.name is None
    assert any(line.startswith("cpu_name:") for line in notes.errors)


def test_other_architectures_are_told_by_their_own_words(tmp_path: Path) -> None:
    texts = {
        "riscv64": "processor : 0\nhart : 1\nisa : rv64imafdcv_zicsr\nuarch : sifive,u74-mc\nmvendorid : 0x489\n",
        "s390x": "vendor_id : IBM/S390\nfeatures : esan3 vx\nprocessor 0: version = 00,  machine = 2964\n",
        "ppc64": "processor : 0\ncpu : POWER9, altivec supported\nrevision : 2.2 (pvr 004e 1202)\n",
        "loongarch64": "processor : 0\nModel Name : Loongson-3A5000\nISA : loongarch64\nFeatures : lsx lasx\n",
    }
    found = {arch: read(write(tmp_path / arch, {"proc/cpuinfo": content}))[0] for arch, content in texts.items()}

    assert {arch: one.arch for arch, one in found.items()} == {arch: arch for arch in texts}
    assert found["riscv64"].isa == ("rvv",)
    assert found["loongarch64"].isa == ("lsx", "lasx")
    assert found["s390x"].name == "IBM z13"
    assert all(one.n_cores_logical == 1 for one in found.values())


def test_a_machine_that_shows_nothing_gives_nothing_and_says_so(tmp_path: Path) -> None:
    found, notes = read(tmp_path)

    assert found == Cpu(arch="unknown")
    assert {"cpuinfo", "arch", "cpu_name", "cpu_vendor", "isa", "caches"} <= {e.split(":")[0] for e in notes.errors}


@pytest.mark.parametrize(
    "content", ["\0\0\0", ":::\n:\n", "processor\n\n\n", "CPU part : 0x & 0xzz\nCPU implementer : x\n"]
)
def test_garbage_in_cpuinfo_is_survived(tmp_path: Path, content: str) -> None:
    assert read(write(tmp_path, {"proc/cpuinfo": content}))[0].name is None


@pytest.mark.parametrize("output", ["", "{}", "null", "[1]", "Traceback (most recent call last):", '{"flags": 3}'])
def test_py_cpuinfo_may_print_nothing_of_use(output: str) -> None:
    assert pycpuinfo.used_fields(output, Notes()) == {}


def test_py_cpuinfo_is_read_from_its_own_process() -> None:
    notes = Notes()
    facts = pycpuinfo.finish(pycpuinfo.start(), notes, seconds=60)

    assert set(facts) <= set(pycpuinfo.FIELDS)
    assert all(isinstance(flag, str) for flag in facts["flags"])
    assert notes.errors == []


def test_a_py_cpuinfo_that_hangs_is_ended_with_its_children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hanging, held = tmp_path / "python", tmp_path / "held"
    hanging.write_text(f"#!/bin/sh\nsleep 60 > '{held}' &\nsleep 60\n")
    hanging.chmod(0o755)
    os.mkfifo(held)
    reader = os.open(held, os.O_RDONLY | os.O_NONBLOCK)
    monkeypatch.setattr(sys, "executable", str(hanging))
    notes = Notes()

    assert pycpuinfo.finish(pycpuinfo.start(), notes, seconds=0.5) == {}
    assert notes.errors == ["pycpuinfo: python -m cpuinfo did not end within 0.5 s"]
    # The pipe ends when its last writer does: the child of the one we started.
    ended, _, _ = select.select([reader], [], [], 30)
    os.close(reader)
    assert ended == [reader]


def test_a_python_that_cannot_start_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    notes = Notes()

    assert pycpuinfo.finish(pycpuinfo.start(), notes) == {}
    assert notes.errors == ["pycpuinfo: python -m cpuinfo could not be started"]


def test_kernel_lists_and_masks_of_cpus_are_understood() -> None:
    assert cpu_list("0-2,8, 10-14:2") == {0, 1, 2, 8, 10, 12, 14}
    assert cpu_list(None) == cpu_list("") == cpu_list("x-y") == frozenset()
    assert cpu_mask("00000001,0000000f") == {0, 1, 2, 3, 32}
    assert cpu_mask("no mask") == frozenset()


def test_files_that_cannot_be_read_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "void").write_text("\n")
    (tmp_path / "latin").write_bytes(b"caf\xe9\n")

    assert text(tmp_path) is text(tmp_path / "absent") is text(tmp_path / "void") is None
    assert text(tmp_path / "latin") == "caf\ufffd"
    assert number(tmp_path / "latin") is None


@pytest.mark.skipif(not Path("/proc/sys/kernel/random/boot_id").exists(), reason="not Linux")
def test_files_of_proc_sys_are_read_which_refuse_one_large_read() -> None:
    assert text(Path("/proc/sys/kernel/random/boot_id"))


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the roots of recorded machines, with just the files that the readers of this test open."""
    target = unpacked(tmp_path_factory.mktemp("machines"), *WANTED)
    return sorted(root for root in target.iterdir() if (root / "proc/cpuinfo").exists())


def hardware(root: Path) -> Hardware:
    notes = Notes()
    found = cpu.read(root, notes, {})
    return Hardware(
        arch=found.arch,
        cpu_name=found.name,
        cpu_vendor=found.vendor,
        n_packages=found.n_packages,
        n_cores_physical=found.n_cores_physical,
        n_cores_logical=found.n_cores_logical,
        isa=found.isa,
        caches=found.caches,
        product_name=board.product_name(root, notes),
        hypervisor=board.hypervisor(root, notes),
    )


def lscpu_counts(expected: str) -> tuple[int, int, int]:
    """Return sockets, cores and threads from lscpu's parsable list, one line per CPU that is online."""
    match = re.search(r"# CPU,Core,Socket.*\n((?:[\d,-]*\n)+)", expected)
    assert match
    rows = [row.split(",") for row in match[1].split()]
    return len({row[2] for row in rows}), len({row[1] for row in rows}), len(rows)


def test_recorded_machines_are_read_the_same_twice_and_nearly_all_are_named(machines: list[Path]) -> None:
    first = {root.name: hardware(root) for root in machines}
    again = {root.name: hardware(root).hardware_id for root in machines[::10]}

    assert len(first) >= 187
    assert again == {name: first[name].hardware_id for name in again}
    assert sum(found.cpu_name is not None for found in first.values()) >= 185
    assert sum(found.arch != "unknown" for found in first.values()) >= 186


def test_recorded_machines_that_differ_have_different_ids(machines: list[Path]) -> None:
    ids = [hardware(root).hardware_id for root in machines if root.name.startswith("ul-")]

    assert len(set(ids)) == len(ids)


def test_counts_of_recorded_machines_agree_with_those_of_lscpu(machines: list[Path]) -> None:
    agree: list[str] = []
    differ: list[str] = []
    for root in machines:
        expected = root / "EXPECTED.lscpu"
        if expected.exists():
            found = hardware(root)
            counts = (found.n_packages, found.n_cores_physical, found.n_cores_logical)
            (agree if counts == lscpu_counts(expected.read_text()) else differ).append(root.name)

    # The one that differs has four core types; lscpu numbers the cores of each type from zero there.
    assert len(agree) >= 14
    assert differ in ([], ["ul-arm-A510-A710-A715-X3"])
