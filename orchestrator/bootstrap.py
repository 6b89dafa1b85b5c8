"""What a host needs to be part of a lab: its environment, its labels, and the line that starts Ray on it.

One way for all: `ray up` with cluster.yaml, the commands by hand and the systemd unit run
`tokfleet cluster start` or `join`, and these run what is made here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.cluster import OBJECT_STORE_BYTES, RAY_ENVIRONMENT
from schema.errors import ClusterError, HostError

HEAD_PORT = 6379
DASHBOARD_PORT = 8265
CLIENT_PORT = 6390
PORTS = {
    "node-manager-port": 6380,
    "object-manager-port": 6381,
    "dashboard-agent-grpc-port": 6382,
    "dashboard-agent-listen-port": 6383,
    "runtime-env-agent-port": 6384,
    "metrics-export-port": 6385,
    "min-worker-port": 6400,
    "max-worker-port": 6499,
}
"""Ray would choose most of them at random, and no firewall could be told which they are."""

FIRST_PORT, LAST_PORT = HEAD_PORT, PORTS["max-worker-port"]
"""What hosts of a lab must be able to reach of each other, and nobody else."""

HEALTH = {
    # The head asks each host every 2 s and waits 3 s for an answer; five times without, 25 s at most, is a lost host.
    "RAY_health_check_initial_delay_ms": "5000",
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "5",
}
"""How a lost host is noticed. gRPC's keep-alive is left as Ray has it: see `cluster.DRIVER_ENVIRONMENT`."""

LABELS_FILE = "labels"
MAX_LABELS_BYTES = 10_000
MAX_LABELS = 50
LABEL_PART = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
HOST_LABEL = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a host takes part: its address in the lab, its labels, and whether it measures or only coordinates.

    `n_gpus` overrides what Ray finds. `head` is the head's address (host:port); None makes this host the head.
    """

    ip: str
    host_uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    n_gpus: int | None = None
    measures: bool = True
    head: str | None = None
    port: int = HEAD_PORT
    dashboard: bool = True
    client: bool = False
    autoscaling: Path | None = None
    block: bool = True

    def arguments(self) -> list[str]:
        """Return the arguments of `ray`, from `start` on."""
        labels = {**self.labels, HOST_LABEL: self.host_uid}
        options = {
            **(self._of_head() if self.head is None else {"address": self.head}),
            "node-ip-address": self.ip,
            "num-cpus": "1" if self.measures else "0",
            **({"num-gpus": str(self.n_gpus)} if self.n_gpus is not None else {}),
            "resources": '{"bench_slot": 1}' if self.measures else "{}",
            "labels": ",".join(f"{key}={value}" for key, value in sorted(labels.items())),
            "object-store-memory": str(OBJECT_STORE_BYTES),
            **{name: str(port) for name, port in PORTS.items()},
        }
        head = ["--head"] if self.head is None else []
        block = ["--block"] if self.block else []
        return ["start", *head, *(f"--{name}={value}" for name, value in options.items()), *block]

    def _of_head(self) -> dict[str, str]:
        """Return what only a head has: the dashboard, on loopback, carries the Jobs API of detached runs."""
        options = {"port": str(self.port), "include-dashboard": str(self.dashboard).lower()}
        if self.dashboard:
            options |= {"dashboard-host": "127.0.0.1", "dashboard-port": str(DASHBOARD_PORT)}
        if self.client:  # where it is installed Ray opens it in any case, at a port outside of the lab's range
            options["ray-client-server-port"] = str(CLIENT_PORT)
        if self.autoscaling is not None:
            options["autoscaling-config"] = str(self.autoscaling)
        return options


def environment(system: str) -> dict[str, str]:
    """Return the variables under which Ray must be started on every host; `system` is `platform.system()`."""
    elsewhere = {} if system == "Linux" else {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"}
    return {**RAY_ENVIRONMENT, **HEALTH, **elsewhere}


def head_address(text: str) -> str:
    """Return `text` as host:port, with Ray's own port where it has none; raises ClusterError for what is no address."""
    host, _, port = text.rpartition(":") if text.count(":") == 1 else (text, "", str(HEAD_PORT))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ClusterError(
            f"{text!r} is no address of a head. Give its name or IPv4 address, with :port where not 6379."
        )
    return f"{host}:{int(port)}"


def parse_labels(lines: list[str], source: str) -> dict[str, str]:
    """Return the labels of `key=value` lines; blank ones and those that begin with # say nothing.

    Raises HostError with `source`, the line and what is allowed: Ray takes what Kubernetes takes.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        key, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not LABEL_PART.fullmatch(key) or not LABEL_PART.fullmatch(value):
            raise HostError(
                f"{source}, line {number}: {text[:80]!r} is no label. Write key=value, each of at most 63 letters, "
                "digits, dots, dashes and underscores, beginning and ending with a letter or digit."
            )
        if key == HOST_LABEL:
            raise HostError(
                f"{source}, line {number}: the label `{HOST_LABEL}` is made by tokfleet. Choose another key."
            )
        found[key] = value
    if len(found) > MAX_LABELS:
        raise HostError(f"{source} has {len(found)} labels; a host may have {MAX_LABELS}. Remove some.")
    return found


def read_labels(home: Path) -> dict[str, str]:
    """Return the labels that this host's file in `home` gives it; none where there is no file."""
    path = home / LABELS_FILE
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(MAX_LABELS_BYTES + 1)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise HostError(f"The labels of this host in {path} cannot be read: {error}. Mend the file.") from error
    if len(text) > MAX_LABELS_BYTES:
        raise HostError(f"The labels of this host in {path} are more than {MAX_LABELS_BYTES} bytes. Shorten the file.")
    return parse_labels(text.splitlines(), str(path))


def write_labels(home: Path, labels: Mapping[str, str]) -> Path:
    """Keep `labels` as this host's and return the file."""
    path = home / LABELS_FILE
    beside = path.with_name(f"{LABELS_FILE}.new")
    beside.write_text("".join(f"{key}={value}\n" for key, value in sorted(labels.items())), encoding="utf-8")
    beside.replace(path)
    return path


UNIT = """\
[Unit]
Description=tokfleet: {what}
After=network-online.target
Wants=network-online.target
# A host that was cut off ends by itself and must start again, however often.
StartLimitIntervalSec=0

[Service]
ExecStart={command}
{environment}Restart=always
RestartSec=5
KillMode=control-group
TimeoutStopSec=30
Nice=0
OOMScoreAdjust=0
LimitMEMLOCK=infinity
LimitNOFILE=65536

[Install]
WantedBy={target}
"""


def unit(tokfleet: Path, head: str | None, home: Path | None, user: bool) -> str:
    """Return a systemd unit that keeps this host in the lab: `head` is None on the head itself.

    `home` is TOKFLEET_HOME where it is set; `user` makes it a unit of the user's own systemd.
    """
    for part in (str(tokfleet), str(home or "")):
        if re.search(r"[\s\"'\\%$]", part):
            raise HostError(
                f"The path {part!r} has a character that systemd reads in its own way. Move it, or link to it."
            )
    words = [str(tokfleet), "cluster", *(["start"] if head is None else ["join", head])]
    return UNIT.format(
        what="head of the lab" if head is None else f"a host of the lab of {head}",
        command=" ".join(words),
        environment=f"Environment=TOKFLEET_HOME={home}\n" if home else "",
        target="default.target" if user else "multi-user.target",
    )
