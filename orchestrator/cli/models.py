"""`tokfleet model list` and `tokfleet model synth`: the synthetic models that can be made here."""

from collections.abc import Callable
from pathlib import Path

import click

from orchestrator.cli.output import format_option, note, write, write_rows

COLUMNS = ("spec", "n_params", "file_bytes", "built", "published")


@click.group()
def model() -> None:
    """List models, or make a synthetic one."""


@model.command("list")
@format_option
def list_models(form: str) -> None:
    """List the synthetic models, their sizes, and which are built.

    `built` says whether the file is on this machine already,
    `published` whether the shape's numbers are those of a published model. To measure a
    file of your own, name it by its path in the sweep file.
    """
    from worker.synthetic import listing

    rows = [(item.spec, item.n_params, item.file_bytes, _is_built(item.filename), item.published) for item in listing()]
    write_rows(COLUMNS, rows, form)


@model.command()
@click.argument("spec", metavar="SHAPE[:QUANTISATION]")
@click.option("--out", type=click.Path(path_type=Path), help="A directory, or the file's name if it ends in .gguf.")
def synth(spec: str, out: Path | None) -> None:
    """Make a synthetic model and print its path.

    Every host makes the same bytes. SHAPE[:QUANTISATION] is one of `tokfleet model list`, such as
    gemma-3-270m:Q4_K_M. A sweep file names it as `synthetic: gemma-3-270m:Q4_K_M`, and it is
    then made when it is needed.
    """
    from orchestrator.cli.progress import Progress

    with Progress(0) as progress:

        def tell(what: str, share: float) -> None:
            progress.stage(f"{what} {spec}", share)

        path, sha256 = _at_home(spec, tell) if out is None else _at(out, spec, tell)
    note(f"sha256 {sha256}")
    write([str(path)])


def _is_built(filename: str) -> bool | None:
    """Return whether our home holds the model; None where that cannot be looked up."""
    from schema.errors import HostError
    from worker.home import home

    try:
        return (home() / "models" / filename).is_file()
    except (HostError, OSError):
        return None


def _at_home(spec: str, tell: Callable[[str, float], None]) -> tuple[Path, str]:
    from worker.home import writable_home
    from worker.models import reference, resolve

    found = resolve(reference("synthetic", spec, Path()), writable_home(), tell)
    return found.path, found.sha256


def _at(out: Path, spec: str, tell: Callable[[str, float], None]) -> tuple[Path, str]:
    from worker.synthetic import build, parse

    made = parse(spec)
    named = out.suffix == ".gguf"
    directory = out.parent if named else out
    directory.mkdir(parents=True, exist_ok=True)
    path, sha256 = build(made, directory, tell)
    return path.replace(out) if named else path, sha256
