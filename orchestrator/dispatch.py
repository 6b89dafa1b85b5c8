"""Groups of jobs as Ray tasks: one streaming task per group, its events read as they come; and short questions.

Ray reads its environment when it is imported, so it is imported only inside a running
`orchestrator.cluster`. Hosts are named by their label `host`; one without Ray is reached through a launcher on another.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator import on_host
from schema.errors import ClusterError, TokfleetError
from schema.lab_host import Launcher
from schema.record import Placement
from worker import launcher
from worker.group import Errand, measure
from worker.home import writable_home

Event = dict[str, Any]
ASK_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a host is reached: the label of the node with Ray, and what goes on from there where it is not that node."""

    node: str
    launcher: Launcher | None = None


class Running:
    """A group on its way at a host: `events` are read in a thread of their own, `cancel` ends it from any other."""

    def __init__(self, errand: Errand, host: str, way: Way | None = None) -> None:
        """Hand the errand to the host; it begins when the host's slot and its lock are free."""
        import ray

        self.errand, self.host, self.way = errand, host, way or Way(node=host)
        self.cancelled = False
        # Who goes on from a node leaves that node's slot to its own measurements.
        slots = {"resources": {"bench_slot": 1}} if self.way.launcher is None else {}
        task = ray.remote(_measure_group).options(
            **_on_host(self.way.node), **slots, _generator_backpressure_num_objects=1
        )
        self._stream: Any = task.remote(errand, self.way.launcher)

    def events(self) -> Iterator[Event]:
        """Yield what `worker.supervisor` makes of the group; ends early once it was cancelled.

        Raises ClusterError when the host or its worker is lost: what it still owed stays to be done, and what
        it had measured is in its journal.
        """
        import ray

        try:
            for reference in self._stream:
                yield ray.get(reference)
        except ray.exceptions.RayError as error:
            if not self.cancelled:
                raise _host_error(error) from error

    def cancel(self) -> None:
        """End the group by force: it may be inside llama.cpp. What it returns from now on is no result."""
        import ray

        self.cancelled = True
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.cancel(self._stream, force=True)


def ask(
    hosts: Iterable[str],
    question: Callable[..., Any],
    *arguments: Any,
    seconds: float = ASK_SECONDS,
    ways: Mapping[str, Way] | None = None,
) -> dict[str, Any]:
    """Return by host what `question(*arguments)`, run on each of `hosts` at once, returned there.

    Where none came within `seconds`, or the host is lost, or it raised, a TokfleetError stands in the answer's place.
    `question` is a function of a module that hosts can import. A busy host answers too: no slot is taken. `ways` is
    for hosts that are no nodes themselves.
    """
    import ray

    task = ray.remote(_answer_there)
    asked = {}
    for host in dict.fromkeys(hosts):
        way = (ways or {}).get(host) or Way(node=host)
        asked[task.options(**_on_host(way.node)).remote(way.launcher, question, arguments, seconds)] = host
    ready, late = ray.wait(list(asked), num_returns=len(asked), timeout=seconds) if asked else ([], [])
    found = {asked[reference]: _answer(reference) for reference in ready}
    for reference in late:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.cancel(reference, force=True)
        found[asked[reference]] = ClusterError(f"Host {asked[reference]} did not answer within {seconds:g} s.")
    return {host: found[host] for host in asked.values()}


def _answer(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference)
    except Exception as error:  # whatever one host's answer is made of must not keep the others' from us
        return _host_error(error)


def _on_host(host: str) -> dict[str, Any]:
    return {"max_retries": 0, "num_cpus": 0, "label_selector": {"host": host}}


def _measure_group(errand: Errand, through: Launcher | None) -> Generator[Event, None, None]:
    """Run in a Ray worker: hold the host and measure; each event is fsynced there before it is yielded."""
    _die_with_raylet()
    placed = replace(errand, placement=_placement())
    if through is not None:
        yield from launcher.measure(through, placed)
    else:
        yield from measure(replace(placed, python=on_host.own_python(errand.python)), writable_home())


def _answer_there(through: Launcher | None, question: Callable[..., Any], arguments: Any, seconds: float) -> Any:
    """Run in a Ray worker: answer a question, or have the host behind answer it."""
    if through is not None:
        return launcher.ask(through, question, *arguments, seconds=seconds)
    return question(*arguments)


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


def _host_error(error: Exception) -> TokfleetError:
    """Return what Ray reports as one of our errors: our own where the task raised it, else that the host is gone."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, TokfleetError):
        return cause
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return ClusterError(f"The host or its Ray worker was lost: {reason}")
