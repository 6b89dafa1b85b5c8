"""A sweep as a bundle, for a host that no cluster reaches: its jobs, planned without knowing the host (pure).

Nothing is left out that only the host can know: which models are there, what fits into its memory, which numbers of
threads are the same. Values that are relative to a host stay the symbols that they are in every job.
"""

from collections.abc import Iterator
from hashlib import sha256
from itertools import islice

from orchestrator.order import groups, in_rounds
from orchestrator.settings_space import Space, settings_space
from schema.bundle import TO_BE_TOLD, Bundle
from schema.errors import PlanError
from schema.host import Allocation, Environment, Fingerprint, Gpu, Hardware
from schema.job import Job, ModelRef
from schema.run import Run
from schema.sweep import MAX_THREADS, ModelEntry, Sweep

MOST_JOBS = 20_000

ANY_HOST = Fingerprint(
    host_uid=TO_BE_TOLD,
    uid_source="none",
    hostname="the bundle's host",
    taken_at="1970-01-01T00:00:00Z",
    hardware=Hardware(
        arch="unknown",
        n_cores_physical=MAX_THREADS + 1,
        n_cores_logical=MAX_THREADS + 2,
        gpus=(Gpu(vendor="unknown", name="unknown"),),
    ),
    allocation=Allocation(),
    environment=Environment(),
)
"""A host on which no two ways to ask for threads are the same number, and every setting may make a difference."""


def make_bundle(sweep: Sweep, run_uid: str, created_at: str, version: str) -> Bundle:
    """Return the bundle of the sweep; raises PlanError where it has no jobs or too many."""
    space = settings_space(sweep, ANY_HOST)
    jobs = [(job, 0.0) for job in islice(_jobs(sweep, space, run_uid), MOST_JOBS + 1)]
    if not jobs:
        raise PlanError("There is nothing to run: every combination of the settings is one that cannot be.")
    if len(jobs) * sweep.rounds > MOST_JOBS:
        raise PlanError(
            f"The sweep has more than the {MOST_JOBS} jobs that one run takes. Split it into several files."
        )
    if sweep.across:
        jobs = in_rounds(jobs, sweep.across, sweep.rounds)
    run = Run(
        run_uid=run_uid,
        name=sweep.name,
        sweep_text=sweep.text,
        sweep_sha256=sha256(sweep.text.encode()).hexdigest(),
        created_at=created_at,
        tokfleet_version=version,
        tags=sweep.tags,
    )
    return Bundle(run=run, groups=groups(job for job, _ in jobs))


def _jobs(sweep: Sweep, space: Space, run_uid: str) -> Iterator[Job]:
    """Yield the jobs of one round; those that share a loaded model are neighbours."""
    for build in sweep.builds:
        for entry in sweep.models:
            for settings, _ in space.settings():
                for test in sweep.tests:
                    yield Job(
                        run_uid=run_uid,
                        host_uid=TO_BE_TOLD,
                        model=_model(entry),
                        test=test,
                        settings=settings,
                        build=build,
                        repetitions=sweep.repetitions,
                        timeout_seconds=sweep.timeout_seconds,
                        interleaved=sweep.interleaved,
                    )


def _model(entry: ModelEntry) -> ModelRef:
    return ModelRef(source=entry.source, spec=entry.spec, identity=f"{TO_BE_TOLD}: {entry.source} {entry.spec}")
