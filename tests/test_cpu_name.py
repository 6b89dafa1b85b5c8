import csv

import pytest

from schema.cpu_name import cpu_key, is_shared_name, same_cpu
from tests.shared import CASES, needs_cases


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz", "Intel Core i7-9750H"),
        ("AMD Ryzen 5 PRO 6650U with Radeon Graphics", "AMD Ryzen 5 PRO 6650U"),
        ("AMD Ryzen 9 5900X 12-Core Processor            ", "Ryzen 9 5900X"),
        ("12th Gen Intel(R) Core(TM) i5-12400", "Intel(R) Core(TM) i5-12400"),
        ("AMD RYZEN AI MAX+ 395 w/ Radeon 8060S", "AMD Ryzen AI Max+ 395"),
    ],
)
def test_names_of_one_processor_are_the_same(one: str, other: str) -> None:
    assert same_cpu(one, other) is True


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Intel(R) Core(TM) i7-8700 CPU @ 3.20GHz", "Intel(R) Core(TM) i7-8700K CPU @ 3.70GHz"),
        ("AMD Ryzen 7 5800X 8-Core Processor", "AMD Ryzen 7 5800X3D 8-Core Processor"),
        ("Intel(R) Core(TM) i5-1235U", "Intel(R) Core(TM) i5-12350"),
        ("Apple M1", "Apple M1 Pro"),
        ("Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel(R) Xeon(R) CPU @ 2.80GHz"),
        ("AMD EPYC 7543", "AMD EPYC 7543P"),
    ],
)
def test_names_of_unlike_processors_are_not(one: str, other: str) -> None:
    assert same_cpu(one, other) is False


@pytest.mark.parametrize("name", ["", "Intel(R)", "CPU", "Unknown", "AMD", "0000", "-", "Virtual", None, "(R) CPU"])
def test_what_any_machine_could_be_called_is_no_name(name: str | None) -> None:
    assert cpu_key(name) is None
    assert is_shared_name(name)
    assert same_cpu(name, name) is None


@pytest.mark.parametrize(
    "name",
    [
        *("QEMU Virtual CPU version 2.5+", "Common KVM processor", "Intel Core Processor (Skylake, IBRS)"),
        *("Intel Xeon Processor (SapphireRapids)", "AMD EPYC-Rome Processor", "AMD EPYC Processor (with IBPB)"),
        *("Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel Xeon E312xx (Sandy Bridge, IBRS update)", "AMD EPYC"),
        "VirtualApple @ 2.50GHz",
    ],
)
def test_a_hypervisors_name_means_little(name: str) -> None:
    assert is_shared_name(name)
    assert same_cpu(name, name) is None


@pytest.mark.parametrize(
    "name", ["Neoverse-N1", "AMD EPYC 7543 32-Core Processor", "Apple M2", "POWER9, altivec supported"]
)
def test_a_models_name_means_that_model(name: str) -> None:
    assert not is_shared_name(name)


@needs_cases
def test_the_collected_pairs_of_names_come_out_as_told() -> None:
    meant = {"yes": True, "no": False, "unsure": None}
    with (CASES / "G4/pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))

    assert [(row["a"], row["b"], same_cpu(row["a"], row["b"])) for row in rows] == [
        (row["a"], row["b"], meant[row["same"]]) for row in rows
    ]


@needs_cases
def test_no_collected_name_of_a_virtual_machine_makes_two_hosts_equal() -> None:
    names = (CASES / "G5/names.txt").read_text().splitlines()

    assert [name for name in names if same_cpu(name, name) is not None] == []
