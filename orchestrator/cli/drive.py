"""What the head runs for `tokfleet submit`: the driver of one run, as a Ray job."""

import os
from pathlib import Path

import click

from schema.errors import ClusterError


@click.command(hidden=True)
def drive() -> int:
    """Measure the run that was handed over to this head; Ray holds its description."""
    from orchestrator.cli.choices import Choices
    from orchestrator.cli.measuring import measure_rest, measure_sweep
    from orchestrator.handover import from_environment
    from schema.sweep import parse_sweep

    handed = from_environment(os.environ)
    try:
        choices = Choices(address="auto", **handed.course)
    except TypeError as error:
        raise ClusterError(
            f"Another version of tokfleet handed this run over: {error}. Install the same here."
        ) from error
    db = handed.db or os.environ.get("TOKFLEET_DB")
    if handed.sweep is None:
        return measure_rest(handed.run_uid, choices, db)
    sweep = parse_sweep(handed.sweep, handed.filename, Path(handed.base))
    return measure_sweep(sweep, handed.yes, choices, db, run_uid=handed.run_uid)
