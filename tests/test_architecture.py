"""Our import names are ours, the measuring process needs next to nothing, and imports go one way."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPOSITORY = Path(__file__).parents[1]

WHERE = "import importlib.util as u, sys; print(u.find_spec(sys.argv[1]).origin)"

BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"{name} is not for the measuring process", name=name)

allowed = set(sys.argv[2].split(","))
for name in [name for name in sys.modules if name.partition(".")[0] not in allowed | {"__main__", "__mp_main__"}]:
    if "editable" not in name:
        del sys.modules[name]
sys.meta_path.insert(0, Block())
__import__(sys.argv[1])
"""

PURE = ["worker.__main__", "worker.run", "worker.measure", "schema.job", "schema.record", "schema.canonical"]


def alone(program: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a clean interpreter that sees installed packages and not the current folder."""
    command = [sys.executable, "-I", "-W", "error", "-c", program, *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def import_names(distribution: str) -> set[str]:
    """Return the import names of an installed distribution and of all that it requires."""
    names = {
        name
        for name, owners in packages_distributions().items()
        if canonicalize_name(distribution) in {canonicalize_name(owner) for owner in owners}
    }
    try:
        wanted = [Requirement(text) for text in requires(distribution) or []]
    except PackageNotFoundError:
        return names
    for requirement in wanted:
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            names |= import_names(requirement.name)
    return names


def test_what_llama_cpp_brings_along_is_known() -> None:
    names = import_names("llama-cpp-python")
    assert {"llama_cpp", "numpy"} <= names
    assert not names & {"ray", "sqlalchemy", "alembic", "click", "rich", "pydantic", "ruamel", "psutil", "cpuinfo"}


@pytest.mark.parametrize("package", ["schema", "worker", "orchestrator", "migrations"])
def test_an_import_name_of_ours_leads_into_this_repository(package: str, tmp_path: Path) -> None:
    found = alone(WHERE, package, cwd=tmp_path)
    assert found.stdout.strip() == str(REPOSITORY / package / "__init__.py"), found.stderr


@pytest.mark.parametrize("module", PURE)
def test_the_measuring_process_starts_with_the_standard_library_alone(module: str, tmp_path: Path) -> None:
    allowed = {*sys.stdlib_module_names, "schema", "worker"}
    done = alone(BLOCK, module, ",".join(allowed), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_engine_needs_llama_cpp_and_what_that_requires(tmp_path: Path) -> None:
    allowed = {*sys.stdlib_module_names, "schema", "worker", *import_names("llama-cpp-python")}
    done = alone(BLOCK, "worker.engine", ",".join(allowed), cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_module_that_needs_more_is_stopped(tmp_path: Path) -> None:
    done = alone(
        BLOCK, "orchestrator.store", ",".join([*sys.stdlib_module_names, "schema", "orchestrator"]), cwd=tmp_path
    )
    assert "sqlalchemy is not for the measuring process" in done.stderr


def test_imports_go_one_way() -> None:
    command = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
