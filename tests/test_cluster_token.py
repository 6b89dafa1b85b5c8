import os
import stat
from pathlib import Path

import pytest

from orchestrator import cluster_token
from orchestrator.cluster_token import find_token, make_token, required_token
from schema.errors import ClusterError, HostError


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that this test's token is kept in."""
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    path = tmp_path / "ray" / "auth_token"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(path))
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_token_is_made_for_its_owner_alone_whatever_the_umask(own_place: Path) -> None:
    before = os.umask(0)
    try:
        path, is_new = make_token()
    finally:
        os.umask(before)
    assert (path, is_new) == (own_place, True)
    assert mode(path) == 0o600
    assert len(path.read_text()) == 64
    assert not path.read_text().endswith("\n")


def test_a_token_that_is_there_stays_and_is_made_private(own_place: Path) -> None:
    make_token()
    kept = own_place.read_text()
    own_place.chmod(0o644)
    assert make_token() == (own_place, False)
    assert own_place.read_text() == kept
    assert mode(own_place) == 0o600


def test_a_new_one_replaces_it_where_that_is_asked_for(own_place: Path) -> None:
    make_token()
    kept = own_place.read_text()
    assert make_token(new=True)[1]
    assert own_place.read_text() != kept


def test_the_heads_token_is_taken_over_as_it_is(own_place: Path) -> None:
    make_token()
    make_token("a" * 64)
    assert own_place.read_text() == "a" * 64
    assert mode(own_place) == 0o600


@pytest.mark.parametrize(
    "text", ["", "short", "with blanks in the middle of it", "x" * 600, "cat: no such file\n", "ä" * 32]
)
def test_what_is_no_token_is_refused_and_nothing_is_changed(own_place: Path, text: str) -> None:
    make_token()
    kept = own_place.read_text()
    with pytest.raises(ClusterError, match="no token"):
        make_token(text)
    assert own_place.read_text() == kept


def test_who_has_no_token_is_told_how_to_get_one(own_place: Path) -> None:
    with pytest.raises(ClusterError, match=r"A head needs the lab's token.*tokfleet cluster token"):
        required_token("A head")


def test_an_empty_file_is_no_token(own_place: Path) -> None:
    own_place.parent.mkdir()
    own_place.write_text("\n")
    with pytest.raises(ClusterError, match="there is none"):
        required_token("A head")


def test_a_token_that_others_can_read_is_refused(own_place: Path) -> None:
    make_token()
    own_place.chmod(0o640)
    with pytest.raises(ClusterError, match=r"mode 0640.*chmod 600"):
        required_token("A head")


def test_a_token_in_the_variable_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "x" * 64)
    assert required_token("A head").describe() == "the variable RAY_AUTH_TOKEN"
    assert find_token().is_private


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "file" / "token"))
    with pytest.raises(HostError, match="cannot be kept"):
        make_token()


def test_a_link_in_the_way_is_not_written_through(own_place: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    own_place.parent.mkdir()
    own_place.symlink_to(victim)
    make_token(new=True)
    assert victim.read_text() == "kept"
    assert not own_place.is_symlink()


def test_without_variable_and_file_rays_own_place_is_meant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cluster_token.token_path() == tmp_path / ".ray" / "auth_token"
