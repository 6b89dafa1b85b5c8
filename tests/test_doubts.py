"""Repetitions that drift or differ, and the arithmetic of rates, with numbers from public reports."""

import json
from array import array

import pytest

from orchestrator.report import results_table, run_summary
from orchestrator.rows import summary
from schema.job import Test
from schema.record import Conditions, Effective, Latency, Sample
from tests.factories import make_samples
from tests.fakes import FakeClock, FakeEngine
from tests.measuring import measure
from tests.shared import CASES, needs_cases
from worker.conditions.verdict import Given, judge, passed
from worker.doubts import measures, unheeded, unsteady
from worker.run import latency
from worker.seam import EngineError

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
        (ONE_SLOW, "first-run effect: the first repetition was 27% slower than the later ones, which agree"),
        ([70.0, 50.2, 70.1, 69.8, 50.0, 50.1, 70.2], "two speeds: 3 of 7 repetitions were 28% slower than the others"),
        ([50.2, 50.0, 70.1, 70.0, 50.1, 70.2], "two speeds: 3 of 6 repetitions were 29% slower than the others"),
        ([100.0, 99.8, 80.0, 79.9], "drifts: the rate fell by 28% over 4 repetitions"),
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
        [100.0, 100.1, 102.0, 102.1, 99.9],
        [98.0, 100.0, 100.1, 99.9],
    ],
)
def test_steady_rates_and_too_few_are_not_flagged(rates: list[float]) -> None:
    assert unsteady(at(*rates)) == ()


def test_a_machine_that_was_busy_before_is_named_and_one_after_a_full_benchmark_is_not() -> None:
    def reasons(load1: float | None, n_cores: int | None) -> list[tuple[str, str]]:
        return passed(measures((), None, Conditions(load1_before=load1), n_cores))

    assert reasons(11.8, 4) == [("noisy", "begun under load: 11.8 processes wanted 4 CPUs in the minute before")]
    assert reasons(4.2, 4) == reasons(None, 4) == reasons(11.8, None) == []


def test_a_rate_that_fell_while_the_machine_warmed_up_says_so() -> None:
    warm = Conditions(temperature_before_c=61.0, temperature_max_c=83.4)
    (found,) = passed(measures(at(*HOT_DECODE), None, warm))
    assert found == ("noisy", "drifts: the rate fell by 16% over 5 repetitions, while it warmed from 61 to 83 °C")


def decoded(*token_ms: float) -> tuple[tuple[Sample, ...], Latency]:
    """Return one repetition of tokens that took so long, and their latencies."""
    times = array("q", (round(ms * 1e6) for ms in token_ms))
    sample = Sample(repetition=1, n_tokens=len(times), elapsed_ns=sum(times), gen_ns=sum(times))
    return (sample,), latency(times)


def test_single_tokens_that_took_long_are_named_with_what_they_cost() -> None:
    (found,) = passed(measures(*decoded(*[10.0] * 31, 330.0)))
    assert found == ("noisy", "single tokens that took long cost 50% of the time, one of them 330 ms")
    assert passed(measures(*decoded(*[10.0 + number / 10 for number in range(32)]))) == []
    assert passed(measures(at(5.0), latency(array("q", [1])))) == []


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


@needs_cases
def test_the_numbers_of_public_reports_come_out_right() -> None:
    hot = json.loads((CASES / "D2/trials.json").read_text())
    paused = json.loads((CASES / "D2/trials_with_pause.json").read_text())
    for part in ("prefill_ts", "decode_ts"):
        assert unsteady(at(*hot[part]))[0].startswith("drifts")
        assert unsteady(at(*paused[part])) == ()
    slow = json.loads((CASES / "D12/one_slow_of_three.json").read_text())
    busy = Conditions(
        load1_before=slow["loadavg_1m"][0],
        on_battery=slow["on_battery"],
        thermal_throttles=slow["throttle_count_delta"][0],
    )
    quality, reasons = judge(busy, Given(n_threads=4, n_cpus=4), measures(at(*slow["decode_ts"]), None, busy, 4))
    assert quality == "throttled"
    assert [words.split(" ")[0] for words in reasons] == ["the", "ran", "begun", "first-run"]
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
