"""A lab file becomes a value, or every fault in it is named at once, with its line and what to write."""

import re
from pathlib import Path

import pytest

from schema.errors import SweepError
from schema.lab import LEVELS, lab_path, load_lab, parse_lab
from schema.lab_host import Lab, LabHost, Launcher, SettingCommands, without_command

ROOT = Path(__file__).parents[1]
MANUAL = (ROOT / "docs" / "lab-file.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", MANUAL, re.DOTALL)
EXAMPLE = ROOT / "examples" / "lab" / "lab.yaml"


def parse(text: str) -> Lab:
    return parse_lab(text, "lab.yaml")


def faults(text: str) -> list[str]:
    with pytest.raises(SweepError) as caught:
        parse(text)
    return list(caught.value.problems)


def test_the_example_is_what_the_manual_says() -> None:
    lab = load_lab(EXAMPLE)
    assert lab.limits == {"circuit-a": 2}
    assert lab.host("boxa").zone == "Europe/Berlin"
    assert lab.host("boxa").groups == ("circuit-a",)
    assert lab.host("boxb").host_settings["gpu_power_w"].set == ("sudo", "-n", "nvidia-smi", "-pl", "{value}")
    assert lab.launchers == {
        "mac": Launcher(
            host="mac",
            command=("ssh", "-o", "BatchMode=yes", "mac"),
            via="boxa",
            python="~/tokfleet/bin/python3",
            shell=True,
        )
    }


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_of_the_manual_loads(block: str) -> None:
    assert parse(block).hosts


def test_the_manual_names_every_key() -> None:
    assert [key for level in LEVELS.values() for key in level if f"`{key}`" not in MANUAL] == []


def test_a_host_without_an_entry_has_one_that_says_nothing() -> None:
    assert parse("hosts: {boxa: }").host("boxz") == LabHost(name="boxz")
    assert parse("hosts: {boxa: }").host("boxa") == LabHost(name="boxa")


def test_a_word_of_a_command_may_come_twice_and_ssh_has_a_shell_behind_it() -> None:
    text = "hosts: {mac: {launcher: [/usr/bin/ssh, -o, A=1, -o, B=2, mac], via: boxa}}"
    launcher = parse(text).launchers["mac"]
    assert launcher.command == ("/usr/bin/ssh", "-o", "A=1", "-o", "B=2", "mac")
    assert launcher.shell
    assert not parse("hosts: {b: {launcher: [docker, exec, -i, b], via: boxa}}").launchers["b"].shell
    assert parse("hosts: {b: {launcher: [rsh, b], shell: on, via: boxa}}").launchers["b"].shell


def test_all_faults_are_named_at_once_with_file_line_and_nearest_key() -> None:
    text = (
        "hosts:\n"
        "  boxa:\n"
        "    windos: 22:00-07:00\n"
        "    launcher: [ssh, a]\n"
        "  boxb:\n"
        "    windows: 22:00-07:00\n"
        "    via: boxa\n"
        "    host_settings: {gpu_power_w: {set: [nvidia-smi, -pl], get: [a]}, x: {set: [b, '{value}']}}\n"
        "limits: {circuit: 2}\n"
        "zones: Europe/Berlin\n"
    )
    assert faults(text) == [
        "lab.yaml:3: hosts.boxa.windos: unknown key 'windos'; the nearest is `windows`.",
        "lab.yaml:4: hosts.boxa.launcher: needs `via`, the name of the host with Ray that starts it.",
        "lab.yaml:6: hosts.boxb.windows: needs the zone of its times; write `zone: Europe/Berlin` here, or at the top "
        "for all hosts.",
        "lab.yaml:7: hosts.boxb.via: has no meaning without `launcher`; write `launcher: [ssh, NAME]` too.",
        'lab.yaml:8: hosts.boxb.host_settings.gpu_power_w.set: must hold "{value}" in one of the words after the '
        "first.",
        "lab.yaml:8: hosts.boxb.host_settings.x: needs `get`, since what is changed must be read back and put back.",
        "lab.yaml:9: limits.circuit: no host is of this group; write `group: circuit` at its hosts.",
        "lab.yaml:10: zones: unknown key 'zones'; the nearest is `zone`.",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the file is empty; a lab needs `hosts:` at least."),
        ("- boxa", "the file is a list; a lab is made of keys such as `hosts:` and `limits:`."),
        ("hosts: {a: {zone: Mars/Olympus}}", "'Mars/Olympus' is no time zone that this machine knows"),
        ("hosts: [boxa]", "a list stands where names belong; write `hosts: {NAME: …}`."),
        ("hosts: {'box a': }", "'box a' cannot name a host."),
        ("hosts: {a: 3}", "the text '3' stands where a host's keys belong"),
        ("hosts: {a: }\nhosts: {b: }", "this key stands twice, first in line 1"),
        ("hosts: {a: {labels: {room: 'a b'}}}", "'a b' is not understood; write it like cellar."),
        ("hosts: {a: {models: models}}", "'models' is relative; write a whole path"),
        ("hosts: {a: {group: g}}\nlimits: {g: 0}", "0 is out of range; write a whole number from 1"),
        ("hosts: {a: {launcher: [ssh, a], via: a}}", "a has a launcher itself; name a host with Ray."),
        ("hosts: {a: {host_settings: {Gpu: {set: [a, '{value}'], get: [b]}}}}", "'Gpu' cannot name a setting"),
        ("hosts: {a: {host_settings: {gpu: [nvidia-smi]}}}", "a list stands where commands belong"),
        ('zone: UTC\nhosts: {a: {windows: ["9-17"]}}', "'9' is no time of the day"),
    ],
)
def test_what_is_no_lab_is_answered_with_what_to_write(text: str, words: str) -> None:
    assert words in "\n".join(faults(text))


def test_a_group_is_full_when_so_many_others_of_it_measure() -> None:
    lab = parse("hosts: {a: {group: g}, b: {group: [g, h]}, c: {group: g}, d: }\nlimits: {g: 2}")
    assert lab.full("a", ["b"]) is None
    assert lab.full("a", ["b", "d"]) is None
    assert lab.full("a", ["b", "c"]) == "g"
    assert lab.full("a", ["a", "b"]) is None
    assert lab.full("d", ["a", "b", "c"]) is None


def test_settings_without_a_command_are_named() -> None:
    boxb = LabHost(name="boxb", host_settings={"gpu_power_w": SettingCommands(set=("a", "{value}"), get=("b",))})
    assert without_command(boxb, {"gpu_power_w": "250", "cpu_power_w": "90"}) == ("cpu_power_w",)


def test_the_file_is_named_by_a_variable_or_lies_in_the_home(tmp_path: Path) -> None:
    assert lab_path(tmp_path, {}) is None
    assert load_lab(None) == Lab()
    (tmp_path / "lab.yaml").write_text("hosts: {a: }\n")
    assert lab_path(tmp_path, {}) == tmp_path / "lab.yaml"
    assert lab_path(tmp_path, {"TOKFLEET_LAB": "/etc/lab.yaml"}) == Path("/etc/lab.yaml")
    with pytest.raises(SweepError, match="there is no such file"):
        load_lab(Path("/nonexistent/lab.yaml"))
