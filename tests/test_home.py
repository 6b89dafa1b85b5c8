import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from schema.errors import HostError
from worker.home import home, writable_home


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKFLEET_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_tokfleet_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "chosen"))
    assert home() == tmp_path / "chosen"
    assert not home().exists()


def test_without_it_the_data_directory_of_the_user_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert home() == tmp_path / ".local" / "share" / "tokfleet"
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/ignored")
    assert home() == tmp_path / ".local" / "share" / "tokfleet"
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert home() == tmp_path / "data" / "tokfleet"


def test_a_relative_home_counts_from_here_and_a_tilde_from_the_users_home(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("TOKFLEET_HOME", "here")
    assert home() == tmp_path / "here"
    monkeypatch.setenv("TOKFLEET_HOME", "~/there")
    assert home() == tmp_path / "me" / "there"


def test_the_directory_is_made_for_this_user_alone_when_something_is_to_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "a" / "b"))
    models = writable_home("models")
    assert models == tmp_path / "a" / "b" / "models"
    for path in (models, models.parent, models.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert writable_home("models") == models


def test_a_directory_that_is_there_keeps_its_mode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / "shared"))
    assert stat.S_IMODE(writable_home().stat().st_mode) == 0o755


def test_a_user_without_home_and_passwd_entry_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    def unknown(_uid: int) -> None:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    with pytest.raises(HostError, match=r"has no home directory: HOME is not set .* Set TOKFLEET_HOME to .* --db"):
        home()


def test_a_home_that_is_no_absolute_path_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(HostError, match=r"HOME is 'nowhere', which is no absolute path. Set TOKFLEET_HOME"):
        home()


def test_a_path_that_cannot_be_made_is_named_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    no_directory = f"{tmp_path / 'file'} is no directory"
    for where, why in (("file/home", no_directory), ("file", no_directory), ("x" * 300, "File name too long")):
        monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path / where))
        with pytest.raises(HostError) as caught:
            writable_home()
        assert str(caught.value) == (
            f"The directory {tmp_path / where} cannot be created: {why}. Set TOKFLEET_HOME to a directory "
            "that can be written (for the database alone: --db or TOKFLEET_DB)."
        )


def test_a_home_without_permission_to_write_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TOKFLEET_HOME", str(tmp_path))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(HostError, match=r"cannot be written: this user has no permission. Set TOKFLEET_HOME"):
        writable_home()


def test_importing_the_module_needs_no_home(tmp_path: Path) -> None:
    code = "import worker.home, worker.models"
    environment = {"PATH": os.environ["PATH"], "HOME": "/dev/null/none"}
    root = Path(__file__).parents[1]
    subprocess.run([sys.executable, "-c", code], cwd=root, env=environment, check=True)
