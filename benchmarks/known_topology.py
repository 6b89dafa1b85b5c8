"""What lscpu and lstopo said of a machine, as numbers to compare a fingerprint with."""

import re
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

Sizes = Counter[tuple[str, str]]
"""How many caches there are of a name ("L1d") and a size, as the program wrote it ("48KiB")."""

XML_KINDS = {"0": "", "1": "d", "2": "i"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What one program said; None is what it does not tell. `shown` are the CPUs that it lists, by number.

    `caches` of lstopo count each size; `cache_sums` of lscpu hold all instances together, with their number.
    lstopo may be told not to list caches (`no_icaches`, `no_caches`), and to list only objects that branch (`merged`):
    what is not there then proves nothing. `notes` are the remarks that come with lstopo's output.
    """

    source: str
    cpus: int | None = None
    core_types: tuple[int, ...] | None = None
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    nodes: int | None = None
    caches: Sizes | None = None
    cache_sums: dict[str, tuple[float, float, int | None]] | None = None
    shown: frozenset[int] = field(default_factory=frozenset)
    notes: str = ""
    no_icaches: bool = False
    no_caches: bool = False
    merged: bool = False


def known(machine: Path) -> list[Known]:
    """Return what each expected output beside the machine's files says."""
    found = []
    options = "\n".join(path.read_text("utf-8", "replace") for path in sorted(machine.glob("EXPECTED.*.test")))
    for path in sorted(machine.glob("EXPECTED.*")):
        content = path.read_text("utf-8", "replace")
        if path.name == "EXPECTED.lscpu":
            found.append(of_lscpu(content))
        elif path.suffix == ".xml":
            found.append(of_xml(path.name, content, options))
        elif path.suffix == ".console":
            found.append(of_console(path.name, content, options))
    return found


def of_lscpu(content: str) -> Known:
    """Read lscpu's summary and the parsable list that follows it, which holds the CPUs that are online."""
    summary, _, rest = content.partition("# CPU,Core,")
    rows = [row.split(",") for row in rest.split("\n\n")[0].splitlines()[1:] if row and row[0].isdigit()]
    facts = [tuple(part.strip() for part in line.partition(":")[::2]) for line in summary.splitlines() if ":" in line]
    per_socket = _numbers(facts, "Core(s) per socket") or _numbers(facts, "Core(s) per cluster")
    n_sockets = _numbers(facts, "Socket(s)") or _numbers(facts, "Cluster(s)")
    types = tuple(sorted(a * b for a, b in zip(per_socket, n_sockets, strict=False))) if len(per_socket) > 1 else None
    return Known(
        source="lscpu",
        cpus=len(rows) or None,
        core_types=types,
        sockets=len({row[2] for row in rows} - {""}) or None,
        # lscpu numbers the cores of each type from 0, so that the list alone would count them once.
        cores=sum(types) if types else len({row[1] for row in rows} - {""}) or None,
        threads=max(_numbers(facts, "Thread(s) per core"), default=None),
        nodes=max(_numbers(facts, "NUMA node(s)"), default=None),
        cache_sums=_sums(facts),
        shown=frozenset(int(row[0]) for row in rows),
    )


def _numbers(facts: list[tuple[str, ...]], key: str) -> list[int]:
    return [int(value) for name, value in facts if name == key and value.isdigit()]


def _sums(facts: list[tuple[str, ...]]) -> dict[str, tuple[float, float, int | None]]:
    """Return bytes, how exact they are, and instances of each `L1d cache: 544 KiB (14 instances)`.

    Without instances, as of shared caches of mainframes, the bytes are those of one.
    """
    found: dict[str, tuple[float, float, int | None]] = {}
    for name, value in facts:
        match = re.fullmatch(r"([\d.]+) ?([KMG]?)(?:iB)?(?: \((\d+) instances?\))?", value)
        if match and re.fullmatch(r"L\d[di]? cache", name):
            unit = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[match[2]]
            count = int(match[3]) if match[3] else None
            found[name.split()[0]] = (float(match[1]) * unit, 0.051 * unit, count)
    return found


@dataclass(frozen=True, slots=True)
class Part:
    """An object of lstopo's tree: its type, its facts, the CPU it is (a PU has one), and what is in it."""

    kind: str
    size: str | None = None
    cpu: int | None = None
    within: "list[Part]" = field(default_factory=list)

    def every(self) -> "Iterator[Part]":
        """Yield this object and all below it."""
        yield self
        for part in self.within:
            yield from part.every()

    @property
    def cpus(self) -> frozenset[int]:
        """The CPUs below."""
        return frozenset(part.cpu for part in self.every() if part.cpu is not None)


def of_console(name: str, content: str, options: str) -> Known:
    """Read lstopo's listing of one object a line, indented by what it is in.

    It lists fast memory in front of slow memory as a third level with a note, or as a cache of memory.
    """
    top = Part("top")
    path = [(-1, top)]
    content = content.replace("L3Cache(MemorySideCache)", "MemCache")
    for line in content.partition("\ndepth 0:")[0].splitlines():
        match = re.match(r"( *)(\w+)(?:\([^)]*\))?(?: L#(\d+))?(?: \((.*)\))?", line)
        if not match:
            continue
        facts = match[4] or ""
        size, number = re.search(r"(?<!\w)size=(\w+)", facts), re.search(r"P#(\d+)", facts)
        cpu = int(number[1] if number else match[3]) if match[2] == "PU" else None
        part = Part(match[2], size[1] if size else None, cpu)
        while path[-1][0] >= len(match[1]):
            path.pop()
        path[-1][1].within.append(part)
        path.append((len(match[1]), part))
    masks = re.findall(r"^CPU kind #\d+ .*cpuset (0x[0-9a-fx,]+)$", content, re.M)
    return _of_lstopo(name, top, masks, options)


def of_xml(name: str, content: str, options: str) -> Known:
    """Read lstopo's XML."""
    root = ET.fromstring(content)
    top = Part("top", within=[_part(one) for one in root.findall("object")])
    return _of_lstopo(name, top, [kind.get("cpuset", "") for kind in root.iter("cpukind")], options)


def _part(one: ET.Element) -> Part:
    kind, size = one.get("type", ""), int(one.get("cache_size", "0"))
    if one.get("subtype") == "MemorySideCache":
        kind = "MemCache"
    elif kind.endswith("Cache") and kind != "MemCache":
        level = re.sub(r"\D", "", kind) or one.get("depth", "")
        kind = f"L{level}{XML_KINDS.get(one.get('cache_type', ''), '')}Cache"
    cpu = int(one.get("os_index", "0")) if kind == "PU" else None
    return Part(kind, human(size) if size else None, cpu, [_part(within) for within in one.findall("object")])


def _mask(content: str) -> frozenset[int]:
    digits = "".join(part.removeprefix("0x").rjust(8, "0") for part in content.split(","))
    bits = int(digits, 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1)


def _of_lstopo(name: str, top: Part, masks: list[str], options: str) -> Known:
    """Count the objects that hold a CPU: of parts that lstopo may not use it shows the memory alone."""
    shown = top.cpus
    parts = [part for part in top.every() if part.kind in ("NUMANode", "MemCache") or part.cpus]
    counted = Counter(part.kind for part in parts)
    cores = [len(part.cpus) for part in parts if part.kind == "Core"]
    kinds = [_mask(mask) & shown for mask in masks]
    # Kinds are listed of those CPUs alone whose clock is known, and by clock alone where lstopo is told so.
    is_whole = sum(map(len, kinds)) == len(shown) and "HWLOC_CPUKINDS" not in options
    caches = Counter(
        (part.kind.removesuffix("Cache"), part.size) for part in parts if part.size and part.kind.endswith("Cache")
    )
    return Known(
        source=name.removeprefix("EXPECTED."),
        cpus=len(shown) or None,
        core_types=tuple(sorted(map(len, kinds))) if kinds and is_whole else None,
        sockets=counted["Package"] or None,
        cores=counted["Core"] or None,
        threads=max(cores, default=None),
        nodes=counted["NUMANode"] or None,
        caches=caches,
        shown=shown,
        notes=" ".join(line.removeprefix("#").strip() for line in options.splitlines() if line.startswith("#")),
        no_icaches="--no-icaches" in options,
        no_caches="--no-caches" in options,
        merged="--merge" in options,
    )


def human(size: int) -> str:
    """Return the size as lstopo writes it: in KiB below 10 MiB, in MiB below 10 GiB, then in GiB, rounded."""
    for shift, unit, limit in ((10, "KiB", 10 << 20), (20, "MiB", 10 << 30), (30, "GiB", 10 << 40)):
        if size < limit:
            return f"{(size >> (shift - 1)) + 1 >> 1}{unit}"
    return f"{size >> 40}TiB"
