"""Repetitions that drift or differ, and the arithmetic of rates, with numbers from public reports."""

import json
from pathlib import Path

import pytest

from orchestrator.report import results_table, run_summary
from orchestrator.rows import summary
from schema.job import Test
from schema.record import Effective, Sample
from tests.factories import make_samples
from tests.fakes import FakeClock, FakeEngine
from worker.doubts import loaded, unheeded, unsteady
from worker.measure import measure
from worker.seam import EngineError

CASES = Path(__file__).parents[1].parent / "shared" / "cases"
HOT_PREFILL = [204.0, 139.1, 152.8, 161.0, 150.2]
HOT_DECODE = [21.1, 18.9, 18.7, 17.5, 18.0]
ONE_SLOW = [50.9, 69.6, 70.0]
SECOND_NS = 1_000_000_000


def at(*rates: float) -> tuple[Sample, ...]:
    """Return repetitions of 1000 tokens at these rates."""
    return make_samples(Test(n_prompt=1000, n_gen=0), *(round(1000 * SECOND_NS / rate) for rate in rates))


@pytest.mark.parametrize(
    ("rates", "reason"),
    [
        (HOT_DECODE, "drifts: the rate fell by 16% over 5 repetitions"),
        (HOT_PREFILL, "drifts: the first repetition was 35% faster than the later ones"),
        ([100.0, 98.0, 96.0, 94.0], "drifts: the rate fell by 6% over 4 repetitions"),
        ([90.0, 95.0, 100.0], "drifts: the rate rose by 11% over 3 repetitions"),
        (ONE_SLOW, "repetition 1 was 27% slower than the median"),
        ([70.0, 69.6, 50.9, 70.1, 69.9], "repetition 3 was 27% slower than the median"),
    ],
)
def test_rates_that_drift_or_differ_are_flagged_with_the_number(rates: list[float], reason: str) -> None:
    assert unsteady(at(*rates)) == (reason,)


@pytest.mark.parametrize(
    "rates",
    [
        [203.1, 202.2, 204.4, 201.9, 203.0],
        [21.0, 21.2, 21.1, 20.9, 21.1],
        [100.0, 99.5, 99.0],
        [100.0],
        [100.0, 50.0],
    ],
)
def test_steady_rates_and_too_few_are_not_flagged(rates: list[float]) -> None:
    assert unsteady(at(*rates)) == ()


def test_a_machine_that_was_busy_before_is_named_and_one_after_a_full_benchmark_is_not() -> None:
    assert loaded(11.8, 4) == ("begun under load: 11.8 processes wanted 4 CPUs in the minute before",)
    assert loaded(4.2, 4) == ()
    assert loaded(None, 4) == ()
    assert loaded(11.8, None) == ()


def test_layers_are_missed_only_where_there_is_a_gpu_and_they_were_asked_for() -> None:
    none = {"n_gpu_layers": Effective(value=0, source="devices")}
    assert unheeded({"n_gpu_layers": "all"}, none, has_gpu=True)
    assert unheeded({"n_gpu_layers": 0}, none, has_gpu=True) == ()
    assert unheeded({"n_gpu_layers": "all"}, none, has_gpu=False) == ()
    assert unheeded({"n_gpu_layers": 99}, {"n_gpu_layers": Effective(value=29, source="log")}, has_gpu=True) == ()
    assert unheeded({}, {}, has_gpu=True) == ()


def test_prefill_is_over_its_own_time_and_decode_over_its_own() -> None:
    test = Test(n_prompt=512, n_gen=128)
    prompt_ns, gen_ns = 320_000_000, 2_098_000_000
    sample = Sample(repetition=1, n_tokens=640, elapsed_ns=prompt_ns + gen_ns, prompt_ns=prompt_ns, gen_ns=gen_ns)
    found = summary([sample], test)
    assert found["prompt_ts"] == pytest.approx(1600.0)
    assert found["gen_ts"] == pytest.approx(61.01, abs=0.005)
    assert found["avg_ts"] == pytest.approx(264.68, abs=0.005)


def timed(engine: FakeEngine, test: Test, repetitions: int = 1) -> list[Sample]:
    samples: list[Sample] = []
    measure(engine, test, repetitions, 7, engine.clock, lambda _: None, samples.append, engine.clock, 1)
    return samples


def test_a_decode_rate_is_intervals_over_their_time_and_no_token_counts_twice() -> None:
    engine = FakeEngine(FakeClock(), prompt_ns=500_000, gen_ns=20_000_000)
    test = Test(n_prompt=1000, n_gen=10)
    (sample,) = timed(engine, test)
    found = summary([sample], test)
    assert (sample.prompt_ns, sample.gen_ns) == (500_000_000, 200_000_000)
    assert found["gen_ts"] == pytest.approx(50.0)
    assert found["prompt_ts"] == pytest.approx(2000.0)


def test_reading_a_cold_file_in_costs_the_warm_up_and_no_repetition() -> None:
    engine = FakeEngine(FakeClock(), prompt_ns=14_492_754)
    process, cold = engine.process, [14_617_000_000]

    def page_in_first(batch: object) -> None:
        process(batch)
        engine.pending += cold.pop() if cold else 0

    engine.process = page_in_first  # type: ignore[method-assign]
    samples = timed(engine, Test(n_prompt=13, n_gen=0), repetitions=3)
    assert cold == []
    assert [summary([sample], Test(n_prompt=13, n_gen=0))["avg_ts"] for sample in samples] == pytest.approx([69.0] * 3)


def test_a_clock_that_stands_still_in_one_part_alone_gives_no_sample() -> None:
    with pytest.raises(EngineError, match="did not advance"):
        timed(FakeEngine(FakeClock(), prompt_ns=0), Test(n_prompt=8, n_gen=2))
    with pytest.raises(EngineError, match="did not advance during a token"):
        timed(FakeEngine(FakeClock(), gen_ns=0), Test(n_prompt=8, n_gen=2))


def row(rates: list[float], method: str = "llama-cpp-python") -> dict[str, object]:
    test = Test(n_prompt=1000, n_gen=0)
    return {"kind": "pp", "test": "pp1000", "model": "m", "method": method, **summary(at(*rates), test)}


def test_a_median_stands_beside_a_mean_that_is_noticeably_another() -> None:
    for lines in (results_table([row(ONE_SLOW)]), run_summary([row(ONE_SLOW)], [], "x")):
        text = "\n".join(lines)
        assert "median t/s" in text
        assert "63.50" in text
        assert "69.60" in text
    assert "161.4 ± " in "\n".join(results_table([row(HOT_PREFILL)]))
    assert "152.8" in "\n".join(results_table([row(HOT_PREFILL)]))
    assert "median" not in "\n".join(results_table([row([21.0, 21.2, 21.1])]))


def test_rows_of_the_stand_in_say_so_in_every_table() -> None:
    rows = [row([20.0, 20.0]), row([10.0, 10.0], method="fake")]
    assert [line.rstrip().endswith("fake") or " fake " in line for line in results_table(rows)[2:]] == [False, True]
    assert any("fake" in line for line in run_summary(rows, [], "x"))
    assert not any("method" in line for line in results_table(rows[:1]))


@pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not here")
def test_the_numbers_of_public_reports_come_out_right() -> None:
    hot = json.loads((CASES / "D2/trials.json").read_text())
    paused = json.loads((CASES / "D2/trials_with_pause.json").read_text())
    for part in ("prefill_ts", "decode_ts"):
        assert unsteady(at(*hot[part]))[0].startswith("drifts")
        assert unsteady(at(*paused[part])) == ()
    assert unsteady(at(*json.loads((CASES / "D12/one_slow_of_three.json").read_text())["decode_ts"]))
    raw, right = (json.loads((CASES / "D7" / name).read_text()) for name in ("raw.json", "expected.json"))
    test = Test(n_prompt=raw["n_prompt"], n_gen=raw["n_gen"])
    prompt_ns, gen_ns = round(raw["prefill_s"] * SECOND_NS), round(raw["decode_s"] * SECOND_NS)
    sample = Sample(
        repetition=1, n_tokens=test.n_tokens, elapsed_ns=prompt_ns + gen_ns, prompt_ns=prompt_ns, gen_ns=gen_ns
    )
    found = summary([sample], test)
    assert found["prompt_ts"] == pytest.approx(right["prefill_ts"])
    assert round(found["gen_ts"], 2) == right["decode_ts"]
    assert found["gen_ts"] not in right["wrong"].values()
