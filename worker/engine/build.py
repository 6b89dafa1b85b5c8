"""Which llama.cpp this interpreter would run."""

import json
import sys
from pathlib import Path

import llama_cpp.llama_cpp as lib

from schema.devices import back_end
from schema.host import Build
from worker import backend
from worker.engine.model import LIBRARIES


def library_files() -> list[str]:
    """Return the paths of llama.cpp's shared libraries that this interpreter loads."""
    return sorted(str(path) for path in LIBRARIES.iterdir() if path.is_file())


def build_facts() -> Build:
    """Return llama.cpp as this interpreter would run it."""
    from importlib.metadata import version

    raw = lib._lib
    backend.load_back_ends(raw, LIBRARIES)
    commit = raw.ggml_commit().decode("ascii", "replace") if hasattr(raw, "ggml_commit") else ""
    every, _ = backend.devices(raw)
    made = how_it_was_made(Path(sys.prefix) / "engine.json")
    return Build(
        binding=f"llama-cpp-python {version('llama_cpp_python')}",
        llama_cpp_commit=None if commit in ("", "unknown") else commit,
        system_info=lib.llama_print_system_info().decode("utf-8", "replace").strip(" |\n"),
        cmake_args=made.get("cmake_args"),
        compiler=made.get("compiler"),
        backends=tuple(dict.fromkeys(back_end(text.split(" ")[0]) for text in every)),
        devices=tuple(every),
        offload_devices=backend.offload_devices(raw),
        gpu_offload=bool(lib.llama_supports_gpu_offload()),
    )


def how_it_was_made(stamp: Path) -> dict[str, str]:
    """Return CMake's options and the compiler from the note that our build leaves; nothing where it left none.

    Options that only say where a file is are left out: they differ between machines that are built alike.
    """
    try:
        note = json.loads(stamp.read_text())
        told = [flag for flag in note["cmake_args"] if flag.startswith(("-DGGML_", "-DLLAMA_"))]
        return {"cmake_args": " ".join(told), "compiler": str(note["compiler"])}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
