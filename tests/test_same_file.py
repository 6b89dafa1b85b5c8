"""Two hosts that see one file can tell; two files that look alike are told apart."""

import os
import shutil
from pathlib import Path

import pytest

from worker.same_file import place_of

BOOT = "proc/sys/kernel/random/boot_id"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "disk" / "models" / "a.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"GGUF")
    return path


def machine(tmp_path: Path, name: str, boot: str, *mounts: str) -> Path:
    """Return the root of a machine that tells of these mounts, `KIND SOURCE POINT` or with the shown part before."""
    root = tmp_path / name
    (root / BOOT).parent.mkdir(parents=True)
    (root / BOOT).write_text(f"{boot}\n")
    (root / "proc/self").mkdir()
    lines = ["1 0 8:1 / / rw - ext4 /dev/sda1 rw"]
    for mount in mounts:
        kind, source, shown, point = mount.split()
        lines.append(f"2 1 0:99 {shown} {point} rw shared:1 - {kind} {source} rw")
    (root / "proc/self/mountinfo").write_text("\n".join(lines) + "\n")
    return root


def test_links_and_names_lead_to_the_same_place_and_a_copy_does_not(file: Path, tmp_path: Path) -> None:
    (tmp_path / "link.gguf").symlink_to(file)
    os.link(file, tmp_path / "hard.gguf")
    assert place_of(file) == place_of(tmp_path / "link.gguf") == place_of(tmp_path / "hard.gguf") is not None
    copy = tmp_path / "copy.gguf"
    shutil.copy2(file, copy)
    assert place_of(copy) != place_of(file)


def test_a_change_makes_another_place(file: Path) -> None:
    before = place_of(file)
    os.utime(file, ns=(1, 1))
    assert place_of(file) != before


def test_two_hosts_on_one_network_disk_see_one_file_wherever_each_mounts_it(file: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    one = machine(tmp_path, "one", "boot-1", f"nfs4 nas:/export / {disk}")
    other = machine(tmp_path, "two", "boot-2", f"nfs4 nas:/export /models {disk}/models")
    assert place_of(file, one) == place_of(file, other)


@pytest.mark.parametrize("mount", ["nfs4 nas2:/export /", "cifs nas:/export /", "nfs4 nas:/export /old"])
def test_another_disk_of_the_network_is_another_place(file: Path, tmp_path: Path, mount: str) -> None:
    one = machine(tmp_path, "one", "boot-1", f"nfs4 nas:/export / {tmp_path}/disk")
    other = machine(tmp_path, "two", "boot-1", f"{mount} {tmp_path}/disk")
    assert place_of(file, one) != place_of(file, other)


def test_local_disks_of_two_machines_are_never_one_place(file: Path, tmp_path: Path) -> None:
    one, other = (machine(tmp_path, name, f"boot-{name}") for name in ("one", "two"))
    assert place_of(file, one) != place_of(file, other)
    assert place_of(file, one) == place_of(file, one)


def test_a_blank_in_a_mounts_name_is_understood(file: Path, tmp_path: Path) -> None:
    moved = tmp_path / "a disk"
    (tmp_path / "disk").rename(moved)
    one = machine(tmp_path, "one", "boot-1", f"nfs nas:/e / {tmp_path}/a\\040disk")
    other = machine(tmp_path, "two", "boot-2", f"nfs nas:/e / {tmp_path}/a\\040disk")
    assert place_of(moved / "models/a.gguf", one) == place_of(moved / "models/a.gguf", other)


def test_what_is_not_there_and_a_machine_that_tells_nothing_have_no_place(file: Path, tmp_path: Path) -> None:
    assert place_of(tmp_path / "nothing.gguf") is None
    assert place_of(file, tmp_path / "no-machine") is None
