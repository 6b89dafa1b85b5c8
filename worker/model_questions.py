"""What a host is asked about models besides what a plan asks: plain values in and out."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from schema.canonical import decode
from schema.errors import HostError, ModelError
from schema.job import ModelRef
from worker.home import home_or_nowhere, writable_home
from worker.model_path import model_file
from worker.model_search import Content, adopt, content_of, find, folders_of, hashed
from worker.models import describe


def content(spec: str) -> dict[str, Any] | str:
    """Return what the model at the path `spec` is made of, or a sentence on why it cannot be told."""
    try:
        return asdict(content_of(model_file(Path("/"), spec), home_or_nowhere()))
    except (ModelError, HostError) as error:
        return str(error)


def look_for(wanted: dict[str, Any], folders: tuple[str, ...]) -> dict[str, Any] | None:
    """Return what in this host's folders is, or may be, the model `wanted`; None where nothing is."""
    home = home_or_nowhere()
    found = find(decode(Content, wanted), folders_of(folders, home), home)
    return None if found is None else asdict(found)


def read_whole(path: str) -> dict[str, Any]:
    """Return what the model at `path` is made of, its SHA-256 known; may take long. Raises ModelError."""
    return asdict(hashed(Path(path), writable_home()))


def take_over(path: str, known: dict[str, Any]) -> bool:
    """Take over a SHA-256 that another host found of the same file; return whether it is the same."""
    return adopt(Path(path), decode(Content, known), writable_home())


def as_described(path: str, identity: str) -> dict[str, Any] | str:
    """Return `ref` and `sizes` of the model at `path`, under the `identity` that it is to be measured as."""
    ref = ModelRef(source="path", spec=path, identity=identity)
    try:
        sizes = describe(ref)
    except (ModelError, HostError) as error:
        return str(error)
    return {"ref": asdict(ref), "sizes": asdict(sizes) | {"sliding_layers": sorted(sizes.sliding_layers)}}
