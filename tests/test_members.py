from typing import Any

from orchestrator.members import behind, hosts_of, members_of, problems_of, ways_of
from schema.lab_host import Launcher


def node(label: str | None = "a", node_id: str = "1", alive: bool = True, **fields: Any) -> dict[str, Any]:
    """Return a node as `ray.nodes()` tells of it."""
    labels = {"ray.io/node-id": node_id} | ({"host": label} if label else {})
    return {
        "NodeID": node_id,
        "Alive": alive,
        "NodeManagerAddress": "10.0.0.1",
        "NodeManagerHostname": f"box-{label}",
        "Resources": {"bench_slot": 1.0, "CPU": 1.0} if alive else {},
        "Labels": labels,
        **fields,
    }


def test_a_member_is_known_by_its_label_and_measures_where_it_offers_a_slot() -> None:
    found = members_of(
        [node("dead", "3", alive=False, DeathReasonMessage="cut"), node("a", "1"), node("head", "2", Resources={})]
    )
    assert [member.host for member in found] == ["a", "head", "dead"]
    assert list(hosts_of(found)) == ["a"]
    assert found[2].death_reason == "cut"
    assert problems_of(found) == ()


def test_a_host_that_came_back_under_another_node_id_is_the_same_host() -> None:
    found = members_of([node("a", "1", alive=False), node("a", "2")])
    assert {label: member.node_id for label, member in hosts_of(found).items()} == {"a": "2"}


def test_a_node_without_a_label_and_two_with_one_label_are_named_and_not_measured_on() -> None:
    found = members_of([node(None, "1"), node("twin", "2"), node("twin", "3"), node("a", "4")])
    assert list(hosts_of(found)) == ["a"]
    nameless, twins = problems_of(found)
    assert "has no label `host`" in nameless
    assert "host=twin" in twins


def test_a_node_that_says_nothing_of_itself_is_no_host() -> None:
    (found,) = members_of([{"NodeID": "1", "Alive": True, "Labels": None, "Resources": None}])
    assert not found.measures


def test_a_host_behind_a_launcher_is_there_as_long_as_its_neighbour_is() -> None:
    launchers = {"mac": Launcher(host="mac", command=("ssh", "mac"), via="box-a")}
    found = members_of([node("a", "1")])
    assert ways_of(found, launchers)["mac"].node == "a"
    (mac,) = behind(found, launchers)
    assert (mac.host, mac.hostname, mac.node_id, mac.measures) == ("mac", "mac", "1", True)
    assert behind(members_of([node("a", "1", alive=False)]), launchers) == ()
