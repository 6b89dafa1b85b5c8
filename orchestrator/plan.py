"""From a sweep and what is known of hosts and models to jobs: what will run, what not and why, how long; pure.

Counting never builds the combinations. Settings are counted axis by axis (`settings_space`), and a
model × test is looked at once per kind of KV cache and place of the layers, so 750 000 jobs are
counted in a moment; the jobs themselves are made only up to a limit.
"""

import difflib
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.estimate import Pace, Rates, job_seconds, load_seconds, pace
from orchestrator.fit import Fit, KnownModel, Skipped
from orchestrator.hosts import Selection, select
from orchestrator.settings_space import settings_space
from schema.errors import PlanError
from schema.host import Build, Fingerprint
from schema.job import Job, ModelRef, Test
from schema.settings import LOAD_SETTINGS, Settings
from schema.sweep import Sweep

JOB_LIMIT = 20_000
PREVIEW_JOBS = 40
GROUP_JOBS = 50
GROUP_SECONDS = 600.0
CONFIRM_JOBS = 1_000
CONFIRM_SECONDS = 7_200.0
MAX_CASES = 3_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEstimate:
    """What one host has to do: rough seconds, and the most memory that one job needs."""

    host_uid: str
    hostname: str
    n_jobs: int
    seconds: float
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is decided before anything runs.

    `n_jobs` is the count in any case; `jobs` holds them, in the order to run, or nothing where they
    are more than the limit given to `make_plan`; `preview` holds the first 40. `n_asked` is the
    number of jobs before anything was skipped: n_jobs and all `skipped` together. `expected_seconds`
    is by job_uid, for the jobs that were built.
    """

    name: str
    n_asked: int
    n_jobs: int
    jobs: tuple[Job, ...]
    preview: tuple[Job, ...]
    skipped: tuple[Skipped, ...]
    hosts: tuple[HostEstimate, ...]
    hostnames: Mapping[str, str]
    expected_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether `jobs` holds all jobs."""
        return len(self.jobs) == self.n_jobs

    @property
    def seconds(self) -> float:
        """Expected time until the last host is done; hosts work side by side."""
        return max((host.seconds for host in self.hosts), default=0.0)

    @property
    def needs_confirmation(self) -> bool:
        """Whether a person should say yes first: more than 1 000 jobs, or more than two hours."""
        return self.n_jobs > CONFIRM_JOBS or self.seconds > CONFIRM_SECONDS


def make_plan(
    sweep: Sweep,
    hosts: Sequence[Fingerprint],
    models: Mapping[str, KnownModel],
    run_uid: str,
    *,
    builds: Mapping[str, Mapping[str, Build | str]] | None = None,
    absent: Mapping[str, str] | None = None,
    known_rates: Rates | None = None,
    job_limit: int | None = JOB_LIMIT,
) -> Plan:
    """Return the plan of `sweep` on those of `hosts` that it means.

    `models` is by the spec of the sweep's entry; of a model not in it, `absent` may say why. `builds` is by
    host_uid and name: the build, or why the host has none of that name; without it each host has its own
    alone, as `default`. Above
    `job_limit` jobs (None: no limit) only the count, the reasons and the estimate are made.
    Raises PlanError where even counting would take long.
    """
    selection = select(sweep.hosts, hosts)
    skipped = _skipped_hosts(sweep, hosts, selection)
    shares = []
    for host in selection.chosen:
        for name in sweep.builds:
            build = (builds or {}).get(host.host_uid, {}).get(name, host.build if name == "default" else None)
            if isinstance(build, Build) or name == "default":
                built_so = replace(host, build=build if isinstance(build, Build) else None)
                shares.append(_Share(sweep, built_so, name, models, absent or {}, known_rates or {}, run_uid))
            else:
                skipped.append(_no_such_build(sweep, host, name, build))
    n_jobs = sum(share.estimate.n_jobs for share in shares)
    complete = job_limit is None or n_jobs <= job_limit
    every_job = itertools.chain.from_iterable(share.jobs() for share in shares)
    built = tuple(itertools.islice(every_job, None if complete else PREVIEW_JOBS))
    jobs = tuple(job for job, _ in built)
    return Plan(
        name=sweep.name,
        n_asked=sweep.n_combinations * (len(selection.chosen) + len(selection.unknown)),
        n_jobs=n_jobs,
        jobs=jobs if complete else (),
        preview=jobs[:PREVIEW_JOBS],
        skipped=(*skipped, *(item for share in shares for item in share.skipped)),
        hosts=_by_host([share.estimate for share in shares]),
        hostnames={host.host_uid: host.hostname for host in selection.chosen},
        expected_seconds={job.job_uid: seconds for job, seconds in built},
    )


def _no_such_build(sweep: Sweep, host: Fingerprint, name: str, reason: str | None) -> Skipped:
    return Skipped(
        host=host.hostname,
        what=f"build {name}",
        reason=reason or "the host has no build of this name; add it there with `tokfleet build add`",
        n_jobs=sweep.n_combinations // len(sweep.builds),
        missing=True,
    )


def _by_host(estimates: Sequence[HostEstimate]) -> tuple[HostEstimate, ...]:
    """Return one estimate a host: its builds are measured one after another."""
    found: dict[str, HostEstimate] = {}
    for each in estimates:
        before = found.get(each.host_uid)
        found[each.host_uid] = (
            each
            if before is None
            else replace(
                before,
                n_jobs=before.n_jobs + each.n_jobs,
                seconds=before.seconds + each.seconds,
                memory_bytes=max(before.memory_bytes, each.memory_bytes),
            )
        )
    return tuple(found.values())


def groups(jobs: Iterable[Job], expected_seconds: Mapping[str, float] | None = None) -> tuple[tuple[Job, ...], ...]:
    """Return the jobs in their order, cut where a new process is needed, at 50 jobs or at about 10 minutes.

    `expected_seconds` is by job_uid, as the plan has it; jobs without an entry count as nothing.
    """
    known = expected_seconds or {}
    found: list[list[Job]] = []
    seconds = 0.0
    for job in jobs:
        expected = known.get(job.job_uid, 0.0)
        full = bool(found) and (len(found[-1]) >= GROUP_JOBS or seconds + expected > GROUP_SECONDS)
        if not found or full or _process_key(found[-1][0]) != _process_key(job):
            found.append([])
            seconds = 0.0
        found[-1].append(job)
        seconds += expected
    return tuple(tuple(group) for group in found)


def _process_key(job: Job) -> tuple[object, ...]:
    return (job.host_uid, job.model, job.build, *(getattr(job.settings, name) for name in LOAD_SETTINGS))


def _skipped_hosts(sweep: Sweep, hosts: Sequence[Fingerprint], selection: Selection) -> list[Skipped]:
    names = sorted({host.hostname for host in hosts})
    skipped = []
    for name in selection.unknown:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"the nearest is {near[0]}" if near else f"known: {', '.join(names[:10]) or 'none'}"
        reason = f"no host of this name is known; {hint}"
        skipped.append(Skipped(host=name, what="everything", reason=reason, n_jobs=sweep.n_combinations, missing=True))
    for entry in selection.unmatched:
        skipped.append(Skipped(host=entry, what="everything", reason="no known host fulfils this entry", n_jobs=0))
    return skipped


class _Share:
    """What one host does of the sweep with one build: counted when it is made, its jobs only when asked for."""

    def __init__(
        self,
        sweep: Sweep,
        host: Fingerprint,
        build: str,
        models: Mapping[str, KnownModel],
        absent: Mapping[str, str],
        rates: Rates,
        run_uid: str,
    ) -> None:
        self._sweep, self._host, self._build, self._rates, self._run_uid = sweep, host, build, rates, run_uid
        self._space = settings_space(sweep, host)
        self.skipped: list[Skipped] = []
        self._fits = [Fit(model, self._space, sweep.tests, host) for model in self._present(models, absent)]
        self._refuse_what_takes_long()
        self._skip_settings()
        for fit in self._fits:
            self.skipped += fit.skipped()
        self.estimate = self._estimate()

    def _skip(self, what: str, reason: str, n_jobs: int, missing: bool = False) -> None:
        host = self._host.hostname
        self.skipped.append(Skipped(host=host, what=what, reason=reason, n_jobs=n_jobs, missing=missing))

    def _present(self, models: Mapping[str, KnownModel], absent: Mapping[str, str]) -> Iterator[KnownModel]:
        """Yield the models that are there, each content once, and note the others as skipped."""
        per_model = self._sweep.n_combinations // max(1, len(self._sweep.models) * len(self._sweep.builds))
        seen: dict[str, str] = {}
        for entry in self._sweep.models:
            known = models.get(entry.spec)
            if known is None:
                reason = absent.get(entry.spec, "the model is not there")
                self._skip(f"model {entry.spec}", reason, per_model, missing=True)
            elif known.ref.identity in seen:
                reason = f"the same content as {seen[known.ref.identity]}, measured once"
                self._skip(f"model {entry.spec}", reason, per_model)
            else:
                seen[known.ref.identity] = entry.spec
                yield known

    def _refuse_what_takes_long(self) -> None:
        kinds = len({cache[:2] for cache in self._space.caches}) * len(self._space.threads)
        if len(self._fits) * len(self._sweep.tests) * kinds > MAX_CASES:
            n_jobs = self._sweep.n_combinations
            raise PlanError(f"The sweep has {n_jobs} combinations, too many to count. Split it into several files.")

    def _skip_settings(self) -> None:
        for dropped in self._space.dropped:
            n_jobs = dropped.n_combinations * len(self._fits) * len(self._sweep.tests)
            if n_jobs:
                self._skip(dropped.what, dropped.reason, n_jobs)

    def _estimate(self) -> HostEstimate:
        times = [self._time(fit) for fit in self._fits]
        return HostEstimate(
            host_uid=self._host.host_uid,
            hostname=self._host.hostname,
            n_jobs=sum(fit.n_jobs for fit in self._fits),
            seconds=sum(times),
            memory_bytes=max((fit.memory_bytes for fit in self._fits), default=0),
        )

    def _time(self, fit: Fit) -> float:
        """Return the expected seconds of all jobs with this model, and of loading it for each group of them."""
        per_case = len(self._space.batches) * len(self._space.loads) * len(self._space.others)
        seconds = 0.0
        for (type_k, type_v, layers), n_cases in fit.cases.items():
            for _, n_threads in self._space.threads:
                at = self._pace(fit.model, n_threads, layers)
                cache = fit.cache_bytes_per_token(type_k, type_v)
                tests = fit.tests[type_k, type_v, layers]
                one_each = sum(job_seconds(test, self._sweep.repetitions, at, cache) for test in tests)
                seconds += one_each * n_cases * per_case
        cuts = max(fit.n_jobs / GROUP_JOBS, seconds / GROUP_SECONDS)
        loads = max(len(self._space.layers) * len(self._space.loads), math.ceil(cuts)) if fit.n_jobs else 0
        return seconds + loads * load_seconds(fit.model.sizes)

    def _pace(self, model: KnownModel, n_threads: int, layers: int | str) -> Pace:
        return pace(self._host, model.ref.identity, model.sizes, n_threads, layers != 0, self._rates)

    def jobs(self) -> Iterator[tuple[Job, float]]:
        """Yield each job with its expected seconds, those that share a process as neighbours."""
        for fit in self._fits:
            for settings, n_threads in self._space.settings():
                layers = fit.place(settings.n_gpu_layers)
                at = self._pace(fit.model, n_threads, layers)
                cache = fit.cache_bytes_per_token(settings.type_k, settings.type_v)
                for test in fit.tests[settings.type_k, settings.type_v, layers]:
                    seconds = job_seconds(test, self._sweep.repetitions, at, cache)
                    yield self._job(fit.model.ref, test, settings), seconds

    def _job(self, model: ModelRef, test: Test, settings: Settings) -> Job:
        return Job(
            run_uid=self._run_uid,
            host_uid=self._host.host_uid,
            model=model,
            test=test,
            settings=settings,
            build=self._build,
            repetitions=self._sweep.repetitions,
            timeout_seconds=self._sweep.timeout_seconds,
        )
