"""Recorded machines that lscpu and lstopo described too; the whole of them is `benchmarks/fingerprint_dumps.py`'s."""

import pytest

from benchmarks.recorded_machine import Machine, read
from benchmarks.topology_columns import ours, wrong
from tests.shared import unpacked

MACHINES = (
    *("ul-arm-A510-A710-A715-X3", "ul-ppc64-POWER7", "ul-rv64-visionfive2", "ul-s390-lpar-drawer", "ul-vbox-win"),
    *("ul-x86_64-64cpu-linux6.2", "ul-loongarch-loongson_3a5000_hv", "hl-2arm-2c", "hl-8ia64-2s2c2t"),
    *("hl-16em64t-4s2c2t-offlines", "hl-8em64t-2s2ca2c-buggynuma", "hl-8em64t-2s4c-asymcaches"),
    *("hl-32amd64-4s2n4c-cgroup2", "hl-fakeheteromemtiers", "hl-fakememinitiators-1np2c+1npp+gi"),
    *("as-darwin-monterey-m1", "tg-gpu-a10g"),
)


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> list[Machine]:
    wanted = [f"*{name}/{part}/*" for name in MACHINES for part in ("proc", "sys", "cmd", "run")]
    wanted += [f"*{name}/EXPECTED*" for name in MACHINES]
    # Not every machine has every part.
    target = unpacked(tmp_path_factory.mktemp("machines"), *wanted, check=False)
    found = [read(place, tmp_path_factory.mktemp("home")) for place in sorted(target.iterdir())]
    assert {machine.name for machine in found} == set(MACHINES)
    return found


def test_they_are_known_as_lscpu_and_lstopo_know_them(machines: list[Machine]) -> None:
    compared = [(machine, one) for machine in machines for one in machine.known]

    assert len(compared) == 15
    assert {machine.name: bad for machine, one in compared if (bad := wrong(one, ours(machine, one)))} == {}


def test_none_fails_and_each_whose_files_hold_a_name_has_one(machines: list[Machine]) -> None:
    assert [machine.problem for machine in machines if machine.problem] == []
    assert [machine.name for machine in machines if machine.holds_name and not machine.hardware.cpu_name] == []


def test_py_cpuinfos_answers_change_no_value(machines: list[Machine]) -> None:
    assert any(machine.plain for machine in machines)
    assert {machine.name: machine.differences for machine in machines if machine.differences} == {}


def test_core_types_of_recorded_machines_have_their_own_names(machines: list[Machine]) -> None:
    types = {machine.name: machine.hardware.core_types for machine in machines}

    assert [(one.name, one.kind, one.n_cores) for one in types["ul-arm-A510-A710-A715-X3"]] == [
        ("Cortex-A710", "performance", 2),
        ("Cortex-A715", "performance", 2),
        ("Cortex-X3", "performance", 1),
        ("Cortex-A510", "efficiency", 3),
    ]
    assert [(one.name, one.n_cores) for one in types["as-darwin-monterey-m1"]] == [
        ("Apple M1 Pro performance core", 6),
        ("Apple M1 Pro efficiency core", 2),
    ]
