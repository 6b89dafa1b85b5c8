import json
import os
import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schema.host import Evidence
from tests.trees import write
from worker.fingerprint import identity, kept, marks
from worker.fingerprint.evidence import Notes
from worker.fingerprint.identity import Identity

MACHINE_ID = "3d1219c7c4c5404aaa1f6d2a48adfda4"
ROOT = {"etc/machine-id": MACHINE_ID}
NIC = "sys/class/net/eth0"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
STARTS = """
import sys, time
from pathlib import Path
from worker.fingerprint import identity
from worker.fingerprint.evidence import Notes
while not Path(sys.argv[1]).exists():
    time.sleep(0.001)
print(identity.read(Path(sys.argv[2]), Path(sys.argv[3]), Notes()).host_uid)
"""


def read(home: Path, root: Path, hardware_id: str | None = None) -> Identity:
    return identity.read(home, root, Notes(), marks.read(root, NOW), hardware_id)


def machine(root: Path, name: str, machine_id: str = MACHINE_ID) -> Path:
    """Return a machine with parts of its own and the machine-id of an image."""
    files = {
        "etc/machine-id": machine_id,
        "sys/class/dmi/id/product_uuid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        "sys/class/dmi/id/board_serial": f"SN-{name}",
        f"{NIC}/address": f"10:7b:44:00:00:{sum(name.encode()) % 256:02x}\n",
        f"{NIC}/device/vendor": "0x8086\n",
        "proc/sys/kernel/random/boot_id": f"boot-of-{name}\n",
    }
    return write(root, files)


@pytest.fixture
def unwritable(tmp_path: Path) -> Path:
    """Return a home that not even root can write: a place below a plain file."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "home"


def test_the_id_is_made_once_and_kept_for_this_user_alone(tmp_path: Path) -> None:
    root = write(tmp_path / "root", ROOT)
    first = read(tmp_path / "home", root)
    (file,) = (tmp_path / "home").iterdir()

    assert first.uid_source == "stored"
    assert read(tmp_path / "home", root) == first
    assert file.stat().st_mode & 0o777 == 0o600
    assert uuid.UUID(first.host_uid).version == 4
    assert MACHINE_ID not in file.read_text()


def test_an_id_that_an_older_version_kept_stays_and_learns_what_its_machine_is(tmp_path: Path) -> None:
    root = machine(tmp_path / "root", "a")
    first = read(tmp_path / "home", root)
    (file,) = (tmp_path / "home").iterdir()
    file.write_text(first.host_uid + "\n")

    assert read(tmp_path / "home", root) == first
    assert json.loads(file.read_text())["evidence"]["product_uuid"]


def test_two_homes_are_two_hosts(tmp_path: Path) -> None:
    root = write(tmp_path / "root", ROOT)

    assert read(tmp_path / "a", root).host_uid != read(tmp_path / "b", root).host_uid


def test_machines_that_share_a_home_over_the_network_are_still_two_hosts(tmp_path: Path) -> None:
    roots = [write(tmp_path / name, {"etc/machine-id": name * 16}) for name in ("ab", "cd")]
    uids = [read(tmp_path / "home", root).host_uid for root in roots]

    assert uids[0] != uids[1]
    assert uids == [read(tmp_path / "home", root).host_uid for root in roots]


def test_a_home_copied_to_another_machine_with_the_same_image_gives_a_second_host(tmp_path: Path) -> None:
    home, first, second = tmp_path / "home", machine(tmp_path / "a", "a"), machine(tmp_path / "b", "b")
    original = read(home, first)
    clone = read(home, second)

    assert clone.host_uid != original.host_uid
    assert (clone.uid_source, clone.cloned_from) == ("stored", original.host_uid)
    for _ in range(3):
        assert (read(home, first), read(home, second)) == (original, clone)


def test_a_third_machine_with_the_same_home_is_a_third_host(tmp_path: Path) -> None:
    home = tmp_path / "home"
    roots = [machine(tmp_path / name, name) for name in "abc"]
    uids = [read(home, root).host_uid for root in roots]

    assert len(set(uids)) == 3
    assert [read(home, root).host_uid for root in roots] == uids


def test_a_machine_without_any_id_of_its_own_is_told_by_its_parts_too(tmp_path: Path) -> None:
    home = tmp_path / "home"
    roots = [machine(tmp_path / name, name, machine_id="uninitialized") for name in "ab"]

    assert read(home, roots[0]).host_uid != read(home, roots[1]).host_uid


def test_a_home_on_two_machines_that_run_at_once_is_two_hosts_though_nothing_unique_can_be_read(tmp_path: Path) -> None:
    alive = {"proc/uptime": "864000.00 1.00\n"}
    names = ("one", "two")
    roots = [write(tmp_path / name, {**ROOT, **alive, "proc/sys/kernel/random/boot_id": name}) for name in names]
    uids = [read(tmp_path / "home", root).host_uid for root in (*roots, *roots)]

    assert uids[0] != uids[1]
    assert uids[:2] == uids[2:]


def test_a_replaced_card_makes_no_new_host(tmp_path: Path) -> None:
    root = machine(tmp_path / "root", "a")
    first = read(tmp_path / "home", root)
    write(root, {f"{NIC}/address": "10:7b:44:00:00:ff\n", "proc/sys/kernel/random/boot_id": "next"})

    assert read(tmp_path / "home", root) == first


def test_what_only_root_saw_is_not_forgotten_by_a_user(tmp_path: Path) -> None:
    home, root = tmp_path / "home", machine(tmp_path / "a", "a")
    first = read(home, root)
    for secret in ("product_uuid", "board_serial"):
        (root / "sys/class/dmi/id" / secret).unlink()
    write(root, {"proc/sys/kernel/random/boot_id": "next"})

    assert read(home, root) == first
    without_card = machine(tmp_path / "b", "b")
    (without_card / NIC / "address").unlink()
    assert read(home, without_card).cloned_from == first.host_uid


def test_a_system_installed_anew_gets_its_old_id_back_from_a_home_that_outlived_it(tmp_path: Path) -> None:
    home, root = tmp_path / "home", machine(tmp_path / "a", "a")
    first = read(home, root, "hardware")
    write(root, {"etc/machine-id": "9" * 31 + "a", "proc/sys/kernel/random/boot_id": "next"})
    again = read(home, root, "hardware")

    assert again.host_uid == first.host_uid
    assert again.probable_same_as is None


def test_one_known_part_alone_makes_it_probable_and_says_so(tmp_path: Path) -> None:
    home, root = tmp_path / "home", machine(tmp_path / "a", "a")
    first = read(home, root, "hardware")
    next_boot = {"proc/sys/kernel/random/boot_id": "next", "etc/machine-id": "9" * 31 + "a"}
    card = {f"{NIC}/address": (root / NIC / "address").read_text(), f"{NIC}/device/vendor": "0x8086"}
    again = read(home, write(tmp_path / "b", {**next_boot, **card}), "hardware")

    assert again.host_uid != first.host_uid
    assert again.probable_same_as == first.host_uid


@pytest.mark.parametrize("hardware_id", ["other hardware", None])
def test_parts_in_a_machine_of_other_hardware_are_no_reinstall(tmp_path: Path, hardware_id: str | None) -> None:
    home, root = tmp_path / "home", machine(tmp_path / "a", "a")
    first = read(home, root, "hardware")
    write(root, {"etc/machine-id": "9" * 31 + "a", "proc/sys/kernel/random/boot_id": "next"})
    again = read(home, root, hardware_id)

    assert again.host_uid != first.host_uid
    assert again.probable_same_as is None


def test_a_container_in_the_same_boot_is_the_same_host(tmp_path: Path) -> None:
    home, root = tmp_path / "home", machine(tmp_path / "a", "a")
    boot = (root / "proc/sys/kernel/random/boot_id").read_text()
    inside = write(tmp_path / "b", {"etc/machine-id": "c" * 30 + "d1", "proc/sys/kernel/random/boot_id": boot})

    assert read(home, inside).host_uid == read(home, root).host_uid


def test_processes_that_start_at_once_agree(tmp_path: Path) -> None:
    root = write(tmp_path / "root", ROOT)
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
    root = write(tmp_path / "root", ROOT)
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
    root = write(tmp_path / "root", {})
    first = read(tmp_path / "home", root)

    assert first.uid_source == "stored"
    assert read(tmp_path / "home", root) == first


@pytest.mark.parametrize("damage", ["\0\0\0", "", "{}", '{"host_uid": 7}', "[]", '{"host_uid": "no uuid"}'])
def test_a_damaged_file_is_replaced(tmp_path: Path, damage: str) -> None:
    home, root = tmp_path / "home", write(tmp_path / "root", ROOT)
    first = read(home, root)
    (file,) = home.iterdir()
    file.write_text(damage)
    again = read(home, root)

    assert again.uid_source == "stored"
    assert again.host_uid != first.host_uid
    assert read(home, root) == again


def test_evidence_of_a_later_version_is_no_damage(tmp_path: Path) -> None:
    home, root = tmp_path / "home", write(tmp_path / "root", ROOT)
    first = read(home, root)
    (file,) = home.iterdir()
    file.write_text(json.dumps({"host_uid": first.host_uid, "evidence": {"tpm": "x"}, "colour": "red"}))

    assert read(home, root) == first


def test_a_home_that_can_be_read_but_not_written_gives_the_id_that_it_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = machine(tmp_path / "root", "a")
    first = read(tmp_path / "home", root)
    write(root, {"proc/sys/kernel/random/boot_id": "next"})
    monkeypatch.setattr("tempfile.mkstemp", refuse)

    assert read(tmp_path / "home", root) == first


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(13, "Permission denied")


def test_a_home_that_cannot_be_written_gives_an_id_derived_from_the_machine(tmp_path: Path, unwritable: Path) -> None:
    root = write(tmp_path / "root", ROOT)
    notes = Notes()
    found = identity.read(unwritable, root, notes)

    assert found.uid_source == "derived"
    assert found == read(unwritable, root)
    assert MACHINE_ID not in found.host_uid.replace("-", "")
    assert any("cannot keep it" in line for line in notes.errors)


@pytest.mark.parametrize("junk", ["", "uninitialized", "0" * 32, "03000200-0400-0500-0006-000700080009"])
def test_an_id_that_many_machines_share_is_not_used(tmp_path: Path, unwritable: Path, junk: str) -> None:
    root = write(tmp_path / "root", {"etc/machine-id": junk})

    assert read(unwritable, root).uid_source == "volatile"


@pytest.mark.parametrize(
    ("files", "source"),
    [
        ({f"{NIC}/address": "3c:ec:ef:12:34:56", f"{NIC}/device/vendor": "0x8086"}, "derived"),
        ({f"{NIC}/address": "02:fc:00:00:00:01", f"{NIC}/device/vendor": "0x1af4"}, "volatile"),
        ({f"{NIC}/address": "3c:ec:ef:12:34:56"}, "volatile"),
        ({f"{NIC}/address": "3c:ec:ef:12:34:56", f"{NIC}/device/x": "", f"{NIC}/addr_assign_type": "3"}, "volatile"),
        ({f"{NIC}/address": "ff:ff:ff:ff:ff:ff", f"{NIC}/device/vendor": "0x8086"}, "volatile"),
    ],
)
def test_a_network_address_serves_unless_software_made_it_up(
    tmp_path: Path, unwritable: Path, files: dict[str, str | int], source: str
) -> None:
    assert read(unwritable, write(tmp_path / "root", files)).uid_source == source


def test_a_volatile_id_lasts_for_the_boot(tmp_path: Path, unwritable: Path) -> None:
    boots = [write(tmp_path / b, {"proc/sys/kernel/random/boot_id": b}) for b in ("one", "two")]
    uids = [read(unwritable, root).host_uid for root in (*boots, *boots)]

    assert uids[:2] == uids[2:]
    assert uids[0] != uids[1]


def test_the_hostname_is_a_label_that_changes_nothing(tmp_path: Path) -> None:
    root = write(tmp_path / "root", {**ROOT, "etc/hostname": "knödel\n"})
    first = read(tmp_path / "home", root)
    write(root, {"etc/hostname": "soup\n"})
    renamed = read(tmp_path / "home", root)

    assert (first.hostname, renamed.hostname) == ("knödel", "soup")
    assert first.host_uid == renamed.host_uid


def test_an_id_made_between_two_looks_is_taken_and_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write(tmp_path / "root", ROOT)
    theirs = str(uuid.uuid4())
    path = tmp_path / "home" / f"host_uid-{identity.system_name(root)}"
    make = kept.create

    def too_late(place: Path, value: kept.Kept) -> kept.Kept | None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(theirs)
        return make(place, value)

    monkeypatch.setattr(kept, "create", too_late)
    assert read(tmp_path / "home", root).host_uid == theirs


def test_evidence_is_hashed_and_leaves_out_what_stands_for_nothing(tmp_path: Path) -> None:
    files = {
        "etc/machine-id": MACHINE_ID,
        "sys/class/dmi/id/product_uuid": "03000200-0400-0500-0006-000700080009",
        "sys/class/dmi/id/board_serial": "Default string",
        "sys/class/dmi/id/board_asset_tag": "i-0abc1234def567890\n",
        f"{NIC}/address": "02:fc:00:00:00:01",
        f"{NIC}/device/vendor": "0x1af4",
        "proc/uptime": "3600.00 1.00\n",
    }
    found = marks.read(write(tmp_path, files), NOW, gpu_uuids=["GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77", "N/A"])

    assert (found.product_uuid, found.board_serial, found.macs) == (None, None, ())
    assert (found.booted_at, found.seen_at) == ("2026-03-01T11:00:00Z", "2026-03-01T12:00:00Z")
    hashes = [found.machine_id, found.instance_id, *found.gpu_uuids, *found.weak_macs]
    assert [len(one or "") for one in hashes] == [32, 32, 32, 32]
    assert MACHINE_ID not in hashes


def test_the_root_file_system_is_known_by_its_uuid(tmp_path: Path) -> None:
    mount = "25 1 259:2 / / rw,relatime - ext4 /dev/nvme0n1p2 rw\n26 25 0:5 / /dev rw - devtmpfs udev rw\n"
    root = write(tmp_path, {"proc/self/mountinfo": mount})
    (root / "dev/disk/by-uuid").mkdir(parents=True)
    for name, device in (("0a1b", "nvme0n1p1"), ("7f2c-4d", "nvme0n1p2")):
        (root / "dev/disk/by-uuid" / name).symlink_to(f"../../{device}")
    found = marks.read(root, NOW).root_uuid

    assert found == marks.keyed("root-uuid", "7f2c-4d").hex()[:32]


def test_a_mac_is_told_by_what_its_platform_says(tmp_path: Path) -> None:
    printed = '  |   "IOPlatformUUID" = "4C4C4544-0042"\n  |   "IOPlatformSerialNumber" = "C02XL0AAJGH5"\n'
    found = marks.read(tmp_path, NOW, properties=printed)

    assert found.product_uuid
    assert found.board_serial
    assert found == Evidence(product_uuid=found.product_uuid, board_serial=found.board_serial, seen_at=found.seen_at)
