from collections.abc import Mapping
from pathlib import Path

from schema.host import Environment
from worker.fingerprint import environment
from worker.fingerprint.evidence import Notes

NVIDIA = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version: 12\n"
NVIDIA_OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (root@x)\n"


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def read(root: Path) -> Environment:
    return environment.read(root, Notes())


def test_system_and_kernel_are_named(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "etc/os-release": "NAME=\"Ubuntu\"\nPRETTY_NAME='Ubuntu 24.04.1 LTS'\nID=ubuntu\n",
            "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
        },
    )

    assert (read(root).os, read(root).kernel) == ("Ubuntu 24.04.1 LTS", "6.8.0-45-generic")


def test_an_unbalanced_quote_in_os_release_is_kept_as_it_is(tmp_path: Path) -> None:
    assert read(tree(tmp_path, {"etc/os-release": "PRETTY_NAME=Bob's Linux\n"})).os == "Bob's Linux"


def test_governors_are_named_once_and_all_of_them(tmp_path: Path) -> None:
    cpus = "sys/devices/system/cpu"
    same = tree(tmp_path / "a", {f"{cpus}/cpu{n}/cpufreq/scaling_governor": "performance\n" for n in range(4)})
    mixed = tree(
        tmp_path / "b",
        {
            f"{cpus}/cpufreq/policy{n}/scaling_governor": governor
            for n, governor in ((0, "schedutil"), (4, "powersave"))
        },
    )

    assert [read(root).governor for root in (same, mixed)] == ["performance", "powersave+schedutil"]


def test_gpu_drivers_are_named_with_their_version(tmp_path: Path) -> None:
    texts = {"a": NVIDIA, "b": NVIDIA_OPEN}
    roots = [tree(tmp_path / key, {"proc/driver/nvidia/version": content}) for key, content in texts.items()]
    amd = tree(tmp_path / "c", {"sys/module/amdgpu/version": "6.10.5\n"})

    assert [read(root).gpu_driver for root in (*roots, amd)] == [
        "nvidia 535.104.05",
        "nvidia 570.86.15",
        "amdgpu 6.10.5",
    ]


def test_musl_is_told_by_its_loader(tmp_path: Path) -> None:
    assert read(tree(tmp_path, {"lib/ld-musl-x86_64.so.1": ""})).libc == "ld-musl-x86_64.so.1"


def test_nothing_to_read_gives_nothing_but_the_python_that_asks(tmp_path: Path) -> None:
    notes = Notes()
    found = environment.read(tmp_path, notes)

    assert found == Environment(python=found.python)
    assert {line.split(":")[0] for line in notes.errors} == {"os", "kernel", "libc", "governor"}


def test_this_machine_has_a_kernel_and_a_system() -> None:
    found = read(Path("/"))

    assert found.kernel
    assert found.os
