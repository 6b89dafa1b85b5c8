"""The builds of llama.cpp that this host offers by name: Pythons with llama-cpp-python, and llama-bench binaries."""

import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from schema.canonical import decode
from schema.errors import HostError
from schema.host import Build
from worker.build import find_build
from worker.llama_bench import find_llama_bench

DEFAULT = "default"
FILE_NAME = "builds.json"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBuild:
    """What runs under a name: the interpreter at `path`, or the llama-bench at `path`."""

    name: str
    kind: Literal["python", "llama-bench"]
    path: str

    def facts(self, home: Path) -> Build:
        """Return what is built there; raises HostError when it cannot run, with the reason it gave."""
        if self.kind == "llama-bench":
            return find_llama_bench(self.path)
        return find_build(self.path, home)


def named_builds(home: Path) -> dict[str, NamedBuild]:
    """Return the builds that were added on this host, by name; HostError where their file is damaged."""
    path = home / FILE_NAME
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        found = [decode(NamedBuild, entry) for entry in entries]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise HostError(f"The list of builds {path} cannot be read: {error}. Mend it, or remove it.") from error
    return {build.name: build for build in found}


def find_named(name: str, home: Path, python: str) -> NamedBuild:
    """Return the build called `name`; `default` is the interpreter `python`. HostError where there is none."""
    if name == DEFAULT:
        return NamedBuild(name=DEFAULT, kind="python", path=python)
    known = named_builds(home)
    if name not in known:
        there = ", ".join([DEFAULT, *known])
        raise HostError(
            f"This host has no build called {name}, only {there}. Add it with `tokfleet build add {name} …`."
        )
    return known[name]


def check_name(name: str, home: Path) -> None:
    """Raise HostError for a name that is taken or is none."""
    if not NAME.fullmatch(name) or name == DEFAULT:
        raise HostError(f"{name!r} cannot be a build's name. Use letters, digits, dots and dashes, not `default`.")
    known = named_builds(home)
    if name in known:
        taken = known[name].path
        raise HostError(f"A build called {name} is there already ({taken}). Remove it first, or choose another name.")


def add_build(build: NamedBuild, home: Path) -> None:
    """Keep `build` under its name; HostError for a name that is taken or is none."""
    check_name(build.name, home)
    _write({**named_builds(home), build.name: build}, home)


def remove_build(name: str, home: Path) -> NamedBuild:
    """Forget the build called `name` and return it; its files stay. HostError where there is none."""
    known = named_builds(home)
    if name not in known:
        raise HostError(f"There is no build called {name}; there are {', '.join(known) or 'none'}.")
    removed = known.pop(name)
    _write(known, home)
    return removed


def _write(builds: dict[str, NamedBuild], home: Path) -> None:
    path = home / FILE_NAME
    beside = path.with_name(f"{FILE_NAME}.{os.getpid()}")
    beside.write_text(json.dumps([asdict(build) for build in builds.values()], indent=2) + "\n", encoding="utf-8")
    beside.replace(path)
