"""Models of the Hugging Face hub, as they lie in its cache on this machine (stdlib only, but for fetching).

The cache is read by its layout, which is documented and shared by all tools: refs/NAME holds a revision,
snapshots/REVISION/ the files by their names, as links to blobs/, whose names are the SHA-256 of large
files. Only `fetch` needs the package huggingface_hub, with its tokens, mirrors and progress.
https://huggingface.co/docs/huggingface_hub/guides/manage-cache
"""

import importlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schema.errors import ModelError
from schema.job import HUB_FORM
from worker.split import BESIDES, parts_of, set_of

Progress = Callable[[str, float], None]

DEFAULT_QUANTISATION = "Q4_K_M"
"""What is taken where a repository holds several and none was named, as llama.cpp does."""

_PARTS = re.compile(
    r"(?P<repository>[^/@:]+/[^/@:]+)(@(?P<revision>[^/:]+))?(:(?P<quantisation>[^/:]+)|/(?P<file>.+\.gguf))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HubModel:
    """A model on the hub as it was named; what was left out is None."""

    repository: str
    revision: str | None
    quantisation: str | None
    file: str | None

    @property
    def spec(self) -> str:
        """The model as a sweep file names it."""
        revision = f"@{self.revision}" if self.revision else ""
        rest = f"/{self.file}" if self.file else f":{self.quantisation}" if self.quantisation else ""
        return self.repository + revision + rest


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """A model that is in the cache: its revision, its name in the repository and its path."""

    revision: str
    file: str
    path: Path


def parse(spec: str) -> HubModel:
    """Return the model that `spec` names; raises ModelError where it is not of that form."""
    match = _PARTS.fullmatch(spec)
    if not match or not re.fullmatch(HUB_FORM, spec, re.ASCII) or ".." in spec:
        raise ModelError(
            f"{spec!r} names no model of the Hugging Face hub. Write USER/REPOSITORY:QUANTISATION, or "
            "USER/REPOSITORY/FILE.gguf."
        )
    return HubModel(**match.groupdict())


def find(model: HubModel) -> Cached:
    """Return the model in the cache; raises ModelError saying how to get it where it is not, or which ones are."""
    directory = cache() / f"models--{model.repository.replace('/', '--')}"
    seen: list[str] = []
    for revision in _revisions(directory, model.revision):
        snapshot = directory / "snapshots" / revision
        names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf")]
        name = choose(model, names)
        if name:
            return Cached(revision=revision, file=name, path=snapshot / name)
        seen += names
    there = f" There are {', '.join(sorted(set(seen))[:4])}." if seen else ""
    raise ModelError(
        f"{model.spec} is not in this machine's cache of the Hugging Face hub ({cache()}).{there} "
        f"Get it with `tokfleet model fetch {model.spec}`."
    )


def sha256_of(path: Path) -> str | None:
    """Return the SHA-256 that the cache keeps as the name of the file's blob; None where it does not."""
    name = path.resolve().name
    return name if path.is_symlink() and re.fullmatch(r"[0-9a-f]{64}", name) else None


def choose(model: HubModel, names: Iterable[str]) -> str | None:
    """Return the one of the repository's files that is meant, of a split set the first; None where there is none.

    Raises ModelError where several could be meant.
    """
    if model.file:
        return model.file if model.file in names else None
    sets = {set_of(name): name for name in sorted(names, reverse=True) if not BESIDES.search(name)}
    wanted = [name for name in sets.values() if _is(name, model.quantisation or DEFAULT_QUANTISATION)]
    if not wanted and model.quantisation is None:
        wanted = list(sets.values())
    if len(wanted) > 1:
        found = ", ".join(sorted(wanted)[:6])
        raise ModelError(f"{model.spec} could mean several files: {found}. Write {model.repository}/FILE.gguf.")
    return wanted[0] if wanted else None


def fetch(model: HubModel, progress: Progress) -> Cached:
    """Return the model, downloaded into the cache by huggingface_hub where it is not there.

    Raises ModelError where that is not installed, HF_HUB_OFFLINE is set, or the hub refuses.
    """
    try:
        found = find(model)
        parts_of(found.path)
    except ModelError:
        return _download(_library(model), model, progress)
    return found


def _download(hub: Any, model: HubModel, progress: Progress) -> Cached:
    try:
        revision = hub.HfApi().model_info(model.repository, revision=model.revision).sha
        names = [name for name in hub.list_repo_files(model.repository, revision=revision) if name.endswith(".gguf")]
        first = choose(model, names)
        parts = sorted(name for name in names if first and set_of(name) == set_of(first))
        for done, name in enumerate(parts):
            progress("fetch", done / len(parts))
            hub.hf_hub_download(model.repository, name, revision=revision)
    except ModelError:
        raise
    except Exception as error:  # whatever the library, its HTTP client or the disk raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ModelError(
            f"{model.spec} could not be fetched from the Hugging Face hub: {reason}. "
            "If it is gated or private, log in with `hf auth login` first."
        ) from error
    if first is None:
        found = ", ".join(sorted(names)[:6]) or "no GGUF file"
        raise ModelError(f"{model.spec} is not on the hub; {model.repository} has {found}.")
    return find(HubModel(repository=model.repository, revision=revision, quantisation=None, file=first))


def cache() -> Path:
    """Return the directory of the hub's cache, by the same variables as huggingface_hub."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.environ[name]).expanduser()
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base)) / "huggingface" / "hub"


def _library(model: HubModel) -> Any:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise ModelError(f"{model.spec} is not in the cache {cache()}, and HF_HUB_OFFLINE forbids to fetch it.")
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ModelError(
            f"{model.spec} is not in the cache {cache()}, and huggingface_hub, which would fetch it, is not installed. "
            "Install it with `pip install huggingface_hub`, or download the file and name it by its path."
        ) from error


def _revisions(directory: Path, asked: str | None) -> Iterator[str]:
    """Yield the revisions to look into: the one asked for, else that of `main` and then the others, newest first."""
    try:
        names = {path.name: path.stat().st_mtime for path in (directory / "snapshots").iterdir() if path.is_dir()}
    except OSError:
        return
    main = _ref(directory, asked or "main")
    if asked:
        yield from (name for name in (asked, main) if name in names)
        return
    if main in names:
        yield main
    yield from (name for name in sorted(names, key=lambda name: -names[name]) if name != main)


def _ref(directory: Path, name: str) -> str:
    try:
        return (directory / "refs" / name).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _is(name: str, quantisation: str) -> bool:
    """Tell whether a file's name, or that of the directory it is in, says that it is of this quantisation."""
    return re.search(rf"(^|[-._/]){re.escape(quantisation)}([-./]|$)", name, re.IGNORECASE) is not None
