"""The software and the settings of the machine that can change a rate: system, kernel, firmware, clocks, pages."""

import contextlib
import os
import platform
import re
import shlex
import struct
import sys
from pathlib import Path

from schema.host import Environment
from worker.fingerprint import board, clocks, evidence
from worker.fingerprint.evidence import Notes

SYSTEM = Path("sys/devices/system")
HUGE_PAGES = Path("sys/kernel/mm/transparent_hugepage/enabled")
AT_PAGESZ = 6
UNAFFECTED = "Not affected"
WEAKNESS_CHARACTERS = 80
MAX_WEAKNESSES = 40


def read(
    root: Path,
    notes: Notes,
    gpu_driver: str | None = None,
    gpu_runtime: str | None = None,
    gpu_settings: str | None = None,
) -> Environment:
    """Return what runs on the machine at `root` and how it is set up; the Python is the one that asks.

    What the GPUs' drivers say comes from who asked them.
    """
    return Environment(
        os=_os(root, notes),
        kernel=_kernel(root, notes),
        libc=_libc(root, notes),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        governor=clocks.governor(root, notes),
        scaling_driver=clocks.scaling_driver(root, notes),
        energy_preference=clocks.energy_preference(root, notes),
        turbo=clocks.turbo(root, notes),
        power_limit_watts=clocks.power_limit_watts(root, notes),
        smt=_smt(root, notes),
        microcode=_microcode(root, notes),
        bios_version=_bios(root, notes),
        mitigations=_mitigations(root, notes),
        huge_pages=_huge_pages(root, notes),
        page_bytes=_page_bytes(root, notes),
        gpu_driver=gpu_driver,
        gpu_runtime=gpu_runtime,
        gpu_settings=gpu_settings,
    )


def _smt(root: Path, notes: Notes) -> str | None:
    """Return what the kernel says of simultaneous multithreading: "on", "off", "notsupported" and the like."""
    source = f"/{SYSTEM}/cpu/smt/control"
    return notes.told("smt", evidence.line(root / SYSTEM / "cpu/smt/control"), source, f"{source} cannot be read")


def _os(root: Path, notes: Notes) -> str | None:
    release = evidence.first_text([root / "etc/os-release", root / "usr/lib/os-release"])
    if release:
        values = dict(line.split("=", 1) for line in release[0].splitlines() if "=" in line)
        name = _unquoted(values.get("PRETTY_NAME", "")) or _unquoted(values.get("NAME", ""))
        if name:
            notes.found("os", "os-release")
            return evidence.short(name)
    if evidence.is_live(root) and sys.platform == "darwin":
        notes.found("os", "platform.mac_ver")
        return f"macOS {platform.mac_ver()[0]}"
    notes.missing("os", "no os-release names the system")
    return None


def _unquoted(value: str) -> str:
    try:
        return " ".join(shlex.split(value))
    except ValueError:
        return value.strip()


def _kernel(root: Path, notes: Notes) -> str | None:
    release = evidence.line(root / "proc/sys/kernel/osrelease")
    if release is None and evidence.is_live(root):
        release = platform.release() or None
    source = "/proc/sys/kernel/osrelease"
    return notes.told("kernel", release, source, f"{source} cannot be read")


def _libc(root: Path, notes: Notes) -> str | None:
    if evidence.is_live(root):
        # "glibc 2.36"; other libraries do not know the name.
        with contextlib.suppress(ValueError, OSError):
            version = os.confstr("CS_GNU_LIBC_VERSION")
            if version:
                notes.found("libc", "confstr")
                return version
    musl = next((path.name for path in evidence.entries(root / "lib", "ld-musl-*")), None)
    return notes.told("libc", musl, "/lib", "neither glibc nor musl answers")


def _microcode(root: Path, notes: Notes) -> str | None:
    """Return the revision, or several joined by `+`; ask /proc/cpuinfo, which every user may read, first."""
    listed = re.findall(r"^microcode\s*:\s*(\S+)", evidence.text(root / "proc/cpuinfo") or "", re.M)
    source = "/proc/cpuinfo"
    if not listed:
        source = "/sys/devices/system/cpu/cpu0/microcode/version"
        listed = [evidence.text(root / source.lstrip("/")) or ""]
    revisions = sorted(set(listed) - {""})
    if not revisions:
        notes.missing("microcode", "neither /proc/cpuinfo nor /sys tells its revision")
        return None
    notes.found("microcode", source)
    return evidence.short("+".join(revisions))


def _bios(root: Path, notes: Notes) -> str | None:
    return notes.told("bios_version", board.dmi(root, "bios_version"), "/sys/class/dmi/id", "DMI does not tell it")


def _mitigations(root: Path, notes: Notes) -> str | None:
    """Return `name: first words` of each weakness that the processor has, the kernel's answer up to the first `;`."""
    files = evidence.entries(root / SYSTEM / "cpu/vulnerabilities")
    answers = {path.name[:40]: evidence.text(path) or "unknown" for path in files[:MAX_WEAKNESSES] if path.is_file()}
    if not answers:
        notes.missing("mitigations", "/sys/devices/system/cpu/vulnerabilities is absent")
        return None
    notes.found("mitigations", "/sys/devices/system/cpu/vulnerabilities")
    weak = (f"{name}: {_short(answer)}" for name, answer in answers.items() if answer != UNAFFECTED)
    return "; ".join(weak) or "none"


def _short(answer: str) -> str:
    return re.split(r"[;\n]", answer)[0].removeprefix("Mitigation: ").strip()[:WEAKNESS_CHARACTERS]


def _huge_pages(root: Path, notes: Notes) -> str | None:
    """Return the mode of transparent huge pages, which the kernel puts in brackets."""
    content = evidence.text(root / HUGE_PAGES)
    chosen = re.search(r"\[(\w+)\]", content or "")
    return notes.told("huge_pages", chosen and chosen[1], f"/{HUGE_PAGES}", f"/{HUGE_PAGES} cannot be read")


def _page_bytes(root: Path, notes: Notes) -> int | None:
    """Return the size of an ordinary page; of a recorded machine it stands among what its kernel told a process."""
    if evidence.is_live(root):
        notes.found("page_bytes", "sysconf")
        return os.sysconf("SC_PAGE_SIZE")
    size = _auxiliary(root / "proc/self/auxv", AT_PAGESZ)
    return notes.told("page_bytes", size, "/proc/self/auxv", "/proc/self/auxv does not tell it")


def _auxiliary(path: Path, wanted: int) -> int | None:
    """Return the value under `wanted` in an auxiliary vector: pairs of words, here of 64 bits, low byte first."""
    try:
        content = path.read_bytes()[:4096]
    except OSError:
        return None
    pairs = dict(struct.iter_unpack("<QQ", content[: len(content) // 16 * 16]))
    size = pairs.get(wanted)
    return size if size and 512 <= size <= 1 << 24 else None
