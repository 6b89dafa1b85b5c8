"""The lock files, what is packaged, and the scripts that install it."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import install_engine, install_locked, step

REPOSITORY = Path(__file__).parents[1]
LOCKS = {path.stem: path for path in sorted((REPOSITORY / "requirements").glob("*.lock"))}
PROJECT: dict[str, Any] = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    """Return each requirement of a lock with its hashes."""
    found = []
    for line in LOCKS[name].read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        requirement, *hashes = re.split(r"\s+--hash=", line.strip())
        found.append((Requirement(requirement), hashes))
    return found


def versions(name: str) -> dict[str, set[str]]:
    """Return the versions that a lock pins for each package."""
    found: dict[str, set[str]] = {}
    for requirement, _ in entries(name):
        (pin,) = requirement.specifier
        assert pin.operator == "=="
        found.setdefault(canonicalize_name(requirement.name), set()).add(pin.version)
    return found


def missing(asked: list[str], *locks: str) -> list[str]:
    """Return those of the requirements, ours aside, that the locks do not fulfil with every version they pin."""
    pinned = {package: pins for lock in locks for package, pins in versions(lock).items()}

    def fulfilled(requirement: Requirement) -> bool:
        pins = pinned.get(canonicalize_name(requirement.name), set())
        return bool(pins) and all(map(requirement.specifier.contains, pins))

    return [text for text in asked if not text.startswith("tokfleet[") and not fulfilled(Requirement(text))]


def test_there_is_a_lock_for_running_building_and_developing() -> None:
    assert set(LOCKS) == {"build", "dev", "engine", "run"}


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_carries_hashes(name: str) -> None:
    assert entries(name)
    for requirement, hashes in entries(name):
        assert hashes, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", found) for found in hashes), requirement


@pytest.mark.parametrize("name", LOCKS)
def test_the_locks_hold_no_address(name: str) -> None:
    line = r"(    --hash=sha256:[0-9a-f]{64}|[a-z0-9-]+==[\w.]+( ; [\w<>=!.' ]+)?)( \\)?"
    text = LOCKS[name].read_text(encoding="utf-8")
    assert [found for found in text.splitlines() if not re.fullmatch(line, found)] == []


def test_the_locks_fulfil_all_that_the_project_asks_for() -> None:
    project = PROJECT["project"]
    extras = [text for extra in project["optional-dependencies"].values() for text in extra]
    assert not missing([*project["dependencies"], *extras], "run", "engine", "dev")
    assert not missing([*PROJECT["build-system"]["requires"], *PROJECT["dependency-groups"]["build"]], "build")
    assert not missing(PROJECT["dependency-groups"]["dev"], "dev")


def test_a_requirement_that_no_lock_fulfils_is_found() -> None:
    assert missing(["click>=99", "unheard-of", "rich"], "run") == ["click>=99", "unheard-of"]


def test_the_locks_agree_on_every_version() -> None:
    run, build, dev = versions("run"), versions("build"), versions("dev")
    assert all(run[package] == build[package] for package in run.keys() & build.keys())
    assert all(dev[package] == (run | build)[package] for package in dev.keys() & (run | build).keys())


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", LOCKS)
def test_each_python_on_each_machine_gets_one_version_of_a_package(
    name: str, machine: tuple[str, str], python: str
) -> None:
    where = {"python_version": python, "python_full_version": f"{python}.1", "sys_platform": machine[0]}
    where |= {"platform_machine": machine[1], "platform_python_implementation": "CPython"}
    chosen = [
        canonicalize_name(requirement.name)
        for requirement, _ in entries(name)
        if requirement.marker is None or requirement.marker.evaluate(where)
    ]
    assert len(chosen) == len(set(chosen))
    assert set(versions(name)) - set(chosen) <= {"colorama", "tzdata"}  # only Windows lacks them


def test_every_folder_with_our_code_is_packaged() -> None:
    rooms = ("schema", "worker", "orchestrator", "migrations")
    folders = {path.parent for room in rooms for path in (REPOSITORY / room).rglob("*.py")}
    packages = {".".join(folder.relative_to(REPOSITORY).parts) for folder in folders}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) >= packages - {"migrations.versions"}
    assert "migrations.versions" in PROJECT["tool"]["setuptools"]["packages"]


def test_the_engine_is_locked_in_the_version_that_the_project_names() -> None:
    version, sha256 = install_engine.locked()
    assert f"llama-cpp-python=={version}" in PROJECT["project"]["optional-dependencies"]["worker"]
    assert re.fullmatch("[0-9a-f]{64}", sha256)


CHANGES = """\
# Changelog
## [Unreleased]
- feat: update llama.cpp to ggml-org/llama.cpp@fffffff
## [0.3.2]
- fix: something else
- feat: update llama.cpp to ggml-org/llama.cpp@0c1e57098
- feat: update llama.cpp to ggml-org/llama.cpp@1111111
## [0.3.1]
- fix: something
## [0.3.0]
- feat: update llama.cpp to ggml-org/llama.cpp@2222222
"""


@pytest.mark.parametrize(
    ("version", "commit"), [("0.3.2", "0c1e57098"), ("0.3.1", None), ("0.3.0", "2222222"), ("0.3", None)]
)
def test_the_commit_of_llama_cpp_is_the_first_under_the_heading_of_the_version(
    tmp_path: Path, version: str, commit: str | None
) -> None:
    (tmp_path / "CHANGELOG.md").write_text(CHANGES)
    assert install_engine.llama_cpp_commit(tmp_path, version) == commit


def test_the_users_cmake_options_come_last_and_an_unknown_commit_is_left_out() -> None:
    known = install_engine.cmake_args("0c1e57098", "-DGGML_CUDA=on '-DCMAKE_C_FLAGS=-g -O2'")
    assert known[-2:] == ["-DGGML_CUDA=on", "-DCMAKE_C_FLAGS=-g -O2"]
    assert {"-DGGML_NATIVE=ON", "-DLLAMA_BUILD_COMMIT=0c1e57098", "-DGGML_BUILD_COMMIT=0c1e57098"} < set(known)
    assert install_engine.cmake_args(None, "") == install_engine.FLAGS


def test_cmake_options_are_remembered_until_they_are_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    last = {"wanted": {"extra": "-DGGML_CUDA=on"}}
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    assert install_engine.wanted("0", last)["extra"] == "-DGGML_CUDA=on"
    assert install_engine.wanted("0", {})["extra"] == ""
    monkeypatch.setenv("CMAKE_ARGS", "")
    assert install_engine.wanted("0", last)["extra"] == ""


def test_a_build_is_kept_from_what_would_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    monkeypatch.setenv("MAKEFLAGS", "-j")
    monkeypatch.setenv("NINJA_STATUS", "no numbers")
    built = install_engine.environment({"CMAKE_ARGS": "-DA=1"})
    assert not {"SOURCE_DATE_EPOCH", "MAKEFLAGS"} & set(built)
    assert built["NINJA_STATUS"] == "[%f/%t] "
    assert built["CMAKE_ARGS"] == "-DA=1"
    assert int(built["CMAKE_BUILD_PARALLEL_LEVEL"]) >= 1


def test_a_missing_compiler_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(SystemExit, match=r"no-such-compiler.*apt install g\+\+"):
        install_engine.compiler()


def test_packages_are_counted_from_the_words_of_pip() -> None:
    reader = install_locked.Reader(3)
    assert reader.read("Ignoring colorama: markers 'sys_platform == ...' don't match your environment") is None
    assert reader.read("Collecting ray==2.60.0 (from -r run.lock (line 7))") == (1, 2, " ray")
    line = "  Downloading ray-2.60.0-cp311-cp311-manylinux2014_x86_64.whl (72.3 MB)"
    assert reader.read(line) == (1, 2, " ray, 72.3 MB")
    assert reader.read("Requirement already satisfied: rich==15.0.0 in ./site-packages") is None
    assert reader.read("Installing collected packages: ray") == (2, 2, " unpacking")


def test_a_log_gets_a_line_every_tenth_of_the_way(capsys: pytest.CaptureFixture[str]) -> None:
    progress = step.Progress("compiling")
    for done in range(1, 101):
        progress.show(step.State(done, 100))
    assert capsys.readouterr().err.splitlines() == [f"compiling {done}/100" for done in range(10, 101, 10)]


def test_a_failed_step_ends_on_its_last_lines_its_log_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "LOGS", tmp_path)
    script = "for n in $(seq 50); do echo line $n; done; echo No space left on device; exit 1"
    with pytest.raises(SystemExit) as end:
        step.run(["sh", "-c", script], step.Progress("trying it"), lambda line: None, os.environ, install_locked.ADVICE)
    lines = str(end.value).splitlines()
    assert lines[0] == "line 22"
    assert lines[-2] == f"Failed: trying it. All of its output is in {tmp_path / 'trying-it.log'}."
    assert lines[-1].startswith("The disk is full")


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run make with a copy of our Makefile in `folder`."""
    folder.mkdir(exist_ok=True)
    shutil.copy(REPOSITORY / "Makefile", folder)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "PYTHON"}
    return subprocess.run(["make", *words], cwd=folder, env=clean, capture_output=True, text=True, check=False)


def test_make_refuses_a_folder_with_a_blank_in_its_path(tmp_path: Path) -> None:
    done = make(tmp_path / "my lab", "demo")
    assert done.returncode == 2
    assert "my lab" in done.stderr
    assert "blank in its path" in done.stderr


def test_make_says_which_pythons_it_tried_when_none_will_do(tmp_path: Path) -> None:
    done = make(tmp_path, ".venv/.path", "PYTHON=/no/python")
    assert done.returncode == 2
    assert "No Python 3.11, 3.12 or 3.13" in done.stderr
    assert "tried: /no/python" in done.stderr


def test_make_help_names_every_target_that_people_use(tmp_path: Path) -> None:
    listed = re.findall(r"^  make ([\w-]+)", make(tmp_path, "help").stdout, re.MULTILINE)
    assert listed == ["help", "install", "engine", "demo", "test", "test-cluster", "test-long", "lint", "lock", "clean"]
