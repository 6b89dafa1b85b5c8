"""The rows of `tokfleet hosts`: what the store knows beside what the cluster and the hosts say."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from orchestrator.host_list import HostRow, Look, ago, cluster_rows, in_a_line, known_rows, with_look
from orchestrator.host_states import HostState
from orchestrator.members import Member, problems_of
from schema.host import Gpu
from tests.factories import make_fingerprint, make_hardware
from worker.busy import Busy

NOW = datetime(2026, 1, 2, 4, tzinfo=UTC)
ROW = {
    "host_uid": "host-1",
    "host": "box-a",
    "fingerprint_at": datetime(2026, 1, 2, 3, tzinfo=UTC),
    "cpu_info": "Ampere Altra",
    "arch": "aarch64",
    "n_cores_physical": 80,
    "memory_gib": 256,
    "gpu_info": None,
}
BUSY = Busy(holder="process 7 of ann", since="2026-01-02T03:59:00Z", job="a.gguf pp512", run_uid="r")


def member(host: str | None = "host-1", **fields: Any) -> Member:
    defaults: dict[str, Any] = {
        "node_id": "n1",
        "host": host,
        "alive": True,
        "address": "10.0.0.1",
        "hostname": "box-a",
        "resources": {"bench_slot": 1.0, "CPU": 1.0},
        "labels": {"host": host or "", "rack": "b", "ray.io/node-id": "n1"},
    }
    return Member(**(defaults | fields))


def rows(*members: Member, known: tuple[HostRow, ...] = (), **looks: Look) -> list[HostRow]:
    return cluster_rows(
        known, members, {key.replace("_", "-"): look for key, look in looks.items()}, problems_of(members)
    )


def test_without_a_cluster_a_host_is_what_the_store_knows() -> None:
    (row,) = known_rows([ROW], [HostState(host_uid="host-1", labels={"rack": "b"}, seen_at="2026-01-02T03:30:00Z")])
    assert (row.name, row.state, row.machine) == ("box-a", "not asked", "Ampere Altra, 80 cores, 256 GiB")
    assert (row.labels, row.seen_at, row.why) == ({"rack": "b"}, "2026-01-02T03:30:00Z", None)


def test_a_drained_host_says_by_whom_and_why() -> None:
    state = HostState(host_uid="host-1", drained=True, why="new fan", who="ann", changed_at="2026-01-02T03:00:00Z")
    (row,) = known_rows([ROW], [state])
    assert (row.state, row.why) == ("drained", "drained by ann since 2026-01-02T03:00:00Z: new fan")


def test_a_host_of_which_only_the_name_is_known_says_so() -> None:
    bare = dict.fromkeys(ROW) | {"host_uid": "host-7"}
    (row,) = known_rows([bare], [])
    assert (row.name, row.machine, row.why) == ("host-7", "?", "it has never said what it is")


def test_a_member_that_answers_is_free_or_busy_with_its_job() -> None:
    (free,) = rows(member(), host_1=Look(fingerprint=make_fingerprint()))
    assert (free.state, free.doing, free.labels, free.why) == ("free", None, {"rack": "b"}, None)
    (busy,) = rows(member(), host_1=Look(fingerprint=make_fingerprint(), busy=BUSY))
    assert (busy.state, busy.doing, busy.since) == ("busy", "a.gguf pp512", "2026-01-02T03:59:00Z")
    (other,) = rows(member(), host_1=Look(fingerprint=make_fingerprint(), busy=replace(BUSY, job=None)))
    assert other.doing == "process 7 of ann"


def test_a_member_and_the_store_are_joined_by_the_uid_that_the_host_tells() -> None:
    (known,) = known_rows([ROW], [])
    found = rows(member(host="lab-a", hostname="renamed"), known=(known,), lab_a=Look(fingerprint=make_fingerprint()))
    assert [(row.name, row.host_uid, row.state) for row in found] == [("box-a", "host-1", "free")]


def test_a_member_that_was_not_asked_is_joined_by_its_label_or_its_name() -> None:
    (known,) = known_rows([ROW], [])
    for one in (member(), member(host="other")):
        (row,) = rows(one, known=(known,))
        assert (row.state, row.host_uid, row.machine) == ("in the cluster", "host-1", known.machine)


def test_a_drained_member_stays_drained_and_shows_what_it_still_does() -> None:
    (known,) = known_rows([ROW], [HostState(host_uid="host-1", drained=True, why="fan")])
    (idle,) = rows(member(), known=(known,), host_1=Look(fingerprint=make_fingerprint()))
    assert (idle.state, idle.why) == ("drained", "drained: fan")
    (last,) = rows(member(), known=(known,), host_1=Look(fingerprint=make_fingerprint(), busy=BUSY))
    assert (last.state, last.doing, last.why) == ("busy", "a.gguf pp512", "drained: fan")


def test_a_member_that_does_not_answer_is_unusable_and_says_why() -> None:
    (row,) = rows(member(), host_1=Look(error="Host host-1 did not answer within 60 s."))
    assert (row.state, row.why) == ("unusable", "Host host-1 did not answer within 60 s.")


def test_a_head_that_only_coordinates_and_a_host_without_a_label_say_so() -> None:
    (head,) = rows(member(resources={"CPU": 0.0}))
    assert (head.state, head.why) == ("unusable", "it only coordinates: it offers no bench_slot")
    (nameless,) = rows(member(host=None))
    assert nameless.state == "unusable"
    assert "has no label `host`: start it with" in str(nameless.why)


def test_a_host_that_is_lost_says_what_the_head_knows_and_one_that_came_back_is_one_row() -> None:
    dead = member(alive=False, node_id="n0", death_reason="health check failed")
    (gone,) = rows(dead)
    assert (gone.state, gone.why) == ("gone", "it left the cluster: health check failed")
    back = rows(member(), dead, host_1=Look(fingerprint=make_fingerprint()))
    assert [row.state for row in back] == ["free"]


def test_hosts_that_only_the_store_knows_come_last_as_away() -> None:
    other = ROW | {"host_uid": "host-2", "host": "box-b"}
    states = [HostState(host_uid="host-3", drained=True)]
    known = known_rows([ROW, other, ROW | {"host_uid": "host-3", "host": "box-c"}], states)
    found = rows(member(), known=tuple(known), host_1=Look(fingerprint=make_fingerprint()))
    assert [(row.name, row.state) for row in found] == [("box-a", "free"), ("box-b", "away"), ("box-c", "drained")]
    assert found[1].why == "it is not in the cluster"


def test_this_machine_is_looked_at_without_a_cluster() -> None:
    (known,) = known_rows([ROW], [])
    row = with_look(known, Look(fingerprint=make_fingerprint(), busy=BUSY))
    assert (row.state, row.machine) == ("busy", in_a_line(make_fingerprint()))


def test_a_machine_is_told_in_a_line() -> None:
    card = Gpu(vendor="NVIDIA", name="RTX 3090")
    two = make_fingerprint(hardware=make_hardware(gpus=(card, card), memory_gib=None))
    assert in_a_line(two) == "AMD Ryzen 9 5900X 12-Core Processor, 12 cores, 2 × RTX 3090"
    dark = make_fingerprint(hardware=make_hardware(cpu_name=None, n_cores_physical=None, gpus=()))
    assert in_a_line(dark) == "x86_64, 64 GiB"


@pytest.mark.parametrize(
    ("moment", "said"),
    [
        (None, None),
        ("nonsense", None),
        ("2026-01-02T03:59:55Z", "now"),
        ("2026-01-02T03:59:00Z", "1 min ago"),
        ("2026-01-02T03:59:30Z", "30 s ago"),
        ("2026-01-02T01:00:00Z", "3 h 0 min ago"),
        ("2025-12-30T04:00:00Z", "3 days ago"),
        ("2027-01-01T00:00:00Z", "now"),
    ],
)
def test_times_are_told_as_people_do(moment: str | None, said: str | None) -> None:
    assert ago(moment, NOW) == said
