"""The border: what workers send is checked here, once, before it becomes a value or a row.

Types and keys are pydantic's business; numbers, times and sizes are checked by field, from the names:
`…_ns` (but for what others counted) and `n_tokens` are above zero, `…_at` is UTC, no number is NaN,
infinite or, but for a few that may be, negative. Every refusal is a StoreError with the field's name and its value.
"""

import dataclasses
import functools
import json
import math
import re
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from schema.errors import StoreError
from schema.host import Evidence, Fingerprint
from schema.job import Job
from schema.probe import Probe
from schema.record import STAGES, Record
from schema.run import Run

if TYPE_CHECKING:
    from pydantic import TypeAdapter

PAYLOAD_BYTES = 8 * 1024 * 1024
LOG_LINES = 200
LINE_CHARACTERS = 2000
SAMPLES = 10_000
ITEMS = 1000
CHARACTERS = 4000
LONG_TEXTS = {"message": 20_000, "system_info": 20_000, "cmake_args": 20_000, "log_tail": LINE_CHARACTERS} | {
    "sweep_text": 1 << 20,
    "spec": 5000,
    "identity": 5000,
}
MAY_BE_NEGATIVE = frozenset({"exit_code", "resolved", "value"})
MAY_BE_ZERO = frozenset({"violation_ns"})
"""What a driver counted, unlike what we timed."""

ABOVE_ZERO = frozenset(
    {"n_tokens", "number", "file_bytes", "cpu_quota_cores", "memory_limit_bytes", "page_bytes"}
    | {"power_limit_watts", "configured_mts", "bus_bits"}
)
PLAIN_EVIDENCE = frozenset({"boot_id", "booted_at", "seen_at"})
"""What of a host's evidence is kept as it is: all else must be a keyed hash, never a serial number itself."""

_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_HASH = re.compile("[0-9a-f]{32}")
_UTC = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")


def accept_record(payload: dict[str, Any]) -> Record:
    """Return the record in `payload` (parsed JSON), or raise StoreError naming the field that is wrong.

    A log's tail is cut to its last 200 lines of 2000 characters; nothing else is altered, except that
    characters no database takes (NUL, half of a surrogate pair) become U+FFFD.
    """
    record: Record = _accept(Record, _with_short_log(payload))
    check_record(record)
    return record


def accept_fingerprint(payload: dict[str, Any]) -> Fingerprint:
    """Return the fingerprint in `payload` (parsed JSON), or raise StoreError naming the field that is wrong."""
    fingerprint: Fingerprint = _accept(Fingerprint, payload)
    check_fingerprint(fingerprint)
    return fingerprint


def accept_probe(payload: dict[str, Any]) -> Probe:
    """Return the probe in `payload` (parsed JSON), or raise StoreError naming the field that is wrong."""
    probe: Probe = _accept(Probe, payload)
    check_probe(probe)
    return probe


def accept_run(payload: Any) -> Run:
    """Return the run in `payload` (parsed JSON), or raise StoreError naming the field that is wrong."""
    run: Run = _accept(Run, payload)
    _check(run, f"The run {run.run_uid!r:.80}")
    _check_named(run, f"The run {run.run_uid!r:.80}", "run_uid")
    return run


def accept_job(payload: Any) -> Job:
    """Return the job in `payload` (parsed JSON), or raise StoreError naming the field that is wrong."""
    job: Job = _accept(Job, payload)
    what = f"A job of run {job.run_uid!r:.80}"
    _check(job, what)
    _check_named(job, what, "run_uid", "host_uid")
    if not job.model.identity or job.test.n_tokens < 1 or job.repetitions < 1 or job.timeout_seconds <= 0:
        raise StoreError(f"{what} was refused: it has no model, no tokens, no repetition or no time.")
    return job


def check_record(record: Record) -> None:
    """Raise StoreError where a value of `record` must not be stored, or its parts contradict each other."""
    what = f"The record of attempt {record.attempt_uid!r:.80}"
    _check(record, what)
    _check_named(record, what, "attempt_uid", "job_uid", "run_uid", "host_uid")
    if record.status == "measured" and not record.samples:
        raise StoreError(f"{what} was refused: status is 'measured' but samples is empty.")
    if (record.status == "failed") != (record.failure is not None):
        raise StoreError(f"{what} was refused: status is {record.status!r} but failure is {record.failure!r:.80}.")
    if record.failure is not None and record.failure.stage not in STAGES:
        raise StoreError(f"{what} was refused: failure.stage is {record.failure.stage!r:.80}, not one of {STAGES}.")
    if len({sample.repetition for sample in record.samples}) != len(record.samples):
        raise StoreError(f"{what} was refused: two of its samples have the same repetition.")


def check_fingerprint(fingerprint: Fingerprint) -> None:
    """Raise StoreError where a value of `fingerprint` must not be stored."""
    what = f"The fingerprint of host {fingerprint.hostname!r:.80}"
    _check(fingerprint, what)
    _check_named(fingerprint, what, "host_uid")
    _check_evidence(fingerprint.evidence, what)


def check_probe(probe: Probe) -> None:
    """Raise StoreError where a value of `probe` must not be stored."""
    what = f"The probe {probe.probe_uid!r:.80}"
    _check(probe, what)
    _check_named(probe, what, "probe_uid", "host_uid")
    if probe.value is not None and probe.value <= 0:
        raise StoreError(f"{what} was refused: value is {probe.value}, but must be above zero.")


def _check_named(value: Any, what: str, *uids: str) -> None:
    for uid in uids:
        if not getattr(value, uid):
            raise StoreError(f"{what} was refused: {uid} is empty.")


def _check_evidence(evidence: Evidence | None, what: str) -> None:
    for field in dataclasses.fields(Evidence) if evidence else ():
        if field.name in PLAIN_EVIDENCE:
            continue
        value = getattr(evidence, field.name)
        for text in value if isinstance(value, tuple) else () if value is None else (value,):
            if not _HASH.fullmatch(text):
                raise StoreError(f"{what} was refused: evidence.{field.name} is no keyed hash of 32 digits.")


def _accept(cls: type, payload: Any) -> Any:
    from pydantic import ValidationError

    what = f"A {cls.__name__.lower()} was refused"
    try:
        text = json.dumps(_clean(payload), ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreError(f"{what}: it is not JSON ({error}).") from None
    if len(text) > PAYLOAD_BYTES:
        raise StoreError(f"{what}: it has {len(text)} bytes, more than {PAYLOAD_BYTES}.")
    try:
        return _adapter(cls).validate_json(text, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise StoreError(f"{what}: {where}: {first['msg']} (it is {first['input']!r:.80}).") from None


@functools.cache
def _adapter(cls: type) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


def _clean(value: Any) -> Any:
    """Return `value` with characters that no database stores replaced, in keys and texts at every depth."""
    if isinstance(value, str):
        return _NOT_TEXT.sub("\ufffd", value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    return value


def _with_short_log(payload: Any) -> Any:
    failure = payload.get("failure") if isinstance(payload, dict) else None
    lines = failure.get("log_tail") if isinstance(failure, dict) else None
    if not isinstance(failure, dict) or not isinstance(lines, list | tuple):
        return payload
    short = [line[:LINE_CHARACTERS] if isinstance(line, str) else line for line in lines[-LOG_LINES:]]
    return payload | {"failure": failure | {"log_tail": short}}


def _check(value: Any, what: str) -> None:
    for path, field, leaf in _leaves(value, "", ""):
        problem = _problem(field, leaf)
        if problem:
            raise StoreError(f"{what} was refused: {path} {problem}.")


def _leaves(value: Any, path: str, field: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (path, name of the dataclass field it lies in, value) of every number, text and collection."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for own in dataclasses.fields(value):
            yield from _leaves(getattr(value, own.name), f"{path}.{own.name}".lstrip("."), own.name)
    elif value is not None:
        yield path, field, value
        if isinstance(value, dict | tuple):
            for key, item in value.items() if isinstance(value, dict) else enumerate(value):
                yield f"{path}, a key,", field, key
                yield from _leaves(item, f"{path}.{key!s:.80}", field)


def _problem(field: str, leaf: Any) -> str | None:
    if isinstance(leaf, bool) or dataclasses.is_dataclass(leaf):
        return None
    if isinstance(leaf, int | float):
        return _number_problem(field, leaf)
    if isinstance(leaf, str):
        return _text_problem(field, leaf)
    most = {"samples": SAMPLES, "log_tail": LOG_LINES}.get(field, ITEMS)
    return f"has {len(leaf)} entries, more than {most}" if len(leaf) > most else None


def _number_problem(field: str, number: float) -> str | None:
    if not math.isfinite(number):
        return f"is {number}, not a finite number"
    if abs(number) >= 2**63 and isinstance(number, int):
        return f"is {number!r:.80}, too large for a database"
    if number <= 0 and (field.endswith("_ns") or field in ABOVE_ZERO) and field not in MAY_BE_ZERO:
        return f"is {number}, but must be above zero"
    if number < 0 and field not in MAY_BE_NEGATIVE:
        return f"is {number}, but must not be negative"
    return None


def _text_problem(field: str, text: str) -> str | None:
    most = LONG_TEXTS.get(field, CHARACTERS)
    if len(text) > most:
        return f"has {len(text)} characters, more than {most}"
    if field.endswith("_at") and not _is_utc(text):
        return f"is {text!r:.80}, not a time in UTC such as 2026-01-02T03:04:05Z"
    return None


def _is_utc(text: str) -> bool:
    if not _UTC.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
