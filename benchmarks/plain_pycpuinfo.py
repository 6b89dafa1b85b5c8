"""py-cpuinfo as it would have answered on a recorded machine: its data source is replaced, its parsing is its own."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

from cpuinfo import cpuinfo as library

NOT_HERE = (
    *("has_dmesg", "has_var_run_dmesg_boot", "has_cpufreq_info", "has_sestatus", "has_sysctl", "has_isainfo"),
    *("has_kstat", "has_sysinfo", "has_ibm_pa_features", "has_wmic"),
)
LSCPU = shutil.which("lscpu")


class Recorded(library.DataSource):  # type: ignore[misc]
    """The data source of a recorded Linux machine: its /proc/cpuinfo, and lscpu where there is a /sys for it."""

    is_windows = False
    can_cpuid = False
    uname_string_raw = ""


def answers(root: Path, arch: str, n_cpus: int | None) -> dict[str, Any]:
    """Return all that py-cpuinfo says of the machine at `root`; empty where it gives up on the architecture."""
    source = type("Source", (Recorded,), _source(root, arch, n_cpus))
    before = library.DataSource
    library.DataSource = source
    try:
        library._check_arch()
        return dict(library._get_cpu_info_internal())
    except Exception:
        # In its own process the error ends it, and its caller gets nothing.
        return {}
    finally:
        library.DataSource = before


def _source(root: Path, arch: str, n_cpus: int | None) -> dict[str, Any]:
    cpuinfo = root / "proc/cpuinfo"
    has_lscpu = LSCPU is not None and cpuinfo.exists() and (root / "sys/devices/system/cpu").is_dir()
    return {
        "arch_string_raw": arch,
        "bits": "64bit" if "64" in arch else "32bit",
        "cpu_count": n_cpus,
        "has_proc_cpuinfo": staticmethod(cpuinfo.exists),
        "cat_proc_cpuinfo": staticmethod(lambda: (0, cpuinfo.read_text("utf-8", "replace"))),
        "has_lscpu": staticmethod(lambda: has_lscpu),
        "lscpu": staticmethod(lambda: _lscpu(root)),
        **{name: staticmethod(lambda: False) for name in NOT_HERE},
    }


def _lscpu(root: Path) -> tuple[int, str]:
    command = [str(LSCPU), "--sysroot", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=10, check=False)
    return done.returncode, done.stdout
