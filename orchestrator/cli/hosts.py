"""`tokfleet fingerprint`: who this machine is, what it is made of, and how much of it may be used."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.output import format_option, note, write
from orchestrator.cli.run import python_option
from orchestrator.tables import render

if TYPE_CHECKING:
    from schema.host import Build, Fingerprint


@click.command()
@python_option
@format_option
def fingerprint(python: str, form: str) -> None:
    """Show who this machine is, what it is made of, and how much of it may be used.

    `--format json` is the fingerprint as it is kept with every result; the other formats list
    one fact a line and where it was read. What could not be read is said on standard error.
    """
    import json

    from worker.fingerprint.take import take
    from worker.home import home_or_nowhere

    home = home_or_nowhere()
    found = take(home, _build(python, home))
    if form == "json":
        write([json.dumps(_with_ids(found), indent=2)])
    else:
        write(render(("fact", "value", "source"), facts(found), form))
    for error in found.errors:
        note(f"not known: {error}")


def facts(found: "Fingerprint") -> Iterator[tuple[str, Any, str | None]]:
    """Yield every fact as (name, value, source), nested ones with a dotted name."""
    for name, value in _flat("", _with_ids(found)):
        if not name.startswith(("sources.", "errors")):
            sources = [found.sources[part] for part in name.split(".") if part in found.sources]
            yield name, value, sources[-1] if sources else None


def _with_ids(found: "Fingerprint") -> dict[str, Any]:
    whole = asdict(found)
    for part in ("hardware", "allocation", "environment", "build"):
        value = getattr(found, part)
        if value is not None:
            whole[part] = {f"{part}_id": getattr(value, f"{part}_id"), **whole[part]}
    return whole


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else key, item)
    elif isinstance(value, (list, tuple)) and any(isinstance(item, dict) for item in value):
        for number, item in enumerate(value):
            yield from _flat(f"{prefix}.{number}", item)
    elif isinstance(value, (list, tuple)):
        yield prefix, " ".join(map(str, value)) or None
    else:
        yield prefix, value


def _build(python: str, home: Path) -> "Build | None":
    """Return the llama.cpp that would measure here; where there is none, say why and return None."""
    from schema.errors import TokfleetError
    from worker.build import find_build

    try:
        return find_build(python, home)
    except TokfleetError as error:
        note(f"not known: {error}")
        return None
