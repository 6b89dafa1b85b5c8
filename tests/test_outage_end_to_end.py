"""A whole sweep into a PostgreSQL that goes away while it measures."""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.migrate import check, upgrade
from orchestrator.store import Store
from tests.command import Command
from tests.postgres import running
from tests.stores import answers, count

pytestmark = pytest.mark.ray

SWEEP = """
name: small
models: [{synthetic: "test-tiny:Q8_0"}]
tests: {n_prompt: [8, 16], n_gen: [4, 6]}
params: {n_ubatch: [8, 16]}
repeat: 3
"""


def wait_for(condition: Callable[[], object], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def waiting(home: Path) -> int:
    """Return how many entries wait in the spool."""
    (spool,) = home.glob("spool-*.sqlite")
    connection = sqlite3.connect(f"file:{spool}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM outbox").fetchone()[0])
    finally:
        connection.close()


def test_a_database_that_is_away_stops_no_sweep_and_no_job_is_measured_twice(
    tmp_path: Path, standin_python: str
) -> None:
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    with running(durable=True) as server:
        url = server.url(server.create())
        upgrade(url)
        command = Command(
            tmp_path / "home", standin_python, {"TOKFLEET_DB": url, "TOKFLEET_STANDIN_TOKEN_SECONDS": "0.02"}
        )
        sweep = command.start("run", str(tmp_path / "sweep.yaml"))
        wait_for(lambda: count(url, "results") > 0)
        server.stop("immediate")
        wait_for(lambda: waiting(command.home) >= 2)
        server.start()
        out, err = sweep.communicate(timeout=300)
        assert sweep.returncode == 0, err
        assert "Measured 8 tests." in out
        assert "Traceback" not in err
        assert [count(url, table) for table in ("job", "attempt", "results", "samples")] == [8, 8, 8, 24]
        assert answers(url, "SELECT DISTINCT number, n_samples FROM attempt") == [(1, 3)]
        assert waiting(command.home) == 0
        assert check(url) == []
        with Store.open(url) as store:
            assert store.remaining_jobs(store.run().run_uid) == []
