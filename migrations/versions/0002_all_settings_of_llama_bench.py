"""All settings of llama-bench, sequences side by side, verifying passes, memory; `mmap` became `load_mode`."""

import sqlalchemy as sa
from alembic import op

from schema.column_types import Json

revision = "0002"
down_revision = "0001"

ASKED = {
    "n_threads_batch": "same",
    "n_cpu_moe": 0,
    "split_mode": "layer",
    "main_gpu": 0,
    "tensor_split": "0",
    "tensor_buft_overrides": "none",
    "devices": "auto",
    "no_kv_offload": "off",
    "no_op_offload": "off",
    "no_host": "off",
    "embeddings": "off",
    "repack": "on",
    "lazy_mode": "auto",
    "cpu_mask": "0x0",
    "cpu_strict": "off",
    "poll": 50,
    "prio": "normal",
    "numa": "disabled",
    "env": "none",
}
COUNTS = {"first_token_ns": 1, "peak_rss_bytes": 0, "weights_bytes": 0, "cache_bytes": 0, "compute_bytes": 0}


def upgrade() -> None:
    _rename_mmap()
    with op.batch_alter_table("job") as job:
        for name, least in (("n_parallel", 1), ("n_verify", 0)):
            job.add_column(sa.Column(name, sa.BigInteger(), nullable=False, server_default=str(least)))
            job.create_check_constraint(op.f(f"ck_job_{name}_is_at_least_{least}"), f"{name} >= {least}")
        for name, default in ASKED.items():
            kind = sa.BigInteger() if isinstance(default, int) else sa.Text()
            job.add_column(sa.Column(f"asked_{name}", kind, nullable=False, server_default=str(default)))
    with op.batch_alter_table("attempt") as attempt:
        for name, default in ASKED.items():
            number = isinstance(default, int) or name == "n_threads_batch"
            if name != "env":
                attempt.add_column(sa.Column(name, sa.BigInteger() if number else sa.Text(), nullable=True))
        attempt.add_column(sa.Column("env", Json, nullable=True))
        attempt.add_column(sa.Column("buffers", Json, nullable=True))
        for name, least in COUNTS.items():
            attempt.add_column(sa.Column(name, sa.BigInteger(), nullable=True))
            attempt.create_check_constraint(op.f(f"ck_attempt_{name}_is_at_least_{least}"), f"{name} >= {least}")
        attempt.add_column(sa.Column("tokenize_ts", sa.Double(), nullable=True))
        attempt.create_check_constraint(
            op.f("ck_attempt_tokenize_ts_is_positive"), "tokenize_ts > 0 AND tokenize_ts < 1e300"
        )


def _rename_mmap() -> None:
    """What was `mmap` on or off is now `load_mode` mmap or none."""
    op.alter_column("job", "asked_mmap", new_column_name="asked_load_mode")
    op.alter_column("attempt", "mmap", new_column_name="load_mode")
    for table, column in (("job", "asked_load_mode"), ("attempt", "load_mode")):
        for before, after in (("on", "mmap"), ("off", "none")):
            op.execute(f"UPDATE {table} SET {column} = '{after}' WHERE {column} = '{before}'")  # noqa: S608
