"""The lab file as a validated value: `load_lab` reads it, or names every fault in it at once."""

import difflib
import os
import re
from collections.abc import Callable
from collections.abc import Mapping as AnyMapping
from pathlib import Path
from typing import TypeVar

from schema.lab_host import Lab, LabHost, Launcher, SettingCommands
from schema.lab_windows import Window, check_zone, parse_window
from schema.problem import raise_problems, show
from schema.sweep_reader import Reader, kind
from schema.sweep_values import BadValueError, formed, plain_switch, plain_text, whole_number
from schema.text_file import read_text
from schema.yaml_file import Entry, Mapping, Scalar, parse_yaml

T = TypeVar("T")

FILE_NAME = "lab.yaml"
MAX_HOSTS = 1000
MAX_WORDS = 64
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"
LABEL = r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,62}[A-Za-z0-9])?"
SETTING = r"[a-z][a-z0-9_]{0,62}"
SHELLS = ("ssh", "autossh")
"""Programs that hand what they are to run to a shell at the other end, as one text."""

LAUNCHER_KEYS = ("via", "home", "shell")
LEVELS = {
    "": ("hosts", "limits", "zone"),
    "host": ("launcher", *LAUNCHER_KEYS, "python", "windows", "zone", "group", "models", "labels", "host_settings"),
    "setting": ("set", "get"),
}
"""Level -> the keys that it may hold."""

_MEANT = {
    "host": "hosts",
    "machines": "hosts",
    "timezone": "zone",
    "tz": "zone",
    "window": "windows",
    "groups": "group",
    "settings": "host_settings",
    "label": "labels",
    "through": "via",
    "interpreter": "python",
    "limit": "limits",
}


class LabReader(Reader):
    """Reads a lab's keys as `Reader` does a sweep's."""

    def check_keys(self, mapping: Mapping, level: str, prefix: str) -> None:
        """Note every key that `level` does not have; at the top, keys that start with `x-` or `.` are free."""
        known = LEVELS[level]
        for entry in mapping.entries:
            if entry.key in known or (not level and entry.key.startswith(("x-", "."))):
                continue
            word = _MEANT.get(entry.key.lower(), entry.key.lower())
            near = difflib.get_close_matches(word[:40], known, n=1, cutoff=0.6)
            hint = f"the nearest is `{near[0]}`" if near else f"known here: {', '.join(known)}"
            self.fault(entry.line, prefix + entry.key, f"unknown key {entry.key!r:.60}; {hint}.")

    def words(self, entry: Entry | None, key: str) -> tuple[str, ...]:
        """Return a command, word by word; the same word may come again."""
        if entry is None:
            return ()
        items = self.items(entry, key)
        if len(items) > MAX_WORDS:
            self.fault(entry.line, key, f"the command has {len(items)} words; write at most {MAX_WORDS}.")
        found: list[str | None] = []
        for item in items[:MAX_WORDS]:
            if isinstance(item, Scalar):
                found.append(self.attempt(item, key, lambda scalar: plain_text(scalar, 4096)))
            else:
                self.fault(item.line, key, f"{kind(item)} stands where a word of a command belongs.")
        return tuple(word for word in found if word)

    def named(self, entry: Entry | None, key: str, read: Callable[[Entry], T | None], most: int) -> dict[str, T]:
        """Return what `read` makes of each entry of a mapping, by its key; None is left out."""
        if entry is None:
            return {}
        if not isinstance(entry.value, Mapping):
            self.fault(entry.line, key, f"{kind(entry.value)} stands where names belong; write `{key}: {{NAME: …}}`.")
            return {}
        entries = entry.value.entries
        if len(entries) > most:
            self.fault(entry.line, key, f"there are {len(entries)} names; write at most {most}.")
        found = {each.key: read(each) for each in entries[:most]}
        return {name: value for name, value in found.items() if value is not None}


def lab_path(home: Path, environ: AnyMapping[str, str] = os.environ) -> Path | None:
    """Return the lab's file: TOKFLEET_LAB, else lab.yaml in `home`; None where neither is there."""
    chosen = environ.get("TOKFLEET_LAB")
    if chosen:
        return Path(chosen).expanduser()
    path = home / FILE_NAME
    return path if path.is_file() else None


def load_lab(path: Path | None) -> Lab:
    """Return the lab in the file, an empty one without; SweepError holds every fault, as `FILE:LINE: key: what`."""
    return Lab() if path is None else parse_lab(read_text(path, "lab"), str(path))


def parse_lab(text: str, filename: str) -> Lab:
    """Return the lab that `text` describes; `filename` stands in messages."""
    root, problems = parse_yaml(text, filename, "lab", ("hosts", "limits"))
    reader = LabReader(problems)
    reader.check_keys(root, "", "")
    zone = reader.one(root.get("zone"), _zone)
    hosts = reader.named(root.get("hosts"), "hosts", lambda entry: _host(reader, entry, zone), MAX_HOSTS)
    limits = reader.named(root.get("limits"), "limits", lambda entry: _limit(reader, entry), MAX_HOSTS)
    _check_groups(reader, root.get("limits"), hosts)
    _check_vias(reader, root.get("hosts"), hosts)
    raise_problems(filename, problems)
    return Lab(hosts=hosts, limits=limits)


def _host(reader: LabReader, entry: Entry, zone: str | None) -> LabHost | None:
    key = f"hosts.{entry.key}"
    _check_name(reader, entry, NAME, key, "a host")
    if isinstance(entry.value, Scalar) and entry.value.is_null:
        return LabHost(name=entry.key)
    if not isinstance(entry.value, Mapping):
        reader.fault(entry.line, key, f"{kind(entry.value)} stands where a host's keys belong; write `python: …`.")
        return None
    found = entry.value
    reader.check_keys(found, "host", f"{key}.")
    own = reader.one(found.get("zone"), _zone, f"{key}.") or zone
    windows = reader.list_of(found.get("windows"), f"{key}.windows", _window)
    if windows and own is None and found.get("zone") is None:
        text = "needs the zone of its times; write `zone: Europe/Berlin` here, or at the top for all hosts."
        reader.fault(_line(found, "windows"), f"{key}.windows", text)
    python = reader.one(found.get("python"), lambda scalar: plain_text(scalar, 4096), f"{key}.")
    launcher = _launcher(reader, entry.key, found, python, key)
    return LabHost(
        name=entry.key,
        launcher=launcher,
        python=None if launcher else python,
        windows=windows,
        zone=own or "UTC",
        groups=reader.list_of(found.get("group"), f"{key}.group", lambda scalar: formed(scalar, NAME, "circuit-a")),
        models=reader.list_of(found.get("models"), f"{key}.models", _folder),
        labels=_labels(reader, found.get("labels"), f"{key}.labels"),
        host_settings=_settings(reader, found.get("host_settings"), f"{key}.host_settings"),
    )


def _launcher(reader: LabReader, host: str, found: Mapping, python: str | None, key: str) -> Launcher | None:
    entry = found.get("launcher")
    if entry is None:
        for name in LAUNCHER_KEYS:
            if found.get(name) is not None:
                text = "has no meaning without `launcher`; write `launcher: [ssh, NAME]` too."
                reader.fault(_line(found, name), f"{key}.{name}", text)
        return None
    command = reader.words(entry, f"{key}.launcher")
    via = reader.one(found.get("via"), lambda scalar: formed(scalar, NAME, "boxa"), f"{key}.")
    if found.get("via") is None:
        reader.fault(entry.line, f"{key}.launcher", "needs `via`, the name of the host with Ray that starts it.")
    home = reader.one(found.get("home"), _folder, f"{key}.")
    shell = reader.one(found.get("shell"), plain_switch, f"{key}.")
    if not command or not via:
        return None
    has_shell = shell == "on" if shell else Path(command[0]).name in SHELLS
    return Launcher(host=host, command=command, via=via, python=python or "python3", shell=has_shell, home=home)


def _settings(reader: LabReader, entry: Entry | None, key: str) -> dict[str, SettingCommands]:
    return reader.named(entry, key, lambda each: _commands(reader, each, f"{key}.{each.key}"), 100)


def _commands(reader: LabReader, entry: Entry, key: str) -> SettingCommands | None:
    _check_name(reader, entry, SETTING, key, "a setting, such as gpu_power_w")
    if not isinstance(entry.value, Mapping):
        form = 'write `{set: [COMMAND, "{value}"], get: [COMMAND]}`'
        reader.fault(entry.line, key, f"{kind(entry.value)} stands where commands belong; {form}.")
        return None
    reader.check_keys(entry.value, "setting", f"{key}.")
    setter, getter = (reader.words(entry.value.get(name), f"{key}.{name}") for name in ("set", "get"))
    for name, words in (("set", setter), ("get", getter)):
        if not words and entry.value.get(name) is None:
            reader.fault(entry.line, key, f"needs `{name}`, since what is changed must be read back and put back.")
    if setter and not any("{value}" in word for word in setter[1:]):
        reader.fault(
            _line(entry.value, "set"), f"{key}.set", 'must hold "{value}" in one of the words after the first.'
        )
    return SettingCommands(set=setter, get=getter) if setter and getter else None


def _labels(reader: LabReader, entry: Entry | None, key: str) -> dict[str, str]:
    def read(each: Entry) -> str | None:
        _check_name(reader, each, LABEL, f"{key}.{each.key}", "a label, such as room")
        return reader.one(each, lambda scalar: formed(scalar, LABEL, "cellar"), f"{key}.")

    return reader.named(entry, key, read, 100)


def _limit(reader: LabReader, entry: Entry) -> int | None:
    return reader.one(entry, lambda scalar: int(whole_number(scalar, 1, MAX_HOSTS)), "limits.")


def _check_groups(reader: LabReader, entry: Entry | None, hosts: dict[str, LabHost]) -> None:
    groups = {group for host in hosts.values() for group in host.groups}
    if entry is None or not isinstance(entry.value, Mapping):
        return
    for each in entry.value.entries:
        if each.key not in groups:
            near = difflib.get_close_matches(each.key, groups, n=1)
            hint = f"the nearest is `{near[0]}`" if near else f"write `group: {each.key}` at its hosts"
            reader.fault(each.line, f"limits.{each.key}", f"no host is of this group; {hint}.")


def _check_vias(reader: LabReader, entry: Entry | None, hosts: dict[str, LabHost]) -> None:
    if entry is None or not isinstance(entry.value, Mapping):
        return
    for each in entry.value.entries:
        host = hosts.get(each.key)
        via = host.launcher.via if host and host.launcher else None
        if via and (via == each.key or (via in hosts and hosts[via].launcher is not None)):
            text = f"{via} has a launcher itself; name a host with Ray."
            reader.fault(each.line, f"hosts.{each.key}.via", text)


def _check_name(reader: LabReader, entry: Entry, pattern: str, key: str, what: str) -> None:
    if not re.fullmatch(pattern, entry.key):
        reader.fault(entry.line, key, f"{show(entry.key)} cannot name {what}.")


def _line(mapping: Mapping, key: str) -> int:
    entry = mapping.get(key)
    return entry.line if entry else mapping.line


def _zone(scalar: Scalar) -> str:
    try:
        return check_zone(plain_text(scalar, 100))
    except ValueError as error:
        raise BadValueError(str(error)) from None


def _window(scalar: Scalar) -> Window:
    try:
        return parse_window(plain_text(scalar, 100))
    except ValueError as error:
        raise BadValueError(str(error)) from None


def _folder(scalar: Scalar) -> str:
    path = plain_text(scalar, 4096)
    if not path.startswith(("/", "~")):
        raise BadValueError(f"{show(path)} is relative; write a whole path, such as /srv/models or ~/models.")
    return path
