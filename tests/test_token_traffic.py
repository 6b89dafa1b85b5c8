"""The bytes that decoding a token reads, from what the header of a file tells."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.token_traffic import decode_traffic, kv_bytes, mean_context, pass_bytes
from schema.job import Test
from schema.record import ModelFacts
from tests.factories import make_model_facts
from worker import synthetic
from worker.facts import sizes
from worker.gguf import read_header
from worker.traffic import MOST, traffic

DENSE = make_model_facts(weight_bytes_per_token=1000, key_width=64, value_width=64)
TG = Test(n_prompt=0, n_gen=10)


def facts_of(spec: str) -> ModelFacts:
    """Return what the record of a synthetic model tells, without building the file."""
    return make_model_facts(**traffic(sizes(synthetic.header(synthetic.parse(spec)))))


def brute_force(test: Test, window: int | None) -> float:
    seen = [test.n_depth + test.n_prompt + number + 1 for number in range(test.n_gen)]
    return sum(min(n, window) if window else n for n in seen) / test.n_gen


@pytest.mark.parametrize("window", [None, 1, 7, 13, 16, 17, 100])
@pytest.mark.parametrize(("n_prompt", "n_gen", "n_depth"), [(0, 1, 0), (0, 10, 0), (5, 10, 2), (0, 3, 50), (12, 4, 0)])
def test_the_mean_context_is_that_of_each_token_counted_alone(
    n_prompt: int, n_gen: int, n_depth: int, window: int | None
) -> None:
    test = Test(n_prompt=n_prompt, n_gen=n_gen, n_depth=n_depth)
    assert mean_context(test, window) == pytest.approx(brute_force(test, window))


def test_a_decoded_token_reads_all_weights_once_and_the_keys_and_values_of_its_context() -> None:
    found = decode_traffic(DENSE, TG, "f16", "f16")
    assert found is not None
    assert (found.weights, found.cache) == (1000.0, 5.5 * (64 + 64) * 2)
    assert found.total == 1000 + 5.5 * 256


def test_the_cache_types_in_effect_decide_what_a_token_of_context_takes() -> None:
    assert kv_bytes(DENSE, TG, "q8_0", "q4_0") == pytest.approx(5.5 * 64 * (34 / 32 + 18 / 32))
    assert kv_bytes(DENSE, TG, "f32", "f16") == pytest.approx(5.5 * 64 * 6)
    assert kv_bytes(DENSE, TG, "mystery", "f16") is None


def test_a_deeper_context_is_read_whole_but_in_layers_with_a_window() -> None:
    model = make_model_facts(
        weight_bytes_per_token=1000,
        key_width=10,
        value_width=10,
        window_key_width=30,
        window_value_width=30,
        sliding_window=512,
    )
    deep = Test(n_prompt=0, n_gen=1, n_depth=4095)
    assert kv_bytes(model, deep, "f16", "f16") == 4096 * 40 + 512 * 120


def test_sequences_side_by_side_share_the_weights_and_each_reads_its_own_cache() -> None:
    alone = decode_traffic(DENSE, TG, "f16", "f16")
    eight = decode_traffic(DENSE, Test(n_prompt=0, n_gen=10, n_parallel=8), "f16", "f16")
    assert alone is not None
    assert eight is not None
    assert (eight.weights, eight.cache) == (1000 / 8, alone.cache)


def test_a_verifying_pass_reads_weights_and_cache_once_for_all_its_tokens() -> None:
    found = decode_traffic(DENSE, Test(n_prompt=0, n_gen=0, n_depth=96, n_verify=4), "f16", "f16")
    assert found is not None
    assert (found.weights, found.cache) == (250.0, 100 * 256 / 4)


def test_a_prefill_has_no_decoded_token_and_an_unread_header_tells_nothing() -> None:
    assert decode_traffic(DENSE, Test(n_prompt=512, n_gen=0), "f16", "f16") is None
    assert decode_traffic(make_model_facts(), TG, "f16", "f16") is None


def test_without_head_sizes_the_weights_alone_count() -> None:
    found = decode_traffic(make_model_facts(weight_bytes_per_token=1000), TG, "f16", "f16")
    assert found is not None
    assert (found.total, found.cache) == (1000.0, None)


def test_a_token_reads_the_experts_that_it_uses_and_a_batch_those_that_any_of_it_uses() -> None:
    model = make_model_facts(weight_bytes_per_token=100 + 8 * 10, expert_bytes=1280, n_expert=128, n_expert_used=8)
    assert pass_bytes(model, 1) == pytest.approx(180)
    assert pass_bytes(model, 2) == pytest.approx(100 + 1280 * (1 - (120 / 128) ** 2))
    assert pass_bytes(model, 10_000) == pytest.approx(100 + 1280)


@pytest.mark.parametrize("used", [None, 0, 128, 129])
def test_experts_that_the_header_counts_wrongly_are_all_taken_as_read(used: int | None) -> None:
    model = make_model_facts(weight_bytes_per_token=1380, expert_bytes=1280, n_expert=128, n_expert_used=used)
    assert pass_bytes(model, 1) == pass_bytes(model, 4) == 1380


def test_what_a_well_known_shape_reads_is_near_its_file_without_the_looked_up_embedding() -> None:
    whole = sizes(synthetic.header(synthetic.parse("llama-3.2-1b:Q4_K_M")))
    model = facts_of("llama-3.2-1b:Q4_K_M")
    assert model.weight_bytes_per_token == whole.weight_bytes  # tied: the embedding is read as the output
    assert 0.74e9 < (model.weight_bytes_per_token or 0) < 0.82e9
    assert (model.key_width, model.value_width, model.kv_bytes_per_context_token) == (16 * 512, 16 * 512, 32768)
    assert (model.n_layer, model.n_expert, model.sliding_window) == (16, None, None)
    assert 0.96e9 < (model.prompt_params or 0) < 0.98e9  # 1.24 G, but for 128256 rows of embedding and output


def test_a_mixture_of_experts_reads_a_part_of_its_file() -> None:
    model = facts_of("qwen3-30b-a3b:Q4_K_M")
    assert (model.n_expert, model.n_expert_used) == (128, 8)
    assert 0.08 < (model.weight_bytes_per_token or 0) / (model.expert_bytes or 1) < 0.14
    assert 2.9e9 < (model.active_params or 0) < 3.5e9


@pytest.mark.model
def test_the_published_gemma_keeps_a_window_in_all_layers_but_every_sixth(gemma: Path) -> None:
    told = traffic(sizes(read_header(gemma)))
    assert (told["key_width"], told["window_key_width"], told["sliding_window"]) == (3 * 256, 15 * 256, 512)


def test_a_header_that_claims_more_than_a_database_takes_claims_nothing() -> None:
    huge = sizes(synthetic.header(synthetic.parse("test-tiny:Q8_0")))
    assert traffic(replace(huge, key_widths=(MOST, MOST)))["key_width"] is None
    assert traffic(None) == {}
