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
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
def fingerprint(python: str, form: str, as_json: bool) -> None:
    """Show who this machine is, what it is made of, and how much of it may be used.

    A table groups the facts and says where each was read. `--format json` is the fingerprint as it is kept
    with every result; the other formats list one fact a line. What could not be read is said on standard error.
    """
    import json

    from worker.fingerprint.recognition import said
    from worker.fingerprint.take import take
    from worker.home import home_or_nowhere

    home = home_or_nowhere()
    found = take(home, build_or_note(python, home))
    if as_json or form == "json":
        write([json.dumps(_with_ids(found), indent=2)])
    elif form == "table":
        write(_groups(found))
    else:
        write(render(("fact", "value", "source"), facts(found), form))
    for sentence in said(found):
        note(sentence)
    for error in found.errors:
        note(f"not known: {error}")


def _groups(found: "Fingerprint") -> Iterator[str]:
    """Yield the lines of one table for each group, with the group's title over its first column."""
    from orchestrator.fingerprint_text import groups

    for number, (title, rows) in enumerate(groups(found)):
        if number:
            yield ""
        yield from render((title, "value", "source"), rows)


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


def build_or_note(python: str, home: Path) -> "Build | None":
    """Return the llama.cpp that would measure here; where there is none, say why and return None."""
    from schema.errors import TokfleetError
    from worker.build import find_build

    try:
        return find_build(python, home)
    except TokfleetError as error:
        note(f"not known: {error}")
        return None
