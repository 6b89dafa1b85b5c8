"""Ray's lifetime: a local cluster that is started and stopped by us, and leaves nothing behind."""

import contextlib
import logging
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator

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


def _short_directory() -> str:
    """Return a new directory for Ray's sockets, whose paths may have no more than 107 bytes."""
    for parent in (tempfile.gettempdir(), "/tmp", "/dev/shm"):  # noqa: S108
        if len(parent) <= 40 and os.access(parent, os.W_OK):
            return tempfile.mkdtemp(prefix="tokfleet-", dir=parent)
    raise ClusterError("Ray needs a writable directory with a short path for its sockets. Set TMPDIR to one.")
