import struct
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from schema.host import Environment
from tests.trees import write
from worker.fingerprint import environment
from worker.fingerprint.evidence import Notes

CPUS = "sys/devices/system/cpu"
RAPL = "sys/class/powercap"


def read(root: Path) -> Environment:
    return environment.read(root, Notes())


def package(number: int, watts: float, name: str = "package") -> dict[str, str]:
    zone = f"{RAPL}/intel-rapl:{number}"
    return {
        f"{zone}/name": f"{name}-{number}\n",
        f"{zone}/constraint_0_name": "long_term\n",
        f"{zone}/constraint_0_power_limit_uw": f"{round(watts * 1e6)}\n",
    }


def test_system_and_kernel_are_named(tmp_path: Path) -> None:
    files = {
        "etc/os-release": "NAME=\"Ubuntu\"\nPRETTY_NAME='Ubuntu 24.04.1 LTS'\nID=ubuntu\n",
        "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
    }
    found = read(write(tmp_path, files))

    assert (found.os, found.kernel) == ("Ubuntu 24.04.1 LTS", "6.8.0-45-generic")


def test_an_unbalanced_quote_in_os_release_is_kept_as_it_is(tmp_path: Path) -> None:
    assert read(write(tmp_path, {"etc/os-release": "PRETTY_NAME=Bob's Linux\n"})).os == "Bob's Linux"


def test_what_cpus_are_told_is_named_once_and_all_of_it(tmp_path: Path) -> None:
    same = {f"{CPUS}/cpu{n}/cpufreq/scaling_governor": "performance\n" for n in range(4)}
    mixed = {
        f"{CPUS}/cpufreq/policy{n}/{file}": value
        for n, governor, preference in ((0, "schedutil", "power"), (4, "powersave", "balance_performance"))
        for file, value in (
            ("scaling_governor", governor),
            ("scaling_driver", "intel_pstate"),
            ("energy_performance_preference", preference),
        )
    }
    first, second = read(write(tmp_path / "a", same)), read(write(tmp_path / "b", mixed))

    assert (first.governor, first.scaling_driver) == ("performance", None)
    assert (second.governor, second.scaling_driver) == ("powersave+schedutil", "intel_pstate")
    assert second.energy_preference == "balance_performance+power"


@pytest.mark.parametrize(
    ("files", "turbo"),
    [
        ({f"{CPUS}/intel_pstate/no_turbo": "0\n"}, "on"),
        ({f"{CPUS}/intel_pstate/no_turbo": "1\n"}, "off"),
        ({f"{CPUS}/cpufreq/boost": "1\n"}, "on"),
        ({f"{CPUS}/cpufreq/boost": "0\n"}, "off"),
        ({f"{CPUS}/cpufreq/policy0/boost": "0\n", f"{CPUS}/cpufreq/policy1/boost": "1\n"}, "off+on"),
        ({f"{CPUS}/cpufreq/boost": "2\n"}, None),
        ({}, None),
    ],
)
def test_turbo_is_on_off_or_unknown(tmp_path: Path, files: dict[str, str | int], turbo: str | None) -> None:
    notes = Notes()

    assert environment.read(write(tmp_path, files), notes).turbo == turbo
    assert any(line.startswith("turbo:") for line in notes.errors) == (turbo is None)


def test_the_power_limit_is_that_of_all_packages(tmp_path: Path) -> None:
    parts = {f"{RAPL}/intel-rapl:0:0/name": "core\n", f"{RAPL}/intel-rapl:0:0/constraint_0_power_limit_uw": "9000000\n"}
    root = write(tmp_path, {**package(0, 125), **package(1, 125), **package(2, 44, "psys"), **parts})

    assert read(root).power_limit_watts == 250.0


@pytest.mark.parametrize(
    ("files", "revision"),
    [
        ({"proc/cpuinfo": "microcode\t: 0xd0003a5\n\nmicrocode\t: 0xd0003a5\n"}, "0xd0003a5"),
        ({"proc/cpuinfo": "microcode\t: 0x2\n\nmicrocode\t: 0x1\n"}, "0x1+0x2"),
        ({f"{CPUS}/cpu0/microcode/version": "0x1000065\n"}, "0x1000065"),
        ({"proc/cpuinfo": "flags\t: fpu\n"}, None),
    ],
)
def test_the_microcode_is_that_of_every_cpu(tmp_path: Path, files: dict[str, str | int], revision: str | None) -> None:
    assert read(write(tmp_path, files)).microcode == revision


def test_mitigations_are_short_and_none_needed_is_not_unknown(tmp_path: Path) -> None:
    place = f"{CPUS}/vulnerabilities"
    weak = {
        f"{place}/spectre_v2": "Mitigation: Retpolines; IBPB: conditional; STIBP: disabled\n",
        f"{place}/mds": "Vulnerable: Clear CPU buffers attempted, no microcode; SMT vulnerable\n",
        f"{place}/meltdown": "Not affected\n",
    }
    found = [
        read(write(tmp_path / name, files)).mitigations
        for name, files in (("a", weak), ("b", {f"{place}/meltdown": "Not affected\n"}), ("c", {}))
    ]

    assert found == [
        "mds: Vulnerable: Clear CPU buffers attempted, no microcode; spectre_v2: Retpolines",
        "none",
        None,
    ]


def test_pages_smt_and_firmware_are_read(tmp_path: Path) -> None:
    files = {
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        f"{CPUS}/smt/control": "forceoff\n",
        "sys/class/dmi/id/bios_version": "F.42\n",
    }
    root = write(tmp_path, files)
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/auxv").write_bytes(struct.pack("<6Q", 16, 0, 6, 65536, 0, 0))
    found = read(root)

    assert (found.huge_pages, found.smt, found.bios_version, found.page_bytes) == ("madvise", "forceoff", "F.42", 65536)


@pytest.mark.parametrize("content", [b"", b"\x06", struct.pack("<2Q", 6, 3), struct.pack("<2Q", 6, 1 << 40)])
def test_a_page_size_that_cannot_be_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/auxv").write_bytes(content)

    assert read(tmp_path).page_bytes is None


def test_what_the_gpus_drivers_say_is_taken_over(tmp_path: Path) -> None:
    found = environment.read(tmp_path, Notes(), "nvidia 570.86.15", "CUDA 12.8", "power limit 350 W")

    assert (found.gpu_driver, found.gpu_runtime) == ("nvidia 570.86.15", "CUDA 12.8")
    assert found.gpu_settings == "power limit 350 W"


def test_musl_is_told_by_its_loader(tmp_path: Path) -> None:
    assert read(write(tmp_path, {"lib/ld-musl-x86_64.so.1": ""})).libc == "ld-musl-x86_64.so.1"


def test_nothing_to_read_gives_nothing_but_the_python_that_asks(tmp_path: Path) -> None:
    notes = Notes()
    found = environment.read(tmp_path, notes)
    unknown = {line.split(":")[0] for line in notes.errors}

    assert found == Environment(python=found.python)
    assert unknown >= {"os", "kernel", "libc", "governor", "turbo", "smt", "microcode", "mitigations", "page_bytes"}
    assert notes.sources == {}


def test_every_setting_changes_the_id() -> None:
    values: dict[str, Any] = {"page_bytes": 4096, "power_limit_watts": 65.0}
    names = [field.name for field in fields(Environment)]
    changed = {Environment(**{name: values.get(name, "other")}).environment_id for name in names}

    assert len(changed | {Environment().environment_id}) == len(names) + 1


def test_this_machine_has_a_kernel_a_system_and_pages() -> None:
    found = read(Path("/"))

    assert found.kernel
    assert found.os
    assert found.page_bytes
