"""NVIDIA's GPUs from what `nvidia-smi` printed: `-q -x` (XML), `-q` (text), `-L`, or its table.

All versions since driver 390 are read: names of elements, units and labels have changed between them.
"""

import re
from collections.abc import Iterator, Mapping
from xml.etree import ElementTree

from schema.host import Gpu
from worker.fingerprint.gpu_found import (
    Found,
    Told,
    count,
    hertz,
    lanes,
    mebibytes,
    name_of,
    settings,
    slice_of,
    whole_gib,
)
from worker.fingerprint.nvml import bus_id

COMMAND = ("nvidia-smi", "-q", "-x")
WINDOWS_SUBSYSTEM = "/usr/lib/wsl/lib"
"""Where Windows puts the program for Linux, which is often not on the path."""

_SLICE_CORES = {r"\bA(?:100|30)\b": 14, r"\bG?H(?:100|200|20)\b": 16}
"""Multiprocessors of the smallest MIG slice; nvidia-smi prints no profile, only how many a slice has."""

_DRIVER = re.compile(r"(?:Driver|KMD) Version\s*:\s*([\d.]+)")
_CUDA = re.compile(r"CUDA(?: \w+)? Version\s*:\s*([\d.]+)")
_ROW = re.compile(r"\|\s*\d+\s+(?P<name>\S.*?)\s+(?:On|Off|N/A|WDDM|TCC|MCDM)?\s*\|\s*(?P<bus>[0-9A-Fa-f:.]{12,16})\s")
_MEMORY = re.compile(r"\d+MiB\s*/\s*(\d+MiB)\s*\|")
_LISTED = re.compile(r"GPU \d+: (?P<name>.+?) \(UUID: (?P<uuid>[^)]+)\)")
_LISTED_SLICE = re.compile(r"\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>[^)]+)\)")

_UNTOLD = re.compile(r"\[?(n/?a\b|unknown|not |requested |none$|err!)", re.I)

Facts = Mapping[str, str]
"""What one GPU's part of `-q` says: the path of labels, in small letters without blanks, to the value."""


def read(text: str) -> Told | None:
    """Return what the text tells; None where it is no output of nvidia-smi."""
    if "<nvidia_smi_log" in text:
        return _of_xml(text)
    if "NVSMI LOG" in text:
        return _of_query(text)
    if _LISTED.match(text.lstrip()):
        return Told(source="nvidia-smi", found=tuple(_listed(text)))
    if "NVIDIA-SMI" in text:
        return _of_table(text)
    return None


def _of_xml(text: str) -> Told | None:
    # An entity may unfold without end; nvidia-smi defines none.
    if "<!ENTITY" in text:
        return None
    start, end = text.find("<nvidia_smi_log"), text.find("</nvidia_smi_log>")
    try:
        log = ElementTree.fromstring(text[start : end + len("</nvidia_smi_log>")])  # noqa: S314
    except (ElementTree.ParseError, ValueError):
        return None
    found: list[Found] = []
    for element in log.findall("gpu"):
        facts = dict(_leaves(element))
        found += _gpus(facts, element.get("id"), [dict(_leaves(part)) for part in element.iter("mig_device")])
    driver, cuda = (log.findtext(f"{name}_version") for name in ("driver", "cuda"))
    return Told(source="nvidia-smi", found=tuple(found), driver=_driver(driver), runtime=_cuda(cuda))


def _leaves(element: ElementTree.Element) -> Iterator[tuple[str, str]]:
    """Yield path and text of what has a text, as `pci/pcideviceid`; at most four levels deep."""
    level = [("", element)]
    for _ in range(5):
        below = []
        for path, parent in level:
            for child in parent:
                if child.tag not in ("mig_devices", "processes", "supported_clocks"):
                    below.append((f"{path}/{_label(child.tag)}".lstrip("/"), child))
        for path, child in below:
            if child.text and child.text.strip():
                yield path, child.text.strip()
        level = below


def _label(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _of_query(text: str) -> Told:
    """Read `nvidia-smi -q`: one fact a line, indented below the headings it belongs to."""
    found: list[Found] = []
    for block in re.split(r"^(?=GPU [0-9A-Fa-f]{8}:)", text, flags=re.M)[1:]:
        lines = block.splitlines()
        parts = re.split(r"^[ \t]+MIG Device[ \t]*$", block, flags=re.M)
        slices = [dict(_lines(part.splitlines())) for part in parts[1:]]
        found += _gpus(dict(_lines(lines)), lines[0][len("GPU ") :].strip(), slices)
    driver, cuda = (_first(pattern, text) for pattern in (_DRIVER, _CUDA))
    return Told(source="nvidia-smi", found=tuple(found), driver=_driver(driver), runtime=_cuda(cuda))


def _lines(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield path and value of each line; of two alike the first counts, since slices come after their GPU's own."""
    open_headings: list[tuple[int, str]] = []
    seen: set[str] = set()
    for line in lines[1:]:
        label, colon, value = line.partition(" : ")
        depth = len(line) - len(line.lstrip())
        while open_headings and open_headings[-1][0] >= depth:
            open_headings.pop()
        path = "/".join([*(heading for _, heading in open_headings), _label(label)])
        if not colon:
            open_headings.append((depth, _label(label)))
        elif path not in seen:
            seen.add(path)
            yield path, value.strip()


def _gpus(facts: Facts, place: str | None, slices: list[dict[str, str]]) -> list[Found]:
    """Return the GPU, or the MIG slices that it is cut into."""
    whole = Found(
        gpu=Gpu(
            vendor="NVIDIA",
            name=name_of(facts.get("productname"), "NVIDIA"),
            vram_bytes=whole_gib(mebibytes(_any(facts, "fbmemoryusage/total", "memoryusage/total"))),
            pci_id=_pci_id(_any(facts, "pci/pcideviceid", "pci/deviceid")),
            max_memory_clock_hz=hertz(_any(facts, "maxclocks/memclock", "maxclocks/memory")),
            pcie_max=lanes(_link(facts, "gen"), _link(facts, "width")),
        ),
        bus_id=bus_id(_any(facts, "pci/pcibusid", "pci/busid") or place),
        uuid=_uuid(_any(facts, "uuid", "gpuuuid")),
        settings=_settings(facts),
    )
    if _any(facts, "migmode/currentmig", "migmode/current") != "Enabled":
        return [whole]
    return [_slice(whole, part) for part in slices]


def _slice(whole: Found, facts: Facts) -> Found:
    total = mebibytes(_any(facts, "fbmemoryusage/total"))
    cores = count(_any(facts, "deviceattributes/shared/multiprocessorcount"), 6) or 0
    return slice_of(whole, _profile(whole.gpu.name, cores, total), total)


def _profile(name: str, multiprocessors: int, total: int | None) -> str | None:
    each = next((count for pattern, count in _SLICE_CORES.items() if re.search(pattern, name)), None)
    memory = whole_gib(total)
    if each is None or memory is None or multiprocessors < each:
        return None
    return f"{min(7, multiprocessors // each)}g.{memory >> 30}gb"


def _any(facts: Facts, *paths: str) -> str | None:
    """Return the first of the facts that is told; what is not known is printed as N/A, or as a sentence."""
    told = (facts.get(path, "") for path in paths)
    return next((value for value in told if value and not _UNTOLD.match(value)), None)


def _link(facts: Facts, kind: str) -> str | None:
    """Return the greatest generation or width that the link can have here."""
    names = {
        "gen": ("pciegen/maxlinkgen", "pciegeneration/max"),
        "width": ("linkwidths/maxlinkwidth", "linkwidth/max"),
    }[kind]
    return _any(facts, *(f"pci/{parent}/{name}" for parent in ("pcigpulinkinfo", "gpulinkinfo") for name in names))


def _pci_id(text: str | None) -> str | None:
    """Return `10de:20b2` for `20B210DE`, the device's number before the vendor's; None for one made unreadable."""
    match = re.fullmatch(r"(?:0x)?([0-9a-f]{4})10de", (text or "").lower())
    return f"10de:{match[1]}" if match else None


def _uuid(text: str | None) -> str | None:
    return text if text and re.fullmatch(r"(GPU|MIG)-[0-9a-zA-Z/-]{8,80}", text) else None


def _settings(facts: Facts) -> str | None:
    readings = ("gpupowerreadings", "powerreadings")
    limits = ("currentpowerlimit", "enforcedpowerlimit", "powerlimit")
    limit = _any(facts, *(f"{place}/{name}" for place in readings for name in limits))
    correction, persistence = _any(facts, "eccmode/currentecc", "eccmode/current"), _any(facts, "persistencemode")
    return settings(
        float(limit.removesuffix(" W")) if limit and re.fullmatch(r"\d{1,9}(\.\d{1,9})? W", limit) else None,
        correction == "Enabled" if correction else None,
        persistence == "Enabled" if persistence else None,
    )


def _listed(text: str) -> Iterator[Found]:
    """Read `nvidia-smi -L`; of a GPU that is cut into slices only these are given."""
    whole: list[Found] = []
    slices: list[Found] = []
    for line in text.splitlines():
        gpu, part = _LISTED.match(line), _LISTED_SLICE.match(line)
        if gpu:
            yield from slices or whole
            name = name_of(gpu["name"], "NVIDIA")
            whole, slices = [Found(gpu=Gpu(vendor="NVIDIA", name=name), uuid=_uuid(gpu["uuid"]))], []
        elif part and whole:
            name = f"{whole[0].gpu.name} MIG {part['profile']}"
            cut = Gpu(vendor="NVIDIA", name=name, mig_profile=part["profile"])
            slices.append(Found(gpu=cut, uuid=_uuid(part["uuid"])))
    yield from slices or whole


def _of_table(text: str) -> Told:
    """Read the table that people paste; it cuts long names short."""
    found = []
    for row, below in zip(text.splitlines(), text.splitlines()[1:], strict=False):
        gpu, memory = _ROW.match(row), _MEMORY.search(below)
        if gpu:
            name = name_of(gpu["name"], "NVIDIA")
            size = whole_gib(mebibytes(memory[1])) if memory else None
            found.append(Found(gpu=Gpu(vendor="NVIDIA", name=name, vram_bytes=size), bus_id=bus_id(gpu["bus"])))
    driver, cuda = (_first(pattern, text) for pattern in (_DRIVER, _CUDA))
    return Told(source="nvidia-smi", found=tuple(found), driver=_driver(driver), runtime=_cuda(cuda))


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1] if match else None


def _cuda(version: str | None) -> str | None:
    return f"CUDA {version}" if version and re.fullmatch(r"\d+(\.\d+)*", version) else None


def _driver(version: str | None) -> str | None:
    return f"nvidia {version}" if version and re.fullmatch(r"\d+(\.\d+)*", version) else None
