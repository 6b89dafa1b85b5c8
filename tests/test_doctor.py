from dataclasses import replace
from typing import Any

import pytest

from orchestrator.doctor import Clock, Lab, Node, judge, mismatches
from orchestrator.finding import Finding, problems
from worker.checkup import Checkup, Listener, ModelFound

GIB = 1 << 30
WELL = Checkup(
    hostname="cpu1",
    system="Linux",
    python="3.11.7",
    ray="2.60.0",
    tokfleet="0.1.0",
    host_uid=None,
    builds={"default": "0104b151"},
    token_path="/home/bench/.ray/auth_token",
    token_mode=0o600,
    auth_mode="token",
    niceness=0,
    oom_score_adjustment=0,
    memory_monitor_off=True,
    home="/home/bench/.local/share/tokfleet",
    home_free_bytes=100 * GIB,
    shm_bytes=8 * GIB,
    shm_free_bytes=8 * GIB,
    listeners=(Listener(ip="127.0.0.1", port=8265, program="ray::Dashboard"),),
)
"""A host that was started as it should be, as it said of itself."""


def node(facts: Checkup | None = WELL, name: str = "cpu1", **values: Any) -> Node:
    defaults: dict[str, Any] = {
        "address": "10.0.0.2",
        "resources": {"bench_slot": 1.0, "CPU": 1.0},
        "labels": {"host": name, "ray.io/node-id": "f00", "rack": "b"},
        "clock": Clock(offset=0.01, error=0.002),
    }
    return Node(name=name, facts=facts, **(defaults | values))


def lab(*nodes: Node, here: Checkup = WELL, **values: Any) -> Lab:
    defaults: dict[str, Any] = {"address": "10.0.0.1:6379", "head_ray": "2.60.0", "head_python": "3.11.7"}
    return Lab(here=here, nodes=nodes, **(defaults | values))


def only_problem(*nodes: Node, **values: Any) -> Finding:
    found = problems(judge(lab(*nodes, **values)))
    assert len(found) == 1, found
    assert found[0].advice
    return found[0]


def test_nothing_must_be_mended_in_a_lab_that_is_well() -> None:
    found = judge(lab(node(), node(name="gpu1", address="10.0.0.3")))
    assert problems(found) == ()
    assert any(one.found == "host=cpu1 rack=b" for one in found)


@pytest.mark.parametrize(
    ("check", "change", "said", "to_do"),
    [
        ("ray", {"ray": "2.59.0"}, "2.59.0, the head has 2.60.0", "Install Ray 2.60.0 on cpu1"),
        ("python", {"python": "3.11.11"}, "3.11.11, the head has 3.11.7", "Python 3.11.7"),
        ("ray", {"ray": None}, "not installed", "pip install"),
        ("token", {"token_mode": 0o644}, "mode 0644", "chmod 600"),
        ("token", {"token_mode": None}, "there is none", "tokfleet cluster token"),
        ("token", {"auth_mode": "disabled"}, "RAY_AUTH_MODE is disabled", "tokfleet cluster join"),
        ("fidelity", {"niceness": 15}, "niceness 15", "tokfleet cluster join"),
        ("fidelity", {"oom_score_adjustment": 1000}, "OOM score 1000", "tokfleet cluster join"),
        ("fidelity", {"memory_monitor_off": False}, "memory monitor", "tokfleet cluster join"),
        ("llama.cpp", {"builds": {"default": "It cannot be imported."}}, "cannot be imported", "make engine"),
        ("disk", {"home_free_bytes": 100 << 20}, "100 MiB free", "Make room"),
        ("disk", {"home_problem": "/data cannot be written by this user"}, "cannot be written", "TOKFLEET_HOME"),
        ("/dev/shm", {"shm_bytes": 64 << 20}, "64 MiB", "--shm-size"),
        ("/dev/shm", {"shm_bytes": None}, "there is none", "/dev/shm"),
        ("ports", {"listeners": (Listener(ip="0.0.0.0", port=8265, program="ray::Dash"),)}, "dashboard", "ssh -L"),
        ("ports", {"listeners": (Listener(ip="::", port=50052, program="rpc-server"),)}, "RPC server", "127.0.0.1"),
    ],
)
def test_what_is_wrong_with_one_host_is_named_with_what_to_do(
    check: str, change: dict[str, Any], said: str, to_do: str
) -> None:
    found = only_problem(node(), node(replace(WELL, **change), name="cpu2", address="10.0.0.3"))
    assert found.check == check
    assert "10.0.0.3" in found.host
    assert said in found.found
    assert to_do.replace("cpu1", "cpu2 (10.0.0.3)") in found.advice


def test_a_mac_has_no_dev_shm_and_is_well() -> None:
    assert not problems(judge(lab(node(replace(WELL, system="Darwin", shm_bytes=None, oom_score_adjustment=None)))))


def test_only_differences_that_ray_refuses_stop_a_run() -> None:
    other = node(replace(WELL, python="3.11.11", niceness=15), name="cpu2", address="10.0.0.3")
    assert [one.check for one in mismatches(lab(node(), other))] == ["python"]


def test_another_version_of_ours_or_of_llama_cpp_is_shown_and_not_refused() -> None:
    other = replace(WELL, tokfleet="0.0.9", builds={"default": "b4000", "cuda": "unknown commit"})
    found = judge(lab(node(), node(other, name="gpu1", address="10.0.0.3")))
    assert problems(found) == ()
    assert {one.found for one in found if one.check == "llama.cpp"} >= {"default: 0104b151", "default: b4000"}
    assert any(one.state == "note" and "0.0.9, here 0.1.0" in one.found for one in found)


@pytest.mark.parametrize(("offset", "is_wrong"), [(1.9, False), (-2.5, True), (3600.0, True), (2.3, False)])
def test_a_clock_is_wrong_where_that_is_more_than_the_answer_took(offset: float, is_wrong: bool) -> None:
    found = judge(lab(node(clock=Clock(offset=offset, error=0.4))))
    assert [one.check for one in problems(found)] == (["clock"] if is_wrong else [])


def test_a_host_that_registered_on_loopback_can_be_reached_by_nobody() -> None:
    found = only_problem(node(address="127.0.1.1"), node(name="cpu2", address="10.0.0.3"))
    assert found.check == "address"
    assert "/etc/hosts" in found.advice


def test_a_host_without_our_label_would_never_be_given_a_job() -> None:
    assert "no label" in only_problem(node(labels={})).found


def test_two_hosts_with_one_id_are_named_both() -> None:
    twins = lab(node(), node(address="10.0.0.3"))
    assert [one.check for one in problems(judge(twins))] == ["label", "label"]


def test_a_host_whose_home_has_changed_since_it_joined_is_named() -> None:
    found = only_problem(node(replace(WELL, host_uid="another")))
    assert found.check == "label"
    assert "start it again" in found.advice


def test_a_host_that_offers_several_places_would_disturb_itself() -> None:
    assert only_problem(node(resources={"bench_slot": 2.0})).check == "bench_slot"


def test_a_head_that_only_coordinates_is_well() -> None:
    found = judge(lab(node(resources={})))
    assert not problems(found)
    assert any("only coordinates" in one.found for one in found)


def test_a_host_that_was_lost_is_no_fault_once_it_is_back_under_another_id() -> None:
    dead = node(None, is_alive=False, death_reason="health check failed")
    found = judge(lab(dead, node()))
    assert not problems(found)
    assert any("health check failed" in one.found and "back" in one.advice for one in found)


def test_a_host_that_is_listed_and_silent_is_named_with_its_reason() -> None:
    found = only_problem(node(None, silence="it did not answer within 60 s"))
    assert "60 s" in found.found
    assert "firewall" in found.advice


def test_who_ought_to_be_there_and_is_not_is_told_to_ask_there() -> None:
    found = only_problem(node(), expected=("10.0.0.2", "10.0.0.9"))
    assert (found.host, found.found) == ("10.0.0.9", "it has not joined")
    assert "doctor --address 10.0.0.1:6379" in found.advice


@pytest.mark.parametrize(
    ("reason", "to_do"),
    [
        ("10.0.0.1 is up and refused a connection at port 6379", "Start the head there"),
        ("the head at 10.0.0.1:6379 does not accept this host's token: InvalidAuthToken", "ssh HEAD cat"),
        ("nothing answered at 10.0.0.1:6379 within 5 s", "firewall"),
    ],
)
def test_a_head_that_cannot_be_used_is_named_with_the_way_out(reason: str, to_do: str) -> None:
    found = only_problem(unreached=reason)
    assert found.check == "reach"
    assert to_do in found.advice


def test_a_host_that_cannot_join_for_its_python_is_told_so_on_itself() -> None:
    found = only_problem(node(), here=replace(WELL, hostname="new", python="3.11.11"), is_member=False)
    assert (found.host, found.check) == ("new (here)", "python")
    assert "3.11.7" in found.advice


def test_without_a_head_this_host_alone_is_judged() -> None:
    found = judge(Lab(here=replace(WELL, home_free_bytes=1)))
    assert [one.check for one in problems(found)] == ["disk"]
    assert any("--address" in one.advice for one in found)


def test_a_model_that_a_host_lacks_is_told_and_not_refused() -> None:
    models = (ModelFound(spec="a.gguf", size_bytes=5 * GIB), ModelFound(spec="b.gguf", problem="There is no b.gguf."))
    found = judge(lab(node(replace(WELL, models=models))))
    assert not problems(found)
    assert [(one.state, one.found) for one in found if one.check == "model"] == [
        ("ok", "a.gguf: 5.0 GiB"),
        ("note", "b.gguf: There is no b.gguf."),
    ]


def test_rays_ports_in_the_range_are_left_to_the_firewall_and_counted() -> None:
    listeners = tuple(Listener(ip="0.0.0.0", port=port, program="raylet") for port in (6379, 6380, 6400))
    found = judge(lab(node(replace(WELL, listeners=listeners))))
    assert not problems(found)
    assert any("3 of Ray's ports" in one.found and "6379-6499" in one.advice for one in found)


def test_a_ray_beside_the_labs_range_is_noted() -> None:
    found = judge(lab(node(replace(WELL, listeners=(Listener(ip="10.0.0.2", port=43210, program="raylet"),)))))
    assert any("beside the lab's range" in one.found for one in found)
