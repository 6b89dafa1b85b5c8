"""What the host's admin lets be set for a measurement: set, read back, and put back however the measurement ends.

Before anything is changed, what was in force is noted on the disk, and a process of its own waits to put it back: the
guard, which outlives the child, the worker and the raylet (`worker.guard`). Where that is killed too, whoever
measures here next puts back what the note says.
"""

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from schema.canonical import decode
from schema.errors import HostError
from schema.lab_host import SettingCommands
from schema.problem import show
from worker import setting_command
from worker.home import make_writable

FILE_NAME = "host-settings.json"
GUARD_SECONDS = 30.0
TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """One setting as it was before: its commands, and the value to put back."""

    name: str
    commands: SettingCommands
    value: str


@contextlib.contextmanager
def applied(asked: Mapping[str, str], commands: Mapping[str, SettingCommands], home: Path) -> Iterator[str | None]:
    """Set this host to `asked` for the length of the block; gives what is then in force, None where nothing was asked.

    The text has the form of `Settings.host_settings`. What an earlier measurement left changed is put back first.
    Raises HostError where there is no command or one fails, and after the block where something would not go back.
    """
    put_back(home)
    if not asked:
        yield None
        return
    for name in asked:
        if name not in commands:
            raise HostError(
                f"This host has no command to set {name}. Its admin adds one to the lab file, under host_settings."
            )
    from worker.guard import guarding

    kept = tuple(
        Kept(name=name, commands=commands[name], value=setting_command.read(name, commands[name])) for name in asked
    )
    path = _note(kept, home)
    failed: list[str] = []
    with guarding(path) as release:
        try:
            for each in kept:
                setting_command.write(each.name, each.commands, asked[each.name])
            yield " ".join(f"{each.name}={_in_force(each, asked[each.name])}" for each in kept)
        finally:
            failed = restore(path)
            if not failed:
                release()
    if failed:
        raise HostError(f"{' '.join(failed)} It is tried again for a while; look at the host before it is used.")


def put_back(home: Path) -> None:
    """Put back what a measurement that was killed has left changed, if any; HostError where that fails.

    Waits for a guard that is at it. For whoever holds the host's lock.
    """
    path = home / FILE_NAME
    if not path.exists():
        return
    from worker.guard import is_guarded

    deadline = time.monotonic() + GUARD_SECONDS
    while is_guarded(path) and time.monotonic() < deadline:
        time.sleep(0.1)
    failed = restore(path)
    if failed:
        raise HostError(f"{' '.join(failed)} A measurement that was killed had changed it; set it by hand.")


def restore(path: Path) -> list[str]:
    """Put back what the note at `path` says and remove it; returns a sentence for each setting that would not go."""
    found = ((kept, _restored(kept)) for kept in reversed(read_note(path)))
    failed = [
        f"{kept.name} could not be put back to {kept.value}: {reason}" for kept, reason in found if reason is not None
    ]
    if not failed:
        path.unlink(missing_ok=True)
    return failed


def read_note(path: Path) -> tuple[Kept, ...]:
    """Return what the note at `path` says was in force; nothing where it is gone or no note."""
    try:
        return tuple(decode(Kept, item) for item in json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return ()


def _restored(kept: Kept) -> str | None:
    """Put one setting back, trying a few times; returns why it would not go, None where it did."""
    reason = ""
    for _ in range(TRIES):
        try:
            setting_command.write(kept.name, kept.commands, kept.value)
            now = setting_command.read(kept.name, kept.commands)
        except HostError as error:
            reason = str(error)
            continue
        if setting_command.same(now, kept.value):
            return None
        reason = f"the command that reads it says {show(now)}."
    return reason


def _in_force(kept: Kept, asked: str) -> str:
    """Return what the setting is now, in the words that it was asked for where that is the same value."""
    told = setting_command.read(kept.name, kept.commands)
    return asked if setting_command.same(told, asked) else "_".join(told.split())


def _note(kept: tuple[Kept, ...], home: Path) -> Path:
    """Write down what is in force, safe on the disk before anything changes."""
    path = make_writable(home) / FILE_NAME
    beside = path.with_suffix(".tmp")
    try:
        with beside.open("w", encoding="utf-8") as file:
            json.dump([asdict(each) for each in kept], file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise HostError(f"{path} cannot be written: {error.strerror}, so nothing was set on this host.") from error
    return path
