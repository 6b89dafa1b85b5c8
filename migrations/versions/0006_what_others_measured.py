"""Where rows come from that were not measured by a job of ours: files of llama-bench's output, and what they say."""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from schema.column_types import BigId, Json, UtcDateTime

revision = "0006"
down_revision = "0005"

TEXTS = (
    *("table_name", "timed_key", "model", "model_type", "model_filename", "printed_size", "printed_params"),
    *("build_commit", "cpu_info", "gpu_info", "backends", "doubts", "mark_reason", "marked_by"),
)
GIVEN_NUMBERS = ("n_batch", "n_ubatch", "n_cpu_moe", "main_gpu", "poll")
GIVEN_TEXTS = (
    *("n_threads", "n_threads_batch", "type_k", "type_v", "flash_attn", "n_gpu_layers", "split_mode", "tensor_split"),
    *("tensor_buft_overrides", "devices", "no_kv_offload", "no_op_offload", "no_host", "embeddings", "repack"),
    *("load_mode", "lazy_mode", "cpu_mask", "cpu_strict", "prio", "numa"),
)
COUNTS = {"model_size": 0, "model_n_params": 0, "avg_ns": 1, "stddev_ns": 0, "n_samples": 1}
NEEDED_COUNTS = {"line": 0, "n_facts": 0, "n_prompt": 0, "n_gen": 0, "n_depth": 0, "n_parallel": 1}
RATES = ("median_ts", "min_ts", "max_ts", "prompt_ts", "gen_ts")
INDEXED = ("file_id", "host_id", "printed_key", "timed_key", "tested_at")


def upgrade() -> None:
    op.create_table(
        "import_file",
        sa.Column("id", BigId, nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        *_count("import_file", "n_bytes", nullable=False),
        sa.Column("imported_at", UtcDateTime(), nullable=False),
        sa.Column("tokfleet_version", sa.Text(), nullable=False),
        sa.Column("tags", Json, nullable=False),
        sa.Column("incomplete", sa.Boolean(), nullable=False),
        *_count("import_file", "n_refused", nullable=False),
        sa.Column("refusals", Json, nullable=False),
        sa.Column("notes", Json, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_import_file")),
        sa.UniqueConstraint("sha256", name=op.f("uq_import_file_sha256")),
    )
    op.create_table("import_row", *_columns(), *_keys())
    for name in INDEXED:
        op.create_index(op.f(f"ix_import_row_{name}"), "import_row", [name])
    where = sa.text("same_as IS NOT NULL")
    op.create_index(
        op.f("ix_import_row_same_as"), "import_row", ["same_as"], sqlite_where=where, postgresql_where=where
    )


def _columns() -> Iterator[Any]:
    yield sa.Column("id", BigId, nullable=False)
    yield sa.Column("file_id", BigId, nullable=False)
    yield sa.Column("host_id", BigId, nullable=True)
    for name in ("import_key", "format", "raw", "printed_key", "method", "test"):
        yield sa.Column(name, sa.Text(), nullable=False)
    yield sa.Column("same_as", sa.Text(), nullable=True)
    yield sa.Column("kind", sa.String(length=16), nullable=False)
    yield sa.Column("tested_at", UtcDateTime(), nullable=True)
    yield sa.Column("marked_at", UtcDateTime(), nullable=True)
    yield sa.Column("marked_bad", sa.Boolean(), nullable=False, server_default=sa.false())
    yield sa.Column("extras", Json, nullable=False)
    for name in ("samples_ns", "samples_ts", "tags", "notes"):
        yield sa.Column(name, Json, nullable=True)
    for name in TEXTS:
        yield sa.Column(name, sa.Text(), nullable=True)
    for name in ("build_number", *(f"asked_{name}" for name in GIVEN_NUMBERS)):
        yield sa.Column(name, sa.BigInteger(), nullable=True)
    for name in GIVEN_TEXTS:
        yield sa.Column(f"asked_{name}", sa.Text(), nullable=True)
    for name, least in NEEDED_COUNTS.items():
        yield from _count("import_row", name, least, nullable=False)
    for name, least in COUNTS.items():
        yield from _count("import_row", name, least)
    yield sa.Column("avg_ts", sa.Double(), nullable=False)
    for name in RATES:
        yield sa.Column(name, sa.Double(), nullable=True)
    yield sa.Column("stddev_ts", sa.Double(), nullable=True)


def _keys() -> Iterator[Any]:
    for name in ("avg_ts", *RATES):
        yield sa.CheckConstraint(f"{name} > 0 AND {name} < 1e300", name=op.f(f"ck_import_row_{name}_is_positive"))
    yield sa.CheckConstraint("stddev_ts >= 0 AND stddev_ts < 1e300", name=op.f("ck_import_row_stddev_ts_is_amount"))
    yield sa.PrimaryKeyConstraint("id", name=op.f("pk_import_row"))
    yield sa.UniqueConstraint("import_key", name=op.f("uq_import_row_import_key"))
    yield sa.ForeignKeyConstraint(["file_id"], ["import_file.id"], name=op.f("fk_import_row_file_id"))
    yield sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_import_row_host_id"))
    yield sa.ForeignKeyConstraint(
        ["same_as"],
        ["import_row.import_key"],
        name=op.f("fk_import_row_same_as"),
        deferrable=True,
        initially="DEFERRED",
    )


def _count(table: str, name: str, least: int = 0, nullable: bool = True) -> Iterator[Any]:
    yield sa.Column(name, sa.BigInteger(), nullable=nullable)
    yield sa.CheckConstraint(f"{name} >= {least}", name=op.f(f"ck_{table}_{name}_is_at_least_{least}"))
