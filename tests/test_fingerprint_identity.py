import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from worker.fingerprint import identity
from worker.fingerprint.evidence import Notes
from worker.fingerprint.identity import Identity

MACHINE_ID = "3d1219c7c4c5404aaa1f6d2a48adfda4"
STARTS = """
import sys, time
from pathlib import Path
from worker.fingerprint import identity
from worker.fingerprint.evidence import Notes
while not Path(sys.argv[1]).exists():
    time.sleep(0.001)
print(identity.read(Path(sys.argv[2]), Path(sys.argv[3]), Notes()).host_uid)
"""


def tree(root: Path, files: Mapping[str, str]) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def read(home: Path, root: Path) -> Identity:
    return identity.read(home, root, Notes())


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """Return a home that not even root can write: a place below a plain file."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "home"


def test_the_id_is_made_once_and_kept_for_this_user_alone(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", {"etc/machine-id": MACHINE_ID})
    first = read(tmp_path / "home", root)
    (kept,) = (tmp_path / "home").iterdir()

    assert first.uid_source == "stored"
    assert read(tmp_path / "home", root) == first
    assert kept.stat().st_mode & 0o777 == 0o600
    assert uuid.UUID(first.host_uid).version == 4


def test_two_homes_are_two_hosts(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", {"etc/machine-id": MACHINE_ID})

    assert read(tmp_path / "a", root).host_uid != read(tmp_path / "b", root).host_uid


def test_machines_that_share_a_home_over_the_network_are_still_two_hosts(tmp_path: Path) -> None:
    roots = [tree(tmp_path / name, {"etc/machine-id": name * 32}) for name in ("a", "b")]
    uids = [read(tmp_path / "home", root).host_uid for root in roots]

    assert uids[0] != uids[1]
    assert uids == [read(tmp_path / "home", root).host_uid for root in roots]


def test_processes_that_start_at_once_agree(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", {"etc/machine-id": MACHINE_ID})
    arguments = [tmp_path / "go", tmp_path / "home", root]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    started = [
        subprocess.Popen([sys.executable, "-c", STARTS, *map(str, arguments)], stdout=subprocess.PIPE, env=environ)
        for _ in range(6)
    ]
    (tmp_path / "go").write_text("")
    uids = {process.communicate()[0] for process in started}

    assert len(uids) == 1
    assert len(list((tmp_path / "home").iterdir())) == 1


def test_the_loser_of_a_race_takes_the_winners_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tree(tmp_path / "root", {"etc/machine-id": MACHINE_ID})
    theirs = str(uuid.uuid4())
    link = Path.hardlink_to

    def late(self: Path, target: Path) -> None:
        self.write_text(theirs)
        link(self, target)

    monkeypatch.setattr(Path, "hardlink_to", late)

    assert read(tmp_path / "home", root).host_uid == theirs


def test_a_file_system_without_hard_links_keeps_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    first = read(tmp_path / "home", tmp_path)

    assert first.uid_source == "stored"
    assert read(tmp_path / "home", tmp_path) == first


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    first = read(tmp_path / "home", tmp_path)
    (kept,) = (tmp_path / "home").iterdir()
    kept.write_text("\0\0\0")
    again = read(tmp_path / "home", tmp_path)

    assert again.uid_source == "stored"
    assert again.host_uid != first.host_uid
    assert read(tmp_path / "home", tmp_path) == again


def test_a_home_that_cannot_be_written_gives_an_id_derived_from_the_machine(tmp_path: Path, unwritable: Path) -> None:
    root = tree(tmp_path / "root", {"etc/machine-id": MACHINE_ID})
    notes = Notes()
    found = identity.read(unwritable, root, notes)

    assert found.uid_source == "derived"
    assert found == read(unwritable, root)
    assert MACHINE_ID not in found.host_uid.replace("-", "")
    assert any("cannot keep it" in line for line in notes.errors)


@pytest.mark.parametrize("junk", ["", "uninitialized", "0" * 32, "03000200-0400-0500-0006-000700080009"])
def test_an_id_that_many_machines_share_is_not_used(tmp_path: Path, unwritable: Path, junk: str) -> None:
    root = tree(tmp_path / "root", {"etc/machine-id": junk})

    assert read(unwritable, root).uid_source == "volatile"


def test_a_network_address_serves_unless_software_made_it_up(tmp_path: Path, unwritable: Path) -> None:
    made_up = {"sys/class/net/eth0/address": "02:fc:00:00:00:01", "sys/class/net/eth0/device/vendor": "0x1af4"}
    own = {"sys/class/net/eth0/address": "3c:ec:ef:12:34:56", "sys/class/net/eth0/device/vendor": "0x8086"}
    roots = [tree(tmp_path / name, files) for name, files in (("a", made_up), ("b", own))]

    assert [read(unwritable, root).uid_source for root in roots] == ["volatile", "derived"]


def test_a_volatile_id_lasts_for_the_boot(tmp_path: Path, unwritable: Path) -> None:
    boots = [tree(tmp_path / b, {"proc/sys/kernel/random/boot_id": b}) for b in ("one", "two")]
    uids = [read(unwritable, root).host_uid for root in (*boots, *boots)]

    assert uids[:2] == uids[2:]
    assert uids[0] != uids[1]


def test_the_hostname_is_a_label_that_changes_nothing(tmp_path: Path) -> None:
    root = tree(tmp_path / "root", {"etc/machine-id": MACHINE_ID, "etc/hostname": "knödel\n"})
    first = read(tmp_path / "home", root)
    tree(root, {"etc/hostname": "soup\n"})
    renamed = read(tmp_path / "home", root)

    assert (first.hostname, renamed.hostname) == ("knödel", "soup")
    assert first.host_uid == renamed.host_uid


def test_an_id_made_between_two_looks_is_taken_and_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tree(tmp_path / "root", {"etc/machine-id": MACHINE_ID})
    theirs = str(uuid.uuid4())
    look = identity._uid_in
    looks: list[Path] = []

    def first_look_is_too_early(path: Path) -> str | None:
        looks.append(path)
        if len(looks) > 1:
            return look(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(theirs)
        return None

    monkeypatch.setattr(identity, "_uid_in", first_look_is_too_early)
    assert read(tmp_path / "home", root).host_uid == theirs
