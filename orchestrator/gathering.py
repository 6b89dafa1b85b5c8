"""The facts of a lab for `orchestrator.doctor`, asked of its head and of each host through Ray.

Ray reads its environment when it is imported, so it is imported only after that is set.
"""

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.cluster import DRIVER_ENVIRONMENT, joined
from orchestrator.cluster_token import find_token
from orchestrator.doctor import Clock, Lab, Node
from schema.canonical import decode, to_json
from schema.errors import ClusterError
from worker.checkup import Checkup, checkup

CONNECT_SECONDS = 5.0
HEAD_SECONDS = 15.0
ANSWER_SECONDS = 60.0
"""A host that is asked for the first time starts a process, imports us, and asks llama.cpp who it is."""

MAX_ANSWER_BYTES = 200_000
MAX_NODES = 2000
KV_METADATA = (b"CLUSTER_METADATA", b"cluster")
"""Where Ray keeps the versions that its head was started with; a host that differs is refused when it joins."""


def gather(address: str | None, models: Sequence[str] = (), expected: Sequence[str] = ()) -> Lab:
    """Return what is known of the lab whose head is at `address` (host:port); without one, of this host alone.

    Nothing of it raises: what could not be asked is said in `unreached`, or in the node's `silence`.
    """
    base = str(Path.cwd())
    here = checkup(models, base=Path(base))
    if address is None:
        return Lab(here=here)
    unreached = unreachable(address) or _tokenless()
    if unreached:
        return Lab(here=here, address=address, unreached=unreached, expected=tuple(expected))
    os.environ.update({**DRIVER_ENVIRONMENT, "RAY_AUTH_MODE": "token"})
    try:
        ray_version, python, listed = _ask_head(address)
    except ClusterError as error:
        return Lab(here=here, address=address, unreached=str(error), expected=tuple(expected))
    is_member = any(node["is_alive"] and node["address"] in own_addresses() for node in listed)
    fits = (ray_version, python) == (here.ray, here.python)
    lab = Lab(
        here=here,
        address=address,
        head_ray=ray_version,
        head_python=python,
        nodes=tuple(_node(one) for one in listed),
        expected=tuple(expected),
        is_member=is_member,
    )
    return _with_hosts(lab, listed, models, base) if is_member and fits else lab


def unreachable(address: str) -> str | None:
    """Return why nothing answers at `address` (host:port), in words; None where a connection is accepted."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), CONNECT_SECONDS):
            return None
    except socket.gaierror:
        return f"the name {host} is not known here"
    except ConnectionRefusedError:
        return f"{host} is up and refused a connection at port {port}: no head runs there, or at another port"
    except TimeoutError:
        return (
            f"nothing answered at {address} within {CONNECT_SECONDS:g} s: it is off, or a firewall drops what is sent"
        )
    except OSError as error:
        return f"{address} cannot be reached: {error.strerror or error}"


def own_addresses() -> frozenset[str]:
    """Return this machine's IPv4 addresses, loopback among them."""
    import psutil

    found = psutil.net_if_addrs().values()
    return frozenset(one.address for card in found for one in card if one.family == socket.AF_INET)


def address_towards(address: str) -> str:
    """Return the address of this machine that hosts on the way to `address` (host:port) see; nothing is sent."""
    host, _, port = address.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except OSError as error:
        reason = error.strerror or error
        raise ClusterError(
            f"There is no way from this machine to {address}: {reason}. Give its own with --ip."
        ) from error


def _tokenless() -> str | None:
    place = find_token()
    return (
        None if place.is_usable else f"this host has no token in {place.describe()}, so that the head answers nothing"
    )


def head_versions(address: str) -> tuple[str | None, str | None]:
    """Return Ray and Python of the head at `address`; ClusterError where it does not answer, or not to this token."""
    os.environ.update({**DRIVER_ENVIRONMENT, "RAY_AUTH_MODE": "token"})
    return _ask_head(address)[:2]


def _ask_head(address: str) -> tuple[str | None, str | None, list[dict[str, Any]]]:
    """Return the head's Ray and Python and its list of hosts, without becoming a driver; ClusterError says why not."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]

    try:
        client = GcsClient(address=address)
        kept = client.internal_kv_get(KV_METADATA[0], namespace=KV_METADATA[1], timeout=HEAD_SECONDS)
        nodes = client.get_all_node_info(timeout=HEAD_SECONDS)
    except Exception as error:  # Ray raises errors of several kinds, RuntimeError for most
        raise ClusterError(_refusal(address, error)) from error
    versions = json.loads(kept) if kept else {}
    listed = [_listed(node_id, info) for node_id, info in list(nodes.items())[:MAX_NODES]]
    return versions.get("ray_version"), versions.get("python_version"), listed


def _refusal(address: str, error: Exception) -> str:
    text = " ".join(str(error).split())[:300]
    if any(word in text for word in ("Unauthenticated", "InvalidAuthToken", "authentication", "token")):
        return f"the head at {address} does not accept this host's token: {text}"
    return f"the head at {address} does not answer as Ray {text}"


def _listed(node_id: Any, info: Any) -> dict[str, Any]:
    """Return the facts of one entry of the head's list (Ray's own message)."""
    from ray.core.generated.gcs_pb2 import GcsNodeInfo  # type: ignore[attr-defined]

    return {
        "node_id": node_id.hex(),
        "address": info.node_manager_address,
        "name": info.node_manager_hostname,
        "is_alive": info.state == GcsNodeInfo.ALIVE,
        "is_head": info.is_head_node,
        "reason": info.death_info.reason_message,
        "resources": dict(info.resources_total),
        "labels": dict(info.labels),
    }


def _node(listed: dict[str, Any], **more: Any) -> Node:
    return Node(
        name=listed["name"],
        address=listed["address"],
        is_alive=listed["is_alive"],
        is_head=listed["is_head"],
        death_reason=listed["reason"],
        resources=listed["resources"],
        labels=listed["labels"],
        **more,
    )


def _with_hosts(lab: Lab, listed: list[dict[str, Any]], models: Sequence[str], base: str) -> Lab:
    """Return `lab` with what each living host says of itself; our code goes there with the question."""
    try:
        with joined(str(lab.address)):
            answers = _ask_hosts([node["node_id"] for node in listed if node["is_alive"]], models, base)
    except ClusterError as error:
        return replace(lab, unreached=str(error))
    nodes = tuple(_node(node, **answers.get(node["node_id"], {})) for node in listed)
    return replace(lab, nodes=nodes)


def _ask_hosts(node_ids: Sequence[str], models: Sequence[str], base: str) -> dict[str, dict[str, Any]]:
    import ray

    ask = ray.remote(_checkup)
    asked = {ask.options(**_on(node_id)).remote(list(models), base): node_id for node_id in node_ids}
    done, late = ray.wait(list(asked), num_returns=len(asked), timeout=ANSWER_SECONDS)
    answers = {asked[one]: _answer(one) for one in done}
    for one in late:
        ray.cancel(one, force=True)
        answers[asked[one]] = {"silence": f"it did not answer within {ANSWER_SECONDS:g} s"}
    for node_id, answer in answers.items():
        if "facts" in answer:
            answer["clock"] = _clock(node_id)
    return answers


def _on(node_id: str) -> dict[str, Any]:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {
        "max_retries": 0,
        "num_cpus": 0,
        "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id=node_id, soft=False),
    }


def _answer(reference: Any) -> dict[str, Any]:
    """Return a host's facts, or why there are none: it may run other code than ours, or be lost just now."""
    import ray

    try:
        text = ray.get(reference)
        if not isinstance(text, str) or len(text) > MAX_ANSWER_BYTES:
            return {"silence": "its answer is not what a host of this version says; its tokfleet is another"}
        return {"facts": decode(Checkup, json.loads(text))}
    except Exception as error:
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, (ImportError, AttributeError)):
            return {"silence": f"tokfleet, or this version of it, is not installed there: {cause}"[:300]}
        return {"silence": f"{type(cause).__name__}: {' '.join(str(cause).split())}"[:300]}


def _clock(node_id: str) -> Clock | None:
    """Return how far the host's clock is from ours, asked twice: the first time may start a process."""
    import ray

    best: Clock | None = None
    for _ in range(2):
        begun = time.time()
        try:
            there = ray.get(ray.remote(_now).options(**_on(node_id)).remote(), timeout=CONNECT_SECONDS)
        except Exception:
            return best
        ended = time.time()
        if isinstance(there, float):
            best = Clock(offset=there - (begun + ended) / 2, error=(ended - begun) / 2)
    return best


def _checkup(models: list[str], base: str) -> str:
    return to_json(checkup(models, base=Path(base)))


def _now() -> float:
    return time.time()
