"""From a sweep file to a plan on this machine: its fingerprint, the models that are here, the jobs."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.fit import KnownModel
from orchestrator.plan import JOB_LIMIT, Plan, make_plan
from schema.errors import HostError, ModelError
from schema.host import Build, Fingerprint
from schema.sweep import Sweep, load_sweep
from worker.builds import DEFAULT, find_named
from worker.fingerprint.take import take
from worker.models import describe, reference


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A sweep, the machine it is for, and what would run there."""

    sweep: Sweep
    fingerprint: Fingerprint
    plan: Plan
    builds: tuple[Build, ...] = ()


def prepare(asked: Path | Sweep, home: Path, python: str, run_uid: str, job_limit: int = JOB_LIMIT) -> Prepared:
    """Plan the sweep, or the one in the file at `asked`; nothing is built, measured or stored.

    Raises SweepError for the file, HostError where `python` can run no llama.cpp.
    """
    sweep = load_sweep(asked) if isinstance(asked, Path) else asked
    builds = {name: _find_build(name, home, python) for name in sweep.builds}
    default = builds.get(DEFAULT)
    fingerprint = take(home, default if isinstance(default, Build) else None)
    models, absent = _find_models(sweep)
    offered = {fingerprint.host_uid: builds}
    plan = make_plan(sweep, [fingerprint], models, run_uid, builds=offered, absent=absent, job_limit=job_limit)
    usable = tuple(build for build in builds.values() if isinstance(build, Build))
    return Prepared(sweep=sweep, fingerprint=fingerprint, plan=plan, builds=usable)


def _find_build(name: str, home: Path, python: str) -> Build | str:
    """Return the build called `name` or why there is none; raises HostError where it is the default."""
    try:
        return find_named(name, home, python).facts(home)
    except HostError as error:
        if name == DEFAULT:
            raise
        return str(error)


def _find_models(sweep: Sweep) -> tuple[dict[str, KnownModel], dict[str, str]]:
    """Return the models that are on this machine, and for each other one the reason, by the sweep's spec."""
    found: dict[str, KnownModel] = {}
    absent: dict[str, str] = {}
    for entry in sweep.models:
        try:
            ref = reference(entry.source, entry.spec, Path("/"))
            sizes = describe(ref)
            found[entry.spec] = KnownModel(ref=ref, sizes=sizes, unknown=sizes.unknown)
        except (ModelError, HostError) as error:
            absent[entry.spec] = str(error)
    return found, absent
