"""Names of processors: one model is written in several ways, and some names any machine could have (stdlib only)."""

import re

_MARKS = re.compile(r"\((?:r|tm|c)\)|[®™]")
_LEFT_OUT = re.compile(
    r"\b\d+(?:st|nd|rd|th) gen\b|\b(?:\d+|dual|quad|six|eight|twelve|sixteen)-core\b|\bcpu\b|\bprocessor\b"
    r"|\s(?:with|w/) .*(?:radeon|graphics|vega).*$"
)
_CLOCK = re.compile(r"@?\s*\b\d[\d.]*\s*[gm]hz\b")
_MODEL = re.compile(r"\d{3,}|\b[a-z]+-?\d")
_NO_NAME = re.compile(
    r"(-|0+|n/?a|none|unknown|virtual|generic|undefined|intel|amd|arm|apple|to be filled by o\.?e\.?m\.?"
    r"|(genuine|authentic)(intel|amd)|aarch64.*|armv\d.*|arm\S* rev.*|x86(_64)?|amd64|arm64)?"
)
_VIRTUAL = re.compile(
    r"qemu|bochs|\bkvm\b|virtual|\bibrs\b|\bibpb\b|epyc-[a-z]|\be\d+xx\b|\bsnr\b"
    r"|\((?:skylake|cascadelake|icelake|sapphirerapids|haswell|broadwell|sandy bridge|ivy bridge|nehalem|westmere)"
)


def cpu_key(name: str | None) -> str | None:
    """Return the name in small letters without marks, core counts and clock; None where it is no name.

    The clock stays where nothing else tells models apart, as in "Intel(R) Xeon(R) CPU @ 2.20GHz".
    """
    text = " ".join(_MARKS.sub(" ", (name or "").lower()).split())
    text = " ".join(re.sub(r"\s0(?=\s|$)", " ", _LEFT_OUT.sub(" ", text)).split())
    without_clock = " ".join(_CLOCK.sub(" ", text).split())
    key = re.sub(r"^(intel|amd)\s+", "", without_clock if _MODEL.search(without_clock) else text)
    return None if _NO_NAME.fullmatch(key) else key


def is_shared_name(name: str | None) -> bool:
    """Return whether unlike processors are called so, as hypervisors do: equal names then mean little."""
    key = cpu_key(name)
    return key is None or bool(_VIRTUAL.search((name or "").lower())) or not _MODEL.search(_CLOCK.sub("", key))


def same_cpu(one: str | None, other: str | None) -> bool | None:
    """Return whether two names are of one model of processor; None where the names cannot tell."""
    first, second = cpu_key(one), cpu_key(other)
    if first is None or second is None:
        return None
    if first != second:
        # Old listings leave the version out: "E5-2690 0" may be any of them.
        versions = {re.sub(r"\sv\d$", "", key) for key in (first, second)}
        return None if len(versions) == 1 and versions & {first, second} else False
    return None if is_shared_name(one) or is_shared_name(other) else True
