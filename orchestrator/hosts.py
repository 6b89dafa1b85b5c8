"""Which hosts a sweep's `hosts` entries mean, judged by what each host says of itself and its labels; pure."""

import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from schema.gpu_name import gpu_key
from schema.host import Fingerprint
from schema.host_terms import ISA_WORDS, Term, nearest, parse_host_entry

Labels = Mapping[str, str]
"""The labels of one host: those it gives to Ray, from the file of the machine's admin."""

NO_LABELS: Labels = {}
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
_PORTABLE_GPU = re.compile(r"\b(laptop|mobile|max-q)\b")
_PORTABLE_PRODUCT = re.compile(r"laptop|notebook|macbook|thinkpad|\w+book\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The hosts chosen, in the order they were given; names that no host has; entries that no host fulfils.

    `notes` are sentences on what may have been meant otherwise: a name after `not`, or a label, that no host has.
    """

    chosen: tuple[Fingerprint, ...]
    unknown: tuple[str, ...] = ()
    unmatched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def select(
    entries: Sequence[str], fingerprints: Iterable[Fingerprint], labels: Mapping[str, Labels] | None = None
) -> Selection:
    """Return the hosts that fulfil at least one entry; without entries, every host.

    `labels` is by host_uid. A host given twice is chosen once. ValueError where an entry is malformed.
    """
    known = list({fingerprint.host_uid: fingerprint for fingerprint in fingerprints}.values())
    if not entries:
        return Selection(chosen=tuple(known))
    own = labels or {}
    terms = {entry: parse_host_entry(entry) for entry in entries}
    fulfilled = {
        entry: [host for host in known if _fulfils(terms[entry], host, own.get(host.host_uid, NO_LABELS))]
        for entry in entries
    }
    hostnames = {fingerprint.hostname for fingerprint in known}
    names = [term.value for each in terms.values() for term in each if term.kind == "name" and not term.negated]
    unknown = tuple(dict.fromkeys(name for name in names if name not in hostnames))
    chosen = {host.host_uid for hosts in fulfilled.values() for host in hosts}
    return Selection(
        chosen=tuple(host for host in known if host.host_uid in chosen),
        unknown=unknown,
        unmatched=tuple(
            entry
            for entry in dict.fromkeys(entries)
            if not fulfilled[entry] and not any(term.value in unknown for term in terms[entry])
        ),
        notes=tuple(dict.fromkeys(_doubts([term for each in terms.values() for term in each], hostnames, own))),
    )


def matches(entry: str, fingerprint: Fingerprint, labels: Labels = NO_LABELS) -> bool:
    """Return whether the host fulfils every term of `entry`.

    A fact that is not known fulfils none, not even `!=` or `not`.
    """
    return _fulfils(parse_host_entry(entry), fingerprint, labels)


def why_not(entries: Sequence[str], fingerprint: Fingerprint, labels: Labels = NO_LABELS) -> str | None:
    """Return what of each entry the host does not fulfil, in words; None where it fulfils one, or there is none."""
    reasons = []
    for entry in entries:
        missed = next((term for term in parse_host_entry(entry) if _holds(term, fingerprint, labels) is not True), None)
        if missed is None:
            return None
        reasons.append(f"`{missed}`: {_told(missed, fingerprint, labels)}")
    return "; ".join(dict.fromkeys(reasons)) or None


def is_laptop(fingerprint: Fingerprint) -> bool:
    """Return whether anything says that the machine is portable: its case, its product's name, its GPU, a battery."""
    hardware, state = fingerprint.hardware, fingerprint.state
    if hardware.chassis is not None:
        return hardware.chassis == "portable"
    return (
        any(_PORTABLE_GPU.search(gpu_key(gpu.name) or "") for gpu in hardware.gpus)
        or bool(_PORTABLE_PRODUCT.search(hardware.product_name or ""))
        or bool(state and state.on_battery)
    )


def _fulfils(terms: Sequence[Term], fingerprint: Fingerprint, labels: Labels) -> bool:
    return all(_holds(term, fingerprint, labels) is True for term in terms)


def _holds(term: Term, fingerprint: Fingerprint, labels: Labels) -> bool | None:
    """Return whether the term holds, None where the fact is not known."""
    found = _positive(term, fingerprint, labels)
    return found if found is None or not term.negated else not found


def _positive(term: Term, fingerprint: Fingerprint, labels: Labels) -> bool | None:
    if term.kind == "name":
        return term.value == fingerprint.hostname
    if term.kind == "word":
        return is_laptop(fingerprint) if term.value == "laptop" else _has_gpu(fingerprint) == (term.value == "gpu")
    if term.kind == "isa":
        isa = fingerprint.hardware.isa
        return any(name in isa for name in ISA_WORDS[term.value]) if isa else None
    if term.kind == "number":
        number = _number(term.key, fingerprint)
        return None if number is None else _COMPARE[term.operator](number, float(term.value))
    if term.kind == "label":
        return (labels.get(term.key) == term.value) == (term.operator == "=")
    texts = _texts(term.key, fingerprint)
    return any(_means(term, text) for text in texts) == (term.operator == "=") if texts else None


def _has_gpu(fingerprint: Fingerprint) -> bool:
    return bool(fingerprint.hardware.gpus)


def _number(key: str, fingerprint: Fingerprint) -> float | None:
    hardware = fingerprint.hardware
    if key == "vram_gib":
        sizes = [size for gpu in hardware.gpus if (size := gpu.usable_bytes or gpu.vram_bytes) is not None]
        return max(sizes) / _GIB if sizes else None
    return {
        "ram_gib": hardware.memory_gib,
        "cores": hardware.n_cores_physical,
        "threads": hardware.n_cores_logical,
        "gpus": len(hardware.gpus),
    }[key]


def _texts(key: str, fingerprint: Fingerprint) -> list[str]:
    hardware = fingerprint.hardware
    if key == "gpu":
        return [gpu.name for gpu in hardware.gpus]
    text = {
        "arch": hardware.arch,
        "os": fingerprint.environment.os,
        "cpu": hardware.cpu_name,
        "name": fingerprint.hostname,
    }[key]
    return [text] if text else []


def _means(term: Term, text: str) -> bool:
    if term.key == "name":
        return term.value == text
    wanted, text = term.value.lower(), text.lower()
    if term.key == "arch":
        return _SAME_ARCH.get(wanted, wanted) == _SAME_ARCH.get(text, text)
    return wanted in text


_WORDS_TOLD = {
    ("laptop", False): "nothing says that it is one",
    ("laptop", True): "it is one",
    ("gpu", False): "it has none",
    ("gpu", True): "it has one",
    ("cpu", False): "it has a GPU",
    ("cpu", True): "it has no GPU",
}


def _told(term: Term, fingerprint: Fingerprint, labels: Labels) -> str:
    """Return what the host says of the fact that `term` asks for, so that the term does not hold."""
    if "name" in (term.kind, term.key if term.kind == "text" else ""):
        return f"it is {fingerprint.hostname}"
    if term.kind == "word":
        return _WORDS_TOLD[term.value, term.negated]
    if term.kind == "isa":
        known = "its cores have it" if term.negated else "its cores do not have it"
        return known if fingerprint.hardware.isa else "its instructions are not known"
    if term.kind == "label":
        return f"its label is {labels[term.key]}" if term.key in labels else "it has no such label"
    if term.kind == "number":
        number = _number(term.key, fingerprint)
        return "not known" if number is None else f"it has {number:.6g}"
    return f"it has {', '.join(_texts(term.key, fingerprint))}" if _texts(term.key, fingerprint) else "not known"


def _doubts(terms: Iterable[Term], hostnames: Iterable[str], labels: Mapping[str, Labels]) -> Iterator[str]:
    """Yield what may be a slip that no error shows: it silently takes in, or leaves out, a host."""
    names, keys = set(hostnames), {key for own in labels.values() for key in own}
    for term in terms:
        if term.kind == "name" and term.negated and term.value not in names:
            near = nearest(term.value, names)
            hint = f"; the nearest is {near}" if near else ""
            yield f"hosts: `{term}` leaves nothing out, since no host of this name is known{hint}."
        if term.kind == "label" and term.key not in keys:
            known = f"known labels: {', '.join(sorted(keys)[:10])}" if keys else "no host has any label"
            yield f"hosts: no host has a label `{term.key}`; {known}."
