"""The tables, for SQLite and PostgreSQL alike (SQLAlchemy Core): what was asked, what came out, and of which machine.

Those of machines stand in `schema.machine_tables`, what all are made of in `schema.table_parts`.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

from schema.column_types import Json, UtcDateTime
from schema.import_tables import import_file, import_row
from schema.lab_tables import host_state
from schema.label_tables import label
from schema.machine_tables import allocation, build, environment, hardware, host, probe
from schema.record import Conditions
from schema.settings import NUMBERS, SYMBOLIC_SETTINGS, Settings
from schema.table_parts import amount, amounts, count, counts, metadata, number, rate, ref, switches, texts, values

__all__ = [
    "allocation",
    "attempt",
    "build",
    "condition",
    "environment",
    "hardware",
    "host",
    "host_state",
    "import_file",
    "import_row",
    "job",
    "label",
    "metadata",
    "model",
    "probe",
    "run",
    "sample",
    "schema_info",
]

Maker = Callable[[str], Iterable[Any]]

FAILED, COMPARED = "status = 'failed'", "final AND status = 'measured' AND NOT marked_bad"
"""Which rows two indexes of attempts hold: as the views `failures` and `latest` ask for them."""

FIRST_SETTINGS = (*("n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "flash_attn", "n_gpu_layers", "load_mode"),)
"""Settings that every store has had from its start."""


def _asked() -> Iterator[Column[Any]]:
    """Settings as asked: numbers, and texts where they are texts or may be symbols.

    Those that came with a later revision have their default in the rows from before.
    """
    for setting in fields(Settings):
        kind = BigInteger if setting.name in NUMBERS else Text
        default = None if setting.name in FIRST_SETTINGS else str(setting.default)
        yield Column(f"asked_{setting.name}", kind, nullable=False, server_default=default)


def _in_effect() -> Iterator[Column[Any]]:
    """Settings in effect, NULL where they cannot be read back."""
    for setting in fields(Settings):
        if setting.name != "env":
            yield Column(setting.name, BigInteger if setting.name in (*NUMBERS, *SYMBOLIC_SETTINGS) else Text)


def _conditions() -> Iterator[Any]:
    """A column for each field of Conditions, JSON for what is no number and no switch; energy has its own."""
    kinds: dict[Any, Maker] = {int | None: counts, float | None: amounts, bool | None: switches}
    for own in fields(Conditions):
        if own.name != "energy":
            make: Maker = kinds.get(own.type, values)
            yield from make(own.name)


model = Table(
    "model",
    metadata,
    number(),
    Column("identity", Text, nullable=False, unique=True),
    Column("name", Text),
    Column("sha256", String(64)),
    Column("synthetic", Boolean),
    *count("file_bytes"),
    Column("model_type", Text),
    *counts("model_size", "model_n_params"),
    Column("architecture", Text),
    *count("n_ctx_train"),
    # from the header: what a token reads and computes
    *counts("weight_bytes_per_token", "expert_bytes", "n_expert", "n_expert_used", "active_params", "prompt_params"),
    *counts("n_layer", "kv_bytes_per_context_token", "key_width", "value_width"),
    *counts("window_key_width", "window_value_width", "sliding_window"),
)

run = Table(
    "run",
    metadata,
    number(),
    Column("run_uid", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("sweep_text", Text, nullable=False),
    Column("sweep_sha256", String(64), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("tokfleet_version", Text, nullable=False),
    Column("tags", Json, nullable=False),
    *values("notes"),
    # which of two runs goes first, and when a driver was last at it
    Column("priority", BigInteger, nullable=False, server_default="0"),
    Column("driven_at", UtcDateTime),
    Index(None, "created_at"),
)

job = Table(
    "job",
    metadata,
    number(),
    Column("job_uid", String(64), nullable=False, unique=True),
    ref("run_id", "run.id", nullable=False),
    ref("host_id", "host.id", nullable=False),
    ref("model_id", "model.id", nullable=False),
    Column("config_key", String(64), nullable=False),
    *count("replica", nullable=False),
    Column("model_source", Text, nullable=False),
    Column("model_spec", Text, nullable=False),
    Column("build", Text, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("test", Text, nullable=False),
    *count("n_prompt", nullable=False),
    *count("n_gen", nullable=False),
    *count("n_depth", nullable=False),
    *count("n_parallel", least=1, nullable=False, default=1),
    *count("n_verify", nullable=False, default=0),
    *_asked(),
    *count("repetitions", least=1, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("timeout_seconds", Double, nullable=False),
    Column("interleaved", Boolean, nullable=False, server_default=false()),
    Column("across", Text),
    CheckConstraint("timeout_seconds > 0 AND timeout_seconds < 1e300", name="timeout_seconds_is_positive"),
    UniqueConstraint("run_id", "host_id", "config_key", "replica"),
    Index(None, "host_id", "model_id", "config_key"),
    Index(None, "model_id", "n_prompt", "n_gen", "n_depth"),
    Index(None, "config_key", "host_id"),
)

attempt = Table(
    "attempt",
    metadata,
    number(),
    Column("attempt_uid", Text, nullable=False, unique=True),
    ref("job_id", "job.id", nullable=False),
    *count("number", least=1, nullable=False),
    Column("status", String(16), nullable=False),
    Column("final", Boolean, nullable=False),
    Column("superseded", Boolean, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime, nullable=False),
    # how it was made: ids, then settings in effect (NULL where nothing could be read back) and as resolved
    ref("hardware_id", "hardware.hardware_id"),
    ref("allocation_id", "allocation.allocation_id"),
    ref("environment_id", "environment.environment_id"),
    ref("build_id", "build.build_id"),
    ref("model_id", "model.id"),
    Column("model_filename", Text),
    Column("series_uid", Text),
    *_in_effect(),
    *values("env"),
    Column("in_effect", Json, nullable=False),
    Column("resolved", Json, nullable=False),
    # what came out, over the repetitions
    *count("n_samples", nullable=False),
    *rate("avg_ts"),
    *amount("stddev_ts"),
    *rate("median_ts"),
    *rate("min_ts"),
    *rate("max_ts"),
    *rate("prompt_ts"),
    *rate("gen_ts"),
    *count("avg_ns", least=1),
    *count("stddev_ns"),
    *count("latency_p50_ns", least=1),
    *count("latency_p95_ns", least=1),
    *count("latency_p99_ns", least=1),
    *count("latency_max_ns", least=1),
    *values("latency_histogram"),
    *count("first_token_ns", least=1),
    *rate("tokenize_ts"),
    *counts("peak_rss_bytes", "weights_bytes", "cache_bytes", "compute_bytes"),
    *values("buffers"),
    *amounts("load_seconds", "fill_seconds", "warmup_seconds"),
    *count("warmup_passes"),
    # beside the limits of the machine: see orchestrator.efficiency for when these are filled
    *amounts("bytes_per_token", "kv_bytes_per_token", "read_bytes_per_s", "ceiling_ts", "mbu", "flop_per_s", "mfu"),
    Column("bound", Text),
    ref("probe_id", "probe.id"),
    Column("quality", Text),
    Column("quality_reasons", Json, nullable=False),
    # why nothing came out
    *texts("failure_stage", "failure_kind", "failure_message", "failure_signal"),
    Column("failure_exit_code", BigInteger),
    *values("log_tail"),
    # where it ran
    *texts("ray_node_id", "ray_task_id"),
    Column("worker_pid", BigInteger),
    Column("child_pid", BigInteger),
    # what people said of it since, and when its samples were dropped
    *values("tags", "notes"),
    Column("marked_bad", Boolean, nullable=False, server_default=false()),
    *texts("mark_reason", "marked_by"),
    Column("marked_at", UtcDateTime),
    Column("pruned_at", UtcDateTime),
    # what it is a newer or older result of: host, hardware, model, build and configuration
    Column("subject_key", String(32)),
    CheckConstraint("status IN ('measured', 'failed')", name="status_is_known"),
    CheckConstraint(
        "status <> 'measured' OR (avg_ts IS NOT NULL AND avg_ns IS NOT NULL AND n_samples > 0)",
        name="measured_has_a_rate",
    ),
    CheckConstraint("status <> 'failed' OR failure_stage IS NOT NULL", name="failed_has_a_stage"),
    CheckConstraint("NOT (final AND superseded)", name="final_is_not_superseded"),
    UniqueConstraint("job_id", "number"),
    Index("uq_attempt_final_job_id", "job_id", unique=True, sqlite_where=text("final"), postgresql_where=text("final")),
    Index(None, "started_at"),
    Index("ix_attempt_failed_started_at", "started_at", sqlite_where=text(FAILED), postgresql_where=text(FAILED)),
    Index(
        *("ix_attempt_subject_key_started_at", "subject_key", "started_at", "attempt_uid"),
        sqlite_where=text(COMPARED),
        postgresql_where=text(COMPARED),
    ),
    Index(None, "series_uid"),
)

sample = Table(
    "sample",
    metadata,
    Column("attempt_id", ForeignKey("attempt.id"), primary_key=True),
    Column("repetition", BigInteger, primary_key=True),
    *count("n_tokens", least=1, nullable=False),
    *count("elapsed_ns", least=1, nullable=False),
    *count("prompt_ns", least=1),
    *count("gen_ns", least=1),
    *amount("cpu_share"),
    sqlite_with_rowid=False,
)

condition = Table(
    "condition",
    metadata,
    Column("attempt_id", ForeignKey("attempt.id"), primary_key=True),
    *_conditions(),
    *amounts("joules_total", "joules_idle", "joules_per_prefill_token", "joules_per_decoded_token", "energy_seconds"),
    *texts("energy_method", "energy_reason"),
    *switches("energy_valid"),
    *values("energy_parts"),
    sqlite_with_rowid=False,
)

schema_info = Table(
    "schema_info",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    CheckConstraint("id = 1", name="has_one_row"),
    Column("view_hash", String(64), nullable=False),
    Column("tokfleet_version", Text, nullable=False),
    Column("upgraded_at", UtcDateTime, nullable=False),
)
