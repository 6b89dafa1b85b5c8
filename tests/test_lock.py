import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schema.errors import HostError
from worker import lock
from worker.lock import Holder, HostLock

HOLD = """
import sys, time
from pathlib import Path
from worker.lock import HostLock
HostLock(Path(sys.argv[1]), what="a sweep").acquire()
print("held", flush=True)
time.sleep(600)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "host.lock"


def start_holder(path: Path) -> "subprocess.Popen[bytes]":
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, env=environ)
    assert process.stdout
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_second_one_is_told_who_holds_it_and_gives_up_in_words(path: Path) -> None:
    told: list[Holder] = []
    with HostLock(path, what="a sweep").acquire(), pytest.raises(HostError, match="still in use after waiting 0 s"):
        HostLock(path).acquire(0, told.append)

    assert [(holder.pid, holder.what) for holder in told] == [(os.getpid(), "a sweep")]
    assert told[0].describe().startswith(f"process {os.getpid()} of ")


def test_trying_answers_at_once_with_the_holder_or_none(path: Path) -> None:
    first, second = HostLock(path), HostLock(path)

    assert first.try_acquire("group 7") is None
    holder = second.try_acquire()
    assert holder
    assert holder.what == "group 7"
    first.release()
    assert second.try_acquire() is None
    second.release()


def test_waiting_ends_when_the_holder_dies_however_it_dies(path: Path) -> None:
    holder = start_holder(path)
    told: list[Holder] = []

    def kill(who: Holder) -> None:
        told.append(who)
        holder.send_signal(signal.SIGKILL)

    with holder, HostLock(path).acquire(60, kill):
        pass

    assert [who.pid for who in told] == [holder.pid]


def test_releasing_lets_the_next_one_in_and_leaves_no_name_behind(path: Path) -> None:
    with HostLock(path).acquire():
        assert json.loads(path.read_text())["pid"] == os.getpid()

    assert path.read_text() == ""
    HostLock(path).acquire().release()


def test_every_user_may_open_the_file_whatever_the_umask(path: Path) -> None:
    old = os.umask(0o077)
    try:
        with HostLock(path).acquire():
            assert path.stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(old)


def test_a_process_started_meanwhile_does_not_inherit_it(path: Path) -> None:
    held = HostLock(path).acquire()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False) as child:
        held.release()
        HostLock(path).acquire().release()
        child.communicate(b"\n")


def test_a_link_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    path.symlink_to(victim)
    with pytest.raises(HostError, match="TOKFLEET_LOCK"):
        HostLock(path).acquire()

    path.unlink()
    path.hardlink_to(victim)
    with pytest.raises(HostError, match="not a plain file"):
        HostLock(path).acquire()
    assert victim.read_text() == "precious"


def test_a_pipe_or_directory_in_its_place_is_refused_at_once(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(HostError, match="not a plain file"):
        HostLock(path).acquire()

    path.unlink()
    path.mkdir()
    with pytest.raises(HostError, match="Is a directory"):
        HostLock(path).acquire()


def test_the_next_shared_directory_serves_where_the_first_is_unusable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKFLEET_LOCK", raising=False)
    monkeypatch.setattr(lock, "DIRECTORIES", (tmp_path / "absent", tmp_path))

    with HostLock().acquire():
        assert (tmp_path / lock.FILE_NAME).exists()


def test_without_any_usable_directory_the_error_names_them_and_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOKFLEET_LOCK", raising=False)
    monkeypatch.setattr(lock, "DIRECTORIES", (tmp_path / "a", tmp_path / "b"))

    with pytest.raises(HostError, match=r"a/tokfleet-host.lock.*b/tokfleet-host.lock.*Set TOKFLEET_LOCK"):
        HostLock().acquire()


def test_the_variable_names_another_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKFLEET_LOCK", str(path))

    with HostLock().acquire():
        assert path.exists()


def test_a_file_deleted_by_a_cleaner_while_it_was_opened_is_not_taken_for_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = lock._open_shared
    deleted: list[Path] = []

    def deleting(where: Path) -> int:
        descriptor = original(where)
        if not deleted:
            where.unlink()
            deleted.append(where)
        return descriptor

    monkeypatch.setattr(lock, "_open_shared", deleting)
    with HostLock(path).acquire():
        assert json.loads(path.read_text())["pid"] == os.getpid()


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"pid": "x"}', "\0" * 5000])
def test_a_holder_that_has_not_said_who_it_is_is_called_so(path: Path, content: str) -> None:
    told: list[Holder] = []
    with HostLock(path).acquire():
        path.write_text(content)
        with pytest.raises(HostError, match="another process that has not said who it is"):
            HostLock(path).acquire(0, told.append)

    assert told == [Holder()]


def test_what_others_wrote_cannot_drive_the_terminal(path: Path) -> None:
    values = {"pid": 1, "user": "eve\x1b[2J", "host": "h" * 999, "since": "s\n", "what": 7}
    with HostLock(path).acquire():
        path.write_text(json.dumps(values))
        holder = HostLock(path).try_acquire()

    assert holder == Holder(pid=1, user="eve[2J", host="h" * 200, since="s", what=None)


def test_a_user_without_a_name_is_a_number(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)
    with HostLock(path).acquire():
        assert json.loads(path.read_text())["user"] == str(os.getuid())


def test_one_that_is_held_already_is_not_taken_twice(path: Path) -> None:
    with HostLock(path).acquire() as held, pytest.raises(HostError, match="already holds"):
        held.acquire(60)
