import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator import bootstrap
from orchestrator.bootstrap import Start, environment, head_address, parse_labels, read_labels, unit, write_labels
from orchestrator.cluster import DRIVER_ENVIRONMENT
from orchestrator.ray_up import addresses
from schema.errors import ClusterError, HostError, SweepError, UsageError

REPOSITORY = Path(__file__).parents[1]
CLUSTER_YAML = REPOSITORY / "cluster.yaml"


def options_of(start: Start) -> dict[str, str]:
    return dict(part.removeprefix("--").split("=", 1) for part in start.arguments() if "=" in part)


def test_a_host_joins_with_one_place_for_measuring_its_labels_and_ports_in_the_range() -> None:
    start = Start(ip="10.0.0.2", host_uid="abc", head="10.0.0.1:6379", labels={"rack": "b"}, n_gpus=1)
    options = options_of(start)
    assert options["address"] == "10.0.0.1:6379"
    assert options["resources"] == '{"bench_slot": 1}'
    assert options["labels"] == "host=abc,rack=b"
    assert options["num-gpus"] == "1"
    assert options["object-store-memory"] == "100000000"
    ports = [int(value) for name, value in options.items() if name.endswith("-port")]
    assert all(bootstrap.FIRST_PORT <= port <= bootstrap.LAST_PORT for port in ports)
    assert "--head" not in start.arguments()
    assert "--block" in start.arguments()


def test_a_head_keeps_its_dashboard_on_loopback() -> None:
    options = options_of(Start(ip="10.0.0.1", host_uid="abc", client=True, block=False))
    assert options["dashboard-host"] == "127.0.0.1"
    assert bootstrap.FIRST_PORT <= int(options["ray-client-server-port"]) <= bootstrap.LAST_PORT
    bare = options_of(Start(ip="10.0.0.1", host_uid="abc", dashboard=False))
    assert bare["include-dashboard"] == "false"
    assert "dashboard-host" not in bare


def test_a_head_that_only_coordinates_offers_no_place() -> None:
    assert options_of(Start(ip="10.0.0.1", host_uid="abc", measures=False))["resources"] == "{}"


def test_a_label_of_ones_own_cannot_take_the_place_of_the_hosts_id() -> None:
    assert options_of(Start(ip="1.2.3.4", host_uid="real", labels={"host": "other"}))["labels"] == "host=real"


def test_rays_workers_are_neither_nice_nor_first_to_be_killed_and_a_token_is_asked_for() -> None:
    variables = environment("Linux")
    assert variables["RAY_AUTH_MODE"] == "token"
    assert variables["RAY_worker_niceness"] == variables["RAY_worker_oom_score_adjustment"] == "0"
    assert variables["RAY_memory_monitor_refresh_ms"] == "0"
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in variables
    assert environment("Darwin")["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "1"


def test_a_connection_that_is_quiet_while_a_host_measures_is_not_asked_whether_it_lives() -> None:
    """A gRPC server closes a connection on which it is asked that more often than it has something to say."""
    assert not [name for name in {**environment("Linux"), **DRIVER_ENVIRONMENT} if "keepalive" in name]


def test_a_vanished_host_is_known_within_half_a_minute() -> None:
    times = {name: int(value) for name, value in bootstrap.HEALTH.items()}
    round_ms = times["RAY_health_check_period_ms"] + times["RAY_health_check_timeout_ms"]
    assert round_ms * times["RAY_health_check_failure_threshold"] <= 25_000


@pytest.mark.parametrize(
    ("text", "meant"), [("head", "head:6379"), ("10.0.0.1:7000", "10.0.0.1:7000"), ("a.b-c.d", "a.b-c.d:6379")]
)
def test_an_address_has_rays_port_where_it_names_none(text: str, meant: str) -> None:
    assert head_address(text) == meant


@pytest.mark.parametrize("text", ["", "-x", "head:", "head:0", "head:99999", "a b", "$(id)", "ray://head:10001", "::1"])
def test_what_is_no_address_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(ClusterError, match=re.escape(repr(text))):
        head_address(text)


def test_labels_are_kept_and_read_back(tmp_path: Path) -> None:
    assert read_labels(tmp_path) == {}
    write_labels(tmp_path, {"rack": "b", "owner": "anna"})
    assert read_labels(tmp_path) == {"rack": "b", "owner": "anna"}


def test_remarks_and_blank_lines_among_labels_say_nothing() -> None:
    assert parse_labels(["# who", "", " rack = b "], "f") == {"rack": "b"}


@pytest.mark.parametrize(
    "line", ["rack", "=b", "rack=", "a b=c", "rack=b,host=x", "x=\x1b[31m", f"k={'v' * 64}", "-a=b"]
)
def test_what_ray_would_not_take_as_a_label_is_named_with_its_line(line: str) -> None:
    with pytest.raises(HostError, match="line 2"):
        parse_labels(["a=b", line], "labels")


def test_the_label_host_is_nobodys_to_give() -> None:
    with pytest.raises(HostError, match="made by tokfleet"):
        parse_labels(["host=other"], "labels")


def test_a_file_of_labels_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "labels").write_text("a=b\n" * 5000)
    with pytest.raises(HostError, match="more than"):
        read_labels(tmp_path)


def test_a_systemd_unit_starts_again_always_and_runs_the_same_command() -> None:
    text = unit(Path("/opt/tokfleet/.venv/bin/tokfleet"), "head:6379", Path("/data/tokfleet"), user=True)
    assert "ExecStart=/opt/tokfleet/.venv/bin/tokfleet cluster join head:6379\n" in text
    assert "Restart=always" in text
    assert "StartLimitIntervalSec=0" in text
    assert "Environment=TOKFLEET_HOME=/data/tokfleet\n" in text
    assert "cluster start\n" in unit(Path("/t"), None, None, user=False)


def test_a_path_that_systemd_would_read_in_its_own_way_is_refused() -> None:
    with pytest.raises(HostError, match="systemd"):
        unit(Path("/my programs/tokfleet"), None, None, user=True)


def ray_says(code: str) -> str:
    """Return what a piece of code with Ray prints; in a process of its own, since Ray warns on import."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_cluster_yaml_is_a_file_that_rays_own_launcher_takes() -> None:
    code = f"""
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
config = prepare_config(yaml.safe_load(open({str(CLUSTER_YAML)!r})))
validate_config(config)
print(config["max_workers"], config["available_node_types"]["local.cluster.node"]["min_workers"])
"""
    assert ray_says(code).splitlines()[-1] == "2 2"


def test_rays_launcher_would_refuse_a_key_that_it_does_not_know(tmp_path: Path) -> None:
    other = tmp_path / "cluster.yaml"
    other.write_text(CLUSTER_YAML.read_text() + "\nnodes: [a]\n")
    code = f"""
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
try:
    validate_config(prepare_config(yaml.safe_load(open({str(other)!r}))))
except Exception as error:
    print(type(error).__name__)
"""
    assert "ValidationError" in ray_says(code)


def test_what_cluster_yaml_says_of_a_start_is_what_a_host_is_started_with() -> None:
    said = CLUSTER_YAML.read_text()
    variables: dict[str, Any] = environment("Linux")
    for name in (
        "RAY_AUTH_MODE",
        "RAY_worker_niceness",
        "RAY_worker_oom_score_adjustment",
        "RAY_memory_monitor_refresh_ms",
    ):
        if name != "RAY_memory_monitor_refresh_ms":
            assert f"{name}={variables[name]}" in said
    arguments = Start(ip="1.2.3.4", host_uid="x").arguments()
    for option in ("--dashboard-host=127.0.0.1", '--resources={"bench_slot": 1}', "--object-store-memory=100000000"):
        assert option in arguments
        assert option.replace('{"bench_slot": 1}', "'{\"bench_slot\": 1}'") in said


def test_the_hosts_of_a_ray_up_file_are_read_without_its_types(tmp_path: Path) -> None:
    assert addresses(CLUSTER_YAML) == ("10.0.0.1", "10.0.0.2", "10.0.0.3")
    none = tmp_path / "other.yaml"
    none.write_text("cluster_name: x\n")
    with pytest.raises(UsageError, match="provider"):
        addresses(none)
    none.write_text("a: [\n")
    with pytest.raises(SweepError):
        addresses(none)
    with pytest.raises(UsageError, match="cannot be read"):
        addresses(tmp_path / "absent.yaml")
