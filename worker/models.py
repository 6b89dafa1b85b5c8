"""From a model as a sweep names it to a file that can be loaded: its identity, its sizes, the file itself."""

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from schema.errors import HostError, ModelError
from schema.job import ModelRef
from worker import synthetic
from worker.digests import cached_sha256, content_sha256, quick_digest, remember
from worker.facts import Facts, facts
from worker.gguf import read_header
from worker.home import home as default_home
from worker.home import make_writable

HASHED_AT_ONCE_BYTES = 2 << 30
"""A file up to this size is hashed for a plan; above, a quick identity stands in so that the plan need not wait."""

MAX_NAMES = 10_000

Progress = Callable[[str, float], None]
"""Called with what is being done (`build`, `hash`) and the share of it that is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A model's file on this host, and the SHA-256 of its content."""

    path: Path
    sha256: str
    file_bytes: int
    synthetic: bool


def reference(source: Literal["path", "synthetic"], spec: str, base: Path) -> ModelRef:
    """Return what identifies the model, without building it or reading a huge file.

    A relative path counts from `base`. The identity is `sha256:…` of the content, `quick:…` (size,
    first and last MiB) for a file over HASHED_AT_ONCE_BYTES that was never hashed, or
    `synthetic:shape:quantisation:seed:v<generator>`. Raises ModelError with the nearest names where
    there is no such file or shape.
    """
    if source == "synthetic":
        model = synthetic.parse(spec)
        return ModelRef(source=source, spec=model.spec, identity=model.identity)
    path = _existing_file(Path(os.path.abspath(base / _expanded(spec))))
    return ModelRef(source=source, spec=str(path), identity=_identity(path, _home_if_any()))


def describe(ref: ModelRef) -> Facts:
    """Return the sizes that a plan needs, from the file's header or the shape; nothing is built.

    Raises ModelError where the file is no GGUF of a language model, and says what it is.
    """
    if ref.source == "synthetic":
        return facts(synthetic.header(_synthetic(ref)), ref.spec)
    return facts(read_header(_existing_file(Path(ref.spec))), ref.spec)


def resolve(ref: ModelRef, home: Path, progress: Progress) -> Resolved:
    """Return the model's file on this host, building a synthetic one under `home` where it is absent.

    Raises ModelError where the file is not what `ref` says, HostError where `home` cannot be written.
    """
    if ref.source == "synthetic":
        return _resolve_synthetic(_synthetic(ref), home, progress)
    path = _existing_file(Path(ref.spec))
    header = read_header(path)
    kind, _, expected = ref.identity.partition(":")
    if kind == "quick" and quick_digest(path) != expected:
        raise _changed(path)
    sha256 = content_sha256(path, home, lambda share: progress("hash", share))
    if kind == "sha256" and sha256 != expected:
        raise _changed(path)
    return Resolved(path=path, sha256=sha256, file_bytes=header.file_bytes, synthetic=False)


def _changed(path: Path) -> ModelError:
    return ModelError(
        f"{path} changed since the plan was made: its content is another. Plan again, or put the old file back."
    )


def _resolve_synthetic(model: synthetic.Synthetic, home: Path, progress: Progress) -> Resolved:
    path = home / "models" / model.filename
    file_bytes = synthetic.header(model).file_bytes
    if path.is_file() and path.stat().st_size == file_bytes:
        sha256 = content_sha256(path, home, lambda share: progress("hash", share))
    else:
        path, sha256 = synthetic.build(model, make_writable(path.parent), progress)
        remember(path, sha256, home)
    return Resolved(path=path, sha256=sha256, file_bytes=file_bytes, synthetic=True)


def _synthetic(ref: ModelRef) -> synthetic.Synthetic:
    """Return the model that `ref` means; raises ModelError where this host would make other bytes."""
    seed = ref.identity.split(":")[3:4]
    model = replace(synthetic.parse(ref.spec), seed=int(seed[0]) if seed and seed[0].isdecimal() else 0)
    if model.identity != ref.identity:
        raise ModelError(
            f"The plan wants {ref.identity}, this host makes {model.identity}. "
            "Install the same version of tokfleet on both, or plan again."
        )
    return model


def _identity(path: Path, home: Path | None) -> str:
    known = cached_sha256(path, home)
    if known is None and path.stat().st_size > HASHED_AT_ONCE_BYTES:
        return f"quick:{quick_digest(path)}"
    return f"sha256:{known or content_sha256(path, home)}"


def _home_if_any() -> Path | None:
    try:
        return default_home()
    except HostError:
        return None  # a plan needs no home: nothing is remembered then


def _expanded(spec: str) -> Path:
    try:
        return Path(spec).expanduser()
    except RuntimeError as error:
        raise ModelError(f"{spec!r} begins with a home directory that is not known. Write the path out.") from error


def _existing_file(path: Path) -> Path:
    try:
        if path.is_file():
            return path
        if path.exists():
            raise ModelError(f"{path} is no file{_hint(path)}. Name a GGUF file.")
    except (OSError, ValueError) as error:
        raise ModelError(f"{str(path)!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    missing = path
    while not missing.parent.exists():
        missing = missing.parent
    what = "model file" if missing == path else "directory"
    raise ModelError(f"There is no {what} {missing}.{_near(missing)}")


def _hint(path: Path) -> str:
    names = [name for name in _names(path) if name.endswith(".gguf")] if path.is_dir() else []
    return f" but a directory, with {', '.join(sorted(names)[:3])} in it" if names else ""


def _near(path: Path) -> str:
    """Return a sentence with the nearest names beside `path`, or with what GGUF files there are."""
    names = _names(path.parent)
    near = difflib.get_close_matches(path.name, names, n=3, cutoff=0.5)
    if near:
        return f" Did you mean {', '.join(near)}?"
    models = sorted(name for name in names if name.endswith(".gguf"))
    return f" In {path.parent} there are {', '.join(models[:3])}." if models else ""


def _names(directory: Path) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry, _ in zip(entries, range(MAX_NAMES), strict=False)]
    except OSError:
        return []
