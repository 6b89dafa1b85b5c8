"""From a path as people write it to a file that is there, or a sentence on what is there instead (stdlib only)."""

import difflib
import os
from pathlib import Path

from schema.errors import ModelError
from worker.split import model_in, names_in


def model_file(base: Path, spec: str) -> Path:
    """Return the file that `spec` names, counted from `base`, or the one model in the directory that it names.

    Raises ModelError with the nearest names where there is none.
    """
    path = Path(os.path.abspath(base / _expanded(spec)))
    try:
        if path.is_dir():
            return model_in(path)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    return existing_file(path)


def existing_file(path: Path) -> Path:
    """Return `path` where it is a file; raises ModelError with the nearest names where it is not."""
    try:
        if path.is_file():
            return path
        if path.exists():
            raise ModelError(f"{path} is no file. Name a GGUF file.")
        if path.is_symlink():
            raise ModelError(f"{path} is a link to {path.readlink()}, which is not there. Download the file again.")
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    missing = path
    while not missing.parent.exists():
        missing = missing.parent
    what = "model file" if missing == path else "directory"
    raise ModelError(f"There is no {what} {missing}.{_near(missing)}")


def _expanded(spec: str) -> Path:
    try:
        return Path(spec).expanduser()
    except RuntimeError as error:
        raise ModelError(f"{spec!r} begins with a home directory that is not known. Write the path out.") from error


def _unreadable(path: Path, error: OSError | ValueError) -> ModelError:
    return ModelError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}.")


def _near(path: Path) -> str:
    """Return a sentence with the nearest names beside `path`, or with what GGUF files there are."""
    names = names_in(path.parent)
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    if near:
        return f" Did you mean {', '.join(near)}?"
    models = sorted(name for name in names if name.endswith(".gguf"))
    return f" In {path.parent} there are {', '.join(models[:3])}." if models else ""
