"""The tables, for SQLite and PostgreSQL alike (SQLAlchemy Core).

A number that is not known is NULL, never a stand-in. SQLite turns NaN into NULL, so what must be
there when an attempt is measured is also said by a CHECK; `schema.accept` refuses NaN before that.
"""

from collections.abc import Iterator
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
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from schema.column_types import BigId, Json, UtcDateTime
from schema.settings import NUMBERS, SYMBOLIC_SETTINGS, Settings

FIRST_SETTINGS = (*("n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "flash_attn", "n_gpu_layers", "load_mode"),)
"""Settings that every store has had from its start."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _id() -> Column[int]:
    return Column("id", BigId, primary_key=True)


def _ref(name: str, target: str, *, nullable: bool = True) -> Column[Any]:
    return Column(name, ForeignKey(target), nullable=nullable)


def _texts(*names: str) -> tuple[Column[str], ...]:
    return tuple(Column(name, Text) for name in names)


def _rate(name: str) -> tuple[Column[float], CheckConstraint]:
    """A number above zero and finite; PostgreSQL orders NaN and infinity above every number."""
    return Column(name, Double), CheckConstraint(f"{name} > 0 AND {name} < 1e300", name=f"{name}_is_positive")


def _amount(name: str) -> tuple[Column[float], CheckConstraint]:
    """A number from zero up and finite."""
    return Column(name, Double), CheckConstraint(f"{name} >= 0 AND {name} < 1e300", name=f"{name}_is_amount")


def _count(
    name: str, *, least: int = 0, nullable: bool = True, default: int | None = None
) -> tuple[Column[int], CheckConstraint]:
    check = CheckConstraint(f"{name} >= {least}", name=f"{name}_is_at_least_{least}")
    given = None if default is None else str(default)
    return Column(name, BigInteger, nullable=nullable, server_default=given), check


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


hardware = Table(
    "hardware",
    metadata,
    Column("hardware_id", String(64), primary_key=True),
    *_texts("arch", "cpu_name", "cpu_vendor"),
    *_count("n_packages"),
    *_count("n_cores_physical"),
    *_count("n_cores_logical"),
    Column("isa", Json),
    Column("caches", Json),
    *_count("memory_gib"),
    Column("gpu_names", Text),
    Column("gpus", Json),
    *_texts("gpu_status", "product_name", "hypervisor"),
)

allocation = Table(
    "allocation",
    metadata,
    Column("allocation_id", String(64), primary_key=True),
    *_count("n_cpus"),
    *_amount("cpu_quota_cores"),
    *_count("memory_limit_bytes"),
    Column("container", Text),
)

environment = Table(
    "environment",
    metadata,
    Column("environment_id", String(64), primary_key=True),
    *_texts("os", "kernel", "libc", "python", "governor", "gpu_driver"),
)

build = Table(
    "build",
    metadata,
    Column("build_id", String(64), primary_key=True),
    *_texts("binding", "llama_cpp_commit", "library_sha256", "system_info", "cmake_args", "compiler", "backends"),
    Column("devices", Json),
    Column("gpu_offload", Boolean),
    Column("method", Text),
)

host = Table(
    "host",
    metadata,
    _id(),
    Column("host_uid", Text, nullable=False, unique=True),
    *_texts("uid_source", "hostname"),
    Column("fingerprint_at", UtcDateTime),
    _ref("hardware_id", "hardware.hardware_id"),
    _ref("allocation_id", "allocation.allocation_id"),
    _ref("environment_id", "environment.environment_id"),
    _ref("build_id", "build.build_id"),
    Column("sources", Json),
    Column("errors", Json),
)

model = Table(
    "model",
    metadata,
    _id(),
    Column("identity", Text, nullable=False, unique=True),
    Column("name", Text),
    Column("sha256", String(64)),
    Column("synthetic", Boolean),
    *_count("file_bytes"),
    Column("model_type", Text),
    *_count("model_size"),
    *_count("model_n_params"),
    Column("architecture", Text),
    *_count("n_ctx_train"),
)

run = Table(
    "run",
    metadata,
    _id(),
    Column("run_uid", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("sweep_text", Text, nullable=False),
    Column("sweep_sha256", String(64), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("tokfleet_version", Text, nullable=False),
    Column("tags", Json, nullable=False),
    Index(None, "created_at"),
)

job = Table(
    "job",
    metadata,
    _id(),
    Column("job_uid", String(64), nullable=False, unique=True),
    _ref("run_id", "run.id", nullable=False),
    _ref("host_id", "host.id", nullable=False),
    _ref("model_id", "model.id", nullable=False),
    Column("config_key", String(64), nullable=False),
    *_count("replica", nullable=False),
    Column("model_source", Text, nullable=False),
    Column("model_spec", Text, nullable=False),
    Column("build", Text, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("test", Text, nullable=False),
    *_count("n_prompt", nullable=False),
    *_count("n_gen", nullable=False),
    *_count("n_depth", nullable=False),
    *_count("n_parallel", least=1, nullable=False, default=1),
    *_count("n_verify", nullable=False, default=0),
    *_asked(),
    *_count("repetitions", least=1, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("timeout_seconds", Double, nullable=False),
    CheckConstraint("timeout_seconds > 0 AND timeout_seconds < 1e300", name="timeout_seconds_is_positive"),
    UniqueConstraint("run_id", "host_id", "config_key", "replica"),
    Index(None, "host_id", "model_id", "config_key"),
    Index(None, "model_id", "n_prompt", "n_gen", "n_depth"),
)

attempt = Table(
    "attempt",
    metadata,
    _id(),
    Column("attempt_uid", Text, nullable=False, unique=True),
    _ref("job_id", "job.id", nullable=False),
    *_count("number", least=1, nullable=False),
    Column("status", String(16), nullable=False),
    Column("final", Boolean, nullable=False),
    Column("superseded", Boolean, nullable=False),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime, nullable=False),
    # how it was made: ids, then settings in effect (NULL where nothing could be read back) and as resolved
    _ref("hardware_id", "hardware.hardware_id"),
    _ref("allocation_id", "allocation.allocation_id"),
    _ref("environment_id", "environment.environment_id"),
    _ref("build_id", "build.build_id"),
    _ref("model_id", "model.id"),
    Column("model_filename", Text),
    *_in_effect(),
    Column("env", Json),
    Column("in_effect", Json, nullable=False),
    Column("resolved", Json, nullable=False),
    # what came out, over the repetitions
    *_count("n_samples", nullable=False),
    *_rate("avg_ts"),
    *_amount("stddev_ts"),
    *_rate("median_ts"),
    *_rate("min_ts"),
    *_rate("max_ts"),
    *_rate("prompt_ts"),
    *_rate("gen_ts"),
    *_count("avg_ns", least=1),
    *_count("stddev_ns"),
    *_count("latency_p50_ns", least=1),
    *_count("latency_p95_ns", least=1),
    *_count("latency_p99_ns", least=1),
    *_count("latency_max_ns", least=1),
    Column("latency_histogram", Json),
    *_count("first_token_ns", least=1),
    *_rate("tokenize_ts"),
    *_count("peak_rss_bytes"),
    *_count("weights_bytes"),
    *_count("cache_bytes"),
    *_count("compute_bytes"),
    Column("buffers", Json),
    *_amount("load_seconds"),
    *_amount("fill_seconds"),
    *_amount("warmup_seconds"),
    *_count("warmup_passes"),
    Column("quality", Text),
    Column("quality_reasons", Json, nullable=False),
    # why nothing came out
    *_texts("failure_stage", "failure_kind", "failure_message", "failure_signal"),
    Column("failure_exit_code", BigInteger),
    Column("log_tail", Json),
    # where it ran
    *_texts("ray_node_id", "ray_task_id"),
    Column("worker_pid", BigInteger),
    Column("child_pid", BigInteger),
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
)

sample = Table(
    "sample",
    metadata,
    Column("attempt_id", ForeignKey("attempt.id"), primary_key=True),
    Column("repetition", BigInteger, primary_key=True),
    *_count("n_tokens", least=1, nullable=False),
    *_count("elapsed_ns", least=1, nullable=False),
    *_count("prompt_ns", least=1),
    *_count("gen_ns", least=1),
    *_amount("cpu_share"),
    sqlite_with_rowid=False,
)

condition = Table(
    "condition",
    metadata,
    Column("attempt_id", ForeignKey("attempt.id"), primary_key=True),
    *_amount("cpu_share"),
    *_amount("run_delay_share"),
    *_amount("others_busy_cores"),
    *_amount("steal_share"),
    *_count("major_faults"),
    *_amount("load1_before"),
    *_count("available_bytes_before"),
    sqlite_with_rowid=False,
)

probe = Table(
    "probe",
    metadata,
    _id(),
    Column("probe_uid", Text, nullable=False, unique=True),
    _ref("host_id", "host.id", nullable=False),
    _ref("hardware_id", "hardware.hardware_id"),
    _ref("allocation_id", "allocation.allocation_id"),
    Column("kind", Text, nullable=False),
    Column("taken_at", UtcDateTime, nullable=False),
    Column("details", Json, nullable=False),
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
