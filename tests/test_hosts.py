"""An entry of `hosts` is taken apart into terms and looked up in what each host says of itself, and in its labels."""

import re
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.hosts import is_laptop, matches, select, why_not
from schema.host import Allocation, Environment, Fingerprint, Gpu, Hardware, State
from schema.host_terms import ISA_WORDS, nearest, parse_host_entry
from worker.fingerprint.cpu import ISA

RTX = Gpu(vendor="NVIDIA", name="NVIDIA GeForce RTX 3090", vram_bytes=24 << 30)
OLD = Gpu(vendor="NVIDIA", name="NVIDIA T400", vram_bytes=4 << 30)


def host(name: str, **facts: Any) -> Fingerprint:
    hardware = Hardware(
        arch="x86_64", cpu_name="AMD EPYC 7763", n_cores_physical=8, n_cores_logical=16, memory_gib=32, isa=("avx2",)
    )
    return Fingerprint(
        host_uid=f"uid-{name}",
        uid_source="test",
        hostname=name,
        taken_at="2026-01-01T00:00:00Z",
        hardware=replace(hardware, **facts),
        allocation=Allocation(),
        environment=Environment(os="Ubuntu 24.04 LTS"),
    )


BOXA = host("boxa", chassis="server")
BOXB = host("boxb", gpus=(OLD, RTX), memory_gib=64, isa=("avx2", "avx512f", "avx512_vnni"), chassis="portable")
ARM = host("pi", arch="aarch64", cpu_name=None, n_cores_physical=None, memory_gib=8, isa=("asimd", "asimddp"))
LABELS = {"uid-boxa": {"rack": "a", "ray.io/x": "1"}, "uid-boxb": {"rack": "b"}}


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        ("boxa", ["boxa"]),
        ("BOXA", []),
        ("box", []),
        ("gpu", ["boxb"]),
        ("cpu", ["boxa", "pi"]),
        ("GPU", ["boxb"]),
        ("not gpu", ["boxa", "pi"]),
        ("not cpu", ["boxb"]),
        ("laptop", ["boxb"]),
        ("not laptop", ["boxa", "pi"]),
        ("Not Laptop ram_gib>=32", ["boxa"]),
        ("not boxa", ["boxb", "pi"]),
        ("not boxa not boxb", ["pi"]),
        ("avx2", ["boxa", "boxb"]),
        ("AVX2", ["boxa", "boxb"]),
        ("avx512", ["boxb"]),
        ("avx-512", ["boxb"]),
        ("avx512f", ["boxb"]),
        ("avx512vnni", ["boxb"]),
        ("vnni", ["boxb"]),
        ("not avx512", ["boxa", "pi"]),
        ("neon", ["pi"]),
        ("dotprod", ["pi"]),
        ("amx", []),
        ("ram_gib>=32", ["boxa", "boxb"]),
        ("ram_gib > 32", ["boxb"]),
        ("ram_gib<32", ["pi"]),
        ("ram_gib<=8", ["pi"]),
        ("ram_gib=32", ["boxa"]),
        ("ram_gib!=32", ["boxb", "pi"]),
        ("not ram_gib=32", ["boxb", "pi"]),
        ("ram_gib>=31.5 ram_gib<=32.5", ["boxa"]),
        ("vram_gib>=24", ["boxb"]),
        ("vram_gib>24", []),
        ("gpus>=2", ["boxb"]),
        ("gpus=0", ["boxa", "pi"]),
        ("cores>=8", ["boxa", "boxb"]),
        ("cores!=8", []),
        ("threads=16", ["boxa", "boxb", "pi"]),
        ("arch=x86_64", ["boxa", "boxb"]),
        ("arch=amd64", ["boxa", "boxb"]),
        ("arch=arm64", ["pi"]),
        ("arch!=arm64", ["boxa", "boxb"]),
        ("arch=x86", []),
        ("os=ubuntu", ["boxa", "boxb", "pi"]),
        ("cpu=epyc", ["boxa", "boxb"]),
        ("cpu!=epyc", []),
        ('cpu="AMD EPYC"', ["boxa", "boxb"]),
        ("cpu='intel'", []),
        ("gpu=3090", ["boxb"]),
        ("gpu!=3090", []),
        ("name=boxa", ["boxa"]),
        ("name!=boxa", ["boxb", "pi"]),
        ("gpu ram_gib>=32 boxb", ["boxb"]),
        ("gpu cpu", []),
        ("rack=b", ["boxb"]),
        ("rack!=b", ["boxa", "pi"]),
        ("not rack=b", ["boxa", "pi"]),
        ("Rack=b", []),
        ("label.rack=a", ["boxa"]),
        ("ray.io/x=1", ["boxa"]),
        ("label.gpu=x", []),
        ("avx512 rack=b not pi", ["boxb"]),
    ],
)
def test_an_entry_means_the_hosts_that_fulfil_all_its_terms(entry: str, names: list[str]) -> None:
    found = [each for each in (BOXA, BOXB, ARM) if matches(entry, each, LABELS.get(each.host_uid, {}))]
    assert [fingerprint.hostname for fingerprint in found] == names


def test_a_fact_that_is_not_known_fulfils_nothing_neither_with_not() -> None:
    unknown = host("dark", cpu_name=None, n_cores_physical=None, isa=(), memory_gib=None)
    for term in ("cores>0", "cores!=4", "cpu=x", "cpu!=x", "vram_gib<1", "gpu!=x", "avx2", "ram_gib>1"):
        assert not matches(term, unknown)
        assert not matches(f"not {term}", unknown)


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("", "the entry is empty"),
        ("ram_gib>=lots", "'lots' is not a number for `ram_gib`"),
        ("ram_gib>=", "has no value"),
        ("ram_gib==32", "'==' is no operator; write one of = != >= <= > <"),
        ("ram_gib=>32", "'=>' is no operator"),
        ("ram_gib~32", "'~' is no operator"),
        ("rma_gib>=32", "'rma_gib' is no number of a host; the nearest is `ram_gib`"),
        ("rma_gib=32", "the nearest is `ram_gib`. A label of this name is written label.rma_gib=32."),
        ("arhc=arm64", "'arhc' is no fact of a host; the nearest is `arch`"),
        ("colour>3", "these are: ram_gib, vram_gib, cores, threads, gpus"),
        ("arch>=x86_64", "is a text and has no order"),
        (">=32", "is not a term"),
        ("gpu & cpu", "is not a term"),
        ("gpu,cpu", "is not a term"),
        ("(gpu)", "is not a term"),
        ("!gpu", "is not a term"),
        ("gpu or cpu", "several entries mean or"),
        ("gpu and cpu", "blanks mean and"),
        ("not", "'not' is the last word"),
        ("gpu not", "'not' is the last word"),
        ("not not gpu", "one `not` stands before a term"),
        ("not or", "is no term"),
        ("__import__('os').system('x')", "is not a term"),
        ("cores>=1e3", "is not a number"),
        ("cores>=0x10", "is not a number"),
        ("cores>=-1", "is not a number"),
        ("cores>=nan", "is not a number"),
        ('cpu="AMD', "has no value"),
        ("gpu " * 51, "there are 51 terms"),
    ],
)
def test_an_entry_that_is_none_is_answered_with_what_is_wrong(entry: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_host_entry(entry)


@pytest.mark.parametrize(
    "name",
    ["bureau-été", "研究室-01", "O'Brien's box", 'robert"); DROP TABLE hosts;--', "name with | bar", "avx2", "gpu"],
)
def test_any_name_can_be_written_in_quotes(name: str) -> None:
    quote = "'" if '"' in name else '"'
    assert matches(f"name={quote}{name}{quote}", host(name))
    assert not matches(f"name={quote}{name}{quote}", BOXA)


def test_every_instruction_set_of_a_fingerprint_has_its_word() -> None:
    assert set(ISA) <= set(ISA_WORDS)
    assert {name for names in ISA_WORDS.values() for name in names} <= set(ISA)


@pytest.mark.parametrize(
    ("facts", "portable"),
    [
        ({}, False),
        ({"chassis": "portable"}, True),
        ({"chassis": "desktop", "product_name": "Dell Latitude Notebook"}, False),
        ({"product_name": "Apple MacBookPro18,3"}, True),
        ({"product_name": "LENOVO ThinkPad X1"}, True),
        ({"product_name": "HP EliteBook 840 G8"}, True),
        ({"product_name": "Raspberry Pi 5 Model B"}, False),
        ({"gpus": (replace(RTX, name="NVIDIA GeForce RTX 3060 Laptop GPU"),)}, True),
        ({"gpus": (replace(RTX, name="Quadro RTX 5000 with Max-Q Design"),)}, True),
        ({"gpus": (RTX,)}, False),
    ],
)
def test_a_laptop_is_known_by_its_case_else_by_its_name_or_its_gpu(facts: dict[str, Any], portable: bool) -> None:
    assert is_laptop(host("box", **facts)) is portable


def test_a_machine_on_its_battery_is_a_laptop_where_nothing_tells_of_its_case() -> None:
    assert is_laptop(replace(host("box"), state=State(on_battery=True)))
    assert not is_laptop(replace(host("box", chassis="server"), state=State(on_battery=True)))


def test_without_entries_every_host_is_chosen_once() -> None:
    assert select((), [BOXA, BOXB, BOXA]).chosen == (BOXA, BOXB)


def test_entries_add_up_and_keep_the_order_of_the_hosts() -> None:
    selection = select(("gpu", "boxa", "ram_gib>=64"), [BOXA, BOXB, ARM])
    assert selection.chosen == (BOXA, BOXB)
    assert (selection.unknown, selection.unmatched, selection.notes) == ((), (), ())


def test_names_that_no_host_has_are_told_apart_from_conditions_that_no_host_fulfils() -> None:
    selection = select(("boxa", "boxz gpu", "boxz", "ram_gib>=512"), [BOXA, BOXB])
    assert selection.chosen == (BOXA,)
    assert selection.unknown == ("boxz",)
    assert selection.unmatched == ("ram_gib>=512",)


def test_labels_choose_hosts_and_a_label_that_nobody_has_is_said() -> None:
    selection = select(("rack=b", "rak=b"), [BOXA, BOXB, ARM], LABELS)
    assert selection.chosen == (BOXB,)
    assert selection.unmatched == ("rak=b",)
    assert selection.notes == ("hosts: no host has a label `rak`; known labels: rack, ray.io/x.",)


def test_a_name_to_be_left_out_that_no_host_has_is_said() -> None:
    selection = select(("not boxaa",), [BOXA, BOXB])
    assert selection.chosen == (BOXA, BOXB)
    assert selection.unknown == ()
    assert selection.notes == (
        "hosts: `not boxaa` leaves nothing out, since no host of this name is known; the nearest is boxa.",
    )


@pytest.mark.parametrize(
    ("entries", "fingerprint", "reason"),
    [
        ((), ARM, None),
        (("arch=arm64",), ARM, None),
        (("gpu", "ram_gib>=32"), ARM, "`gpu`: it has none; `ram_gib>=32`: it has 8"),
        (("cores>=8",), ARM, "`cores>=8`: not known"),
        (("not laptop",), BOXB, "`not laptop`: it is one"),
        (("laptop",), BOXA, "`laptop`: nothing says that it is one"),
        (("cpu",), BOXB, "`cpu`: it has a GPU"),
        (("not gpu",), BOXB, "`not gpu`: it has one"),
        (("avx512",), BOXA, "`avx512`: its cores do not have it"),
        (("not avx512",), BOXB, "`not avx512`: its cores have it"),
        (("cpu=intel",), BOXA, "`cpu=intel`: it has AMD EPYC 7763"),
        (("boxa",), BOXB, "`boxa`: it is boxb"),
        (("rack=b",), BOXA, "`rack=b`: its label is a"),
        (("rack=b",), ARM, "`rack=b`: it has no such label"),
        (('name="a b"',), ARM, '`name="a b"`: it is pi'),
    ],
)
def test_a_host_that_is_not_meant_is_told_why(
    entries: tuple[str, ...], fingerprint: Fingerprint, reason: str | None
) -> None:
    assert why_not(entries, fingerprint, LABELS.get(fingerprint.host_uid, {})) == reason


def test_the_nearest_word_may_be_a_host_or_one_that_means_something() -> None:
    assert nearest("lapto", ["boxa"]) == "laptop"
    assert nearest("boxaa", ["boxa"]) == "boxa"
    assert nearest("zzzzzz", ["boxa"]) is None
