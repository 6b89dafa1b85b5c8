"""Compiles llama.cpp for this machine, through the locked llama-cpp-python, into the environment that runs this.

Usage, in the repository's folder: .venv/bin/python -m scripts.install_engine [--source | --flags]

Does nothing when that build is already installed. Options for CMake come from CMAKE_ARGS and are remembered; an
empty CMAKE_ARGS forgets them. `--source` prints where llama.cpp's unpacked source is, `--flags` what CMake is told.
"""

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import time
from pathlib import Path
from typing import Any

from scripts import step

LOCK = step.ROOT / "requirements" / "engine.lock"
CACHE = step.ROOT / ".cache" / "engine"
STAMP = Path(sys.prefix) / "engine.json"
SITE = Path(sysconfig.get_path("platlib"))

# Tuned for this CPU, as anyone who builds llama.cpp by hand gets it; without the parts that we never load, which are
# more than half: 83 files to compile instead of 193.
FLAGS = [
    "-DGGML_NATIVE=ON",
    "-DLLAVA_BUILD=OFF",
    f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={step.ROOT / 'scripts' / 'engine.cmake'}",
]

# SOURCE_DATE_EPOCH turns GGML_NATIVE off; make's own variables would lend ninja make's job slots.
UNWANTED = {"SOURCE_DATE_EPOCH", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"}

NO_COMPILER = (
    "llama.cpp is compiled for this machine, and no working C and C++ compiler was found ({name}). Install one "
    "(Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++; macOS: xcode-select --install), then run the same "
    "command again."
)
ADVICE = [
    (
        r"Killed signal|internal compiler error: Killed|out of memory|Cannot allocate memory",
        "The compiler ran out of memory. Compile one file at a time: make engine CMAKE_BUILD_PARALLEL_LEVEL=1",
    ),
    (r"No space left on device", "The disk is full: about 1 GB is needed. Free some and run the same command again."),
    (
        r"CMake Error",
        "CMake could not configure llama.cpp. If options were given in CMAKE_ARGS, check them; "
        "make engine CMAKE_ARGS= goes back to a plain CPU build.",
    ),
    (
        r"\.(c|cpp|h|hpp):\d+:\d+: (fatal )?error: ",
        "The compiler refused llama.cpp's source: it may be too old. g++ 11, clang 14 or newer work.",
    ),
]


def locked() -> tuple[str, str]:
    """Return the version and the SHA-256 of the locked source package."""
    found = re.search(r"llama-cpp-python==(\S+).*?sha256:([0-9a-f]{64})", LOCK.read_text(encoding="utf-8"), re.DOTALL)
    if not found:
        sys.exit(f"{LOCK} does not lock llama-cpp-python. Restore it from the repository, or run: make lock")
    return found[1], found[2]


def wanted(sha256: str, last: dict[str, Any]) -> dict[str, str]:
    """Return what makes one build differ from another: the source, CMake's options and the CPU it is tuned for."""
    extra = os.environ.get("CMAKE_ARGS", last.get("wanted", {}).get("extra", ""))
    return {"sdist": sha256, "flags": " ".join(FLAGS), "extra": extra.strip(), "cpu": cpu()}


def cpu() -> str:
    """Return the CPU's name, so that an environment on a shared disk is not used by another kind of machine."""
    lines = []
    if Path("/proc/cpuinfo").exists():
        names = r"(vendor_id|model name|CPU (implementer|variant|part))\s*:"
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        lines = sorted({" ".join(line.split()) for line in text.splitlines() if re.match(names, line)})
    return "; ".join([sysconfig.get_platform(), *lines])


def last_build() -> dict[str, Any]:
    """Return what the last build wrote down, empty if there was none."""
    try:
        stamp: dict[str, Any] = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp


def record_sha256(version: str) -> str | None:
    """Return the digest of the installed package's list of files, None when that version is not installed."""
    record = SITE / f"llama_cpp_python-{version}.dist-info" / "RECORD"
    return hashlib.sha256(record.read_bytes()).hexdigest() if record.exists() else None


def source(version: str, sha256: str) -> Path:
    """Return the folder of the unpacked source package, downloaded and checked if it is not there yet."""
    folder = CACHE / f"llama_cpp_python-{version}"
    mark = folder / ".unpacked"
    if mark.exists() and mark.read_text(encoding="utf-8") == sha256:
        return folder
    archive = CACHE / f"llama_cpp_python-{version}.tar.gz"
    if not archive.exists() or hashlib.sha256(archive.read_bytes()).hexdigest() != sha256:
        download(version)
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4 or newer
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(CACHE)
    mark.write_text(sha256, encoding="utf-8")
    return folder


def download(version: str) -> None:
    """Fetch the locked source package into the cache; pip checks its hash."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download", "--no-deps"]
    command += ["--no-binary", "llama-cpp-python", "--no-build-isolation", "--require-hashes", "--progress-bar", "off"]
    command += ["--dest", str(CACHE), "-r", str(LOCK)]
    progress = step.Progress(f"downloading llama-cpp-python {version} (77 MB)")
    step.run(command, progress, lambda line: None, environment({"CMAKE_ARGS": ""}))


def llama_cpp_commit(folder: Path, version: str) -> str | None:
    """Return the commit of llama.cpp that this version's change log names, None if it names none."""
    text = (folder / "CHANGELOG.md").read_text(encoding="utf-8")
    section = re.search(rf"^## \[{re.escape(version)}\]\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    found = re.search(r"llama\.cpp@([0-9a-f]{7,40})", section[1]) if section else None
    return found[1] if found else None


def cmake_args(commit: str | None, extra: str) -> list[str]:
    """Return CMake's options; the user's come last and so win."""
    # ggml asks git for its commit and finds a tree that git calls dirty; without git it takes the one given here.
    known = [f"-DLLAMA_BUILD_COMMIT={commit}", f"-DGGML_BUILD_COMMIT={commit}", "-DGIT_EXE=OFF"] if commit else []
    return [*FLAGS, *known, *shlex.split(extra)]


def environment(more: dict[str, str]) -> dict[str, str]:
    """Return the environment of a build: tools from this Python's environment first, nothing that changes flags."""
    kept = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    path = os.pathsep.join([str(Path(sys.prefix) / "bin"), kept.get("PATH", os.defpath)])
    settings = {"PATH": path, "NINJA_STATUS": "[%f/%t] ", "CMAKE_GENERATOR": "Ninja"}
    # llama.cpp would take the commit of our repository for its own.
    settings["GIT_CEILING_DIRECTORIES"] = str(CACHE)
    kept.setdefault("CMAKE_BUILD_PARALLEL_LEVEL", str(parallel()))
    return {**kept, **settings, **more}


def parallel() -> int:
    """Return how many files to compile at once: one per core, and no more than there are GiB of memory."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    memory_gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return max(1, min(cores, round(memory_gib)))


def compiler() -> str:
    """Return the C++ compiler's name and version; exits with what to install when C or C++ is missing."""
    first = ""
    for variable, names in {"CC": ("cc", "gcc", "clang"), "CXX": ("c++", "g++", "clang++")}.items():
        found = os.environ.get(variable) or next((name for name in names if shutil.which(name)), names[0])
        try:
            answer = subprocess.run([*shlex.split(found), "--version"], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            sys.exit(NO_COMPILER.format(name=f"{variable}: {found}"))
        first = answer.stdout.partition("\n")[0]
    return first


def compile_wheel(folder: Path, args: list[str]) -> Path:
    """Compile the unpacked source and return the wheel; an interrupted compile goes on where it was."""
    build = CACHE / f"build-{hashlib.sha256(' '.join([*args, sys.prefix]).encode()).hexdigest()[:12]}"
    wheels = CACHE / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    # The install step of CMake leaves libraries beside the Python files, where the next wheel would find them.
    shutil.rmtree(folder / "llama_cpp" / "lib", ignore_errors=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-v", "--no-deps"]
    command += [
        "--no-build-isolation",
        "--config-settings",
        f"build-dir={build}",
        "--wheel-dir",
        str(wheels),
        str(folder),
    ]
    progress = step.Progress("compiling llama.cpp")

    def read(line: str) -> step.State | None:
        found = re.match(r"\s*\[(\d+)/(\d+)\] ", line)
        if not found:
            return None
        done, total = int(found[1]), int(found[2])
        return step.State(done, total, progress.time_left(done, total))

    step.run(command, progress, read, environment({"CMAKE_ARGS": shlex.join(args)}), ADVICE)
    for done in CACHE.glob("build-*"):
        shutil.rmtree(done, ignore_errors=True)
    return next(wheels.glob("*.whl"))


def install(wheel: Path) -> None:
    """Put the wheel into this environment and load it once, so that a library that cannot run is found out here."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-deps", "--no-index"]
    progress = step.Progress("installing llama.cpp")
    step.run([*command, "--force-reinstall", str(wheel)], progress, lambda line: None, os.environ)
    check = "import llama_cpp.llama_cpp as lib; lib.llama_backend_init()"
    step.run([sys.executable, "-c", check], step.Progress("loading llama.cpp"), lambda line: None, os.environ)


def build(version: str, target: dict[str, str]) -> None:
    """Compile and install what is wanted and write down what it is."""
    started = time.monotonic()
    with_compiler = compiler()
    folder = source(version, target["sdist"])
    commit = llama_cpp_commit(folder, version)
    args = cmake_args(commit, target["extra"])
    install(compile_wheel(folder, args))
    facts = {"version": version, "commit": commit, "cmake_args": args, "compiler": with_compiler}
    stamp = {"wanted": target, "record": record_sha256(version), **facts}
    STAMP.write_text(json.dumps(stamp, indent=2) + "\n", encoding="utf-8")
    print(f"compiled llama.cpp {commit or version} for this machine ({time.monotonic() - started:.0f} s)")


def main() -> None:
    """Install the engine if it is not installed yet, or print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", action="store_true", help="print the folder of llama.cpp's source and stop")
    parser.add_argument("--flags", action="store_true", help="print the options that CMake is given and stop")
    asked = parser.parse_args()
    version, sha256 = locked()
    last = last_build()
    target = wanted(sha256, last)
    if asked.source or asked.flags:
        folder = source(version, sha256)
        args = cmake_args(llama_cpp_commit(folder, version), target["extra"])
        print(folder / "vendor" / "llama.cpp" if asked.source else shlex.join(args))
        return
    if last.get("wanted") != target or last.get("record") is None or last["record"] != record_sha256(version):
        build(version, target)


if __name__ == "__main__":
    main()
