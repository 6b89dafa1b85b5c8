"""What a host is set to for a measurement is read back, recorded, and put back on every kind of exit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from schema.errors import HostError
from schema.host import Fingerprint
from schema.job import ModelRef
from schema.lab_host import SettingCommands
from schema.record import Effective
from schema.settings import Settings
from tests.supervised import DECODE, PREFILL, group_of, records
from worker import setting_command
from worker.host_settings import FILE_NAME, applied, put_back
from worker.supervisor import Supervisor
from worker.variables import REPOSITORY

SETTER = """#!/bin/sh
echo "set $1" >> "{log}"
echo "$1" > "{file}"
"""


class Knob:
    """Something of a host that can be set: a file, and the commands of its admin."""

    def __init__(self, directory: Path, value: str = "350") -> None:
        self.file, self.log = directory / "knob", directory / "knob.log"
        self.file.write_text(f"{value}\n")
        self.log.touch()
        setter = directory / "set-knob"
        setter.write_text(SETTER.format(file=self.file, log=self.log))
        setter.chmod(0o755)
        self.commands = SettingCommands(set=(str(setter), "{value}"), get=("cat", str(self.file)))

    @property
    def value(self) -> str:
        return self.file.read_text().strip()

    def comes_back_to(self, value: str, seconds: float = 30.0) -> bool:
        deadline = time.monotonic() + seconds
        while self.value != value and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.value == value


@pytest.fixture
def knob(tmp_path: Path) -> Knob:
    return Knob(tmp_path)


def test_a_host_is_set_for_the_length_of_the_block_and_put_back(knob: Knob, tmp_path: Path) -> None:
    with applied({"power": "250"}, {"power": knob.commands}, tmp_path / "home") as in_force:
        assert in_force == "power=250"
        assert knob.value == "250"
        note = json.loads((tmp_path / "home" / FILE_NAME).read_text())
        assert [(each["name"], each["value"]) for each in note] == [("power", "350")]
    assert knob.value == "350"
    assert not (tmp_path / "home" / FILE_NAME).exists()


def test_where_nothing_is_asked_nothing_is_touched(knob: Knob, tmp_path: Path) -> None:
    with applied({}, {"power": knob.commands}, tmp_path / "home") as in_force:
        assert in_force is None
    assert knob.log.read_text() == ""
    assert not (tmp_path / "home").exists()


def test_an_error_in_the_block_puts_back_too(knob: Knob, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), applied({"power": "250"}, {"power": knob.commands}, tmp_path):
        raise ZeroDivisionError
    assert knob.value == "350"


def test_a_setting_without_a_command_changes_nothing(knob: Knob, tmp_path: Path) -> None:
    asked = {"power": "250", "fan": "9"}
    with (
        pytest.raises(HostError, match=r"no command to set fan. Its admin adds one to the lab file"),
        applied(asked, {"power": knob.commands}, tmp_path),
    ):
        pass
    assert knob.log.read_text() == ""


def test_what_is_in_force_is_read_back_and_not_taken_from_what_was_asked(tmp_path: Path) -> None:
    clamped = tmp_path / "clamp"
    clamped.write_text(
        f'#!/bin/sh\n[ "$1" -lt 300 ] && echo "300 W" > {tmp_path}/knob || echo "$1 W" > {tmp_path}/knob\n'
    )
    clamped.chmod(0o755)
    (tmp_path / "knob").write_text("350 W\n")
    commands = SettingCommands(set=(str(clamped), "{value}"), get=("cat", str(tmp_path / "knob")))
    with applied({"power": "250"}, {"power": commands}, tmp_path) as in_force:
        assert in_force == "power=300"
    with applied({"power": "320.0"}, {"power": commands}, tmp_path) as in_force:
        assert in_force == "power=320.0"
    assert (tmp_path / "knob").read_text() == "350 W\n"


def test_what_would_not_go_back_is_an_error_and_is_noted_still(knob: Knob, tmp_path: Path, monkeypatch: object) -> None:
    with (
        pytest.raises(HostError, match=r"power could not be put back to 350: .*'250'.*look at the host"),
        applied({"power": "250"}, {"power": knob.commands}, tmp_path),
    ):
        Path(knob.commands.set[0]).write_text("#!/bin/sh\nexit 0\n")
    assert (tmp_path / FILE_NAME).exists()
    Path(knob.commands.set[0]).write_text(SETTER.format(file=knob.file, log=knob.log))
    assert knob.comes_back_to("350"), "the guard tries on"


HOLD = """
import sys, time
from pathlib import Path
from schema.lab_host import SettingCommands
from worker.host_settings import applied
setter, file, home = sys.argv[1:]
commands = SettingCommands(set=(setter, "{value}"), get=("cat", file))
with applied({"power": "250"}, {"power": commands}, Path(home)):
    print("set", flush=True)
    time.sleep(3600)
"""


def holding(knob: Knob, home: Path) -> "subprocess.Popen[bytes]":
    """Start a process that holds the knob at 250, in a session of its own, and wait until it does."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, knob.commands.set[0], str(knob.file), str(home)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"set\n"
    process.stdout.close()
    return process


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_that_is_killed_leaves_a_guard_that_puts_back(
    knob: Knob, tmp_path: Path, number: signal.Signals
) -> None:
    process = holding(knob, tmp_path)
    assert knob.value == "250"
    os.killpg(process.pid, number)
    process.wait()
    assert knob.comes_back_to("350")


def guard_of(note: Path) -> int:
    """Return the process id of the guard of `note`."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"worker.guard" in words and os.fsencode(note) in words:
                return int(entry.name)
    raise AssertionError("there is no guard")


def test_a_guard_that_is_asked_to_end_puts_back_first(knob: Knob, tmp_path: Path) -> None:
    process = holding(knob, tmp_path)
    os.kill(guard_of(tmp_path / FILE_NAME), signal.SIGTERM)
    assert knob.comes_back_to("350")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_the_guard_is_nobodys_child_and_in_a_session_of_its_own(knob: Knob, tmp_path: Path) -> None:
    with applied({"power": "250"}, {"power": knob.commands}, tmp_path):
        pid = guard_of(tmp_path / FILE_NAME)
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        assert int(fields[1]) != os.getpid()
        assert int(fields[3]) != os.getsid(0)


def test_where_the_guard_was_killed_too_the_next_measurement_puts_back(knob: Knob, tmp_path: Path) -> None:
    process = holding(knob, tmp_path)
    os.kill(guard_of(tmp_path / FILE_NAME), signal.SIGKILL)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert knob.value == "250"
    with applied({}, {}, tmp_path):
        assert knob.value == "350"
    put_back(tmp_path)
    assert knob.log.read_text().split("\n")[:-1] == ["set 250", "set 350"]


def test_a_note_that_is_half_written_or_of_something_else_is_no_note(tmp_path: Path) -> None:
    for text in ("", "[", '[{"name": "x"}]', '{"a": 1}', "[3]"):
        (tmp_path / FILE_NAME).write_text(text)
        put_back(tmp_path)
        assert not (tmp_path / FILE_NAME).exists()


def test_without_a_guard_nothing_is_set(knob: Knob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        pytest.raises(HostError, match="did not start; nothing was set"),
        applied({"power": "250"}, {"power": knob.commands}, tmp_path),
    ):
        pass
    assert knob.log.read_text() == ""
    assert not (tmp_path / FILE_NAME).exists()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("/nonexistent/tool",), "cannot be started: No such file or directory"),
        (("sh", "-c", "echo no permission >&2; exit 4"), "failed with exit code 4: 'no permission'"),
        (("sh", "-c", "sleep 60 & sleep 60"), "did not end within 0.5 s"),
        (("true",), "printed '', which is no value"),
        (("printf", "\\033[31mred"), "which is no value"),
    ],
)
def test_a_command_that_fails_says_why_and_takes_a_bounded_time(
    words: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setting_command, "SECONDS", 0.5)
    begun = time.monotonic()
    with pytest.raises(HostError) as caught:
        setting_command.read("power", SettingCommands(set=("a", "{value}"), get=words))
    assert reason in str(caught.value)
    assert time.monotonic() - begun < 20


def test_values_are_one_as_numbers_with_or_without_a_unit() -> None:
    assert setting_command.same("250", "250.00 W")
    assert not setting_command.same("250", "251")
    assert not setting_command.same("250", "250 W and more")
    assert setting_command.same("auto", "auto")


def test_several_gpus_with_one_value_have_that_value(tmp_path: Path) -> None:
    (tmp_path / "two").write_text("350.00 W\n350.00 W\n")
    commands = SettingCommands(set=("a", "{value}"), get=("cat", str(tmp_path / "two")))
    assert setting_command.read("power", commands) == "350.00"


def supervised(
    model: ModelRef, fingerprint: Fingerprint, home: Path, python: str, knob: Knob, value: str
) -> list[dict[str, object]]:
    group = group_of(model, PREFILL, DECODE, settings=Settings(host_settings=f"power={value}"))
    supervisor = Supervisor(
        group=group, fingerprint=fingerprint, home=home, python=python, commands={"power": knob.commands}
    )
    return list(supervisor.run())


def test_each_attempt_tells_what_was_asked_and_what_was_in_force(
    model: ModelRef, fingerprint: Fingerprint, standin_python: str, knob: Knob, tmp_path: Path
) -> None:
    found = records(supervised(model, fingerprint, tmp_path / "home", standin_python, knob, "250"))
    assert [record.status for record in found] == ["measured", "measured"]
    assert {record.in_effect["host_settings"] for record in found} == {Effective(value="power=250", source="command")}
    assert {record.resolved["host_settings"] for record in found} == {"power=250"}
    assert knob.log.read_text() == "set 250\nset 350\n"


def test_a_measuring_process_that_dies_does_not_leave_the_host_changed(
    model: ModelRef,
    fingerprint: Fingerprint,
    standin_python: str,
    knob: Knob,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOKFLEET_FAULT", "abort@decode")
    found = records(supervised(model, fingerprint, tmp_path / "home", standin_python, knob, "250"))
    assert [record.status for record in found] == ["measured", "failed"]
    assert found[1].in_effect["host_settings"].value == "power=250"
    assert knob.value == "350"


def test_a_host_that_cannot_be_set_fails_the_jobs_with_the_reason(
    model: ModelRef, fingerprint: Fingerprint, standin_python: str, tmp_path: Path
) -> None:
    group = group_of(model, PREFILL, DECODE, settings=Settings(host_settings="power=250"))
    events = list(Supervisor(group=group, fingerprint=fingerprint, home=tmp_path, python=standin_python).run())
    found = records(events)
    assert [record.failure and record.failure.stage for record in found] == ["start", "start"]
    assert found[0].failure is not None
    assert "no command to set power" in found[0].failure.message
