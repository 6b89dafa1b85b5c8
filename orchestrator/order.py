"""The order in which jobs run: which of them share a process, and which alternate in blocks, A B B A; pure."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from schema.job import ROUND_JOBS, Job
from schema.settings import LOAD_SETTINGS

GROUP_JOBS = 50
GROUP_SECONDS = 600.0
RELOAD_SHARE = 0.20
"""Blocks alternate where loading again for each of them takes at most this share of the measured time."""

Expected = tuple[Job, float]
"""A job and the seconds that it is expected to take."""

Family = tuple[str, str, str]
"""What blocks that alternate have in common: host, model and build, of these what alternates left empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a round of a model with a build takes on a host: measuring, and loading for it; `model` is an identity."""

    host_uid: str
    model: str
    build: str
    measured_seconds: float
    load_seconds: float


def family(host_uid: str, model: str, build: str, across: Collection[str]) -> Family:
    """Return the family of a model with a build on a host, where `across` alternates."""
    return (host_uid, "" if "models" in across else model, "" if "builds" in across else build)


def too_dear(costs: Iterable[Cost], across: Collection[str]) -> dict[Family, float]:
    """Return the families whose blocks had better not alternate, with what loading is of their measured time."""
    measured: dict[Family, float] = {}
    loading: dict[Family, float] = {}
    for cost in costs:
        own = family(cost.host_uid, cost.model, cost.build, across)
        measured[own] = measured.get(own, 0.0) + cost.measured_seconds
        loading[own] = loading.get(own, 0.0) + cost.load_seconds
    shares = {own: loading[own] / seconds for own, seconds in measured.items() if seconds > 0}
    return {own: share for own, share in shares.items() if share > RELOAD_SHARE}


def in_rounds(
    jobs: Iterable[Expected], across: Sequence[str], rounds: int, dear: Collection[Family] = ()
) -> list[Expected]:
    """Return every job `rounds` times, as replica 0, 1, …, in the order to run.

    A block is what one process measures of a model with a build; blocks that differ only in what is
    `across` alternate: A B, B A, A B, …. The jobs of the families in `dear` are not marked as `across`:
    their replicas follow one another in the process that has the model loaded.
    """
    units: dict[tuple[object, ...], dict[tuple[str, str], list[Expected]]] = {}
    for job, seconds in jobs:
        own = family(job.host_uid, job.model.identity, job.build, across)
        block = (job.model.identity, job.build)
        unit = (own, block if own in dear else None, *_load_settings(job))
        units.setdefault(unit, {}).setdefault(block, []).append((job, seconds))
    found: list[Expected] = []
    for unit, blocks in units.items():
        mark = None if unit[0] in dear else "+".join(across)
        for number in range(rounds):
            ordered = list(blocks.values())
            for block_jobs in reversed(ordered) if number % 2 else ordered:
                found += [(replace(job, replica=number, across=mark), seconds) for job, seconds in block_jobs]
    return found


def groups(jobs: Iterable[Job], expected_seconds: Mapping[str, float] | None = None) -> tuple[tuple[Job, ...], ...]:
    """Return the jobs in their order, cut where a new process is needed, at 50 jobs or at about 10 minutes.

    Jobs that take their repetitions in turn are not cut at 10 minutes before there are ROUND_JOBS of them.
    `expected_seconds` is by job_uid, as the plan has it; jobs without an entry count as nothing.
    """
    known = expected_seconds or {}
    every = list(jobs)
    found: list[tuple[Job, ...]] = []
    start = 0
    while start < len(every):
        size = group_size(every, start, known)
        found.append(tuple(every[start : start + size]))
        start += size
    return tuple(found)


def group_size(
    jobs: Sequence[Job], start: int, expected_seconds: Mapping[str, float], most_seconds: float = GROUP_SECONDS
) -> int:
    """Return how many of `jobs`, counted from `start`, make one group of at most about `most_seconds`; at least 1."""
    first = jobs[start]
    key, size, seconds = _process_key(first), 0, 0.0
    for index in range(start, len(jobs)):
        job = jobs[index]
        expected = expected_seconds.get(job.job_uid, 0.0)
        if size and (_process_key(job) != key or _is_full(first, size, seconds + expected, most_seconds)):
            break
        size += 1
        seconds += expected
    return size


def _is_full(first: Job, size: int, seconds: float, most_seconds: float) -> bool:
    if first.interleaved:
        return size % ROUND_JOBS == 0 and (size + ROUND_JOBS > GROUP_JOBS or seconds > most_seconds)
    return size >= GROUP_JOBS or seconds > most_seconds


def _process_key(job: Job) -> tuple[object, ...]:
    block = job.replica if job.across else None
    return (job.host_uid, job.model, job.build, job.interleaved, block, *_load_settings(job))


def _load_settings(job: Job) -> tuple[object, ...]:
    return tuple(getattr(job.settings, name) for name in LOAD_SETTINGS)
