"""Take probes of this machine: the whole of it for `tokfleet probe`, the short form around a series of attempts.

Whoever calls this holds the machine's benchmark lock and measures nothing meanwhile.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from schema.errors import HostError
from schema.host import Fingerprint
from schema.probe import Probe
from worker.probe import cpus, result, working_set
from worker.probe.gpus import gpu_probes
from worker.probe.process import ask, dropped
from worker.probe.request import Request
from worker.recovery import utc_now

READ_SECONDS = 1.3
STEP_SECONDS = (0.12, 0.25)
BUDGET_SECONDS = 2.5
LIMIT_SECONDS = 20.0
BRIEF_SECONDS, BRIEF_STEP_SECONDS = 0.4, 0.3
BRIEF_COUNTS = 3
BRIEF_LIMIT_SECONDS = 10.0

MALFORMED = (ValueError, TypeError, KeyError, AttributeError)


def full(
    fingerprint: Fingerprint, told: Callable[[str], None] = lambda _: None, root: Path = Path("/")
) -> tuple[Probe, ...]:
    """Return read and copy bandwidth, float32 products, and the memory of each GPU; takes about 2.5 seconds.

    Raises HostError where the probing process fails or is not done within 20 seconds.
    """
    places = cpus.ordered(root, cpus.allowed())
    counts = _counts(fingerprint, places)
    request, known = _request(fingerprint, places, counts, root)
    n_steps = len(counts) + 4  # every kernel at the full count, once more, twice the memory, and the copy
    least, most = STEP_SECONDS
    request = replace(
        request, step_seconds=min(most, max(least, READ_SECONDS / n_steps)), budget_seconds=BUDGET_SECONDS
    )
    begun = time.monotonic()
    heard = _heard(request, LIMIT_SECONDS, told)
    known["details"]["cost_seconds"] = round(time.monotonic() - begun, 3)
    n_cores = sum(place.thread == 0 for place in places) or fingerprint.hardware.n_cores_physical
    return (
        result.read_probe(heard, n_cores, known),
        result.copy_probe(heard, known),
        result.gemm_probe(heard, known),
        *gpu_probes(fingerprint.hardware.gpus, result.common(fingerprint, known["taken_at"])),
    )


def brief(
    fingerprint: Fingerprint,
    n_threads: Collection[int],
    series_uid: str,
    moment: Literal["before", "after"],
    root: Path = Path("/"),
) -> Probe:
    """Return the read bandwidth with the largest three of `n_threads`, in at most 0.4 seconds of reading.

    Never raises: a probe that fails has no value and says why in `errors`.
    """
    places = cpus.ordered(root, cpus.allowed())
    most = len(places) or fingerprint.hardware.n_cores_logical or 1
    counts = cpus.capped(n_threads, most, fingerprint.allocation.cpu_quota_cores)[-BRIEF_COUNTS:]
    request, known = _request(fingerprint, places, counts, root)
    known |= {"series_uid": series_uid, "moment": moment}
    request = replace(request, step_seconds=min(BRIEF_STEP_SECONDS, BRIEF_SECONDS / len(counts)), brief=True)
    begun = time.monotonic()
    try:
        heard = _heard(request, BRIEF_LIMIT_SECONDS)
    except HostError as error:
        return result.failed("memory_read", str(error), known)
    known["details"]["cost_seconds"] = round(time.monotonic() - begun, 3)
    found = result.read_probe(heard, None, known)
    largest = counts[-1]
    # A few threads are no curve: it is the number that the attempts use which counts, not the best one.
    return replace(found, value=found.at(largest), n_threads=largest, saturated=None, core_limited=None)


def _heard(request: Request, limit_seconds: float, told: Callable[[str], None] = lambda _: None) -> result.Heard:
    try:
        return result.hear(ask(request, limit_seconds, told))
    except MALFORMED as error:
        raise HostError(f"The probe of this machine told something that makes no sense: {error!r}.") from error


def _counts(fingerprint: Fingerprint, places: tuple[cpus.Cpu, ...]) -> tuple[int, ...]:
    quota = fingerprint.allocation.cpu_quota_cores
    if places:
        return cpus.counts(places, quota)
    hardware = fingerprint.hardware
    fast = sum(one.n_cores or 0 for one in hardware.core_types if one.kind != "efficiency")
    known = {count for count in (fast, hardware.n_cores_physical, hardware.n_cores_logical) if count}
    return cpus.capped({1} | known, max(known, default=1), quota)


def _request(
    fingerprint: Fingerprint, places: tuple[cpus.Cpu, ...], counts: tuple[int, ...], root: Path
) -> tuple[Request, dict[str, Any]]:
    """Return the request, and what is known of its probes before it is made."""
    memory = working_set.choose(fingerprint.hardware.caches, working_set.free_bytes(root))
    used, modules = places[: counts[-1]], fingerprint.memory_modules
    known: dict[str, Any] = result.common(fingerprint, utc_now())
    known["details"] = {
        "cpus": ",".join(str(place.number) for place in used) or None,
        "caches_bytes": memory.caches_bytes,
        "modules_bytes_per_s": modules.theoretical_bandwidth_bytes_per_second if modules else None,
        "left_out_variables": " ".join(f"{name}={value}" for name, value in dropped().items()) or None,
    }
    if memory.doubtful:
        short = "the working set is not twice as large as the caches: this is partly their bandwidth"
        known["errors"] = (short,)
    request = Request(
        counts=counts,
        working_set_bytes=memory.n_bytes,
        most_bytes=memory.most_bytes,
        cpus=tuple(place.number for place in used),
        nodes=tuple(place.node for place in used),
    )
    return request, known
