"""From a model as a sweep names it to a file that can be loaded: its identity, its sizes, the file itself."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from schema.errors import HostError, ModelError
from schema.job import ModelRef
from worker import hub, recipe, synthetic
from worker.digests import cached_sha256, content_sha256, joined, quick_digest, remember
from worker.facts import Facts, facts, sizes
from worker.gguf import read_header
from worker.home import home as default_home
from worker.home import make_writable
from worker.like import PREFIX, read_skeleton, recipe_like
from worker.model_path import existing_file, model_file
from worker.recipe import Recipe
from worker.split import parts_of, read_model

HASHED_AT_ONCE_BYTES = 2 << 30
"""A file up to this size is hashed for a plan; above, a quick identity stands in so that the plan need not wait."""

Progress = Callable[[str, float], None]
"""Called with what is being done (`build`, `hash`) and the share of it that is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A model's file on this host (of several the first), the SHA-256 of its content and the size of all.

    `sizes` is what its header tells; None where it could not be read.
    """

    path: Path
    sha256: str
    file_bytes: int
    synthetic: bool
    sizes: Facts | None = field(default=None, compare=False)


def reference(source: Literal["path", "synthetic", "hf"], spec: str, base: Path) -> ModelRef:
    """Return what identifies the model, without building it or reading a huge file.

    A relative path counts from `base`; it may be a directory with one model in it, or any part of a
    split set, which stands for all parts. The identity is `sha256:…` of the content, `quick:…` (size,
    first and last MiB) for a file over HASHED_AT_ONCE_BYTES that was never hashed, or
    `synthetic:shape:quantisation:seed:v<generator>`; a synthetic model `like:FILE` has the digest of
    that file's header there. A model of the hub is looked up in this machine's cache, and its `spec` gets
    the revision; its identity is that of its content, too. Raises ModelError with the nearest names
    where there is no such file or shape, and names the part of a set that is missing.
    """
    if source == "synthetic":
        made = recipe_of(spec, base)
        return ModelRef(source=source, spec=made.spec, identity=made.identity)
    if source == "hf":
        found = hub.find(hub.parse(spec))
        parts = parts_of(found.path)
        whole = f"{hub.parse(spec).repository}@{found.revision}/{found.file}"
        return ModelRef(source=source, spec=whole, identity=_identity(parts, _home_if_any()))
    parts = parts_of(model_file(base, spec))
    return ModelRef(source=source, spec=str(parts[0]), identity=_identity(parts, _home_if_any()))


def recipe_of(spec: str, base: Path = Path("/"), seed: int = 0) -> Recipe:
    """Return what makes the synthetic model that `spec` names: SHAPE:QUANTISATION, or `like:FILE` from `base`."""
    if spec.startswith(PREFIX):
        return recipe_like(model_file(base, spec.removeprefix(PREFIX)), seed)
    return synthetic.recipe_of(replace(synthetic.parse(spec), seed=seed))


def describe(ref: ModelRef) -> Facts:
    """Return the sizes that a plan needs, from the file's header or the shape; nothing is built.

    What this tokfleet does not know of a file, and another build of llama.cpp may, stands in `unknown`.
    Raises ModelError where the file is no GGUF of a language model, and says what it is.
    """
    if ref.source == "synthetic" and ref.spec.startswith(PREFIX):
        return facts(read_skeleton(existing_file(Path(ref.spec.removeprefix(PREFIX)))).header, ref.spec)
    if ref.source == "synthetic":
        return facts(synthetic.header(synthetic.parse(ref.spec)), ref.spec)
    return facts(read_model(_file(ref), any_type=True).header, ref.spec)


def resolve(ref: ModelRef, home: Path, progress: Progress) -> Resolved:
    """Return the model's file on this host, building a synthetic one under `home` where it is absent.

    Raises ModelError where the file is not what `ref` says, HostError where `home` cannot be written.
    """
    if ref.source == "synthetic":
        return _resolve_synthetic(_recipe(ref), home, progress)
    path = hub.fetch(hub.parse(ref.spec), progress).path if ref.source == "hf" else _file(ref)
    files = read_model(path, any_type=True)
    kind, _, expected = ref.identity.partition(":")
    if kind == "quick" and joined([quick_digest(part) for part in files.parts]) != expected.partition(":")[0]:
        raise _changed(files.parts[0])
    sha256 = _whole_sha256(files.parts, home, progress)
    if kind == "sha256" and sha256 != expected:
        raise _changed(files.parts[0])
    return Resolved(
        path=files.parts[0],
        sha256=sha256,
        file_bytes=files.header.file_bytes,
        synthetic=False,
        sizes=sizes(files.header),
    )


def _file(ref: ModelRef) -> Path:
    """Return the (first) file of a model that is not synthetic."""
    return hub.find(hub.parse(ref.spec)).path if ref.source == "hf" else existing_file(Path(ref.spec))


def _whole_sha256(parts: tuple[Path, ...], home: Path | None, progress: Progress = lambda *_: None) -> str:
    def tell(done: int) -> Callable[[float], None]:
        return lambda share: progress("hash", (done + share) / len(parts))

    found = (hub.sha256_of(part) or content_sha256(part, home, tell(n)) for n, part in enumerate(parts))
    return joined(list(found))


def _changed(path: Path) -> ModelError:
    return ModelError(
        f"{path} changed since the plan was made: its content is another. Plan again, or put the old file back."
    )


def _resolve_synthetic(made: Recipe, home: Path, progress: Progress) -> Resolved:
    path = home / "models" / made.filename
    if path.is_file() and path.stat().st_size == made.file_bytes:
        sha256 = content_sha256(path, home, lambda share: progress("hash", share))
    else:
        path, sha256 = recipe.build(made, make_writable(path.parent), progress)
        remember(path, sha256, home)
    found = sizes(read_header(path))
    return Resolved(path=path, sha256=sha256, file_bytes=made.file_bytes, synthetic=True, sizes=found)


def _recipe(ref: ModelRef) -> Recipe:
    """Return what makes the model that `ref` means; raises ModelError where this host would make other bytes."""
    number = ref.identity.split(":")[3:4]
    seed = int(number[0]) if number and number[0].isdecimal() else 0
    made = recipe_of(ref.spec, seed=seed)
    if made.identity != ref.identity:
        raise ModelError(
            f"The plan wants {ref.identity}, this host makes {made.identity}. "
            "Install the same version of tokfleet on both, or plan again."
        )
    return made


def _identity(parts: tuple[Path, ...], home: Path | None) -> str:
    known = [hub.sha256_of(part) or cached_sha256(part, home) for part in parts]
    if None in known and sum(part.stat().st_size for part in parts) > HASHED_AT_ONCE_BYTES:
        return f"quick:{joined([quick_digest(part) for part in parts])}"
    return f"sha256:{_whole_sha256(parts, home)}"


def _home_if_any() -> Path | None:
    try:
        return default_home()
    except HostError:
        return None  # a plan needs no home: nothing is remembered then
