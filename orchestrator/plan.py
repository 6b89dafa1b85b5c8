"""From a sweep and what is known of hosts and models to jobs: what will run, what not and why, how long; pure.

Counting never builds the combinations. Settings are counted axis by axis (`settings_space`), and a
model × test is looked at once per kind of KV cache and place of the layers, so 750 000 jobs are
counted in a moment; the jobs themselves are made only up to a limit.
"""

import difflib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.estimate import Rates
from orchestrator.fit import KnownModel, Skipped
from orchestrator.hosts import Labels, Selection, select
from orchestrator.order import Expected, Family, in_rounds, too_dear
from orchestrator.share import HostEstimate, Share
from schema.host import Build, Fingerprint
from schema.job import Job
from schema.sweep import Sweep

JOB_LIMIT = 150_000
PREVIEW_JOBS = 40
CONFIRM_JOBS = 1_000
CONFIRM_SECONDS = 7_200.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnModels:
    """The models that one host has, and why it does not have others, by the spec of the sweep's entry."""

    models: Mapping[str, KnownModel] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that is decided before anything runs.

    `n_jobs` is the count in any case; `jobs` holds them, in the order to run, or nothing where they
    are more than the limit given to `make_plan`; `preview` holds the first 40. `n_asked` is the
    number of jobs before anything was skipped: n_jobs and all `skipped` together. `expected_seconds`
    is by job_uid, for the jobs that were built. `notes` are remarks on the order and the models, a sentence each.
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
    notes: tuple[str, ...] = ()

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
    own: Mapping[str, OwnModels] | None = None,
    labels: Mapping[str, Labels] | None = None,
    known_rates: Rates | None = None,
    job_limit: int | None = JOB_LIMIT,
) -> Plan:
    """Return the plan of `sweep` on those of `hosts` that it means.

    `models` is by the spec of the sweep's entry; of a model not in it, `absent` may say why. `builds` is by
    host_uid and name: the build, or why the host has none of that name; without it each host has its own
    alone, as `default`. `own` has, by host_uid, the models as that host sees them, in place of `models` and `absent`;
    `labels` are those of the hosts, by host_uid. Above
    `job_limit` jobs (None: no limit) only the count, the reasons and the estimate are made.
    Raises PlanError where even counting would take long.
    """
    selection = select(sweep.hosts, hosts, labels)
    everywhere = OwnModels(models=models, absent=absent or {})

    def make(host: Fingerprint, build: str) -> Share:
        seen = (own or {}).get(host.host_uid, everywhere)
        return Share(sweep, host, build, seen.models, seen.absent, known_rates or {}, run_uid)

    shares, lacking = _shares(sweep, selection.chosen, builds or {}, make)
    skipped = [*_skipped_hosts(sweep, hosts, selection), *lacking]
    dear = too_dear((cost for share in shares for cost in share.costs), sweep.across) if sweep.across else {}
    estimates = [share.estimate(dear) for share in shares]
    n_jobs = sum(estimate.n_jobs for estimate in estimates)
    complete = job_limit is None or n_jobs <= job_limit
    every_job = itertools.chain.from_iterable(share.jobs() for share in shares)
    built: Sequence[Expected] = tuple(itertools.islice(every_job, None if complete else PREVIEW_JOBS))
    if sweep.across:
        built = in_rounds(built, sweep.across, sweep.rounds, dear)
    jobs = tuple(job for job, _ in built)
    every_skipped = (*skipped, *(item for share in shares for item in share.skipped))
    return Plan(
        name=sweep.name,
        n_asked=sweep.n_combinations * sweep.rounds * (len(selection.chosen) + len(selection.unknown)),
        n_jobs=n_jobs,
        jobs=jobs if complete else (),
        preview=jobs[:PREVIEW_JOBS],
        skipped=tuple(replace(item, n_jobs=item.n_jobs * sweep.rounds) for item in every_skipped),
        hosts=_by_host(estimates),
        hostnames={host.host_uid: host.hostname for host in selection.chosen},
        expected_seconds={job.job_uid: seconds for job, seconds in built},
        notes=tuple(
            dict.fromkeys((*selection.notes, *_every_note(sweep, shares, dear), *_differing(sweep, own or {})))
        ),
    )


def _shares(
    sweep: Sweep,
    hosts: Iterable[Fingerprint],
    builds: Mapping[str, Mapping[str, Build | str]],
    make: Callable[[Fingerprint, str], Share],
) -> tuple[list[Share], list[Skipped]]:
    """Return the share of each host with each of the builds, and the builds that a host does not have."""
    shares: list[Share] = []
    lacking: list[Skipped] = []
    for host in hosts:
        for name in sweep.builds:
            build = builds.get(host.host_uid, {}).get(name, host.build if name == "default" else None)
            if isinstance(build, Build) or (build is None and name == "default"):
                built_so = replace(host, build=build if isinstance(build, Build) else None)
                shares.append(make(built_so, name))
            else:
                lacking.append(_no_such_build(sweep, host, name, build))
    return shares, lacking


def _every_note(sweep: Sweep, shares: Sequence[Share], dear: Mapping[Family, float]) -> Iterator[str]:
    yield from _notes(sweep, shares, dear)
    for share in shares:
        yield from share.notes


def _differing(sweep: Sweep, own: Mapping[str, OwnModels]) -> Iterator[str]:
    """Yield which models are other files on other hosts: their results are kept apart."""
    for entry in sweep.models:
        known = [seen.models[entry.spec].ref.identity for seen in own.values() if entry.spec in seen.models]
        kinds = {identity.partition(":")[0] for identity in known}
        if len(set(known)) > len(kinds):
            yield f"{entry.spec} has other content on some hosts than on others; each content counts as its own model."


def _notes(sweep: Sweep, shares: Sequence[Share], dear: Mapping[Family, float]) -> Iterator[str]:
    """Yield what there is to say of the order."""
    if sweep.interleaved:
        yield "Jobs of one process take their repetitions in turn."
    if not sweep.across:
        return
    what = " and ".join(sweep.across)
    families = {own for share in shares for own in share.families}
    if families - set(dear):
        yield f"Each job comes {sweep.rounds} times: {what} alternate in blocks, a process each (A B B A)."
    for share in shares:
        for own, name in share.families.items():
            if own in dear:
                yield (
                    f"{name}: {what} do not alternate but follow one another, since loading again for each block would "
                    f"take {dear[own]:.0%} of the measured time; each job comes {sweep.rounds} times all the same."
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
