"""Whether this host may join a head, asked before Ray is started: Ray's own refusals are a traceback, or silence."""

import platform
from importlib import metadata

from orchestrator.cluster_token import required_token
from orchestrator.gathering import head_versions, unreachable
from schema.errors import ClusterError


def may_join(address: str) -> None:
    """Return where this host fits the head at `address` (host:port).

    Raises ClusterError with what to change where nothing answers, where the token is missing or another, and where
    Ray or Python differ: Ray refuses even another patch of Python.
    """
    required_token("Joining a lab")
    if reason := unreachable(address):
        raise ClusterError(
            f"The head cannot be reached: {reason}. `tokfleet cluster start` starts one; let hosts in at TCP 6379-6499."
        )
    ray, python = head_versions(address)
    refuse_mismatch(address, ray, python)


def refuse_mismatch(address: str, ray: str | None, python: str | None) -> None:
    """Raise ClusterError where the head's versions are not this host's."""
    here_ray, here_python = metadata.version("ray"), platform.python_version()
    if ray not in (None, here_ray):
        raise ClusterError(
            f"The head at {address} runs Ray {ray}, this host {platform.node()} has {here_ray}. Install the head's "
            f'here: pip install "ray=={ray}".'
        )
    if python not in (None, here_python):
        raise ClusterError(
            f"The head at {address} runs Python {python}, this host {platform.node()} has {here_python}, and Ray wants "
            f"them equal. Make this host's environment with it (`uv venv --python {python}` needs no root)."
        )
