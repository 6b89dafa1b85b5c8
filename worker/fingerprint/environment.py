"""The software under the benchmark that can change a rate: system, kernel, libc, Python, governor, GPU driver."""

import os
import platform
import re
import shlex
import sys
from pathlib import Path

from schema.host import Environment
from worker.fingerprint import evidence
from worker.fingerprint.evidence import Notes

CPUS = Path("sys/devices/system/cpu")


def read(root: Path, notes: Notes) -> Environment:
    """Return what runs on the machine at `root`; the Python is the one that asks."""
    return Environment(
        os=_os(root, notes),
        kernel=_kernel(root, notes),
        libc=_libc(root, notes),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        governor=_governor(root, notes),
        gpu_driver=_gpu_driver(root),
    )


def _os(root: Path, notes: Notes) -> str | None:
    release = evidence.first_text([root / "etc/os-release", root / "usr/lib/os-release"])
    if release:
        values = dict(line.split("=", 1) for line in release[0].splitlines() if "=" in line)
        name = _unquoted(values.get("PRETTY_NAME", "")) or _unquoted(values.get("NAME", ""))
        if name:
            notes.found("os", "os-release")
            return name
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
    release = evidence.text(root / "proc/sys/kernel/osrelease")
    if release is None and evidence.is_live(root):
        release = platform.release() or None
    if release is None:
        notes.missing("kernel", "/proc/sys/kernel/osrelease cannot be read")
    return release


def _libc(root: Path, notes: Notes) -> str | None:
    musl = next((path.name for path in evidence.entries(root / "lib", "ld-musl-*")), None)
    if evidence.is_live(root):
        try:
            # "glibc 2.36"; other libraries do not know the name.
            return os.confstr("CS_GNU_LIBC_VERSION") or musl
        except (ValueError, OSError):
            pass
    if musl is None:
        notes.missing("libc", "neither glibc nor musl answers")
    return musl


def _governor(root: Path, notes: Notes) -> str | None:
    """Return the governor, or several joined by `+` where CPUs differ."""
    policies = evidence.entries(root / CPUS / "cpufreq", "policy[0-9]*")
    places = policies or [path / "cpufreq" for path in evidence.entries(root / CPUS, "cpu[0-9]*")]
    governors = {evidence.text(place / "scaling_governor") for place in places} - {None}
    if governors:
        notes.found("governor", "/sys/devices/system/cpu/cpufreq")
        return "+".join(sorted(str(governor) for governor in governors))
    notes.missing("governor", "the kernel shows no frequency scaling, as in most virtual machines")
    return None


def _gpu_driver(root: Path) -> str | None:
    nvidia = evidence.text(root / "proc/driver/nvidia/version") or ""
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)", nvidia)
    amd = evidence.text(root / "sys/module/amdgpu/version")
    loaded = (root / "sys/module/amdgpu").is_dir()
    drivers = [f"nvidia {match[1]}"] if match else []
    drivers += [f"amdgpu {amd or 'of the kernel'}"] if loaded else []
    return " + ".join(drivers) or None
