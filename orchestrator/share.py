"""What one host does of a sweep with one build: what fits there, what it costs, and the jobs themselves; pure."""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from orchestrator.estimate import GIB, Pace, Rates, job_seconds, load_seconds, pace
from orchestrator.fit import Fit, KnownModel, Skipped
from orchestrator.order import GROUP_JOBS, GROUP_SECONDS, Cost, Expected, Family, family
from orchestrator.settings_space import settings_space
from schema.errors import PlanError
from schema.host import Fingerprint
from schema.job import ROUND_JOBS, Job
from schema.sweep import Sweep
from worker.builds import DEFAULT

MAX_CASES = 3_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEstimate:
    """What one host has to do: rough seconds, and the most memory that one job needs."""

    host_uid: str
    hostname: str
    n_jobs: int
    seconds: float
    memory_bytes: int


class Share:
    """What one host does of the sweep with one build: counted when it is made, its jobs only when asked for.

    `skipped` is what of one round is not measured, `costs` what one round takes for each model, and `notes`
    are remarks, a sentence each.
    """

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
        self.notes: list[str] = []
        self._fits = [Fit(model, self._space, sweep.tests, host) for model in self._present(models, absent)]
        self._refuse_what_takes_long()
        self._skip_settings()
        for fit in self._fits:
            self.skipped += fit.skipped()
        self.costs = [self._cost(fit) for fit in self._fits]
        self._in_turn = {fit.model.ref.identity: self._can_take_turns(fit) for fit in self._fits}

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
            elif known.unknown and self._build == DEFAULT:
                reason = f"it {known.unknown}; use a newer tokfleet, another model, or a build by name that knows it"
                self._skip(f"model {entry.spec}", reason, per_model, missing=True)
            elif known.ref.identity in seen:
                reason = f"the same content as {seen[known.ref.identity]}, measured once"
                self._skip(f"model {entry.spec}", reason, per_model)
            else:
                seen[known.ref.identity] = entry.spec
                if known.unknown:
                    self.notes.append(
                        f"{entry.spec} {known.unknown}: unknown to tokfleet, left to build {self._build}."
                    )
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

    def _can_take_turns(self, fit: Fit) -> bool:
        """Return whether jobs with this model are to take their repetitions in turn; says why, where they cannot."""
        if not self._sweep.interleaved or not fit.n_jobs:
            return False
        if self._host.build is not None and self._host.build.method == "llama-bench":
            reason = f"build {self._build} is a llama-bench, which does all repetitions of a job at once"
        elif (need := fit.side_by_side_bytes(ROUND_JOBS)) is not None:
            reason = f"the contexts of {ROUND_JOBS} jobs beside each other may need {need / GIB:.1f} GiB"
        else:
            return True
        self.notes.append(f"{self._host.hostname}, {fit.model.ref.spec}: one job after another, since {reason}.")
        return False

    @property
    def families(self) -> dict[Family, str]:
        """Where blocks alternate or would: each family of the share with its name for people."""
        across = self._sweep.across
        found: dict[Family, str] = {}
        for fit in self._fits:
            if fit.n_jobs:
                parts = [self._host.hostname]
                parts += [fit.model.ref.spec] * ("models" not in across)
                parts += [f"build {self._build}"] * ("builds" not in across)
                found[self._family(fit.model.ref.identity)] = ", ".join(parts)
        return found

    def _family(self, identity: str) -> Family:
        return family(self._host.host_uid, identity, self._build, self._sweep.across)

    def estimate(self, dear: Collection[Family]) -> HostEstimate:
        """Return what all rounds take; the families in `dear` load once, the others for each round."""
        rounds = self._sweep.rounds
        return HostEstimate(
            host_uid=self._host.host_uid,
            hostname=self._host.hostname,
            n_jobs=rounds * sum(fit.n_jobs for fit in self._fits),
            seconds=sum(
                rounds * cost.measured_seconds + cost.load_seconds * (1 if self._family(cost.model) in dear else rounds)
                for cost in self.costs
            ),
            memory_bytes=max((fit.memory_bytes for fit in self._fits), default=0),
        )

    def _cost(self, fit: Fit) -> Cost:
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
        return Cost(
            host_uid=self._host.host_uid,
            model=fit.model.ref.identity,
            build=self._build,
            measured_seconds=seconds,
            load_seconds=loads * load_seconds(fit.model.sizes),
        )

    def _pace(self, model: KnownModel, n_threads: int, layers: int | str) -> Pace:
        return pace(self._host, model.ref.identity, model.sizes, n_threads, layers != 0, self._rates)

    def jobs(self) -> Iterator[Expected]:
        """Yield each job of one round with its expected seconds, those that share a process as neighbours."""
        for fit in self._fits:
            make = partial(
                Job,
                run_uid=self._run_uid,
                host_uid=self._host.host_uid,
                model=fit.model.ref,
                build=self._build,
                repetitions=self._sweep.repetitions,
                timeout_seconds=self._sweep.timeout_seconds,
                interleaved=self._in_turn[fit.model.ref.identity],
            )
            for settings, n_threads in self._space.settings():
                layers = fit.place(settings.n_gpu_layers)
                at = self._pace(fit.model, n_threads, layers)
                cache = fit.cache_bytes_per_token(settings.type_k, settings.type_v)
                for test in fit.tests[settings.type_k, settings.type_v, layers]:
                    yield make(test=test, settings=settings), job_seconds(test, self._sweep.repetitions, at, cache)
