"""From a sweep file to a plan: what each host says of itself, the models that it sees, the jobs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from orchestrator import on_host
from orchestrator.fit import KnownModel, Skipped
from orchestrator.order import Expected
from orchestrator.plan import JOB_LIMIT, OwnModels, Plan, make_plan
from schema.accept import accept_fingerprint
from schema.canonical import decode
from schema.errors import HostError, StoreError, TokfleetError
from schema.host import Build, Fingerprint
from schema.job import ModelRef
from schema.sweep import Sweep, load_sweep
from worker.builds import DEFAULT
from worker.facts import Facts

Ask = Callable[[tuple[Any, ...]], Mapping[str, Any]]
"""Asks hosts `on_host.describe` with these words, but for the Python; returns by label an answer or TokfleetError."""

MALFORMED = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a host can measure: itself, and by name its builds, or why it has none; the models that it sees."""

    fingerprint: Fingerprint
    builds: Mapping[str, Build | str]
    models: OwnModels


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A sweep, the hosts that may have a share in it, and what would run there; `labels` by host_uid."""

    sweep: Sweep
    fingerprints: tuple[Fingerprint, ...]
    plan: Plan
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def prepare(asked: Path | Sweep, python: str, run_uid: str, job_limit: int = JOB_LIMIT) -> Prepared:
    """Plan the sweep, or the one in the file at `asked`, on this machine; nothing is built, measured or stored.

    Raises SweepError for the file, HostError where `python` can run no llama.cpp.
    """
    sweep = load_sweep(asked) if isinstance(asked, Path) else asked
    offer = offer_of(on_host.describe(*words(sweep), python))
    default = offer.builds.get(DEFAULT)
    if isinstance(default, str):
        raise HostError(default)
    return _planned(sweep, [offer], run_uid, job_limit)


def prepare_for(
    asked: Path | Sweep,
    run_uid: str,
    ask: Ask,
    labels: Mapping[str, Mapping[str, str]],
    job_limit: int = JOB_LIMIT,
) -> Prepared:
    """Plan the sweep on all hosts that `ask` reaches; `labels` are what each told the cluster, by its label `host`.

    A host that does not answer is skipped, with its reason.
    """
    sweep = load_sweep(asked) if isinstance(asked, Path) else asked
    offers: dict[str, Offer] = {}
    silent: list[Skipped] = []
    for label, answer in ask(words(sweep)).items():
        try:
            offers[label] = offer_of(answer)
        except TokfleetError as error:
            silent.append(Skipped(host=label, what="everything", reason=str(error), n_jobs=0, missing=True))
    told = {offer.fingerprint.host_uid: labels.get(label, {}) for label, offer in offers.items()}
    prepared = _planned(sweep, offers.values(), run_uid, job_limit, told)
    return replace(prepared, plan=replace(prepared.plan, skipped=(*silent, *prepared.plan.skipped)), labels=told)


def share_for(sweep: Sweep, run_uid: str, answer: Any, labels: Mapping[str, str]) -> tuple[Fingerprint, list[Expected]]:
    """Return a host and its share of the sweep, from its answer to `on_host.describe`; nothing where it has none.

    Raises TokfleetError where its answer is none.
    """
    offer = offer_of(answer)
    uid = offer.fingerprint.host_uid
    plan = _planned(sweep, [offer], run_uid, JOB_LIMIT, {uid: labels}).plan
    return offer.fingerprint, [(job, plan.expected_seconds[job.job_uid]) for job in plan.jobs]


def words(sweep: Sweep) -> tuple[tuple[str, ...], tuple[tuple[on_host.Source, str], ...]]:
    """Return what `on_host.describe` is asked with for this sweep, but for the Python."""
    return sweep.builds, tuple((entry.source, entry.spec) for entry in sweep.models)


def offer_of(answer: Any) -> Offer:
    """Return what a host's answer to `on_host.describe` says; raises what is an error, HostError for nonsense."""
    if isinstance(answer, TokfleetError):
        raise answer
    try:
        models = {spec: found for spec, found in answer["models"].items() if not isinstance(found, str)}
        return Offer(
            fingerprint=accept_fingerprint(answer["fingerprint"]),
            builds={
                name: build if isinstance(build, str) else decode(Build, build)
                for name, build in answer["builds"].items()
            },
            models=OwnModels(
                models={spec: _model(found) for spec, found in models.items()},
                absent={spec: str(why) for spec, why in answer["models"].items() if isinstance(why, str)},
            ),
        )
    except (*MALFORMED, StoreError) as error:
        raise HostError(f"The host describes itself in words that cannot be understood: {error!r:.300}.") from error


def _model(found: Mapping[str, Any]) -> KnownModel:
    layers = frozenset(int(layer) for layer in found["sizes"]["sliding_layers"])
    sizes = replace(decode(Facts, dict(found["sizes"])), sliding_layers=layers)
    return KnownModel(ref=decode(ModelRef, found["ref"]), sizes=sizes, unknown=sizes.unknown)


def _planned(
    sweep: Sweep,
    offers: Iterable[Offer],
    run_uid: str,
    job_limit: int,
    labels: Mapping[str, Mapping[str, str]] | None = None,
) -> Prepared:
    every = {offer.fingerprint.host_uid: offer for offer in offers}
    hosts = [offer.fingerprint for offer in every.values()]
    plan = make_plan(
        sweep,
        hosts,
        {},
        run_uid,
        builds={uid: offer.builds for uid, offer in every.items()},
        own={uid: offer.models for uid, offer in every.items()},
        labels=labels,
        job_limit=job_limit,
    )
    return Prepared(sweep=sweep, fingerprints=tuple(hosts), plan=plan)
