from dataclasses import replace

import pytest

from schema.host import Evidence
from tests.factories import make_fingerprint
from worker.fingerprint.recognition import Former, agreements, former, recognise, said

SERVER = Evidence(
    machine_id="m1",
    root_uuid="r1",
    product_uuid="p1",
    board_serial="b1",
    gpu_uuids=("g1", "g2"),
    macs=("a1", "a2"),
    boot_id="first",
    booted_at="2026-01-01T00:00:00Z",
    seen_at="2026-01-02T00:00:00Z",
)
OTHER: dict[str, object] = {"product_uuid": "p2", "board_serial": "b2", "gpu_uuids": ("g7",), "macs": ("a7", "a8")}
LATER: dict[str, object] = {"boot_id": "second", "booted_at": "2026-02-01T00:00:00Z", "seen_at": "2026-02-01T01:00:00Z"}
WHILE: dict[str, object] = {"boot_id": "second", "booted_at": "2026-01-01T12:00:00Z", "seen_at": "2026-01-03T00:00:00Z"}
NEW_SYSTEM: dict[str, object] = {"machine_id": "m2", "root_uuid": "r2"}
NOTHING: dict[str, object] = {"product_uuid": None, "board_serial": None, "gpu_uuids": (), "macs": ()}


def seen(**changes: object) -> Evidence:
    return replace(SERVER, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        LATER,
        LATER | {"gpu_uuids": ("g9",)},
        LATER | {"gpu_uuids": ("g2",), "macs": ("a2", "a3")},
        LATER | {"macs": ("a7",)},
        LATER | {"product_uuid": "p2"},
        LATER | {"root_uuid": "r2"},
        LATER | {"product_uuid": None, "board_serial": None},
        LATER | {"product_uuid": None, "board_serial": None, "gpu_uuids": ("g9",)},
        LATER | NOTHING,
        LATER | NOTHING | {"root_uuid": None},
        WHILE,
        NOTHING,
        NOTHING | {"machine_id": "m2", "root_uuid": None},
    ],
    ids=str,
)
def test_a_machine_is_the_same_with_parts_replaced_without_root_and_in_its_containers(
    changes: dict[str, object],
) -> None:
    assert recognise(SERVER, seen(**changes)) == "same"


@pytest.mark.parametrize(
    "changes",
    [
        OTHER,
        LATER | OTHER,
        LATER | {"product_uuid": None, "board_serial": None, "gpu_uuids": (), "macs": ("a7",)},
        LATER | NOTHING | {"gpu_uuids": ("g7",)},
        LATER | NOTHING | {"product_uuid": "p2"},
        LATER | OTHER | {"gpu_uuids": ("g1",)},
        LATER | {"product_uuid": "p1", "board_serial": "b2", "gpu_uuids": (), "macs": ("a7",)},
        WHILE | NOTHING,
        WHILE | NOTHING | {"product_uuid": "p1"},
    ],
    ids=str,
)
def test_a_copied_disk_or_home_in_another_machine_is_a_clone(changes: dict[str, object]) -> None:
    assert recognise(SERVER, seen(**changes)) == "clone"


def test_another_instance_of_a_cloud_is_a_clone_whatever_else_agrees() -> None:
    instance = replace(SERVER, instance_id="i-1")

    assert recognise(instance, replace(instance, instance_id="i-2")) == "clone"


def test_two_virtual_machines_of_one_image_differ_in_addresses_that_software_made_up() -> None:
    image = Evidence(machine_id="m1", root_uuid="r1", weak_macs=("w1",))

    assert recognise(image, replace(image, weak_macs=("w2",))) == "clone"
    assert recognise(image, image) == "same"
    assert recognise(image, replace(image, weak_macs=())) == "same"


@pytest.mark.parametrize(
    "changes",
    [
        LATER | NEW_SYSTEM,
        LATER | NEW_SYSTEM | {"gpu_uuids": (), "macs": ()},
        LATER | NEW_SYSTEM | NOTHING | {"macs": ("a2",)},
        LATER | NEW_SYSTEM | {"gpu_uuids": ("g9",)},
    ],
    ids=str,
)
def test_the_same_hardware_with_another_system_was_installed_anew(changes: dict[str, object]) -> None:
    assert recognise(SERVER, seen(**changes)) == "reinstalled"


@pytest.mark.parametrize(
    "changes",
    [
        LATER | NEW_SYSTEM | OTHER,
        LATER | NEW_SYSTEM | NOTHING,
        WHILE | NEW_SYSTEM | NOTHING | {"product_uuid": "p1"},
        LATER | NOTHING | {"machine_id": None, "root_uuid": None},
    ],
    ids=str,
)
def test_a_stranger_is_unknown(changes: dict[str, object]) -> None:
    assert recognise(SERVER, seen(**changes)) == "unknown"


def test_nothing_known_recognises_nothing() -> None:
    assert (
        recognise(Evidence(), Evidence()) == recognise(SERVER, Evidence()) == recognise(Evidence(), SERVER) == "unknown"
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"booted_at": "2025-06-01T00:00:00Z", "seen_at": "2025-06-01T00:10:00Z"},
        {"booted_at": "2026-01-01T23:57:00Z", "seen_at": "2026-01-03T00:00:00Z"},
        {"booted_at": None, "seen_at": "2026-01-03T00:00:00Z"},
    ],
    ids=str,
)
def test_a_clock_that_went_back_or_is_minutes_off_makes_no_clone(changes: dict[str, object]) -> None:
    assert recognise(SERVER, seen(**NOTHING, boot_id="second", **changes)) == "same"


def test_one_gpu_or_card_in_common_is_an_agreement() -> None:
    assert agreements(SERVER, seen(**OTHER | {"gpu_uuids": ("g2", "g5")})) == ("gpu_uuids",)
    assert agreements(SERVER, SERVER) == ("product_uuid", "board_serial", "gpu_uuids", "macs")


def test_a_machine_installed_anew_is_found_among_the_known_hosts_by_two_parts_and_guessed_by_one() -> None:
    known = [("stranger", "hw", seen(**OTHER, machine_id="m9")), ("before", "hw", SERVER)]
    anew = seen(**LATER | NEW_SYSTEM)
    one_part = seen(**LATER | NEW_SYSTEM | NOTHING | {"macs": ("a1",)})

    assert former(known, anew, "hw") == Former("before", is_sure=True)
    assert former(known, one_part, "hw") == Former("before", is_sure=False)
    assert former(known, anew, "other hardware") is former(known, anew, None) is former([], anew, "hw") is None


def test_hosts_that_are_alive_or_twins_are_never_taken_for_a_machine_installed_anew() -> None:
    known = [("alive", "hw", SERVER)]

    assert former(known, seen(**WHILE | NEW_SYSTEM | NOTHING | {"product_uuid": "p1"}), "hw") is None
    assert former(known, seen(**LATER | NEW_SYSTEM | OTHER), "hw") is None
    assert former(known, seen(**LATER | NEW_SYSTEM | NOTHING), "hw") is None


def test_the_user_is_told_of_a_copy_and_of_a_probable_reinstall_and_else_nothing() -> None:
    copied = make_fingerprint(cloned_from="uid-of-the-other")
    probable = make_fingerprint(probable_same_as="uid-of-before")

    assert list(said(make_fingerprint())) == []
    assert "uid-of-the-other, which is another machine" in next(said(copied))
    assert "probably host uid-of-before, installed anew" in next(said(probable))
