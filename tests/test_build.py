import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from schema.errors import HostError
from schema.host import Build
from worker.build import find_build
from worker.engine.build import how_it_was_made


def python_that(tmp_path: Path, body: str) -> str:
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return str(script)


def test_the_stand_in_is_named_as_such(standin_python: str, tmp_path: Path) -> None:
    build = find_build(standin_python, tmp_path)
    assert (build.binding, build.method) == ("stand-in", "fake")
    assert build.library_sha256 is not None


def test_a_build_is_asked_for_once_and_again_when_its_files_change(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_text("one")
    reply = json.dumps({"build": {"binding": "b"}, "files": [str(library)]})
    python = python_that(tmp_path, f"echo asked >> {tmp_path}/log\necho '{reply}'")
    first = find_build(python, tmp_path)
    assert find_build(python, tmp_path) == first
    assert (tmp_path / "log").read_text() == "asked\n"
    library.write_text("another")
    assert find_build(python, tmp_path).library_sha256 != first.library_sha256
    assert (tmp_path / "log").read_text() == "asked\nasked\n"


def test_a_build_is_asked_again_when_a_gpu_is_shown_or_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = {"name": "CUDA0", "description": "Tesla T4", "memory_bytes": 15_000_000_000}
    reply = json.dumps({"build": {"binding": "b", "offload_devices": [device]}, "files": []})
    python = python_that(tmp_path, f"echo asked >> {tmp_path}/log\necho '{reply}'")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    first = find_build(python, tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    find_build(python, tmp_path)

    assert (tmp_path / "log").read_text() == "asked\nasked\n"
    assert find_build(python, tmp_path).offload_devices == first.offload_devices
    assert first.offload_devices[0].memory_bytes == 15_000_000_000


def test_a_kept_answer_that_is_damaged_is_asked_for_again(standin_python: str, tmp_path: Path) -> None:
    first = find_build(standin_python, tmp_path)
    (kept,) = (tmp_path / "cache").iterdir()
    kept.write_text("{")
    assert find_build(standin_python, tmp_path) == first


def test_a_home_that_cannot_be_written_costs_only_the_memory(standin_python: str) -> None:
    assert find_build(standin_python, Path(os.devnull)).method == "fake"


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="nowhere cannot be started: No such file"):
        find_build(str(tmp_path / "nowhere"), tmp_path)


def test_a_python_without_llama_cpp_is_named_with_its_reason(tmp_path: Path) -> None:
    python = python_that(tmp_path, "echo \"ModuleNotFoundError: No module named 'llama_cpp'\" >&2; exit 1")
    with pytest.raises(HostError, match=r"cannot run llama.cpp: ModuleNotFoundError.*make engine"):
        find_build(python, tmp_path)


def test_a_python_that_answers_in_no_encoding_is_named_with_what_can_be_read(tmp_path: Path) -> None:
    python = python_that(tmp_path, "printf '\\377\\n'; printf 'no engine in /mod\\353le\\n' >&2; exit 1")
    with pytest.raises(HostError, match=r"cannot run llama.cpp: no engine in /mod\ufffdle"):
        find_build(python, tmp_path)


def test_how_it_was_built_is_read_from_the_note_of_the_build(tmp_path: Path) -> None:
    note = {"cmake_args": ["-DGGML_NATIVE=ON", "-DCMAKE_PROJECT_llama_cpp_INCLUDE=/x"], "compiler": "g++ 12"}
    (tmp_path / "engine.json").write_text(json.dumps(note))
    assert how_it_was_made(tmp_path / "engine.json") == {"cmake_args": "-DGGML_NATIVE=ON", "compiler": "g++ 12"}
    assert how_it_was_made(tmp_path / "none.json") == {}


def test_two_machines_built_alike_have_one_build_id_and_another_flag_makes_another() -> None:
    one = Build(binding="b", cmake_args="-DGGML_NATIVE=ON", library_sha256="1", devices=("CPU (a)",))
    other = replace(one, library_sha256="2", devices=("CPU (b)",))
    assert one.build_id == other.build_id
    assert replace(one, cmake_args="-DGGML_CUDA=ON").build_id != one.build_id
