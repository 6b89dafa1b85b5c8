"""A model goes from one host to another through a real Ray, piece by piece, and Ray's store holds one piece at most."""

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cluster import local_cluster
from orchestrator.distribute import Fetch
from orchestrator.transfer import transfer
from schema.errors import ModelError
from worker.model_search import content_of
from worker.model_transfer import CHUNK_BYTES, Source

pytestmark = pytest.mark.ray


def test_a_model_comes_over_whole_and_a_lie_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    # Ray reads its environment once, when it is imported, and another test may have done that here.
    script = "import sys, pathlib; from tests import test_transfer as t; t.send_and_change(pathlib.Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "boxa")], cwd=Path(__file__).parents[1], check=True)


def send_and_change(directory: Path) -> None:
    path = directory / "tiny.gguf"
    directory.mkdir()
    with path.open("wb") as file:
        for number in range(3):
            file.write(bytes([number]) * (CHUNK_BYTES - number))
    content = content_of(path, None)
    fetch = Fetch(to="box", source=Source(host="box", content=content))
    with local_cluster("box"):
        events = list(transfer(fetch))
        arrived = Path(events[-1]["path"])
        assert arrived.read_bytes() == path.read_bytes()
        assert [event["fraction"] for event in events][-1] == 1.0
        assert list(transfer(fetch))[-1]["path"] == str(arrived)
        arrived.unlink()
        path.write_bytes(b"another file")
        with pytest.raises(ModelError, match="changed while it was sent"):
            list(transfer(fetch))
