"""`tokfleet plan SWEEP --bundle FILE`: a sweep's jobs in a file, for a host that no cluster reaches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from orchestrator.cli.output import note

F = TypeVar("F", bound=Callable[..., Any])


def bundle_option(command: F) -> F:
    """Give `command` the option `--bundle`, passed as `bundle`."""
    return click.option(
        "--bundle",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write the jobs to FILE, for a host that cannot be reached: docs/bundle.md.",
    )(command)


def write_bundle(sweep: Path, file: Path) -> int:
    """Write the jobs of the sweep to `file`, say what to do with it, and return the exit status."""
    import uuid

    from orchestrator.bundle import make_bundle
    from orchestrator.cli import version
    from orchestrator.interchange.whole_file import write_lines
    from schema.bundle import bundle_text
    from schema.sweep import load_sweep
    from worker.recovery import utc_now

    asked = load_sweep(sweep)
    bundle = make_bundle(asked, uuid.uuid4().hex, utc_now(), version())
    write_lines(file, [bundle_text(bundle)])
    if asked.hosts:
        note("The sweep's `hosts` say nothing here: a bundle is for whoever measures it.")
    note(f"{bundle.n_jobs} jobs of run {bundle.run.run_uid} are in {file}. On the host, then here:")
    note(f"  python -m worker --bundle {file.name} --models DIRECTORY")
    note("  tokfleet import RECORDS.jsonl")
    return 0
