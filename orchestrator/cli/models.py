"""`tokfleet model`: what a model file is, and the synthetic models that can be made here."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.output import format_option, note, write, write_rows
from schema.errors import ModelError, UsageError

if TYPE_CHECKING:
    from worker.recipe import Recipe

COLUMNS = ("spec", "n_params", "file_bytes", "built", "published")

force_option = click.option("--force", is_flag=True, help="Overwrite the file if it exists.")


@click.group()
def model() -> None:
    """Look into a model file, fetch one, list the synthetic models, or make one."""


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
@click.argument("path", metavar="FILE")
@format_option
def inspect(path: str, form: str) -> None:
    """Show what a model file is, from its header alone.

    FILE is a GGUF file, any part of a split set, or a directory with one model in it. Exit
    status 1 says that llama.cpp cannot run it, or that it is no GGUF, and standard error why.
    """
    from orchestrator.inspection_text import as_columns, as_facts
    from worker.inspection import inspect as look
    from worker.model_path import model_file

    found = look(model_file(Path.cwd(), path))
    if form == "table":
        write_rows(("what", "value"), as_facts(found), form)
    else:
        columns = as_columns(found)
        write_rows(tuple(columns), [tuple(columns.values())], form)
    if found.refused:
        raise ModelError(f"{found.path} {found.refused}")


@model.command()
@click.argument("spec", metavar="[SHAPE[:QUANTISATION]]", required=False)
@click.option(
    "--like", type=click.Path(path_type=Path), help="A GGUF file or skeleton to take all but the weights from."
)
@click.option("--out", type=click.Path(path_type=Path), help="A directory, or the file's name if it ends in .gguf.")
@force_option
def synth(spec: str | None, like: Path | None, out: Path | None, force: bool) -> None:
    """Make a synthetic model and print its path.

    Every host makes the same bytes. SHAPE[:QUANTISATION] is one of `tokfleet model list`, such as
    gemma-3-270m:Q4_K_M. A sweep file names it as `synthetic: gemma-3-270m:Q4_K_M`, and it is
    then made when it is needed. `--like FILE` takes metadata, shapes and types from a file's
    header instead, in the sweep file `like: FILE`.
    """
    from orchestrator.cli.progress import Progress

    if (spec is None) == (like is None):
        raise UsageError("Give either SHAPE:QUANTISATION or --like FILE. `tokfleet model list` shows the shapes.")
    meant = spec if like is None else f"like:{like}"
    target = None if out is None else _target(out, meant or "", force)
    with Progress(0) as progress:

        def tell(what: str, share: float) -> None:
            progress.stage(f"{what} {meant}", share)

        path, sha256 = _at_home(meant or "", tell) if target is None else _at(*target, tell)
    note(f"sha256 {sha256}")
    write([str(path)])


@model.command()
@click.argument("path", metavar="FILE")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file to write.")
@force_option
def skeleton(path: str, out: Path, force: bool) -> None:
    """Write the header of a model alone, for sharing: metadata, tokenizer, table of tensors, no weights.

    `tokfleet model synth --like` makes a model of it that runs like the original.
    """
    from worker.like import read_skeleton
    from worker.model_path import model_file

    data = read_skeleton(model_file(Path.cwd(), path)).data
    _refuse_overwriting(out, force)
    try:
        out.write_bytes(data)
    except OSError as error:
        raise ModelError(f"{out} cannot be written: {error.strerror or error}.") from error
    write([str(out)])


@model.command()
@click.argument("spec", metavar="USER/REPOSITORY[:QUANTISATION | /FILE.gguf]")
def fetch(spec: str) -> None:
    """Download a model of the Hugging Face hub into this machine's cache, and print its path.

    A sweep file names it as `hf: USER/REPOSITORY:QUANTISATION` and is measured from that cache.
    The package huggingface_hub does it, with its login, HF_HOME, HF_TOKEN and HF_HUB_OFFLINE.
    """
    from orchestrator.cli.progress import Progress
    from worker import hub

    with Progress(0) as progress:
        found = hub.fetch(hub.parse(spec), lambda what, share: progress.stage(f"{what} {spec}", share))
    write([str(found.path)])


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

    found = resolve(reference("synthetic", spec, Path.cwd()), writable_home(), tell)
    return found.path, found.sha256


def _target(out: Path, spec: str, force: bool) -> tuple["Recipe", Path]:
    """Return what makes the model, named as it is wanted, and the directory to put it into, made if it is absent."""
    from dataclasses import replace

    from worker.models import recipe_of

    made = recipe_of(spec, Path.cwd())
    directory = out
    if out.suffix == ".gguf":
        made, directory = replace(made, filename=out.name), out.parent
    _refuse_overwriting(directory / made.filename, force)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(f"The directory {directory} cannot be made: {error.strerror or error}.") from error
    return made, directory


def _refuse_overwriting(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise UsageError(f"{path} exists already. Remove it, choose another name, or overwrite it with --force.")


def _at(made: "Recipe", directory: Path, tell: Callable[[str, float], None]) -> tuple[Path, str]:
    from worker.recipe import build

    return build(made, directory, tell)
