"""What of Ray is installed here, and under which address this machine can be a head; nothing of it imports Ray."""

import importlib.util
import sys
from pathlib import Path

from orchestrator.gathering import address_towards, own_addresses
from schema.errors import ClusterError

DASHBOARD = ("aiohttp", "aiohttp_cors", "grpc", "opencensus", "prometheus_client")
"""What the extra `default` of Ray brings; without any of these its dashboard does not start."""

ANYWHERE = "192.0.2.1:9"
"""An address that belongs to nobody (RFC 5737): the way to it is the way out of this network."""


def ray_program() -> str:
    """Return the path of the command `ray` beside the Python that runs us; raises ClusterError where there is none."""
    path = Path(sys.executable).with_name("ray")
    if not path.is_file():
        raise ClusterError(
            f"Ray is not installed beside {sys.executable}: there is no {path}. Install tokfleet with its extra: "
            'pip install "tokfleet[worker]".'
        )
    return str(path)


def extras() -> tuple[bool, bool]:
    """Return whether Ray's dashboard, which carries the Jobs API, and Ray Client can be started here."""
    dashboard = all(importlib.util.find_spec(name) for name in DASHBOARD)
    return dashboard, importlib.util.find_spec("grpc") is not None


def own_address() -> str:
    """Return this machine's address on its way out, or its only one; raises ClusterError where it has several."""
    try:
        return address_towards(ANYWHERE)
    except ClusterError:
        there = sorted(one for one in own_addresses() if not one.startswith("127."))
    if len(there) == 1:
        return there[0]
    raise ClusterError(
        f"It cannot be told which of this machine's addresses the hosts reach: {', '.join(there) or 'it has none'}. "
        "Say it with --ip."
    )
