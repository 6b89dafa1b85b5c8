"""From a sweep file to a plan on this machine: its fingerprint, the models that are here, the jobs."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.fit import KnownModel
from orchestrator.plan import JOB_LIMIT, Plan, make_plan
from schema.errors import HostError, ModelError
from schema.host import Fingerprint
from schema.sweep import Sweep, load_sweep
from worker.build import find_build
from worker.fingerprint.take import take
from worker.models import describe, reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A sweep, the machine it is for, and what would run there."""

    sweep: Sweep
    fingerprint: Fingerprint
    plan: Plan


def prepare(path: Path, home: Path, python: str, run_uid: str, job_limit: int = JOB_LIMIT) -> Prepared:
    """Read and plan the sweep file at `path`; nothing is built, measured or stored.

    Raises SweepError for the file, HostError where `python` can run no llama.cpp.
    """
    sweep = load_sweep(path)
    fingerprint = take(home, find_build(python, home))
    models, absent = _find_models(sweep)
    plan = make_plan(sweep, [fingerprint], models, run_uid, absent=absent, job_limit=job_limit)
    return Prepared(sweep=sweep, fingerprint=fingerprint, plan=plan)


def _find_models(sweep: Sweep) -> tuple[dict[str, KnownModel], dict[str, str]]:
    """Return the models that are on this machine, and for each other one the reason, by the sweep's spec."""
    found: dict[str, KnownModel] = {}
    absent: dict[str, str] = {}
    for entry in sweep.models:
        try:
            ref = reference(entry.source, entry.spec, Path("/"))
            found[entry.spec] = KnownModel(ref=ref, sizes=describe(ref))
        except (ModelError, HostError) as error:
            absent[entry.spec] = str(error)
    return found, absent
