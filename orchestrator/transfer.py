"""A model sent from one host to another through Ray, in bounded pieces; the head and the driver hold none of it.

Ray reads its environment when it is imported, so it is imported only inside a running `orchestrator.cluster`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from orchestrator.distribute import Fetch
from schema.errors import ClusterError, ModelError, TokfleetError
from worker.home import writable_home
from worker.model_search import Content
from worker.model_transfer import receive, serve_chunk

Event = dict[str, Any]
CHUNK_SECONDS = 120.0


def transfer(fetch: Fetch) -> Iterator[Event]:
    """Yield `stage` events while the host `fetch.to` takes the model over from another; the last has its `path` there.

    Raises ModelError where it is not what was promised or has no room, ClusterError where a host is lost: what had
    come until then is gone on from the next time. Closing the iterator ends it.
    """
    import ray

    if fetch.source is None:
        raise ModelError("A model of the hub is fetched by the host itself, when it loads it.")
    task = ray.remote(_receive).options(
        max_retries=0,
        num_cpus=0,
        label_selector={"host": fetch.to},
        _generator_backpressure_num_objects=1,
    )
    stream: Any = task.remote(fetch.source.host, fetch.source.content)
    try:
        for reference in stream:
            yield ray.get(reference)
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, TokfleetError):
            raise cause from error
        raise ClusterError(f"The host {fetch.to} was lost while it fetched {fetch.source.content.path}.") from error
    except BaseException:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            ray.cancel(stream, force=True)
        raise


def _receive(host: str, content: Content) -> Iterator[Event]:
    """Run on the host that lacks the model; each piece comes straight from the host that has it."""
    import ray

    serve = ray.remote(serve_chunk).options(max_retries=3, num_cpus=0, label_selector={"host": host})

    def chunk(part: int, offset: int, size: int) -> bytes:
        piece: bytes = ray.get(serve.remote(content, part, offset, size), timeout=CHUNK_SECONDS)
        return piece

    yield from receive(content, writable_home(), chunk)
