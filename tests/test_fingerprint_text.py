from typing import Any

import pytest

from orchestrator.fingerprint_text import groups, size
from schema.host import Allocation, Cache, CoreType, Environment, Fingerprint, Gpu, MemoryModules, Numa, State
from tests.factories import make_fingerprint, make_hardware

GIB = 1 << 30


def lines(fingerprint: Fingerprint) -> dict[str, list[str]]:
    """Return the lines of each group, `what: value`."""
    return {title: [f"{label}: {value}" for label, value, _ in facts] for title, facts in groups(fingerprint)}


def full(**fields: Any) -> Fingerprint:
    hardware = make_hardware(
        core_types=(
            CoreType(name="Cortex-X925", kind="performance", n_cores=10, threads_per_core=1),
            CoreType(name="Zen 5", n_cores=6, threads_per_core=2),
        ),
        caches=(Cache(level=3, kind="unified", size_bytes=32 << 20, instances=2),),
        numa=(Numa(n_cpus=12, memory_gib=64),),
        memory_bytes=64 * GIB,
        gpus=(Gpu(vendor="NVIDIA", name="GB10", vram_bytes=64 * GIB, unified=True),),
        hypervisor="kvm",
    )
    return make_fingerprint(hardware=hardware, **fields)


def test_the_groups_come_in_the_order_in_which_they_are_asked_for() -> None:
    assert list(lines(full())) == [
        *("host", "machine", "processor", "memory", "graphics", "allowed here", "environment"),
        *("at this moment", "llama.cpp", "ids"),
    ]


def test_facts_are_said_in_words_with_their_units() -> None:
    shown = lines(full())

    assert "performance type: 10 × Cortex-X925" in shown["processor"]
    assert "core type: 6 × Zen 5, 2 threads each" in shown["processor"]
    assert "L3 unified: 2 × 32 MiB" in shown["processor"]
    assert "NUMA node: 12 CPUs, 64 GiB" in shown["processor"]
    assert "installed: 64 GiB" in shown["memory"]
    assert "GPU: GB10, 64 GiB of the machine" in shown["graphics"]
    assert "hypervisor: kvm" in shown["machine"]


def test_none_and_not_known_are_two_answers() -> None:
    sources = {"cpu_quota_cores": "no control group limits it", "memory_limit_bytes": "control groups"}
    allowed = Allocation(n_cpus=8, memory_limit_bytes=4 * GIB)
    shown = lines(full(allocation=allowed, sources=sources))["allowed here"]

    assert shown == [
        "CPUs: 8",
        "CPU quota: none",
        "memory limit: 4 GiB",
        "NUMA nodes: not known",
        "GPUs: not known",
    ]


def test_every_mitigation_is_a_line_of_its_own() -> None:
    environment = Environment(mitigations="mds: Clear CPU buffers; retbleed: Vulnerable")
    shown = lines(full(environment=environment))["environment"]

    assert shown[-2:] == ["mitigation: mds: Clear CPU buffers", "mitigation: retbleed: Vulnerable"]


def test_memory_modules_are_summed_up() -> None:
    modules = MemoryModules(
        source="udev",
        kind="DDR5",
        n_modules=3,
        n_slots=4,
        module_bytes=(16 * GIB, 16 * GIB, 32 * GIB),
        configured_mts=5200,
        n_channels=2,
        bus_bits=128,
    )
    shown = lines(full(memory_modules=modules))["memory"]

    assert shown[1:] == [
        "modules: 2 × 16 GiB + 1 × 32 GiB in 4 slots",
        "type: DDR5",
        "configured speed: 5200 MT/s",
        "channels: 2",
        "bandwidth in theory: 83.2 GB/s",
    ]


def test_the_moment_is_shown_with_its_units() -> None:
    state = State(load1=0.5, load5=1.0, load15=2.25, cpu_pressure_percent=12.5, on_battery=True, hottest_celsius=61.25)
    shown = lines(full(state=state))["at this moment"]

    assert "load: 0.5 1 2.25" in shown
    assert "waiting for CPU: 12.5 % of the last 10 s" in shown
    assert "power: battery" in shown
    assert "hottest sensor: 61 °C" in shown
    assert "waiting for disk: not known" in shown


@pytest.mark.parametrize(
    ("count", "words"),
    [(None, None), (0, "0 B"), (65536, "64 KiB"), (32 << 20, "32 MiB"), (3 * GIB // 2, "1.5 GiB"), (5 << 40, "5 TiB")],
)
def test_sizes_are_in_the_unit_that_people_use(count: int | None, words: str | None) -> None:
    assert size(count) == words
