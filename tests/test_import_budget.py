"""What a command may import before it needs it: a clean interpreter is asked what it has loaded."""

import json
import subprocess
import sys
from pathlib import Path

from orchestrator.cli import COMMANDS

REPOSITORY = Path(__file__).parents[1]
HEAVY = {
    "alembic",
    "altair",
    "fastapi",
    "huggingface_hub",
    "importlib.metadata",
    "llama_cpp",
    "numpy",
    "psycopg",
    "pydantic",
    "ray",
    "rich",
    "ruamel",
    "scipy",
    "sqlalchemy",
}
ASK = """
import json, sys
from orchestrator.cli import main
statuses = [main(line.split()) for line in sys.argv[1:]]
print(json.dumps([statuses, sorted(sys.modules)]), file=sys.stderr)
"""


def loaded(home: Path, *lines: str) -> set[str]:
    """Return the names of the modules that `tokfleet LINE` has imported, for all lines in one process."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, *lines],
        cwd=REPOSITORY,
        env={"TOKFLEET_HOME": str(home), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )
    statuses, modules = json.loads(done.stderr.splitlines()[-1])
    assert not any(statuses), done.stderr
    return set(modules)


def test_help_imports_click_and_no_command(tmp_path: Path) -> None:
    modules = loaded(tmp_path, "--help", "")
    assert not modules & HEAVY
    assert {name for name in modules if name.startswith(("orchestrator", "worker", "schema"))} == {
        "orchestrator",
        "orchestrator.cli",
    }


def test_version_needs_the_metadata_and_nothing_more(tmp_path: Path) -> None:
    assert loaded(tmp_path, "--version") & HEAVY <= {"importlib.metadata"}


def test_help_of_the_commands_imports_nothing_of_what_they_will_need(tmp_path: Path) -> None:
    assert not loaded(tmp_path, *(f"{command} --help" for command in COMMANDS)) & HEAVY


def test_models_need_no_engine_and_no_database(tmp_path: Path) -> None:
    assert loaded(tmp_path, "model list", "model synth test-tiny") & HEAVY <= {"numpy", "importlib.metadata"}


def test_a_fingerprint_needs_no_engine_in_this_process_and_no_database(tmp_path: Path) -> None:
    assert not loaded(tmp_path, "fingerprint") & (HEAVY - {"importlib.metadata"})
