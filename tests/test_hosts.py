"""An entry of `hosts` is taken apart into terms and looked up in what each host says of itself."""

import re
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.hosts import matches, select
from schema.host import Allocation, Environment, Fingerprint, Gpu, Hardware
from schema.host_terms import parse_host_entry

RTX = Gpu(vendor="NVIDIA", name="NVIDIA GeForce RTX 3090", vram_bytes=24 << 30)
OLD = Gpu(vendor="NVIDIA", name="NVIDIA T400", vram_bytes=4 << 30)


def host(name: str, **facts: Any) -> Fingerprint:
    hardware = Hardware(arch="x86_64", cpu_name="AMD EPYC 7763", n_cores_physical=8, memory_gib=32)
    return Fingerprint(
        host_uid=f"uid-{name}",
        uid_source="test",
        hostname=name,
        taken_at="2026-01-01T00:00:00Z",
        hardware=replace(hardware, **facts),
        allocation=Allocation(),
        environment=Environment(os="Ubuntu 24.04 LTS"),
    )


BOXA = host("boxa")
BOXB = host("boxb", gpus=(OLD, RTX), memory_gib=64)
ARM = host("pi", arch="aarch64", cpu_name=None, n_cores_physical=None, memory_gib=8)


@pytest.mark.parametrize(
    ("entry", "names"),
    [
        ("boxa", ["boxa"]),
        ("BOXA", []),
        ("box", []),
        ("gpu", ["boxb"]),
        ("cpu", ["boxa", "pi"]),
        ("GPU", ["boxb"]),
        ("ram_gib>=32", ["boxa", "boxb"]),
        ("ram_gib > 32", ["boxb"]),
        ("ram_gib<32", ["pi"]),
        ("ram_gib<=8", ["pi"]),
        ("ram_gib=32", ["boxa"]),
        ("ram_gib!=32", ["boxb", "pi"]),
        ("ram_gib>=31.5 ram_gib<=32.5", ["boxa"]),
        ("vram_gib>=24", ["boxb"]),
        ("vram_gib>24", []),
        ("cores>=8", ["boxa", "boxb"]),
        ("cores!=8", []),
        ("arch=x86_64", ["boxa", "boxb"]),
        ("arch=amd64", ["boxa", "boxb"]),
        ("arch!=arm64", ["boxa", "boxb"]),
        ("arch=x86", []),
        ("os=ubuntu", ["boxa", "boxb", "pi"]),
        ("cpu=epyc", ["boxa", "boxb"]),
        ("cpu!=epyc", []),
        ('cpu="AMD EPYC"', ["boxa", "boxb"]),
        ("cpu='intel'", []),
        ("gpu=3090", ["boxb"]),
        ("gpu!=3090", []),
        ("gpu ram_gib>=32 boxb", ["boxb"]),
        ("gpu cpu", []),
    ],
)
def test_an_entry_means_the_hosts_that_fulfil_all_its_terms(entry: str, names: list[str]) -> None:
    assert [fingerprint.hostname for fingerprint in (BOXA, BOXB, ARM) if matches(entry, fingerprint)] == names


def test_a_fact_that_is_not_known_fulfils_nothing() -> None:
    assert not any(matches(entry, ARM) for entry in ("cores>0", "cores!=4", "cpu=x", "cpu!=x", "vram_gib<1", "gpu!=x"))


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("", "the entry is empty"),
        ("ram_gib>=lots", "'lots' is not a number for `ram_gib`"),
        ("ram_gib>=", "has no value"),
        ("ram_gib==32", "'==' is no operator; write one of = != >= <= > <"),
        ("ram_gib=>32", "'=>' is no operator"),
        ("ram_gib~32", "'~' is no operator"),
        ("rma_gib>=32", "'rma_gib' is no fact of a host; the nearest is `ram_gib`"),
        ("colour=red", "known: ram_gib, vram_gib, cores, arch, os, cpu, gpu"),
        ("arch>=x86_64", "is a text and has no order"),
        (">=32", "is not a term"),
        ("gpu & cpu", "is not a term"),
        ("gpu,cpu", "is not a term"),
        ("(gpu)", "is not a term"),
        ("gpu or cpu", "several entries mean or"),
        ("not gpu", "!= means not"),
        ("__import__('os').system('x')", "is not a term"),
        ("cores>=1e3", "is not a number"),
        ("cores>=0x10", "is not a number"),
        ("cores>=-1", "is not a number"),
        ("cores>=nan", "is not a number"),
        ('cpu="AMD', "has no value"),
    ],
)
def test_an_entry_that_is_none_is_answered_with_what_is_wrong(entry: str, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        parse_host_entry(entry)


def test_without_entries_every_host_is_chosen_once() -> None:
    assert select((), [BOXA, BOXB, BOXA]).chosen == (BOXA, BOXB)


def test_entries_add_up_and_keep_the_order_of_the_hosts() -> None:
    selection = select(("gpu", "boxa", "ram_gib>=64"), [BOXA, BOXB, ARM])
    assert selection.chosen == (BOXA, BOXB)
    assert (selection.unknown, selection.unmatched) == ((), ())


def test_names_that_no_host_has_are_told_apart_from_conditions_that_no_host_fulfils() -> None:
    selection = select(("boxa", "boxz gpu", "boxz", "ram_gib>=512"), [BOXA, BOXB])
    assert selection.chosen == (BOXA,)
    assert selection.unknown == ("boxz",)
    assert selection.unmatched == ("ram_gib>=512",)
