"""The directory where tokfleet keeps what it makes on this host (stdlib only)."""

import os
from pathlib import Path

from schema.errors import HostError

MOVES_IT = "Set TOKFLEET_HOME to a directory that can be written (for the database alone: --db or TOKFLEET_DB)."


def home() -> Path:
    """Return TOKFLEET_HOME, else $XDG_DATA_HOME/tokfleet, else ~/.local/share/tokfleet; nothing is created.

    Raises HostError where the user has no home directory and neither variable is set.
    """
    if chosen := os.environ.get("TOKFLEET_HOME"):
        return _absolute(chosen)
    data = os.environ.get("XDG_DATA_HOME", "")
    if os.path.isabs(data):  # the specification: a relative one is to be ignored
        return Path(data) / "tokfleet"
    return _user_home() / ".local" / "share" / "tokfleet"


def home_or_nowhere() -> Path:
    """Return `home()`, or where there is none a path under which nothing can be kept: for those who only look."""
    try:
        return home()
    except HostError:
        return Path(os.devnull)


def writable_home(*parts: str) -> Path:
    """Return `home()` or the directory `parts` below it, created (for this user alone) where it is missing.

    Raises HostError with the path, the reason and how to move it, where it cannot be created or written.
    """
    return make_writable(home().joinpath(*parts))


def make_writable(path: Path) -> Path:
    """Return the directory `path`, created (for this user alone) where it is missing; HostError where that fails."""
    try:
        for directory in [*reversed(path.parents), path]:
            if not directory.is_dir():
                directory.mkdir(mode=0o700, exist_ok=True)
        writable = os.access(path, os.W_OK | os.X_OK)
    except OSError as error:
        in_the_way = isinstance(error, FileExistsError | NotADirectoryError)
        reason = f"{directory} is no directory" if in_the_way else error.strerror or error
        raise HostError(f"The directory {path} cannot be created: {reason}. {MOVES_IT}") from error
    if not writable:
        raise HostError(f"The directory {path} cannot be written: {_why_not(path)}. {MOVES_IT}")
    return path


def _absolute(path: str) -> Path:
    if path == "~" or path.startswith("~/"):
        return _user_home() / path[2:]
    return Path(path).absolute()


def _user_home() -> Path:
    """Return the user's home directory, from HOME or the passwd entry."""
    try:
        found = Path.home()
    except (RuntimeError, KeyError) as error:
        raise HostError(
            f"This user (uid {_uid()}) has no home directory: HOME is not set and there is no passwd entry. {MOVES_IT}"
        ) from error
    if not found.is_absolute():
        raise HostError(f"HOME is {str(found)!r}, which is no absolute path. {MOVES_IT}")
    return found


def _uid() -> int | str:
    return os.getuid() if hasattr(os, "getuid") else "unknown"


def _why_not(path: Path) -> str:
    if hasattr(os, "statvfs") and os.statvfs(path).f_flag & os.ST_RDONLY:
        return "the file system is mounted read-only"
    return "this user has no permission"
