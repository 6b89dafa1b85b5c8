"""Which host has which model, who must read a file whole, who fetches it from whom, and what a host is to load; pure.

What each host says of a model is its `Content`, None where it has none. A quick digest alone never makes two files one:
hosts share an identity only by SHA-256, which each host checks before it measures, or where they see one file.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from schema.canonical import digest
from schema.job import ModelRef
from worker.model_search import Content, is_same, may_be_same
from worker.model_transfer import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A file that `host` must read whole to know its SHA-256; `others`, by host, are its paths there."""

    host: str
    path: str
    others: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """A model that the host `to` lacks and gets from `source`; from the hub where that is None."""

    to: str
    source: Source | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """What becomes of one model: what hosts are to load, what is fetched before that, and why a host goes without.

    A host that fetches from another has no entry in `refs` yet: the path is known when it has it (`fetched_ref`).
    """

    refs: dict[str, ModelRef]
    fetches: tuple[Fetch, ...] = ()
    absent: dict[str, str] = field(default_factory=dict)


def readings(found: Mapping[str, Content | None]) -> tuple[Reading, ...]:
    """Return who must read what so that every SHA-256 is known: of hosts that see one file, one alone.

    That is one that knows it already, if there is one; the others take over what it finds (`model_search.adopt`).
    """
    held = {host: content for host, content in found.items() if content is not None}
    first: dict[tuple[str, ...] | None, str] = {
        content.places: host for host, content in reversed(held.items()) if content.sha256 and content.places
    }
    tasks: dict[object, Reading] = {}
    for host, content in held.items():
        if content.sha256 is not None:
            continue
        key = content.places or (host, content.path)
        if key not in tasks:
            reader = first.get(content.places, host)
            tasks[key] = Reading(host=reader, path=held[reader].path)
        if tasks[key].host != host:
            tasks[key].others[host] = content.path
    return tuple(tasks.values())


def distribute(
    spec: str,
    wanted: Content,
    found: Mapping[str, Content | None],
    allowed: bool,
    from_hub: bool = False,
    apart: Collection[str] = (),
) -> Distribution:
    """Return what each host of `found` is to load as the model `wanted`, which a sweep names as `spec`.

    A host that has it, under whatever name, loads its own file. One that lacks it fetches it where that is `allowed`:
    from the hub where the model is `from_hub`, else from a host whose file's SHA-256 is known. Nothing goes to or from
    hosts that are `apart`.
    """
    held = {host: content for host, content in found.items() if content and may_be_same(wanted, content)}
    refs = {host: _ref(content.path, _identity(host, content, wanted)) for host, content in held.items()}
    lacking = [host for host in found if host not in held]
    if allowed and from_hub:
        refs |= dict.fromkeys(lacking, ModelRef(source="hf", spec=spec, identity=wanted.identity))
        return Distribution(refs=refs, fetches=tuple(Fetch(to=host, source=None) for host in lacking))
    sources = [
        Source(host=host, content=content)
        for host, content in held.items()
        if host not in apart and content.sha256 is not None and refs[host].identity == wanted.identity
    ]
    if allowed and sources:
        fetches = _shared_out([host for host in lacking if host not in apart], sources)
        lacking = [host for host in lacking if host in apart]
        return Distribution(
            refs=refs, fetches=tuple(fetches), absent=_absent(spec, lacking, found, held, "Copy it there by hand.")
        )
    advice = "Read it whole on one of them first, or copy it." if allowed else "Copy it, or allow `--distribute`."
    return Distribution(refs=refs, absent=_absent(spec, lacking, found, held, advice))


def fetched_ref(content: Content, path: str) -> ModelRef:
    """Return what a host is to load that has fetched `content` to `path`."""
    return _ref(path, content.identity)


def _shared_out(lacking: Iterable[str], sources: list[Source]) -> Iterator[Fetch]:
    """Yield a fetch for each host, from the holder that has the fewest to serve so far."""
    serving = Counter({source.host: 0 for source in sources})
    for host in lacking:
        source = min(sources, key=lambda each: serving[each.host])
        serving[source.host] += 1
        yield Fetch(to=host, source=source)


def _identity(host: str, content: Content, wanted: Content) -> str:
    """Return under which identity the host's file is measured; it is compared with others' by that alone."""
    if content.sha256 is not None:
        return content.identity
    if wanted.sha256 is not None or is_same(content, wanted):
        return wanted.identity
    # Nothing but the quick digest makes them alike: until one is read whole, they are two.
    return f"{content.identity}:{digest(['where', content.places or (host, content.path)])[:16]}"


def _absent(
    spec: str,
    lacking: Iterable[str],
    found: Mapping[str, Content | None],
    held: Mapping[str, Content],
    advice: str,
) -> dict[str, str]:
    names = list(held)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    where = f"it is on {', '.join(names[:3])}{more}" if names else "no host has it"
    told = {}
    for host in lacking:
        other = found.get(host)
        own = f"{other.path} there has another content, and " if other is not None else ""
        told[host] = f"{spec} is not on {host}: {own}{where}. {advice}"
    return told


def _ref(path: str, identity: str) -> ModelRef:
    return ModelRef(source="path", spec=path, identity=identity)
