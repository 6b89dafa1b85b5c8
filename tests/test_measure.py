from collections.abc import Callable

import pytest

from schema.job import VERIFY_PASSES, Test
from schema.record import Sample
from tests.fakes import FakeClock, FakeEngine
from tests.measuring import measure
from worker.measure import Measured
from worker.prepared import Filled, random_tokens
from worker.run import latency
from worker.seam import EngineError


def run(
    engine: FakeEngine, test: Test, repetitions: int = 3, on_sample: Callable[[Sample], None] | None = None
) -> tuple[list[Sample], list[str], Measured]:
    samples: list[Sample] = []
    stages: list[str] = []

    def keep(sample: Sample) -> None:
        samples.append(sample)
        if on_sample:
            on_sample(sample)

    clock = engine.clock
    found = measure(engine, test, repetitions, 7, clock, stages.append, keep, lambda: 2 * clock(), 2)
    return samples, stages, found


def test_prefill_is_timed_over_all_its_chunks_and_nothing_else() -> None:
    engine = FakeEngine(FakeClock(), prompt_ns=1_000)
    samples, stages, _ = run(engine, Test(n_prompt=130, n_gen=0))
    assert [s.elapsed_ns for s in samples] == [130_000] * 3
    assert [s.prompt_ns for s in samples] == [130_000] * 3
    assert [s.gen_ns for s in samples] == [None] * 3
    assert engine.log[-4:] == ["clear", "process 64", "process 64", "process 2"]
    assert stages == ["warmup", "prefill"]


def test_decode_is_one_token_at_a_time_and_keeps_each_tokens_latency() -> None:
    engine = FakeEngine(FakeClock(), gen_ns=50_000_000)
    samples, stages, found = run(engine, Test(n_prompt=0, n_gen=4))
    assert [s.elapsed_ns for s in samples] == [200_000_000] * 3
    assert engine.log[-4:] == ["process 1"] * 4
    assert found.token_ns is not None
    assert list(found.token_ns) == [50_000_000] * 12
    assert stages == ["warmup", "decode"]


def test_prefill_and_decode_in_one_run_are_also_known_apart() -> None:
    engine = FakeEngine(FakeClock(), prompt_ns=1_000, gen_ns=10_000)
    samples, _, found = run(engine, Test(n_prompt=8, n_gen=3), repetitions=1)
    assert (samples[0].prompt_ns, samples[0].gen_ns, samples[0].elapsed_ns) == (8_000, 30_000, 38_000)
    assert samples[0].n_tokens == 11
    assert found.token_ns is not None
    assert list(found.token_ns) == [10_000] * 3


def test_twice_the_tokens_take_twice_the_time() -> None:
    one, _, _ = run(FakeEngine(FakeClock()), Test(n_prompt=0, n_gen=8))
    two, _, _ = run(FakeEngine(FakeClock()), Test(n_prompt=0, n_gen=16))
    assert two[0].elapsed_ns == 2 * one[0].elapsed_ns


def test_a_depth_is_filled_once_untimed_and_restored_before_each_repetition() -> None:
    engine = FakeEngine(FakeClock(), prompt_ns=1_000, gen_ns=10_000)
    samples, stages, found = run(engine, Test(n_prompt=0, n_gen=2, n_depth=100))
    assert [s.elapsed_ns for s in samples] == [20_000] * 3
    assert engine.log.count("process 64") == 1
    assert engine.log[-4:] == ["clear", "restore", "process 1", "process 1"]
    assert found.fill_seconds == pytest.approx(100_000 / 1e9)
    assert stages[0] == "fill"


def test_a_deeper_test_goes_on_from_what_the_one_before_has_filled() -> None:
    engine, filled = FakeEngine(FakeClock()), Filled()

    def fill(depth: int) -> list[str]:
        engine.log.clear()
        test = Test(n_prompt=0, n_gen=1, n_depth=depth)
        measure(engine, test, 1, 7, engine.clock, lambda _: None, lambda _: None, engine.clock, 1, filled)
        return [entry for entry in engine.log if entry != "process 1"]

    assert fill(64).count("process 64") == 1
    assert fill(64).count("process 64") == 0
    assert fill(192)[:4] == ["clear", "restore", "process 64", "process 64"]
    alone = FakeEngine(FakeClock())
    run(alone, Test(n_prompt=0, n_gen=1, n_depth=192), repetitions=1)
    assert engine.held == alone.held


def test_a_filled_context_that_does_not_fit_is_filled_anew() -> None:
    engine, filled = FakeEngine(FakeClock()), Filled(depth=64, state=[1] * 64)
    restore = engine.restore

    def refuse_once(state: list[int], sequence: int = 0) -> None:
        engine.restore = restore  # type: ignore[method-assign]
        raise EngineError("llama.cpp could not restore the filled context")

    engine.restore = refuse_once  # type: ignore[method-assign]
    test = Test(n_prompt=0, n_gen=1, n_depth=128)
    measure(engine, test, 1, 7, engine.clock, lambda _: None, lambda _: None, engine.clock, 1, filled)
    assert engine.log.count("process 64") == 2
    assert filled.depth == 128


def test_sequences_side_by_side_take_a_token_each_in_every_step() -> None:
    engine = FakeEngine(FakeClock(), prompt_ns=1_000)
    samples, _, found = run(engine, Test(n_prompt=10, n_gen=3, n_depth=5, n_parallel=4), repetitions=2)
    assert [sample.n_tokens for sample in samples] == [52, 52]
    assert engine.log[-5:] == ["restore", "process 40", "process 4", "process 4", "process 4"]
    assert [engine.n_past(sequence) for sequence in range(4)] == [18] * 4
    assert found.token_ns is not None
    assert len(found.token_ns) == 6


def test_the_time_to_the_first_token_is_the_prompt_and_one_step() -> None:
    _, _, found = run(FakeEngine(FakeClock(), prompt_ns=1_000, gen_ns=7_000), Test(n_prompt=10, n_gen=3))
    assert found.first_token_ns == [17_000] * 3


def test_a_verifying_pass_is_timed_alone_and_its_tokens_are_taken_back_untimed() -> None:
    engine = FakeEngine(FakeClock(), prompt_ns=1_000)
    engine.take_back_ns = 5_000_000
    samples, stages, found = run(engine, Test(n_prompt=0, n_gen=0, n_depth=20, n_verify=4), repetitions=2)
    assert [sample.elapsed_ns for sample in samples] == [VERIFY_PASSES * 4_000] * 2
    assert [sample.n_tokens for sample in samples] == [VERIFY_PASSES * 4] * 2
    assert found.token_ns is not None
    assert list(found.token_ns) == [4_000] * VERIFY_PASSES * 2
    assert stages == ["fill", "fill", "warmup", "verify"]
    assert engine.n_past() == 20


def test_a_model_that_cannot_take_tokens_back_cannot_verify() -> None:
    engine = FakeEngine(FakeClock())
    engine.takes_back = False
    with pytest.raises(EngineError, match="cannot take tokens back"):
        run(engine, Test(n_prompt=0, n_gen=0, n_verify=2))


def test_a_context_that_is_not_empty_before_a_repetition_is_an_error() -> None:
    engine = FakeEngine(FakeClock())

    def leak(_: Sample) -> None:
        engine.leaks = True

    with pytest.raises(EngineError, match="holds 4 tokens where the test needs 0"):
        run(engine, Test(n_prompt=4, n_gen=0), on_sample=leak)


def test_the_warm_up_is_no_sample_and_stops_when_two_passes_agree() -> None:
    samples, _, found = run(FakeEngine(FakeClock()), Test(n_prompt=4, n_gen=0), repetitions=2)
    assert len(samples) == 2
    assert found.warmup_passes == 2


def test_the_warm_up_ends_after_three_passes_when_they_do_not_agree() -> None:
    engine = FakeEngine(FakeClock())
    process = engine.process

    def slower_each_time(batch: list[int]) -> None:
        engine.slower_ns += 10_000_000
        process(batch)

    engine.process = slower_each_time  # type: ignore[method-assign]
    _, _, found = run(engine, Test(n_prompt=0, n_gen=1), repetitions=1)
    assert found.warmup_passes == 3


def test_a_slow_models_warm_up_is_cut_short() -> None:
    engine = FakeEngine(FakeClock(), gen_ns=400_000_000)
    _, _, found = run(engine, Test(n_prompt=0, n_gen=128), repetitions=1)
    assert found.warmup_passes == 1
    assert found.warmup_seconds == pytest.approx(0.4)


def test_a_warm_up_decodes_a_few_tokens_because_all_are_alike() -> None:
    engine = FakeEngine(FakeClock(), gen_ns=1_000_000)
    _, _, found = run(engine, Test(n_prompt=0, n_gen=128), repetitions=1)
    assert found.warmup_passes == 2
    assert found.warmup_seconds == pytest.approx(0.016)


def test_a_long_prompt_is_its_own_warm_up_once() -> None:
    engine = FakeEngine(FakeClock(), prompt_ns=20_000_000)
    _, _, found = run(engine, Test(n_prompt=64, n_gen=0), repetitions=1)
    assert found.warmup_passes == 1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_no_models_answer(bad: float) -> None:
    engine = FakeEngine(FakeClock())
    engine.answer = [0.0, bad]
    with pytest.raises(EngineError, match="not finite"):
        run(engine, Test(n_prompt=4, n_gen=0))


def test_logits_that_are_all_equal_are_no_models_answer() -> None:
    engine = FakeEngine(FakeClock())
    engine.answer = [0.5] * 4
    with pytest.raises(EngineError, match="all equal"):
        run(engine, Test(n_prompt=4, n_gen=0))


def test_a_clock_that_stands_still_gives_no_sample() -> None:
    with pytest.raises(EngineError, match="did not advance"):
        run(FakeEngine(FakeClock(), prompt_ns=0), Test(n_prompt=4, n_gen=0))


def test_what_llama_cpp_refuses_is_said_in_words_and_earlier_samples_stay() -> None:
    engine = FakeEngine(FakeClock())
    samples: list[Sample] = []

    def refuse_from_now_on(sample: Sample) -> None:
        samples.append(sample)
        engine.refuse_at = 3

    with pytest.raises(EngineError, match="no room left"):
        run(engine, Test(n_prompt=4, n_gen=0), on_sample=refuse_from_now_on)
    assert len(samples) == 1


def test_the_cpu_share_is_that_of_all_measuring_threads() -> None:
    samples, _, _ = run(FakeEngine(FakeClock()), Test(n_prompt=0, n_gen=2), repetitions=1)
    assert samples[0].cpu_share == pytest.approx(1.0)


def test_the_same_seed_gives_the_same_tokens_with_bos_first() -> None:
    engine = FakeEngine(FakeClock())
    tokens = random_tokens(engine, 50, 3, True)
    assert tokens == random_tokens(engine, 50, 3, True)
    assert tokens != random_tokens(engine, 50, 4, True)
    assert tokens[0] == engine.bos
    assert all(0 <= token < engine.n_vocab for token in tokens)


def test_latency_percentiles_are_values_that_were_measured() -> None:
    from array import array

    found = latency(array("q", range(1_000, 101_000, 1_000)))
    assert (found.p50_ns, found.p95_ns, found.p99_ns, found.max_ns) == (50_000, 95_000, 99_000, 100_000)
    assert sum(found.histogram) == 100


def test_the_histogram_has_two_bins_per_doubling_from_one_microsecond() -> None:
    from array import array

    found = latency(array("q", [1_000, 1_415, 2_000, 4_000_000]))
    assert [i for i, n in enumerate(found.histogram) if n] == [0, 1, 2, 23]
