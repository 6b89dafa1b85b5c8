"""The commands that a host's admin installed for a setting: run without a shell, as written, for a bounded time."""

import contextlib
import os
import re
import signal
import subprocess

from schema.errors import HostError
from schema.lab_host import SettingCommands
from schema.problem import show

SECONDS = 10.0
MAX_TOLD = 200
VALUE = "{value}"

_NUMBER = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)(?: ?[A-Za-z%]+)?")


def read(name: str, commands: SettingCommands) -> str:
    """Return what the setting is now: what `get` prints, on one line, a number without its unit; HostError if it fails.

    Lines that are all the same, as of several GPUs, count once.
    """
    lines = dict.fromkeys(" ".join(line.split()) for line in _run(name, commands.get).splitlines() if line.strip())
    told = " ".join(lines)
    if not told or len(told) > MAX_TOLD or not told.isprintable():
        raise HostError(f"The command that reads {name} ({commands.get[0]}) printed {show(told)}, which is no value.")
    number = _NUMBER.fullmatch(told)
    return number[1] if number else told


def write(name: str, commands: SettingCommands, value: str) -> None:
    """Set it to `value`; HostError with the reason that the command gave where it fails or takes too long."""
    _run(name, tuple(word.replace(VALUE, value) for word in commands.set))


def same(one: str, other: str) -> bool:
    """Return whether both mean one value: as text, or as numbers, whose units are left aside."""
    numbers = _NUMBER.fullmatch(one), _NUMBER.fullmatch(other)
    if numbers[0] and numbers[1]:
        return float(numbers[0][1]) == float(numbers[1][1])
    return one == other


def _run(name: str, words: tuple[str, ...]) -> str:
    """Return what the command printed; it and all it started are ended when its time is up."""
    try:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise HostError(f"The command for {name} ({words[0]}) cannot be started: {reason}.") from error
    with process:
        try:
            out, err = process.communicate(timeout=SECONDS)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise HostError(f"The command for {name} ({words[0]}) did not end within {SECONDS:g} s.") from error
    if process.returncode != 0:
        said = (err.strip().splitlines() or out.strip().splitlines() or ["it said nothing"])[-1]
        raise HostError(
            f"The command for {name} ({words[0]}) failed with exit code {process.returncode}: {show(said)}."
        )
    return out
