"""The processor of a Mac, from the text of `sysctl -a` or `sysctl hw machdep.cpu`."""

import re

from schema.host import Cache, CoreType
from worker.fingerprint import hybrid, program
from worker.fingerprint.design import tidy
from worker.fingerprint.evidence import Notes

COMMAND = ("sysctl", "hw", "machdep.cpu")
KINDS = {"Performance": hybrid.PERFORMANCE, "Super": hybrid.PERFORMANCE, "Efficiency": hybrid.EFFICIENCY}
ARM_FEATURES = (
    ("neon", "asimd"),
    ("AdvSIMD", "asimd"),
    ("arm.AdvSIMD", "asimd"),
    ("neon_fp16", "asimdhp"),
    ("arm.FEAT_FP16", "asimdhp"),
    ("arm.FEAT_DotProd", "asimddp"),
    ("arm.FEAT_I8MM", "i8mm"),
    ("arm.FEAT_BF16", "bf16"),
    ("arm.FEAT_SME", "sme"),
    ("arm.FEAT_SME2", "sme2"),
)
"""What sysctl calls an instruction set below hw.optional, and what Linux calls it."""


def ask(notes: Notes) -> str | None:
    """Return what sysctl prints here; None where it is not there or fails."""
    return program.output(COMMAND, notes)


def parse(content: str) -> dict[str, str]:
    """Return name and value of each line, `name: value` as macOS writes it or `name = value` of other BSDs."""
    found: dict[str, str] = {}
    for line in content.splitlines():
        match = re.match(r"\s*([a-z][\w.]*)\s*[:=]\s*(.*)", line)
        if match:
            found.setdefault(match[1], match[2].strip())
    return found


def is_apple(facts: dict[str, str]) -> bool:
    """Return whether the facts are a Mac's: no other system names its processor so."""
    return "machdep.cpu.brand_string" in facts


def n_cores(facts: dict[str, str]) -> int | None:
    """Return the number of physical cores."""
    return number(facts, "hw.physicalcpu") or number(facts, "machdep.cpu.core_count")


def n_threads(facts: dict[str, str]) -> int | None:
    """Return the number of threads of all cores."""
    return number(facts, "hw.logicalcpu") or number(facts, "machdep.cpu.thread_count")


def arch(facts: dict[str, str]) -> str:
    """Return the architecture of the chip, also to a program that Rosetta translates."""
    is_arm = facts.get("hw.optional.arm64") == "1" or "machdep.cpu.vendor" not in facts
    return "aarch64" if is_arm else "x86_64"


def core_types(facts: dict[str, str]) -> tuple[CoreType, ...]:
    """Return the core types, by performance level on Apple's own chips, the fast ones first."""
    name = tidy(facts.get("machdep.cpu.brand_string"))
    levels = number(facts, "hw.nperflevels") or 0
    vendor = facts.get("machdep.cpu.vendor") or ("Apple" if arch(facts) == "aarch64" else None)
    if levels < 1 or arch(facts) == "x86_64":
        return (_type(vendor, _key(facts), name, None, n_cores(facts), n_threads(facts)),)
    return tuple(_level(facts, level, name, vendor, levels) for level in range(min(levels, 8)))


def _level(facts: dict[str, str], level: int, name: str | None, vendor: str | None, levels: int) -> CoreType:
    place = f"hw.perflevel{level}"
    label = facts.get(f"{place}.name", "")
    # Level 0 is the fastest on every chip; older systems give the levels no names.
    kind = KINDS.get(label, hybrid.PERFORMANCE if level == 0 else hybrid.EFFICIENCY) if levels > 1 else None
    own_name = f"{name} {(label or kind or str(level)).lower()} core"
    cores, threads = number(facts, f"{place}.physicalcpu"), number(facts, f"{place}.logicalcpu")
    key = f"{name}-perflevel{level}" if name else None
    return _type(vendor, key, own_name if name and kind else name, kind, cores, threads)


def _type(
    vendor: str | None, key: str | None, name: str | None, kind: str | None, cores: int | None, threads: int | None
) -> CoreType:
    per_core = threads // cores if cores and threads else None
    return CoreType(vendor=vendor, key=key, name=name, kind=kind, n_cores=cores, threads_per_core=per_core)


def _key(facts: dict[str, str]) -> str | None:
    parts = [facts.get(f"machdep.cpu.{name}") for name in ("family", "model", "stepping")]
    return "-".join(part or "?" for part in parts) if any(parts) else None


def caches(facts: dict[str, str]) -> tuple[Cache, ...]:
    """Return the caches; the memory-side cache of Apple's chips is told by no file or call."""
    levels = number(facts, "hw.nperflevels") or 0
    found = [cache for level in range(min(levels, 8)) for cache in _of_level(facts, f"hw.perflevel{level}.")]
    return tuple(sorted(found or _of_all(facts), key=lambda cache: (cache.level, cache.kind, cache.size_bytes)))


def _of_level(facts: dict[str, str], place: str) -> list[Cache]:
    cores = number(facts, f"{place}physicalcpu") or 0
    sharing = {"l1d": 1, "l1i": 1, "l2": number(facts, f"{place}cpusperl2"), "l3": number(facts, f"{place}cpusperl3")}
    return [
        cache
        for name, per_cache in sharing.items()
        if per_cache and (cache := _cache(name, number(facts, f"{place}{name}cachesize"), -(-cores // per_cache)))
    ]


def _of_all(facts: dict[str, str]) -> list[Cache]:
    """Read the older form: `hw.cacheconfig` counts the CPUs that share memory and each cache level."""
    cpus = n_threads(facts) or 0
    config = [int(word) for word in facts.get("hw.cacheconfig", "").split() if word.isdigit()]
    found = []
    for name, level in (("l1d", 1), ("l1i", 1), ("l2", 2), ("l3", 3)):
        sharing = config[level] if level < len(config) and config[level] else None
        cache = _cache(name, number(facts, f"hw.{name}cachesize"), -(-cpus // sharing) if sharing else 0)
        found += [cache] if cache else []
    return found


def _cache(name: str, size: int | None, instances: int) -> Cache | None:
    kind = {"d": "data", "i": "instruction"}.get(name[2:], "unified")
    return Cache(level=int(name[1]), kind=kind, size_bytes=size, instances=instances) if size and instances else None


def number(facts: dict[str, str], name: str) -> int | None:
    """Return the value as a number above 0, else None."""
    value = facts.get(name, "")
    return int(value) or None if re.fullmatch(r"\d{1,18}", value) else None


def flags(facts: dict[str, str]) -> frozenset[str]:
    """Return the instruction sets in the words of Linux."""
    intel = " ".join(facts.get(f"machdep.cpu.{name}", "") for name in ("features", "leaf7_features"))
    named = {"avx" if flag == "avx1.0" else flag for flag in intel.lower().split()}
    return frozenset(named | {linux for name, linux in ARM_FEATURES if facts.get(f"hw.optional.{name}") == "1"})
