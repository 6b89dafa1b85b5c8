"""What a probing process told, as the probes that are stored (pure)."""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from schema.canonical import decode
from schema.host import Fingerprint
from schema.probe import Kind, Point, Probe
from schema.record import Value
from worker.probe import estimate
from worker.probe.kernels import MEMMOVE, METHODS

Event = dict[str, Any]
VERSION = 1
"""Goes up whenever figures are had in another way: probes of different versions are not to be compared."""

HOW = (
    "pinned threads with their own clocks, bytes in bins of 2 ms, 95th percentile (mean of the top 2 % where disturbed)"
)
READ = f"{HOW}: "
COPY = f"{HOW}: the C library's memmove; bytes read and bytes written"
GEMM = "numpy matmul of float32, one thread of BLAS in each pinned thread, the quickest product of each, added up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """The events of one probing process, sorted; `details` and `errors` are those that all of its probes share."""

    points: tuple[Point, ...] = ()
    products: tuple[Event, ...] = ()
    details: dict[str, Value] = field(default_factory=dict)
    errors: tuple[str, ...] = ()


def hear(events: Iterable[Event]) -> Heard:
    """Sort the events; raises TypeError, KeyError or ValueError for one that is none."""
    points, products, errors = [], [], []
    details: dict[str, Value] = {}
    for event in events:
        if event["event"] == "point":
            points.append(decode(Point, event["point"]))
        elif event["event"] == "gemm":
            products.append(event)
        elif event["event"] == "error":
            errors.append(str(event["text"]))
        elif event["event"] == "kernels":
            details = {"numpy": event["numpy"], "blas": event["blas"]}
            if event["numpy"] is None:
                errors.append(f"numpy cannot be used ({event['missing']}): memory is read by memchr, no matrices")
    return Heard(points=tuple(points), products=tuple(products), details=details, errors=tuple(errors))


def common(fingerprint: Fingerprint, taken_at: str) -> dict[str, Any]:
    """Return the fields that every probe of this machine has."""
    return {
        "host_uid": fingerprint.host_uid,
        "taken_at": taken_at,
        "version": VERSION,
        "hardware_id": fingerprint.hardware.hardware_id,
        "allocation_id": fingerprint.allocation.allocation_id,
        "environment_id": fingerprint.environment.environment_id,
    }


def read_probe(heard: Heard, n_cores: int | None, known: dict[str, Any]) -> Probe:
    """Return the read bandwidth: the whole curve, and of it the highest point. A disturbed curve tells no limit."""
    points = tuple(point for point in heard.points if point.kernel != MEMMOVE)
    suspect = estimate.cache_suspect(points, max((point.n_threads for point in points), default=0))
    probe = _probe("memory_read", READ + _kernels(points), known | {"points": points, "cache_suspect": suspect}, heard)
    curve = probe.curve()
    if not curve:
        return probe
    best, disturbed = max(curve, key=lambda n_threads: curve[n_threads]), _contended(points)
    return replace(
        probe,
        value=curve[best],
        n_threads=best,
        saturated=None if disturbed else estimate.saturated(curve),
        core_limited=None if disturbed else estimate.core_limited(curve, n_cores),
        contended=disturbed,
    )


def copy_probe(heard: Heard, known: dict[str, Any]) -> Probe:
    """Return the copy bandwidth, bytes read and bytes written together."""
    points = tuple(point for point in heard.points if point.kernel == MEMMOVE)
    probe = _probe("memory_copy", COPY, known | {"points": points}, heard)
    if not points:
        return probe
    best = max(points, key=lambda point: point.bytes_per_s)
    return replace(probe, value=best.bytes_per_s, n_threads=best.n_threads, contended=_contended(points))


def gemm_probe(heard: Heard, known: dict[str, Any]) -> Probe:
    """Return the float32 FLOP per second of matrix products with most threads; `details` holds that with one."""
    probe = _probe("gemm_f32", GEMM, known, heard)
    products = {int(event["n_threads"]): float(event["flops"]) for event in heard.products}
    if not products:
        return probe
    most = max(products)
    details: dict[str, Value] = {"size": int(heard.products[0]["size"]), "flops_1_thread": products.get(1)}
    return replace(probe, value=products[most], n_threads=most, details=probe.details | details)


def failed(kind: Kind, reason: str, known: dict[str, Any]) -> Probe:
    """Return the probe that has no figure, and why."""
    return _probe(kind, HOW, known, Heard(errors=(reason,)))


def _probe(kind: Kind, method: str, known: dict[str, Any], heard: Heard) -> Probe:
    details = {**heard.details, **known.get("details", {})}
    errors = (*heard.errors, *known.get("errors", ()))
    return Probe(
        **(known | {"details": details, "errors": errors}), probe_uid=uuid.uuid4().hex, kind=kind, method=method
    )


def _kernels(points: Sequence[Point]) -> str:
    used = dict.fromkeys(point.kernel for point in points)
    return "; ".join(METHODS[kernel] for kernel in used)


def _contended(points: Sequence[Point]) -> bool:
    """Return whether some thread count has only disturbed points."""
    free = {point.n_threads for point in points if not point.contended}
    return any(point.n_threads not in free for point in points)
