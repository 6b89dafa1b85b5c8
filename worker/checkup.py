"""What a host is asked before it is trusted with jobs: versions, token, room, models, who listens on its network."""

import os
import platform
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

from schema.errors import HostError, ModelError
from worker.builds import DEFAULT, find_named, named_builds
from worker.fingerprint.take import take
from worker.home import home_or_nowhere
from worker.model_path import model_file

SHM = Path("/dev/shm")  # noqa: S108 - Ray's object store lies there
MEMORY_MONITOR = "RAY_memory_monitor_refresh_ms"
MAX_LISTED = 200
MAX_DEPTH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A TCP port that somebody on the host waits at; `program` is None where it is another user's."""

    ip: str
    port: int
    program: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFound:
    """A model that was asked for: the bytes of its first file, or why it is not there."""

    spec: str
    size_bytes: int | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """The facts of one host; what cannot be known there is None.

    `tokfleet` is the version that is installed there, None where our code only comes along with a run. `builds` has the
    commit of llama.cpp of each build, or the reason why it does not run. `home_free_bytes` and `shm_bytes` are None
    where there is no such place. `niceness` and `oom_score_adjustment` are those of the process that was asked.
    """

    hostname: str
    system: str
    python: str
    ray: str | None
    tokfleet: str | None
    host_uid: str | None = None
    builds: dict[str, str] | None = None
    token_path: str | None = None
    token_mode: int | None = None
    auth_mode: str | None = None
    niceness: int | None = None
    oom_score_adjustment: int | None = None
    memory_monitor_off: bool = False
    home: str = ""
    home_free_bytes: int | None = None
    home_problem: str | None = None
    shm_bytes: int | None = None
    shm_free_bytes: int | None = None
    models: tuple[ModelFound, ...] = ()
    n_models_at_home: int = 0
    listeners: tuple[Listener, ...] = ()
    listeners_problem: str | None = None


def checkup(models: Sequence[str] = (), base: Path = Path("/")) -> Checkup:
    """Return the facts of this host; relative `models` are looked for from `base`. Only what llama.cpp
    says of itself and who this machine is are asked of a process, and kept at home where there is one."""
    home = home_or_nowhere()
    token, mode = _token()
    listeners, problem = listeners_here()
    free, home_problem = _free(home)
    shm = shutil.disk_usage(SHM) if SHM.is_dir() else None
    return Checkup(
        hostname=platform.node(),
        system=platform.system(),
        python=platform.python_version(),
        ray=_version("ray"),
        tokfleet=_version("tokfleet"),
        host_uid=take(home, None).host_uid if home.is_dir() else None,
        builds=_builds(home, os.environ.get("TOKFLEET_PYTHON") or sys.executable),
        token_path=token,
        token_mode=mode,
        auth_mode=os.environ.get("RAY_AUTH_MODE"),
        niceness=os.nice(0),
        oom_score_adjustment=_oom_score_adjustment(),
        memory_monitor_off=os.environ.get(MEMORY_MONITOR) == "0",
        home=str(home),
        home_free_bytes=free,
        home_problem=home_problem,
        shm_bytes=shm.total if shm else None,
        shm_free_bytes=shm.free if shm else None,
        models=tuple(_model(spec, base) for spec in models[:MAX_LISTED]),
        n_models_at_home=sum(1 for _ in _models_at(home / "models")),
        listeners=listeners,
        listeners_problem=problem,
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _builds(home: Path, python: str) -> dict[str, str]:
    try:
        names = [DEFAULT, *named_builds(home)]
    except HostError as error:
        return {DEFAULT: str(error)}
    return {name: _commit(name, home, python) for name in names}


def _commit(name: str, home: Path, python: str) -> str:
    """Return the commit of the build called `name`, or a sentence on why it does not run."""
    try:
        return find_named(name, home, python).facts(home).llama_cpp_commit or "unknown commit"
    except HostError as error:
        return str(error)


def _token() -> tuple[str | None, int | None]:
    """Return the file with Ray's token and its mode; (None, None) where a variable holds it."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return None, None
    path = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or os.path.expanduser("~/.ray/auth_token"))
    try:
        return str(path), path.stat().st_mode & 0o7777
    except OSError:
        return str(path), None


def _free(home: Path) -> tuple[int | None, str | None]:
    """Return the bytes that are free where `home` is or will be, and why it cannot be written."""
    place = home
    while not place.is_dir() and place != place.parent:
        place = place.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return None, f"{home} cannot be read: {error.strerror or error}"
    return free, None if os.access(place, os.W_OK | os.X_OK) else f"{place} cannot be written by this user"


def _model(spec: str, base: Path) -> ModelFound:
    try:
        return ModelFound(spec=spec, size_bytes=model_file(base, spec).stat().st_size)
    except (ModelError, OSError) as error:
        return ModelFound(spec=spec, problem=str(error))


def _models_at(folder: Path, depth: int = MAX_DEPTH) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".gguf"):
                    yield entry.name
                elif depth and entry.is_dir(follow_symlinks=False):
                    yield from _models_at(Path(entry.path), depth - 1)
    except OSError:
        return


def listeners_here() -> tuple[tuple[Listener, ...], str | None]:
    """Return the TCP ports that are waited at, and why they cannot be known (macOS tells root alone)."""
    try:
        found = psutil.net_connections(kind="tcp")
    except (psutil.Error, OSError, RuntimeError) as error:
        return (), f"which ports are open cannot be seen: {error or type(error).__name__}"
    waiting = {
        Listener(ip=one.laddr.ip, port=one.laddr.port, program=_program(one.pid))
        for one in found
        if one.status == psutil.CONN_LISTEN and one.laddr
    }
    return tuple(sorted(waiting, key=lambda one: (one.port, one.ip))[:MAX_LISTED]), None


def _program(pid: int | None) -> str | None:
    try:
        return psutil.Process(pid).name() if pid else None
    except psutil.Error:
        return None


def _oom_score_adjustment() -> int | None:
    try:
        return int(Path("/proc/self/oom_score_adj").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
