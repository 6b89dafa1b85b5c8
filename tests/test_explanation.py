"""What is said of one result: the arithmetic, what bounded it, how quiet it was, what it cost."""

from typing import Any

import pytest

from orchestrator.explanation import explain, size
from orchestrator.roofline import Limits, Machine, Rates, roof
from schema.host import MemoryModules
from schema.job import Test
from schema.record import ModelFacts
from tests.factories import LINEAR, LLAMA_1B, SATURATED, make_curve, make_gemm, make_model_facts, make_probe

ROW = {
    "model": "llama-3.2-1b:Q4_K_M",
    "host": "box-a",
    "test": "tg128",
    "test_time": "2026-01-02T03:04:05.000000Z",
    "avg_ts": 53.0,
    "stddev_ts": 0.4,
    "n_samples": 5,
    "quality": "clean",
    "quality_reasons": "[]",
}


def said(
    gen_ts: float | None = 53.0,
    probe: Any = LINEAR,
    model: ModelFacts | None = LLAMA_1B,
    modules: MemoryModules | None = None,
    machine: dict[str, Any] | None = None,
    row: dict[str, Any] | None = None,
    **rates: Any,
) -> str:
    """Return the whole explanation of a result with these values."""
    values: dict[str, Any] = {"test": Test(n_prompt=0, n_gen=128), "n_threads": 2} | rates
    measured = Rates(gen_ts=gen_ts, **values)
    known = Machine(**({"reading": probe, "curve": probe} | (machine or {})))
    limits = Limits(rates=measured, model=model, machine=known, roof=roof(measured, model, known))
    return "\n".join(explain(ROW | (row or {}), limits, modules))


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        (2_810_000_000, "2.81 GB"),
        (762e6, "0.76 GB"),
        (28.1e9, "28.1 GB"),
        (8.4e6, "8.40 MB"),
        (2048, "2.05 kB"),
        (5, "5 B"),
    ],
)
def test_bytes_are_said_as_people_say_them(n_bytes: float, text: str) -> None:
    assert size(n_bytes) == text


def test_a_decode_is_explained_with_its_arithmetic_and_what_bounded_it() -> None:
    assert said().splitlines() == [
        "llama-3.2-1b:Q4_K_M tg128 on box-a, 2026-01-02 03:04: 53.00 ± 0.40 t/s over 5 repetitions.",
        "A token reads 0.76 GB: 0.76 GB of weights, 2.11 MB of keys and values "
        "(64 tokens of context in the mean, f16/f16).",
        "With 2 threads this machine reads 76.0 GB/s (probe 2026-01-02 03:01), and 76.0 GB/s ÷ 0.76 GB "
        "= 99.72 t/s is the ceiling. 53.00 t/s is 0.53 of that.",
        "Bound by: the cores. Reading still grows with the threads (38.0 with 1, 76.0 with 2; GB/s): the memory has "
        "more for more cores. Reading alone would take 53% of a token's time; computing takes the rest.",
        "The machine was clean.",
    ]


def test_a_saturated_memory_is_named_as_the_bound() -> None:
    text = said(gen_ts=50.0, probe=SATURATED, n_threads=8)
    assert "Bound by: memory. Further threads read hardly more than 8" in text
    assert "Bound by: the cores. Reading alone would take" in said(gen_ts=20.0, probe=SATURATED, n_threads=8)


def test_a_share_above_one_is_explained_and_not_hidden() -> None:
    text = said(gen_ts=130.0, machine={"cache_bytes": 32 << 20})
    assert "130.0 t/s is 1.30 of that." in text
    assert "A share of 1.30 cannot be" in text
    assert "22.7 times what the caches hold (33.6 MB)" in text
    assert "probe again" in text
    disturbed = make_curve({1: 38e9, 2: 76e9}, contended=True)
    assert "The probe was disturbed by others" in said(gen_ts=130.0, probe=disturbed)


def test_weights_in_the_caches_are_named_as_such() -> None:
    small = make_model_facts(weight_bytes_per_token=20_000_000, key_width=64, value_width=64)
    text = said(gen_ts=5000.0, model=small, machine={"cache_bytes": 32 << 20})
    assert "Bound by: the caches. All that a pass reads fits into them (33.6 MB)" in text
    assert "cannot be" not in text


def test_without_a_probe_the_next_step_is_named() -> None:
    text = said(probe=None)
    assert "A token reads 0.76 GB" in text
    assert "`tokfleet probe` measures what its ceiling is taken of" in text
    assert "Bound by: not known." in text
    assert "measured 16 threads (but 1, 2)" in said(n_threads=16)


def test_an_unread_header_and_a_cache_of_unknown_size_are_said() -> None:
    assert "the header of the model file was not stored" in said(model=make_model_facts())
    assert "keys and values whose size the header does not tell" in said(
        model=make_model_facts(weight_bytes_per_token=10**9)
    )


def test_sequences_and_experts_are_said() -> None:
    model = make_model_facts(
        weight_bytes_per_token=180, expert_bytes=1280, n_expert=128, n_expert_used=8, key_width=0, value_width=0
    )
    text = said(model=model, test=Test(n_prompt=0, n_gen=8, n_parallel=4))
    assert "4 tokens share each reading of the weights (" in text
    assert "Of the experts 8 of 128 count for each token." in text


def test_a_prefill_is_explained_by_a_proxy() -> None:
    rates: dict[str, Any] = {"test": Test(n_prompt=512, n_gen=0), "prompt_ts": 100.0}
    text = said(gen_ts=None, machine={"gemm": make_gemm(250e9, 2, single=130e9)}, row={"test": "pp512"}, **rates)
    assert "takes 2 × 0.97 G parameters; at 100.0 t/s that is 194 GFLOP/s, 0.78 of the 250 GFLOP/s" in text
    assert "That is a proxy" in text
    assert "Bound by: the cores. Many tokens are computed for each reading" in text
    assert "was not measured before" in said(gen_ts=None, row={"test": "pp512"}, **rates)


def test_a_gpu_and_several_memories_are_told_apart() -> None:
    card = make_probe(kind="gpu_memory", value=320e9, theoretical=True, method="driver: bus width × clock")
    text = said(gen_ts=100.0, probe=card, place="gpu")
    assert "The GPU reads 320.0 GB/s (probe 2026-01-02 03:01, driver: bus width × clock, computed, not meas" in text
    assert "what else limits this device is not measured" in text
    assert "several memories" in said(place=None)


def test_the_memory_modules_are_named_where_they_are_known() -> None:
    modules = MemoryModules(source="dmidecode", kind="DDR4", configured_mts=3200, bus_bits=128)
    assert "could deliver 51.2 GB/s in theory" in said(modules=modules)
    assert "in theory" not in said(modules=MemoryModules(source="udev"))


def test_a_disturbed_machine_is_not_blamed_on_the_cores() -> None:
    row = {"quality": "contended", "quality_reasons": '["threads waited 40% of the time\\u202e for a CPU"]'}
    text = said(gen_ts=10.0, probe=SATURATED, n_threads=8, undisturbed=False, row=row)
    assert "The machine was disturbed, so the low share may not be its own." in text
    assert "The machine was contended: threads waited 40% of the time\\u202e for a CPU." in text
    assert "is not known." in said(row={"quality": None})


def test_energy_is_told_with_its_method_and_its_doubts() -> None:
    energy = {
        "joules_total": 120.0,
        "joules_idle": 30.0,
        "energy_seconds": 6.0,
        "energy_method": "rapl",
        "energy_valid": True,
        "joules_per_decoded_token": 0.1875,
    }
    assert "Energy: 120.0 J in 6.00 s (rapl, of which idle takes 30.0 J), 0.188 J for each decoded token." in said(
        row=energy
    )
    doubted = said(row=energy | {"energy_valid": 0, "energy_reason": "other processes ran", "joules_idle": None})
    assert "0.188 J for each decoded token; not to be trusted: other processes ran." in doubted
    assert "Energy" not in said()


def test_a_failure_is_explained_by_its_message() -> None:
    row = {"model": "a.gguf", "test": "tg8", "host": "h\x1b", "stage": "load", "message": "no\nmemory"}
    assert explain(row) == ["a.gguf tg8 on h\\x1b failed in the stage load: no\\nmemory"]


def test_a_row_with_nothing_in_it_is_explained_without_a_crash() -> None:
    rates = Rates(test=Test(n_prompt=1, n_gen=1))
    limits = Limits(rates=rates, model=None, machine=Machine(), roof=roof(rates, None, Machine()))
    text = " ".join(explain({}, limits))
    assert "Bound by: not known." in text
