"""`tokfleet build`: the builds of llama.cpp that this host offers by name, to be compared in one sweep."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.output import format_option, note, write, write_rows
from orchestrator.cli.run import python_option

if TYPE_CHECKING:
    from schema.host import Build

COLUMNS = ("name", "method", "commit", "backends", "devices", "flags", "compiler", "path")


@click.group()
def build() -> None:
    """Add, list or remove builds of llama.cpp, for `builds:` in a sweep file."""


@build.command("list")
@python_option
@format_option
def list_builds(python: str, form: str) -> None:
    """List the builds of this host and what each says of itself."""
    from schema.errors import HostError
    from worker.builds import DEFAULT, find_named, named_builds
    from worker.home import home_or_nowhere

    home = home_or_nowhere()
    rows: list[Sequence[object]] = []
    for name in (DEFAULT, *named_builds(home)):
        named = find_named(name, home, python)
        try:
            told = _told(named.facts(home))
        except HostError as error:
            note(f"{name}: {error}")
            told = (named.kind, *[None] * 5)
        rows.append((name, *told, named.path))
    write_rows(COLUMNS, rows, form)


def _told(facts: "Build") -> tuple[str | None, ...]:
    devices = ", ".join(facts.devices)
    backends = ",".join(facts.backends)
    return facts.method, facts.llama_cpp_commit, backends, devices, facts.cmake_args, facts.compiler


@build.command()
@click.argument("name")
@click.option("--python", metavar="PATH", help="A Python whose llama-cpp-python measures.")
@click.option("--llama-bench", metavar="PATH", help="A llama-bench binary: another fork, commit or vendor's build.")
@click.option("--cmake-args", metavar="FLAGS", default="", help='CMake options of a new build: "-DGGML_VULKAN=ON".')
@click.option("--release", metavar="VERSION", help="The release of llama-cpp-python to build.  [default: the newest]")
def add(name: str, python: str | None, llama_bench: str | None, cmake_args: str, release: str | None) -> None:
    """Offer a build under NAME: one that is there, or a new one made with pip in tokfleet's home.

    A new one is always compiled: pip would otherwise hand back the wheel that it made last,
    whatever the options.
    """
    from schema.errors import UsageError
    from worker.builds import NamedBuild, add_build, check_name
    from worker.home import writable_home

    if python and llama_bench:
        raise UsageError("A build is either a Python or a llama-bench: give --python or --llama-bench, not both.")
    home = writable_home()
    check_name(name, home)
    if llama_bench:
        made = NamedBuild(name=name, kind="llama-bench", path=str(Path(llama_bench).absolute()))
    else:
        path = str(Path(python).absolute()) if python else _make(home / "builds" / name, cmake_args, release)
        made = NamedBuild(name=name, kind="python", path=path)
    facts = made.facts(home)
    add_build(made, home)
    write([f"{name}: {facts.binding}, llama.cpp {facts.llama_cpp_commit or '?'}, {', '.join(facts.backends)}"])


@build.command()
@click.argument("name")
def remove(name: str) -> None:
    """Offer NAME no longer; its files stay."""
    from worker.builds import remove_build
    from worker.home import writable_home

    removed = remove_build(name, writable_home())
    write([f"{name} is no longer offered; {removed.path} stays."])


def _make(folder: Path, cmake_args: str, release: str | None) -> str:
    """Make an environment with a fresh build of llama-cpp-python and return its Python."""
    import json

    python = str(folder / "bin" / "python")
    wanted = "llama-cpp-python" + (f"=={release}" if release else "")
    fresh = ["--no-cache-dir", "--force-reinstall", "--no-binary", "llama-cpp-python"]
    _run([sys.executable, "-m", "venv", "--clear", str(folder)], {})
    _run([python, "-m", "pip", "install", "--progress-bar", "off", *fresh, wanted], {"CMAKE_ARGS": cmake_args})
    note_of_it = {"cmake_args": shlex.split(cmake_args), "compiler": _compiler()}
    (folder / "engine.json").write_text(json.dumps(note_of_it) + "\n", encoding="utf-8")
    return python


def _compiler() -> str:
    command = [os.environ.get("CXX", "c++"), "--version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return answer.stdout.partition("\n")[0]


def _run(command: Sequence[str], variables: dict[str, str]) -> None:
    from schema.errors import HostError

    note(f"$ {shlex.join(command)}")
    done = subprocess.run(command, env={**os.environ, **variables}, stdout=sys.stderr, check=False)
    if done.returncode:
        raise HostError(f"The build was not made: `{shlex.join(command)}` ended with {done.returncode}. See above why.")
