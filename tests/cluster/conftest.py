import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.lab import HOME, Lab, lab, missing

NAMES = ("head", "cpu", "gpu", "desk")
"""The head, a host without a GPU, one that declares a GPU, and the machine of a person, which is no host."""


@pytest.fixture(scope="session")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Run a lab for all tests, one after the other: each leaves it without any Ray."""
    lacks = missing()
    assert not lacks, " ".join(lacks)
    with lab(tmp_path_factory.mktemp("lab"), NAMES) as made:
        try:
            yield made
        finally:
            if kept := os.environ.get("TOKFLEET_LAB_LOGS"):
                _keep_logs(made, Path(kept))


def _keep_logs(made: Lab, target: Path) -> None:
    """Copy what the hosts logged to `target`, for who looks into a failure."""
    for name, host in made.hosts.items():
        for source in (*host.home.glob("*.log"), *(host.root / "tmp").glob("ray/session_2*/logs")):
            place = target / name / source.name
            place.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, place, dirs_exist_ok=True)
            else:
                shutil.copy(source, place)


@pytest.fixture(scope="session")
def model_on_cpu(hosts: Lab, gemma: Path) -> str:
    """Lay the real model into the home of `cpu` alone, and return its path there."""
    place = hosts["cpu"].home / "models" / gemma.name
    place.parent.mkdir()
    shutil.copy(gemma, place)
    return str(HOME / "models" / gemma.name)
