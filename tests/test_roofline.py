"""Rates beside the limits of a machine: shares, ceilings, and what bounded them."""

from typing import Any

import pytest

from orchestrator.roofline import (
    Limits,
    Machine,
    Rates,
    between,
    curve_probe,
    gemm_curve,
    limit_of_reading,
    reading_probe,
    roof,
)
from schema.job import Test
from tests.factories import LINEAR, LLAMA_1B, SATURATED, make_curve, make_gemm, make_model_facts, make_probe

GB = 1e9
TG, PP = Test(n_prompt=0, n_gen=128), Test(n_prompt=512, n_gen=0)


def machine(probe: Any = LINEAR, **more: Any) -> Machine:
    return Machine(reading=probe, curve=probe, **more)


def decode(gen_ts: float, n_threads: int = 2, **more: Any) -> Rates:
    return Rates(test=TG, gen_ts=gen_ts, n_threads=n_threads, **more)


def test_a_share_is_the_rate_times_the_bytes_of_a_token_by_the_bandwidth_at_its_threads() -> None:
    found = roof(decode(53.0), LLAMA_1B, machine())
    read = 760_000_000 + 64.5 * 2 * 16384
    assert found.bytes_per_token == pytest.approx(read)
    assert found.read_bytes_per_s == 76 * GB
    assert found.ceiling_ts == pytest.approx(76 * GB / read)
    assert found.mbu == pytest.approx(53.0 * read / (76 * GB))
    assert 0.53 < (found.mbu or 0) < 0.54
    assert roof(decode(26.5, n_threads=1), LLAMA_1B, machine()).mbu == pytest.approx(found.mbu)


def test_a_share_above_one_is_never_clipped_and_its_bound_is_not_known() -> None:
    found = roof(decode(200.0), LLAMA_1B, machine())
    assert (found.mbu or 0) > 1.3
    assert found.bound is None


def test_where_all_weights_fit_into_the_caches_these_are_the_bound() -> None:
    tiny = make_model_facts(weight_bytes_per_token=20_000_000, key_width=64, value_width=64)
    found = roof(decode(5000.0), tiny, machine(cache_bytes=32 << 20))
    assert (found.bound, (found.mbu or 0) > 1) == ("cache", True)
    assert roof(decode(5000.0), tiny, machine(cache_bytes=16 << 20)).bound is None
    eight = Rates(test=Test(n_prompt=0, n_gen=128, n_parallel=8), gen_ts=5000.0, n_threads=2)
    assert roof(eight, tiny, machine(cache_bytes=32 << 20)).bound == "cache"  # read once for all eight


@pytest.mark.parametrize(
    ("probe", "n_threads", "mbu", "bound"),
    [
        (LINEAR, 1, 0.95, "cores"),  # a second thread would read as much again
        (LINEAR, 2, 0.95, "cores"),
        (LINEAR, 2, 0.55, "cores"),
        (SATURATED, 1, 0.9, "cores"),
        (SATURATED, 4, 0.9, "memory"),
        (SATURATED, 8, 0.9, "memory"),
        (SATURATED, 8, 0.4, "cores"),  # the memory gives more than it is asked for
        (make_curve({2: 76 * GB}), 2, 0.9, "memory"),
        (make_curve({2: 76 * GB}), 2, 0.5, "cores"),
        (make_curve({1: 38 * GB, 2: 50 * GB}, core_limited=False, saturated=False), 2, 0.9, "memory"),
    ],
)
def test_the_bound_agrees_with_the_curve_over_threads(probe: Any, n_threads: int, mbu: float, bound: str) -> None:
    ceiling = roof(decode(1.0, n_threads), LLAMA_1B, machine(probe)).ceiling_ts or 0.0
    found = roof(decode(mbu * ceiling, n_threads), LLAMA_1B, machine(probe))
    assert found.mbu == pytest.approx(mbu)
    assert found.bound == bound


def test_a_low_share_in_a_disturbed_moment_says_nothing_of_the_machine() -> None:
    assert roof(decode(10.0, 8), LLAMA_1B, machine(SATURATED)).bound == "cores"
    for probe in (SATURATED, make_curve({8: 46 * GB}, core_limited=True)):
        assert roof(decode(10.0, 8, undisturbed=False), LLAMA_1B, machine(probe)).bound is None
        assert roof(decode(55.0, 8, undisturbed=False), LLAMA_1B, machine(probe)).bound is not None


def test_a_number_of_threads_that_no_probe_reaches_has_no_ceiling() -> None:
    found = roof(decode(53.0, n_threads=16), LLAMA_1B, machine(SATURATED))
    assert (found.ceiling_ts, found.mbu, found.bound) == (None, None, None)
    assert found.bytes_per_token is not None


def test_between_two_measured_numbers_of_threads_lies_a_line_and_outside_nothing() -> None:
    curve = {1: 20.0, 4: 50.0, 8: 54.0}
    assert [between(curve, n) for n in (1, 2, 4, 6, 8)] == [20.0, 30.0, 50.0, 52.0, 54.0]
    assert [between(curve, n) for n in (0, 9, None)] == [None, None, None]
    assert between({}, 1) is None


def test_a_prefill_is_compared_with_a_matrix_product_of_the_same_threads() -> None:
    rates = Rates(test=PP, prompt_ts=100.0, n_threads=2, n_threads_batch=2, n_ubatch=512)
    found = roof(rates, LLAMA_1B, machine(gemm=make_gemm(250 * GB, 2, single=130 * GB)))
    assert found.mfu == pytest.approx(2 * 970e6 * 100 / 250e9)
    assert (found.flop_per_s, found.bound, found.mbu, found.ceiling_ts) == (250 * GB, "cores", None, None)


def test_a_short_prompt_may_be_bound_by_memory_as_a_decode_is() -> None:
    short = Rates(test=Test(n_prompt=2, n_gen=0), prompt_ts=100.0, n_threads=8, n_ubatch=512)
    gemm = make_gemm(900 * GB, 8)
    assert roof(short, LLAMA_1B, machine(SATURATED, gemm=gemm)).bound == "memory"
    steep = make_curve({1: 20 * GB, 8: 46 * GB, 16: 90 * GB}, core_limited=False)
    assert roof(short, LLAMA_1B, machine(steep, gemm=gemm)).bound == "cores"


def test_a_combined_test_has_both_shares() -> None:
    rates = Rates(test=Test(n_prompt=512, n_gen=128), prompt_ts=100.0, gen_ts=50.0, n_threads=2)
    found = roof(rates, LLAMA_1B, machine(gemm=make_gemm(250 * GB, 2)))
    assert found.mfu is not None
    assert found.mbu is not None
    assert found.kv_bytes_per_token == pytest.approx(2 * 16384 * (512 + 64.5))


def test_threads_of_the_matrix_product_are_interpolated_only_between_measured_numbers() -> None:
    assert gemm_curve(make_gemm(200.0, 4, single=80.0)) == {1: 80.0, 4: 200.0}
    assert gemm_curve(make_gemm(200.0, 4)) == {4: 200.0}
    rates = Rates(test=PP, prompt_ts=100.0, n_threads=3)
    assert roof(rates, LLAMA_1B, Machine(gemm=make_gemm(200.0, 4, single=80.0))).flop_per_s == pytest.approx(160.0)
    assert roof(rates, LLAMA_1B, Machine(gemm=make_gemm(200.0, 4))).mfu is None


def test_a_gpu_has_the_bandwidth_of_its_own_memory_and_a_mixture_none() -> None:
    card = make_probe(kind="gpu_memory", value=320 * GB, theoretical=True, device="0: T4")
    found = roof(decode(300.0, place="gpu"), LLAMA_1B, Machine(reading=card))
    assert found.ceiling_ts == pytest.approx(320 * GB / (found.bytes_per_token or 1))
    assert found.bound == "memory"
    slow = roof(decode(100.0, place="gpu"), LLAMA_1B, Machine(reading=card))
    assert (slow.bound, slow.mbu is not None) == (None, True)  # what else limits a GPU is not measured
    for place, probe in (("gpu", LINEAR), ("cpu", card), (None, LINEAR), (None, card)):
        assert roof(decode(53.0, place=place), LLAMA_1B, Machine(reading=probe)).mbu is None


def test_a_model_or_machine_that_is_not_known_leaves_everything_open() -> None:
    empty = roof(decode(53.0), None, Machine())
    assert all(getattr(empty, name) is None for name in ("bytes_per_token", "mbu", "mfu", "ceiling_ts", "bound"))
    rates = decode(53.0)
    assert Limits(rates=rates, model=None, machine=Machine(), roof=empty).probe_uid is None


def test_the_limit_of_reading_is_the_cores_as_long_as_more_threads_read_more() -> None:
    assert [limit_of_reading(SATURATED, n) for n in (1, 2, 4, 8, 9)] == ["cores", "cores", "memory", "memory", None]
    assert [limit_of_reading(LINEAR, n) for n in (1, 2)] == ["cores", "cores"]
    assert limit_of_reading(make_curve({1: 10.0, 2: 19.0}), 2) == "cores"  # a short probe says so by itself
    assert limit_of_reading(make_curve({2: 10.0}), 2) is None
    assert limit_of_reading(None, 2) is None
    threads_of_four_cores = make_curve({1: 10.0, 4: 38.0, 8: 39.0}, core_limited=True, saturated=True)
    assert [limit_of_reading(threads_of_four_cores, n) for n in (4, 8)] == ["cores", "cores"]


def test_the_probes_of_a_series_come_first_and_the_faster_of_them_counts() -> None:
    before = make_curve({2: 60.0}, series_uid="s", moment="before")
    after = make_curve({2: 75.0}, series_uid="s", moment="after")
    full, old = make_curve({1: 40.0, 2: 70.0}), make_curve({1: 10.0, 2: 20.0, 4: 30.0})
    probes = [after, before, full, old]
    assert reading_probe(probes, "s", 2) is after
    assert reading_probe(probes, "s", 1) is full
    assert reading_probe(probes, "s", 3) is old
    assert reading_probe([full, old], "other", 2) is full
    assert reading_probe(probes, "s", 5) is None
    assert reading_probe([before, old], None, 4) is old


def test_the_curve_is_that_of_the_newest_whole_probe() -> None:
    short = make_curve({1: 40.0, 2: 70.0}, series_uid="s", moment="before")
    single, full = make_curve({2: 60.0}, series_uid="s"), make_curve({1: 40.0, 2: 70.0})
    assert curve_probe([single, short, full]) is full
    assert curve_probe([single, short]) is short
    assert curve_probe([single]) is single
    assert curve_probe([]) is None
