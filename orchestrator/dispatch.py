"""Groups of jobs as Ray tasks: one streaming task per group, its events read as they come.

Ray reads its environment when it is imported, so it is imported only inside a running
`orchestrator.cluster`.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from schema.canonical import decode
from schema.errors import ClusterError, TokfleetError
from schema.job import Group
from schema.record import Placement
from worker.builds import find_named
from worker.fingerprint.take import take
from worker.journal import lives
from worker.lock import WAIT_SECONDS, HostLock
from worker.recovery import recover, trim
from worker.supervisor import Supervisor

Event = dict[str, Any]
SETTLE_SECONDS = 10.0


def run_group(group: Group, host_uid: str, home: Path, python: str) -> Generator[Event, None, None]:
    """Yield the events of `group` measured on the host `host_uid`, as `worker.supervisor` makes them.

    Raises ClusterError when the host or its worker is lost: what it still owed stays to be done, and what it
    had measured is in its journal. Closing the iterator cancels the task, by force: it may be inside llama.cpp.
    """
    import ray

    task = ray.remote(_measure_group).options(
        **_on_host(host_uid), resources={"bench_slot": 1}, _generator_backpressure_num_objects=1
    )
    stream: Any = task.remote(asdict(group), str(home), python)
    try:
        for reference in stream:
            yield ray.get(reference)
    except ray.exceptions.RayError as error:
        raise _host_error(error) from error
    except BaseException:
        ray.cancel(stream, force=True)
        _wait_for_end(group, host_uid, home)
        raise


def _wait_for_end(group: Group, host_uid: str, home: Path) -> None:
    """Wait until the cancelled group's processes are gone, so that its journal can be read to its end."""
    import ray

    task = ray.remote(_lives).options(**_on_host(host_uid))
    deadline = time.monotonic() + SETTLE_SECONDS
    while ray.get(task.remote(str(home), group.group_uid)) and time.monotonic() < deadline:
        time.sleep(0.1)


def _lives(home: str, group_uid: str) -> bool:
    return lives(Path(home), group_uid)


def recovered(host_uid: str, home: Path) -> list[Event]:
    """Return what dead groups left in the journals of the host `host_uid`."""
    import ray

    task = ray.remote(_recover).options(**_on_host(host_uid))
    found: list[Event] = ray.get(task.remote(str(home)))
    return found


def acknowledge(host_uid: str, home: Path, attempt_uids: frozenset[str]) -> None:
    """Tell the host `host_uid` which attempts are safe in the store, so that it may forget them."""
    import ray

    task = ray.remote(_acknowledge).options(**_on_host(host_uid))
    ray.get(task.remote(str(home), attempt_uids))


def _on_host(host_uid: str) -> dict[str, Any]:
    return {"max_retries": 0, "num_cpus": 0, "label_selector": {"host": host_uid}}


def _measure_group(group: dict[str, Any], home: str, python: str) -> Iterator[Event]:
    """Run in a Ray worker: hold the host and measure; each event is fsynced before it is yielded."""
    _die_with_raylet()
    lock = HostLock()
    holder = lock.try_acquire(f"tokfleet group {group['group_uid']}")
    if holder is not None:
        yield {"event": "stage", "stage": "wait", "text": f"waiting for the host: {holder.describe()}"}
        lock.acquire(WAIT_SECONDS)
    with lock:
        value = decode(Group, group)
        build = find_named(value.build, Path(home), python)
        facts = build.facts(Path(home))
        yield from Supervisor(
            group=value,
            fingerprint=take(Path(home), facts, holds_lock=True),
            home=Path(home),
            python=python if build.kind == "llama-bench" else build.path,
            llama_bench=build.path if build.kind == "llama-bench" else None,
            placement=_placement(),
            probes=facts.method != "fake",  # around the stand-in, which measures nothing, there is nothing to compare
        ).run()


def _die_with_raylet() -> None:
    """End this worker when its raylet dies: Ray would let it finish its task, with nobody left to hear of it."""
    if not hasattr(os, "pidfd_open"):
        return
    raylet = os.pidfd_open(os.getppid())

    def watch() -> None:
        select.select([raylet], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="raylet", daemon=True).start()


def _placement() -> Placement:
    import ray

    context = ray.get_runtime_context()
    return Placement(ray_node_id=context.get_node_id(), ray_task_id=context.get_task_id(), worker_pid=os.getpid())


def _recover(home: str) -> list[Event]:
    return list(recover(Path(home)))


def _acknowledge(home: str, attempt_uids: frozenset[str]) -> None:
    trim(Path(home), attempt_uids)


def _host_error(error: Exception) -> TokfleetError:
    """Return what Ray reports as one of our errors: our own where the task raised it, else that the host is gone."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, TokfleetError):
        return cause
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ClusterError(
        f"The host was lost while it measured: {reason} Nothing that was measured is lost; `tokfleet resume` goes on."
    )
