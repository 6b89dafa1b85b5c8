"""Whole facts of machines, probes, conditions and energy, what a token reads, and how near the limits a rate came."""

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

from schema.column_types import BigId, Json

revision = "0003"
down_revision = "0002"

MODEL_COUNTS = (
    *("weight_bytes_per_token", "expert_bytes", "n_expert", "n_expert_used", "active_params", "prompt_params"),
    *("n_layer", "kv_bytes_per_context_token", "key_width", "value_width"),
    *("window_key_width", "window_value_width", "sliding_window"),
)
CONDITION_COUNTS = (
    *("looks", "times_stopped", "swapped_in_pages", "swapped_out_bytes", "quota_throttles"),
    *("thermal_throttles", "power_limit_throttles", "firmware_flags"),
)
CONDITION_AMOUNTS = (
    *("watched_seconds", "blocked_share", "suspended_seconds"),
    *("cpu_pressure_share", "memory_pressure_share", "io_pressure_share", "quota_throttled_seconds"),
    *("clock_start_hz", "clock_mean_hz", "clock_min_hz", "temperature_before_c", "temperature_max_c"),
    *("thermal_throttled_seconds", "cooling_share"),
    *("joules_total", "joules_idle", "joules_per_prefill_token", "joules_per_decoded_token", "energy_seconds"),
)
ROOF = ("bytes_per_token", "kv_bytes_per_token", "read_bytes_per_s", "ceiling_ts", "mbu", "flop_per_s", "mfu")


def upgrade() -> None:
    _machines()
    _probes()
    with op.batch_alter_table("model") as model:
        _counts(model, "model", MODEL_COUNTS)
    with op.batch_alter_table("job") as job:
        job.add_column(sa.Column("interleaved", sa.Boolean(), nullable=False, server_default=sa.false()))
        job.add_column(sa.Column("across", sa.Text(), nullable=True))
    with op.batch_alter_table("attempt") as attempt:
        _amounts(attempt, "attempt", ROOF)
        _texts(attempt, ("bound", "series_uid"))
        attempt.add_column(sa.Column("probe_id", BigId, nullable=True))
        attempt.create_foreign_key(op.f("fk_attempt_probe_id"), "probe", ["probe_id"], ["id"])
        attempt.create_index(op.f("ix_attempt_series_uid"), ["series_uid"])
    with op.batch_alter_table("condition") as condition:
        _counts(condition, "condition", CONDITION_COUNTS)
        _amounts(condition, "condition", CONDITION_AMOUNTS)
        _texts(condition, ("energy_method", "energy_reason"))
        _switches(condition, ("on_battery", "energy_valid"))
        _json(condition, ("energy_parts", "gpu"))


def _machines() -> None:
    with op.batch_alter_table("hardware") as hardware:
        _texts(hardware, ("core_types",))
        _counts(hardware, "hardware", ("n_numa_nodes", "cache_bytes", "gpu_memory_bytes"))
        _json(hardware, ("facts",))
    for table in ("allocation", "environment"):
        op.add_column(table, sa.Column("facts", Json, nullable=True))
    op.add_column("build", sa.Column("offload_devices", Json, nullable=True))
    with op.batch_alter_table("host") as host:
        _texts(host, ("cloned_from", "probable_same_as"))
        _json(host, ("evidence", "state", "memory_modules"))


def _probes() -> None:
    with op.batch_alter_table("probe") as probe:
        probe.add_column(sa.Column("environment_id", sa.String(length=64), nullable=True))
        probe.create_foreign_key(op.f("fk_probe_environment_id"), "environment", ["environment_id"], ["environment_id"])
        _texts(probe, ("series_uid", "moment", "device", "method"))
        _counts(probe, "probe", ("version",))
        _amounts(probe, "probe", ("value",))
        _counts(probe, "probe", ("n_threads",), least=1)
        _switches(probe, ("theoretical", "saturated", "core_limited", "contended", "cache_suspect"))
        _json(probe, ("points", "errors"))
        probe.create_index(op.f("ix_probe_host_id_kind_taken_at"), ["host_id", "kind", "taken_at"])
        probe.create_index(op.f("ix_probe_series_uid"), ["series_uid"])


def _texts(batch: BatchOperations, names: tuple[str, ...]) -> None:
    for name in names:
        batch.add_column(sa.Column(name, sa.Text(), nullable=True))


def _json(batch: BatchOperations, names: tuple[str, ...]) -> None:
    for name in names:
        batch.add_column(sa.Column(name, Json, nullable=True))


def _switches(batch: BatchOperations, names: tuple[str, ...]) -> None:
    for name in names:
        batch.add_column(sa.Column(name, sa.Boolean(), nullable=True))


def _counts(batch: BatchOperations, table: str, names: tuple[str, ...], least: int = 0) -> None:
    for name in names:
        batch.add_column(sa.Column(name, sa.BigInteger(), nullable=True))
        batch.create_check_constraint(op.f(f"ck_{table}_{name}_is_at_least_{least}"), f"{name} >= {least}")


def _amounts(batch: BatchOperations, table: str, names: tuple[str, ...]) -> None:
    for name in names:
        batch.add_column(sa.Column(name, sa.Double(), nullable=True))
        batch.create_check_constraint(op.f(f"ck_{table}_{name}_is_amount"), f"{name} >= 0 AND {name} < 1e300")
