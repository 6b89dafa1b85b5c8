import json
import socket
from pathlib import Path

import pytest

from schema.canonical import decode, to_json
from worker.checkup import Checkup, checkup


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home of this test's own."""
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "auth_token"))
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    return tmp_path / "home"


def test_a_host_says_what_it_is_without_making_anything(home: Path) -> None:
    found = checkup()
    assert found.python.count(".") == 2
    assert found.token_mode is None
    assert found.home_free_bytes
    assert found.builds is not None
    assert "default" in found.builds
    assert not home.exists() or not list(home.glob("models"))


def test_what_it_says_survives_the_way_as_json(home: Path) -> None:
    found = checkup(["nowhere.gguf"], base=home)
    assert decode(Checkup, json.loads(to_json(found))) == found


def test_a_model_is_found_from_where_the_asker_stands(home: Path) -> None:
    home.mkdir()
    (home / "a.gguf").write_bytes(b"GGUF")
    here, absent = checkup(["a.gguf", "b.gguf"], base=home).models
    assert (here.size_bytes, here.problem) == (4, None)
    assert absent.size_bytes is None
    assert absent.problem
    assert "b.gguf" in absent.problem


def test_models_that_lie_at_home_are_counted(home: Path) -> None:
    (home / "models" / "sub").mkdir(parents=True)
    (home / "models" / "sub" / "a.gguf").write_bytes(b"")
    (home / "models" / "notes.txt").write_bytes(b"")
    assert checkup().n_models_at_home == 1


def test_a_port_that_is_open_to_the_network_is_seen_with_its_program(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = [one for one in checkup().listeners if one.port == port]
    assert [one.ip for one in found] == ["127.0.0.1"]
    assert found[0].program


def test_a_token_file_is_known_by_its_mode(home: Path, tmp_path: Path) -> None:
    (tmp_path / "auth_token").write_text("x" * 64)
    (tmp_path / "auth_token").chmod(0o640)
    assert checkup().token_mode == 0o640
