import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from schema.accept import LOG_LINES, accept_fingerprint, accept_record, check_record
from schema.canonical import to_json
from schema.errors import StoreError
from schema.record import Conditions, Effective, GpuConditions, Sample
from tests.factories import make_failure, make_fingerprint, make_latency, make_record


def payload_of(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(to_json(value))
    return found


def refusal(payload: Any) -> str:
    with pytest.raises(StoreError) as raised:
        accept_record(payload)
    return str(raised.value)


def with_sample(**fields: Any) -> dict[str, Any]:
    payload = payload_of(make_record())
    payload["samples"][1] |= fields
    return payload


def test_a_record_that_went_through_json_is_the_same_record() -> None:
    record = make_record()
    assert accept_record(payload_of(record)) == record
    failed = make_record(failure=make_failure(signal="SIGABRT", exit_code=-6))
    assert accept_record(payload_of(failed)) == failed


def test_a_payload_that_was_never_json_is_accepted_alike() -> None:
    assert accept_record(asdict(make_record())) == make_record()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_refused_by_the_name_of_its_field(number: float) -> None:
    assert "samples.1.cpu_share is" in refusal(with_sample(cpu_share=number))
    assert "load_seconds is" in refusal(payload_of(make_record()) | {"load_seconds": number})
    assert "in_effect.n_batch.value is" in refusal(
        payload_of(make_record()) | {"in_effect": {"n_batch": {"value": number, "source": "log"}}}
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [("elapsed_ns", 0), ("elapsed_ns", -5), ("prompt_ns", 0), ("gen_ns", -1), ("n_tokens", 0), ("cpu_share", -0.1)],
)
def test_time_and_tokens_of_a_sample_are_above_zero(field: str, value: float) -> None:
    assert f"samples.1.{field} is {value}, but must" in refusal(with_sample(**{field: value}))


def test_latencies_conditions_and_durations_are_not_negative() -> None:
    assert "latency.p95_ns is 0" in refusal(payload_of(make_record(latency=make_latency(p95_ns=0))))
    assert "conditions.steal_share is -0.5" in refusal(payload_of(make_record(conditions=Conditions(steal_share=-0.5))))
    assert "warmup_seconds is -1" in refusal(payload_of(make_record(warmup_seconds=-1.0)))


def test_a_gpu_that_nothing_held_down_is_accepted() -> None:
    gpu = GpuConditions(index=0, name="T4", violation_ns={"thermal": 0, "power": 5})
    record = make_record(conditions=Conditions(gpu=(gpu,)))
    assert accept_record(payload_of(record)) == record


def test_settings_and_exit_codes_may_be_negative() -> None:
    effective = {"n_gpu_layers": Effective(value=-1, source="log")}
    record = make_record(in_effect=effective, resolved={"n_gpu_layers": -1}, failure=make_failure(exit_code=-9))
    assert accept_record(payload_of(record)) == record


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02T03:04:05",
        "2026-01-02 03:04:05Z",
        "2026-01-02T03:04:05+01:00",
        "2026-13-02T03:04:05Z",
        "yesterday",
        "1743298200",
        "",
    ],
)
def test_a_time_that_is_not_utc_is_refused_by_name(text: str) -> None:
    assert "started_at is" in refusal(payload_of(make_record()) | {"started_at": text})


@pytest.mark.parametrize(
    "text", ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789Z", "2026-01-02T03:04:05+00:00"]
)
def test_a_time_in_utc_is_accepted(text: str) -> None:
    assert accept_record(payload_of(make_record()) | {"started_at": text}).started_at == text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": "red"}, "colour"),
        ({"number": "1"}, "number"),
        ({"number": 1.0}, "number"),
        ({"number": True}, "number"),
        ({"status": "done"}, "status"),
        ({"samples": [{"repetition": 0}]}, "samples.0.n_tokens"),
        ({"attempt_uid": ""}, "attempt_uid is empty"),
        ({"attempt_uid": None}, "attempt_uid"),
        ({"samples": []}, "samples is empty"),
        ({"failure": asdict(make_failure())}, "failure"),
        ({"status": "failed", "samples": []}, "failure is None"),
        ({"status": "failed", "failure": asdict(make_failure(stage="lunch"))}, "failure.stage is 'lunch'"),
        ({"number": 2**70}, "number"),
        ({"attempt_uid": "u" * 5000}, "attempt_uid has 5000 characters"),
        ({"quality_reasons": ["hot"] * 2000}, "quality_reasons has 2000 entries"),
        ({"resolved": {"k" * 5000: 1}}, "resolved"),
    ],
)
def test_a_wrong_record_is_refused_by_the_name_of_its_field(change: dict[str, Any], words: str) -> None:
    assert words in refusal(payload_of(make_record()) | change)


def test_a_field_that_is_missing_is_named() -> None:
    payload = payload_of(make_record())
    del payload["job_uid"]
    assert "job_uid" in refusal(payload)


@pytest.mark.parametrize("payload", [None, [], "text", 7, {"attempt_uid": {1, 2}}, {"a": object()}])
def test_what_is_no_record_at_all_is_refused(payload: Any) -> None:
    assert "refused" in refusal(payload)


def test_nesting_without_end_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert "refused" in refusal({"resolved": deep})
    while deep:  # let go of it level by level: the collector's own recursion is not under test
        deep = deep[0]


def test_too_many_samples_are_refused_and_two_of_one_repetition_too() -> None:
    sample = Sample(repetition=0, n_tokens=512, elapsed_ns=1)
    many = tuple(replace(sample, repetition=number) for number in range(10_001))
    assert "samples has 10001 entries" in refusal(payload_of(make_record(samples=many)))
    assert "same repetition" in refusal(payload_of(make_record(samples=(sample, sample))))


def test_a_payload_of_many_megabytes_is_refused_before_it_is_read() -> None:
    assert "bytes, more than" in refusal({"attempt_uid": "x" * 9_000_000})


def test_a_long_log_is_cut_to_its_end_rather_than_refused() -> None:
    lines = (*(f"line {number}" for number in range(500)), "y" * 5000)
    record = accept_record(payload_of(make_record(failure=make_failure(log_tail=lines))))
    assert record.failure is not None
    assert len(record.failure.log_tail) == LOG_LINES
    assert record.failure.log_tail[-2] == "line 499"
    assert len(record.failure.log_tail[-1]) == 2000


def test_characters_that_no_database_takes_are_replaced() -> None:
    failure = make_failure(message="half \ud83d", log_tail=("a\0b", "研究室-01 O'Brien | \u202e"))
    record = accept_record(asdict(make_record(failure=failure)))
    assert record.failure is not None
    assert record.failure.message == "half \ufffd"
    assert record.failure.log_tail == ("a\ufffdb", "研究室-01 O'Brien | \u202e")


def test_records_made_in_this_process_are_checked_by_the_same_rules() -> None:
    with pytest.raises(StoreError, match=r"load_seconds is nan"):
        check_record(make_record(load_seconds=float("nan")))


def test_a_fingerprint_that_went_through_json_is_the_same_and_a_wrong_one_is_named() -> None:
    fingerprint = make_fingerprint()
    assert accept_fingerprint(payload_of(fingerprint)) == fingerprint
    for change, words in (
        ({"host_uid": ""}, "host_uid is empty"),
        ({"taken_at": "2026-01-02T03:00:00"}, "taken_at is"),
        ({"hostname": "x" * 5000}, "hostname has 5000 characters"),
        ({"allocation": {"cpu_quota_cores": float("nan")}}, "allocation.cpu_quota_cores is nan"),
        ({"hardware": {"arch": "x86_64", "memory_gib": -1}}, "hardware.memory_gib is -1"),
    ):
        with pytest.raises(StoreError, match=words):
            accept_fingerprint(payload_of(fingerprint) | change)


@pytest.mark.parametrize("evidence", [{"board_serial": "PF3XYZ12"}, {"macs": ["10:7b:44:00:00:01"]}])
def test_a_serial_number_that_is_no_keyed_hash_is_refused(evidence: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match=r"evidence\.(board_serial|macs) is no keyed hash"):
        accept_fingerprint(payload_of(make_fingerprint()) | {"evidence": evidence})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"allocation": {"cpu_quota_cores": 0.0}}, "cpu_quota_cores is 0.0, but must be above zero"),
        ({"environment": {"page_bytes": 0}}, "page_bytes is 0"),
        ({"memory_modules": {"source": "udev", "bus_bits": 0}}, "bus_bits is 0"),
        ({"state": {"uptime_seconds": -1.0}}, "uptime_seconds is -1.0"),
        ({"evidence": {"seen_at": "yesterday"}}, "evidence.seen_at is 'yesterday', not a time in UTC"),
    ],
)
def test_what_no_machine_can_be_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(StoreError, match=words):
        accept_fingerprint(payload_of(make_fingerprint()) | change)


def test_the_source_of_a_fact_may_have_any_name() -> None:
    fingerprint = make_fingerprint(sources={"taken_at": "the clock", "elapsed_ns": "the clock"})
    assert accept_fingerprint(payload_of(fingerprint)) == fingerprint


def test_pydantic_is_loaded_only_when_something_is_accepted() -> None:
    imports = "import sys, schema.accept, orchestrator.spool, orchestrator.ask"
    code = f"{imports}; print({{'pydantic', 'sqlalchemy'}} & set(sys.modules))"
    root = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
