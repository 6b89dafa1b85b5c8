"""Values as rows and rows as values (pure): what goes into which column, and what an attempt's samples come to.

The rows of machines are made in `orchestrator.machine_rows`.
"""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from orchestrator.machine_rows import instant, text_of
from schema.canonical import digest
from schema.job import Job, ModelRef, Test
from schema.record import Conditions, ModelFacts, Record, Sample, Value
from schema.run import Run
from schema.settings import NUMBERS, SYMBOLIC_SETTINGS, Settings

Row = dict[str, Any]

INTEGER_SETTINGS = (*NUMBERS, *SYMBOLIC_SETTINGS)
TEXT_SETTINGS = tuple(f.name for f in fields(Settings) if f.name not in (*INTEGER_SETTINGS, "env"))


def run_row(run: Run) -> Row:
    """Return the row of `run`."""
    return asdict(run) | {"created_at": instant(run.created_at)}


def run_value(row: Mapping[str, Any]) -> Run:
    """Return the run that `row` keeps."""
    own = {field.name: row[field.name] for field in fields(Run)}
    return Run(**(own | {"created_at": text_of(row["created_at"])}))


def job_row(job: Job, run_id: int, host_id: int, model_id: int) -> Row:
    """Return the row of `job`; settings that may be symbols are kept as text."""
    asked = {f"asked_{name}": value for name, value in asdict(job.settings).items()}
    return {
        "job_uid": job.job_uid,
        "run_id": run_id,
        "host_id": host_id,
        "model_id": model_id,
        "config_key": job.config_key,
        "replica": job.replica,
        "model_source": job.model.source,
        "model_spec": job.model.spec,
        "build": job.build,
        "kind": job.test.kind,
        "test": job.test.name,
        **asdict(job.test),
        **asked,
        **{f"asked_{name}": str(asked[f"asked_{name}"]) for name in SYMBOLIC_SETTINGS},
        "repetitions": job.repetitions,
        "seed": job.seed,
        "timeout_seconds": job.timeout_seconds,
        "interleaved": job.interleaved,
        "across": job.across,
    }


def job_value(row: Mapping[str, Any]) -> Job:
    """Return the job that `row` keeps; it needs `run_uid`, `host_uid` and the model's `identity` besides."""
    settings = {field.name: row[f"asked_{field.name}"] for field in fields(Settings)}
    settings |= {name: _number_or_symbol(settings[name]) for name in SYMBOLIC_SETTINGS}
    return Job(
        run_uid=row["run_uid"],
        host_uid=row["host_uid"],
        model=ModelRef(source=row["model_source"], spec=row["model_spec"], identity=row["identity"]),
        test=Test(**{field.name: row[field.name] for field in fields(Test)}),
        settings=Settings(**settings),
        build=row["build"],
        replica=row["replica"],
        repetitions=row["repetitions"],
        seed=row["seed"],
        timeout_seconds=row["timeout_seconds"],
        interleaved=bool(row["interleaved"]),
        across=row["across"],
    )


def model_row(model: ModelRef) -> Row:
    """Return the row of a model as planned, with a short name for people."""
    name = model.spec if model.source == "synthetic" else re.split(r"[\\/]", model.spec)[-1]
    return {"identity": model.identity, "name": name}


def model_facts_row(facts: ModelFacts) -> Row:
    """Return the row of the file that was measured; its identity is its content."""
    own = asdict(facts)
    filename = own.pop("filename")
    return {"identity": f"sha256:{facts.sha256}", "name": re.split(r"[\\/]", filename)[-1], **own}


def attempt_row(record: Record, test: Test) -> Row:
    """Return the row of `record` but for its job, model and standing (`final`, `superseded`, `number`)."""
    return {
        "attempt_uid": record.attempt_uid,
        "status": record.status,
        "started_at": instant(record.started_at),
        "ended_at": instant(record.ended_at),
        **{name: getattr(record, name) for name in ("hardware_id", "allocation_id", "environment_id", "build_id")},
        "model_filename": record.model.filename if record.model else None,
        "series_uid": record.series_uid,
        **_settings_in_effect(record),
        "resolved": record.resolved,
        "n_samples": len(record.samples),
        **(summary(record.samples, test) if record.status == "measured" else {}),
        **_latency(record),
        **_memory(record),
        "env": record.env,
        "first_token_ns": record.first_token_ns,
        "tokenize_ts": record.tokenize_ts,
        "load_seconds": record.load_seconds,
        "fill_seconds": record.fill_seconds,
        "warmup_seconds": record.warmup_seconds,
        "warmup_passes": record.warmup_passes,
        "quality": record.quality,
        "quality_reasons": list(record.quality_reasons),
        **_failure(record),
        **(asdict(record.placement) if record.placement else {}),
    }


def subject_key(record: Record, model_identity: str, config_key: str) -> str:
    """Return the key that attempts share of which only the newest is in `latest`."""
    return digest([record.host_uid, record.hardware_id, model_identity, record.build_id, config_key])[:32]


def sample_rows(record: Record, attempt_id: int) -> list[Row]:
    """Return the rows of the record's repetitions."""
    return [asdict(sample) | {"attempt_id": attempt_id} for sample in record.samples]


def condition_row(conditions: Conditions, attempt_id: int) -> Row:
    """Return the row of what else went on while an attempt measured, and of what that took from the wall."""
    own = asdict(conditions)
    energy = own.pop("energy") or {}
    apart = {f"energy_{name}": energy.pop(name, None) for name in ("seconds", "method", "reason", "valid", "parts")}
    return {**own, **energy, **apart, "attempt_id": attempt_id}


def summary(samples: Sequence[Sample], test: Test) -> Row:
    """Return what llama-bench computes from `samples`, and median and extremes besides.

    `avg_ts` is the mean of the repetitions' rates; spreads are those of a sample (n - 1) and None
    for one repetition, which says nothing of spread.
    """
    rates = [rate(sample.n_tokens, sample.elapsed_ns) for sample in samples]
    times = [sample.elapsed_ns for sample in samples]
    several = len(samples) > 1
    return {
        "avg_ts": statistics.fmean(rates),
        "stddev_ts": statistics.stdev(rates) if several else None,
        "median_ts": statistics.median(rates),
        "min_ts": min(rates),
        "max_ts": max(rates),
        "prompt_ts": _part_rate(test.n_prompt * test.n_parallel, [sample.prompt_ns for sample in samples]),
        "gen_ts": _part_rate(test.n_gen * test.n_parallel, [sample.gen_ns for sample in samples]),
        "avg_ns": round(statistics.fmean(times)),
        "stddev_ns": round(statistics.stdev(times)) if several else None,
    }


def rate(n_tokens: int, elapsed_ns: int) -> float:
    """Return tokens per second."""
    return 1e9 * n_tokens / elapsed_ns


def _part_rate(n_tokens: int, times: Iterable[int | None]) -> float | None:
    known = [ns for ns in times if ns is not None]
    return statistics.fmean(rate(n_tokens, ns) for ns in known) if n_tokens and known else None


def _settings_in_effect(record: Record) -> Row:
    """Return the settings' own columns; what has another type than its column stays in `in_effect` alone."""
    values = {name: effective.value for name, effective in record.in_effect.items()}
    return {
        **{name: _of_type(values.get(name), int) for name in INTEGER_SETTINGS},
        **{name: _of_type(values.get(name), str) for name in TEXT_SETTINGS},
        "in_effect": {name: asdict(effective) for name, effective in record.in_effect.items()},
    }


def _of_type(value: Value, wanted: type) -> Value:
    return value if isinstance(value, wanted) and not isinstance(value, bool) else None


def _latency(record: Record) -> Row:
    if record.latency is None:
        return {}
    own = asdict(record.latency)
    return {f"latency_{name}": value for name, value in own.items()}


def _memory(record: Record) -> Row:
    if record.memory is None:
        return {}
    own = asdict(record.memory)
    parts = {name: own.pop(name) for name in ("weights", "cache", "compute")}
    return {**own, **{f"{name}_bytes": sum(part.values()) or None for name, part in parts.items()}, "buffers": parts}


def _failure(record: Record) -> Row:
    if record.failure is None:
        return {}
    own = asdict(record.failure)
    return {"log_tail": list(own.pop("log_tail")), **{f"failure_{name}": value for name, value in own.items()}}


def _number_or_symbol(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?\d+", text) else text
