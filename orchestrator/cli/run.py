"""`tokfleet run`, `resume` and `plan`: from a sweep file to rows in the database."""

import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from orchestrator.cli.address import address_option, is_elsewhere, spelt
from orchestrator.cli.bundle import bundle_option, write_bundle
from orchestrator.cli.choices import Choices, course_options
from orchestrator.cli.db import db_option
from orchestrator.cli.measuring import measure_rest, measure_sweep
from orchestrator.cli.planning import show_plan


def _from_here(_context: click.Context, _parameter: click.Parameter, python: str) -> str:
    """Return a path that means the same in every directory; a name alone is looked up in PATH."""
    return str(Path(python).absolute()) if "/" in python else python


python_option = click.option(
    "--python",
    envvar="TOKFLEET_PYTHON",
    default=sys.executable,
    callback=_from_here,
    metavar="PATH",
    help="The Python whose llama-cpp-python measures.  [default: TOKFLEET_PYTHON, or the one that runs tokfleet]",
)


def _for_all(context: click.Context) -> bool:
    """Return whether the Python was named for this command, and so for every host."""
    return context.get_parameter_source("python") is ParameterSource.COMMANDLINE


def _said(context: click.Context, name: str) -> Any:
    """Return the value of an option that was typed; None where it came from a variable, which is for this machine."""
    typed = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    return context.params[name] if typed else None


@click.command()
@click.argument("sweep", type=click.Path(path_type=Path))
@click.option("--yes", is_flag=True, help="Do not ask before a large sweep, or one that is possible only in part.")
@course_options
@python_option
@db_option
@address_option
@click.pass_context
def run(
    ctx: click.Context,
    /,
    sweep: Path,
    yes: bool,
    python: str,
    db: str | None,
    address: str | None,
    **course: Any,
) -> int:
    """Measure everything in the SWEEP file, and store each result as it comes.

    With an address all hosts of that cluster have their share. Running a file again is a new run. Ctrl-C loses
    nothing that was measured.
    """
    choices = Choices(python=python, python_for_all=_for_all(ctx), address=address, **course)
    if is_elsewhere(address):
        from orchestrator.cli.submit import submit

        called = {"sweep": sweep, "yes": yes, "follow": True, "db": _said(ctx, "db"), "address": address}
        return int(ctx.invoke(submit, **called, **choices.course()))
    return measure_sweep(sweep, yes, choices, db)


@click.command()
@click.argument("run", default="latest")
@click.option("--detach", is_flag=True, help="Let the lab's head do it, and return when it has begun.")
@course_options
@python_option
@db_option
@address_option
@click.pass_context
def resume(
    ctx: click.Context,
    /,
    run: str,
    detach: bool,
    python: str,
    db: str | None,
    address: str | None,
    **course: Any,
) -> int:
    """Measure what RUN (its uid or the start of it; default: the latest) still lacks.

    What failed is not tried again: run the file anew for that.
    """
    if is_elsewhere(address):
        from orchestrator.cli.there import ride

        return ride(address, [*spelt(ctx), *["--detach"] * (not detach)])
    choices = Choices(python=python, python_for_all=_for_all(ctx), address=address, **course)
    return measure_rest(run, choices, db, detach)


@click.command()
@click.argument("sweep", type=click.Path(path_type=Path))
@python_option
@bundle_option
@address_option
@click.pass_context
def plan(ctx: click.Context, sweep: Path, python: str, bundle: Path | None, address: str | None) -> int:
    """Show what the SWEEP file would measure, how long that takes, and what is skipped and why.

    With an address it says so of each host of that cluster.
    """
    if bundle is not None:
        return write_bundle(sweep, bundle)
    return show_plan(sweep, Choices(python=python, python_for_all=_for_all(ctx), address=address))
