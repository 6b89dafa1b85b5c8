"""Ray's lifetime: a running cluster that is joined, or a local one that is started and stopped by us."""

import contextlib
import ipaddress
import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schema.errors import ClusterError

OBJECT_STORE_BYTES = 100_000_000
"""Ray carries only events; a large store would take memory from the models."""

RAY_ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray would run its workers at niceness 15 and offer them first to the kernel when memory runs out.
    "RAY_worker_niceness": "0",
    "RAY_worker_oom_score_adjustment": "0",
    # A benchmark may fill the memory: only the kernel shall end it, and then only the measuring process.
    "RAY_memory_monitor_refresh_ms": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

DRIVER_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    # gRPC's keep-alive stays as Ray has it (300 s). Asked for more often, the worker that measures answers "too many
    # pings" when it has sent nothing for 20 s and is taken for dead; that a host is gone, the list of nodes tells.
    # A driver that runs as a Ray job ships its own code.
    "RAY_OVERRIDE_JOB_RUNTIME_ENV": "1",
}
"""What a driver of a running cluster is started with; Ray reads it when it is imported."""

REACH_SECONDS = 5.0
SHIPPED = ("schema", "worker", "orchestrator")
REPOSITORY = Path(__file__).parents[1]
TOKEN_FILE = ".ray/auth_token"  # noqa: S105 - a path
NO_TOKEN = (
    "Set RAY_AUTH_TOKEN, or put the head's token into ~/.ray/auth_token (RAY_AUTH_TOKEN_PATH names another file)."  # noqa: S105
)


@contextlib.contextmanager
def connected(address: str | None, host_uid: str) -> Iterator[None]:
    """Join the cluster whose head is at `address`, or run Ray on this machine without one, for the block's length.

    `address` is HOST:PORT, or `auto` for the cluster that this machine is in. Raises ClusterError with
    what is wrong and what to do where there is no head, where it refuses us, and where it runs another Ray.
    """
    with joined(address) if address else local_cluster(host_uid):
        yield


@contextlib.contextmanager
def local_cluster(host_uid: str) -> Iterator[None]:
    """Run Ray on this machine for the length of the block, with one `bench_slot` and the label `host`.

    Raises ClusterError with Ray's reason when it cannot be started.
    """
    directory = _short_directory()
    os.environ.update(RAY_ENVIRONMENT)
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray

    try:
        ray.init(
            address="local",
            num_cpus=1,
            num_gpus=0,
            resources={"bench_slot": 1},
            labels={"host": host_uid},
            object_store_memory=OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=directory,
            _node_ip_address="127.0.0.1",
        )
    except Exception as error:
        shutil.rmtree(directory, ignore_errors=True)
        advice = "It needs some seconds of CPU within half a minute: run it again when this machine is less busy."
        raise ClusterError(f"Ray could not be started on this machine: {error} {advice}") from error
    try:
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def joined(address: str) -> Iterator[None]:
    """Be a driver of the running cluster at `address` for the length of the block; it goes on afterwards.

    Our code goes along, so a host needs no checkout. The token is the one that Ray finds: RAY_AUTH_TOKEN,
    RAY_AUTH_TOKEN_PATH or ~/.ray/auth_token. A head without one is accepted on loopback alone.
    """
    _reach(address)
    for name, value in DRIVER_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["RAY_AUTH_MODE"] = "token" if has_token() else "disabled"
    import ray

    with tempfile.TemporaryDirectory(prefix="tokfleet-code-") as code:
        _copy_code(Path(code))
        try:
            ray.init(
                address=address,
                runtime_env={"working_dir": code},
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        except Exception as error:
            raise _refused(address, error) from error
        try:
            _insist_on_token(ray.get_runtime_context().gcs_address)
            yield
        finally:
            ray.shutdown()


def nodes() -> list[dict[str, Any]]:
    """Return what the head knows of every node that is or was in the cluster, as `ray.nodes()` spells it."""
    import ray

    found: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return found


def has_token() -> bool:
    """Return whether Ray finds a token for this user."""
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    path = Path(named) if named else Path(os.environ.get("HOME") or "/nonexistent") / TOKEN_FILE
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or path.is_file()


def is_loopback(address: str) -> bool:
    """Return whether HOST or HOST:PORT means this machine alone."""
    host = address.rpartition(":")[0] if address.count(":") == 1 else address
    host = host.strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reach(address: str) -> None:
    """Raise ClusterError where nothing listens at `address`: Ray itself would try for a minute."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise ClusterError(f"{address!r} is no address of a Ray head. Write HOST:PORT, such as 10.0.0.1:6379, or auto.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ClusterError(
            f"No Ray head answers at {address}: {reason}. Start it (`ray start --head`), or mend the address."
        ) from error


def _insist_on_token(address: str) -> None:
    if os.environ["RAY_AUTH_MODE"] != "token" and not is_loopback(address):
        raise ClusterError(
            f"The Ray head at {address} takes work from anyone who can reach it. Start it again with "
            "RAY_AUTH_MODE=token and a token, on every host: `tokfleet cluster token` makes one."
        )


def _refused(address: str, error: Exception) -> ClusterError:
    """Return what Ray's error means and what to do about it."""
    told = " ".join(_chain(error).split())
    if "Version mismatch" in told:
        mismatch = told[told.index("Version mismatch") :][:400]
        return ClusterError(f"{mismatch} Install the same Ray and the same Python here as on the head at {address}.")
    if "uthentication" in told or "nauthenticated" in told or "InvalidAuthToken" in told:
        wrong = "does not accept our token" if has_token() else "wants a token, and none is known here"
        return ClusterError(f"The Ray head at {address} {wrong}. {NO_TOKEN}")
    if "No node info found" in told or "address to be either the GCS" in told:
        return ClusterError(
            f"This machine is not in the cluster of {address}: no Ray node runs here. Run this on the head, use "
            "`tokfleet submit`, or join with `ray start --address`."
        )
    reason = told[:400] or type(error).__name__
    return ClusterError(f"The cluster at {address} cannot be joined: {reason} Is its token, its Ray the one used here?")


def _chain(error: BaseException) -> str:
    """Return what an error says and what those say that it was raised from."""
    cause = error.__cause__ or error.__context__
    return f"{type(error).__name__}: {error} {_chain(cause) if cause else ''}"


def _copy_code(directory: Path) -> None:
    """Lay our packages side by side in `directory`, without what Python makes of them."""
    for package in SHIPPED:
        shutil.copytree(REPOSITORY / package, directory / package, ignore=shutil.ignore_patterns("__pycache__", ".*"))


def _short_directory() -> str:
    """Return a new directory for Ray's sockets, whose paths may have no more than 107 bytes."""
    for parent in (tempfile.gettempdir(), "/tmp", "/dev/shm"):  # noqa: S108
        if len(parent) <= 40 and os.access(parent, os.W_OK):
            return tempfile.mkdtemp(prefix="tokfleet-", dir=parent)
    raise ClusterError("Ray needs a writable directory with a short path for its sockets. Set TMPDIR to one.")
