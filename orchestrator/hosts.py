"""Which hosts a sweep's `hosts` entries mean, judged by what each host says of itself; pure."""

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from schema.host import Fingerprint
from schema.host_terms import NUMBER_KEYS, Term, parse_host_entry

_GIB = 1 << 30
_SAME_ARCH = {"amd64": "x86_64", "x64": "x86_64", "arm64": "aarch64"}
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The hosts chosen, in the order they were given; names that no host has; entries that no host fulfils."""

    chosen: tuple[Fingerprint, ...]
    unknown: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()


def select(entries: Sequence[str], fingerprints: Iterable[Fingerprint]) -> Selection:
    """Return the hosts that fulfil at least one entry; without entries, every host.

    A host given twice is chosen once. ValueError where an entry is malformed.
    """
    known = list({fingerprint.host_uid: fingerprint for fingerprint in fingerprints}.values())
    if not entries:
        return Selection(chosen=tuple(known))
    hostnames = {fingerprint.hostname for fingerprint in known}
    names = [term.value for entry in entries for term in parse_host_entry(entry) if term.key == "name"]
    unknown = tuple(dict.fromkeys(name for name in names if name not in hostnames))
    unmatched = tuple(
        entry
        for entry in entries
        if not any(matches(entry, fingerprint) for fingerprint in known)
        and not any(term.value in unknown for term in parse_host_entry(entry))
    )
    chosen = (fingerprint for fingerprint in known if any(matches(entry, fingerprint) for entry in entries))
    return Selection(chosen=tuple(chosen), unknown=unknown, unmatched=unmatched)


def matches(entry: str, fingerprint: Fingerprint) -> bool:
    """Return whether the host fulfils every term of `entry`; a fact that is not known fulfils none, not even `!=`."""
    return all(_holds(term, fingerprint) for term in parse_host_entry(entry))


def _holds(term: Term, fingerprint: Fingerprint) -> bool:
    if term.key == "name":
        return term.value == fingerprint.hostname
    if term.key == "word":
        return bool(fingerprint.hardware.gpus) == (term.value == "gpu")
    if term.key in NUMBER_KEYS:
        number = _number(term.key, fingerprint)
        return number is not None and _COMPARE[term.operator](number, float(term.value))
    texts = _texts(term.key, fingerprint)
    if not texts:
        return False
    found = any(_means(term, text) for text in texts)
    return found == (term.operator == "=")


def _number(key: str, fingerprint: Fingerprint) -> float | None:
    hardware = fingerprint.hardware
    if key == "ram_gib":
        return hardware.memory_gib
    if key == "cores":
        return hardware.n_cores_physical
    sizes = [size for gpu in hardware.gpus if (size := gpu.usable_bytes or gpu.vram_bytes) is not None]
    return max(sizes) / _GIB if sizes else None


def _texts(key: str, fingerprint: Fingerprint) -> list[str]:
    hardware = fingerprint.hardware
    if key == "gpu":
        return [gpu.name for gpu in hardware.gpus]
    text = {"arch": hardware.arch, "os": fingerprint.environment.os, "cpu": hardware.cpu_name}[key]
    return [text] if text else []


def _means(term: Term, text: str) -> bool:
    wanted, text = term.value.lower(), text.lower()
    if term.key == "arch":
        return _SAME_ARCH.get(wanted, wanted) == _SAME_ARCH.get(text, text)
    return wanted in text
