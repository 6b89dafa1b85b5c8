"""From a sweep and a cluster, or this machine alone, to a plan that a person has seen."""

import contextlib
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.choices import Choices
from orchestrator.cli.output import confirm, note, terminal_width, write
from schema.errors import ClusterError, PlanError

if TYPE_CHECKING:
    from orchestrator.plan import Plan
    from orchestrator.prepare import Prepared
    from orchestrator.roll_call import RollCall
    from schema.lab_host import Lab
    from schema.run import Run
    from schema.sweep import Sweep

FAILED = 1


def show_plan(sweep: Path, choices: Choices) -> int:
    """Print what the sweep would measure, and return the exit status."""
    from orchestrator.plan_text import render_plan

    with cluster_at(choices.address):
        prepared = prepare(sweep, choices, roll_call(choices, lab_here()), "plan")
    write(render_plan(prepared.plan, terminal_width(sys.stdout)))
    return 0 if prepared.plan.n_jobs else FAILED


def prepare(sweep: "Path | Sweep", choices: Choices, call: "RollCall | None", run_uid: str) -> "Prepared":
    """Plan the sweep, or the one in a file, on this machine, or on the hosts that `call` has found."""
    from orchestrator import prepare as preparing

    if call is None:
        return preparing.prepare(sweep, choices.python, run_uid)
    from orchestrator import lab_models
    from schema.sweep import load_sweep

    for problem in call.problems:
        note(problem)
    if not call.hosts:
        raise ClusterError(
            f"No host of the cluster at {choices.address} measures. Start one with `tokfleet cluster join`; "
            "`tokfleet hosts` says who is there."
        )
    asked = load_sweep(sweep) if isinstance(sweep, Path) else sweep
    describe = partial(
        lab_models.describe, call, asked, may_fetch=choices.distribute, may_read=run_uid != "plan", tell=note
    )
    return preparing.prepare_for(asked, run_uid, describe, call.labels())


def cluster_at(address: str | None) -> contextlib.AbstractContextManager[None]:
    """Return the cluster at `address` as a context; nothing where this machine measures alone."""
    if address is None:
        return contextlib.nullcontext()
    from orchestrator.cluster import joined

    return joined(address)


def lab_here() -> "Lab":
    """Return what the lab's file on this machine says; an empty lab without one."""
    from schema.lab import lab_path, load_lab
    from worker.home import home_or_nowhere

    return load_lab(lab_path(home_or_nowhere()))


def roll_call(choices: Choices, lab: "Lab") -> "RollCall | None":
    """Return who is in the connected cluster; None where this machine measures alone."""
    if choices.address is None:
        return None
    from orchestrator.roll_call import RollCall

    return RollCall.now(lab, choices.python_there)


def ask_first(plan: "Plan", yes: bool) -> None:
    """Show the plan, and ask before one that is large or that can be done only in part.

    Raises PlanError where there is nothing to run, click.Abort where the answer is no.
    """
    from orchestrator.plan_text import render_plan

    for line in render_plan(plan, terminal_width(sys.stderr)):
        note(line)
    if not plan.n_jobs:
        raise PlanError("There is nothing to run: see the reasons above.")
    if not plan.is_complete:
        raise PlanError(f"{plan.n_jobs} jobs are more than one run takes. Split the sweep into several files.")
    missing = [item for item in plan.skipped if item.missing]
    if yes or not (plan.needs_confirmation or missing):
        return
    if not confirm("Measure the rest all the same?" if missing else "Measure all of this?"):
        raise click.Abort


def run_of(prepared: "Prepared", run_uid: str) -> "Run":
    """Return the run that the plan is for."""
    from hashlib import sha256

    from orchestrator.cli import version
    from schema.run import Run
    from worker.recovery import utc_now

    text = prepared.sweep.text
    return Run(
        run_uid=run_uid,
        name=prepared.sweep.name,
        sweep_text=text,
        sweep_sha256=sha256(text.encode()).hexdigest(),
        created_at=utc_now(),
        tokfleet_version=version(),
        tags=prepared.sweep.tags,
    )
