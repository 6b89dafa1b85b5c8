"""The first tables."""

import sqlalchemy as sa
from alembic import op

from schema.column_types import BigId, Json, UtcDateTime

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "allocation",
        sa.Column("allocation_id", sa.String(length=64), nullable=False),
        sa.Column("n_cpus", sa.BigInteger(), nullable=True),
        sa.Column("cpu_quota_cores", sa.Double(), nullable=True),
        sa.Column("memory_limit_bytes", sa.BigInteger(), nullable=True),
        sa.Column("container", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "cpu_quota_cores >= 0 AND cpu_quota_cores < 1e300", name=op.f("ck_allocation_cpu_quota_cores_is_amount")
        ),
        sa.CheckConstraint("memory_limit_bytes >= 0", name=op.f("ck_allocation_memory_limit_bytes_is_at_least_0")),
        sa.CheckConstraint("n_cpus >= 0", name=op.f("ck_allocation_n_cpus_is_at_least_0")),
        sa.PrimaryKeyConstraint("allocation_id", name=op.f("pk_allocation")),
    )
    op.create_table(
        "build",
        sa.Column("build_id", sa.String(length=64), nullable=False),
        sa.Column("binding", sa.Text(), nullable=True),
        sa.Column("llama_cpp_commit", sa.Text(), nullable=True),
        sa.Column("library_sha256", sa.Text(), nullable=True),
        sa.Column("system_info", sa.Text(), nullable=True),
        sa.Column("cmake_args", sa.Text(), nullable=True),
        sa.Column("compiler", sa.Text(), nullable=True),
        sa.Column("backends", sa.Text(), nullable=True),
        sa.Column("devices", Json, nullable=True),
        sa.Column("gpu_offload", sa.Boolean(), nullable=True),
        sa.Column("method", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("build_id", name=op.f("pk_build")),
    )
    op.create_table(
        "environment",
        sa.Column("environment_id", sa.String(length=64), nullable=False),
        sa.Column("os", sa.Text(), nullable=True),
        sa.Column("kernel", sa.Text(), nullable=True),
        sa.Column("libc", sa.Text(), nullable=True),
        sa.Column("python", sa.Text(), nullable=True),
        sa.Column("governor", sa.Text(), nullable=True),
        sa.Column("gpu_driver", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("environment_id", name=op.f("pk_environment")),
    )
    op.create_table(
        "hardware",
        sa.Column("hardware_id", sa.String(length=64), nullable=False),
        sa.Column("arch", sa.Text(), nullable=True),
        sa.Column("cpu_name", sa.Text(), nullable=True),
        sa.Column("cpu_vendor", sa.Text(), nullable=True),
        sa.Column("n_packages", sa.BigInteger(), nullable=True),
        sa.Column("n_cores_physical", sa.BigInteger(), nullable=True),
        sa.Column("n_cores_logical", sa.BigInteger(), nullable=True),
        sa.Column("isa", Json, nullable=True),
        sa.Column("caches", Json, nullable=True),
        sa.Column("memory_gib", sa.BigInteger(), nullable=True),
        sa.Column("gpu_names", sa.Text(), nullable=True),
        sa.Column("gpus", Json, nullable=True),
        sa.Column("gpu_status", sa.Text(), nullable=True),
        sa.Column("product_name", sa.Text(), nullable=True),
        sa.Column("hypervisor", sa.Text(), nullable=True),
        sa.CheckConstraint("memory_gib >= 0", name=op.f("ck_hardware_memory_gib_is_at_least_0")),
        sa.CheckConstraint("n_cores_logical >= 0", name=op.f("ck_hardware_n_cores_logical_is_at_least_0")),
        sa.CheckConstraint("n_cores_physical >= 0", name=op.f("ck_hardware_n_cores_physical_is_at_least_0")),
        sa.CheckConstraint("n_packages >= 0", name=op.f("ck_hardware_n_packages_is_at_least_0")),
        sa.PrimaryKeyConstraint("hardware_id", name=op.f("pk_hardware")),
    )
    op.create_table(
        "model",
        sa.Column("id", BigId, nullable=False),
        sa.Column("identity", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("sha256", sa.String(length=64), nullable=True),
        sa.Column("synthetic", sa.Boolean(), nullable=True),
        sa.Column("file_bytes", sa.BigInteger(), nullable=True),
        sa.Column("model_type", sa.Text(), nullable=True),
        sa.Column("model_size", sa.BigInteger(), nullable=True),
        sa.Column("model_n_params", sa.BigInteger(), nullable=True),
        sa.Column("architecture", sa.Text(), nullable=True),
        sa.Column("n_ctx_train", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("file_bytes >= 0", name=op.f("ck_model_file_bytes_is_at_least_0")),
        sa.CheckConstraint("model_n_params >= 0", name=op.f("ck_model_model_n_params_is_at_least_0")),
        sa.CheckConstraint("model_size >= 0", name=op.f("ck_model_model_size_is_at_least_0")),
        sa.CheckConstraint("n_ctx_train >= 0", name=op.f("ck_model_n_ctx_train_is_at_least_0")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model")),
        sa.UniqueConstraint("identity", name=op.f("uq_model_identity")),
    )
    op.create_table(
        "run",
        sa.Column("id", BigId, nullable=False),
        sa.Column("run_uid", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sweep_text", sa.Text(), nullable=False),
        sa.Column("sweep_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", UtcDateTime(), nullable=False),
        sa.Column("tokfleet_version", sa.Text(), nullable=False),
        sa.Column("tags", Json, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_run")),
        sa.UniqueConstraint("run_uid", name=op.f("uq_run_run_uid")),
    )
    op.create_index(op.f("ix_run_created_at"), "run", ["created_at"], unique=False)
    op.create_table(
        "schema_info",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("view_hash", sa.String(length=64), nullable=False),
        sa.Column("tokfleet_version", sa.Text(), nullable=False),
        sa.Column("upgraded_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("id = 1", name=op.f("ck_schema_info_has_one_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_schema_info")),
    )
    op.create_table(
        "host",
        sa.Column("id", BigId, nullable=False),
        sa.Column("host_uid", sa.Text(), nullable=False),
        sa.Column("uid_source", sa.Text(), nullable=True),
        sa.Column("hostname", sa.Text(), nullable=True),
        sa.Column("fingerprint_at", UtcDateTime(), nullable=True),
        sa.Column("hardware_id", sa.String(length=64), nullable=True),
        sa.Column("allocation_id", sa.String(length=64), nullable=True),
        sa.Column("environment_id", sa.String(length=64), nullable=True),
        sa.Column("build_id", sa.String(length=64), nullable=True),
        sa.Column("sources", Json, nullable=True),
        sa.Column("errors", Json, nullable=True),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocation.allocation_id"], name=op.f("fk_host_allocation_id")),
        sa.ForeignKeyConstraint(["build_id"], ["build.build_id"], name=op.f("fk_host_build_id")),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environment.environment_id"], name=op.f("fk_host_environment_id")
        ),
        sa.ForeignKeyConstraint(["hardware_id"], ["hardware.hardware_id"], name=op.f("fk_host_hardware_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_host")),
        sa.UniqueConstraint("host_uid", name=op.f("uq_host_host_uid")),
    )
    op.create_table(
        "job",
        sa.Column("id", BigId, nullable=False),
        sa.Column("job_uid", sa.String(length=64), nullable=False),
        sa.Column("run_id", BigId, nullable=False),
        sa.Column("host_id", BigId, nullable=False),
        sa.Column("model_id", BigId, nullable=False),
        sa.Column("config_key", sa.String(length=64), nullable=False),
        sa.Column("replica", sa.BigInteger(), nullable=False),
        sa.Column("model_source", sa.Text(), nullable=False),
        sa.Column("model_spec", sa.Text(), nullable=False),
        sa.Column("build", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("test", sa.Text(), nullable=False),
        sa.Column("n_prompt", sa.BigInteger(), nullable=False),
        sa.Column("n_gen", sa.BigInteger(), nullable=False),
        sa.Column("n_depth", sa.BigInteger(), nullable=False),
        sa.Column("asked_n_batch", sa.BigInteger(), nullable=False),
        sa.Column("asked_n_ubatch", sa.BigInteger(), nullable=False),
        sa.Column("asked_n_threads", sa.Text(), nullable=False),
        sa.Column("asked_type_k", sa.Text(), nullable=False),
        sa.Column("asked_type_v", sa.Text(), nullable=False),
        sa.Column("asked_flash_attn", sa.Text(), nullable=False),
        sa.Column("asked_n_gpu_layers", sa.Text(), nullable=False),
        sa.Column("asked_mmap", sa.Text(), nullable=False),
        sa.Column("repetitions", sa.BigInteger(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("timeout_seconds", sa.Double(), nullable=False),
        sa.CheckConstraint("n_depth >= 0", name=op.f("ck_job_n_depth_is_at_least_0")),
        sa.CheckConstraint("n_gen >= 0", name=op.f("ck_job_n_gen_is_at_least_0")),
        sa.CheckConstraint("n_prompt >= 0", name=op.f("ck_job_n_prompt_is_at_least_0")),
        sa.CheckConstraint("repetitions >= 1", name=op.f("ck_job_repetitions_is_at_least_1")),
        sa.CheckConstraint("replica >= 0", name=op.f("ck_job_replica_is_at_least_0")),
        sa.CheckConstraint(
            "timeout_seconds > 0 AND timeout_seconds < 1e300", name=op.f("ck_job_timeout_seconds_is_positive")
        ),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_job_host_id")),
        sa.ForeignKeyConstraint(["model_id"], ["model.id"], name=op.f("fk_job_model_id")),
        sa.ForeignKeyConstraint(["run_id"], ["run.id"], name=op.f("fk_job_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_job")),
        sa.UniqueConstraint("job_uid", name=op.f("uq_job_job_uid")),
        sa.UniqueConstraint(
            "run_id", "host_id", "config_key", "replica", name=op.f("uq_job_run_id_host_id_config_key_replica")
        ),
    )
    op.create_index(
        op.f("ix_job_host_id_model_id_config_key"), "job", ["host_id", "model_id", "config_key"], unique=False
    )
    op.create_index(
        op.f("ix_job_model_id_n_prompt_n_gen_n_depth"),
        "job",
        ["model_id", "n_prompt", "n_gen", "n_depth"],
        unique=False,
    )
    op.create_table(
        "probe",
        sa.Column("id", BigId, nullable=False),
        sa.Column("probe_uid", sa.Text(), nullable=False),
        sa.Column("host_id", BigId, nullable=False),
        sa.Column("hardware_id", sa.String(length=64), nullable=True),
        sa.Column("allocation_id", sa.String(length=64), nullable=True),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("taken_at", UtcDateTime(), nullable=False),
        sa.Column("details", Json, nullable=False),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocation.allocation_id"], name=op.f("fk_probe_allocation_id")),
        sa.ForeignKeyConstraint(["hardware_id"], ["hardware.hardware_id"], name=op.f("fk_probe_hardware_id")),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_probe_host_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probe")),
        sa.UniqueConstraint("probe_uid", name=op.f("uq_probe_probe_uid")),
    )
    op.create_table(
        "attempt",
        sa.Column("id", BigId, nullable=False),
        sa.Column("attempt_uid", sa.Text(), nullable=False),
        sa.Column("job_id", BigId, nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("final", sa.Boolean(), nullable=False),
        sa.Column("superseded", sa.Boolean(), nullable=False),
        sa.Column("started_at", UtcDateTime(), nullable=False),
        sa.Column("ended_at", UtcDateTime(), nullable=False),
        sa.Column("hardware_id", sa.String(length=64), nullable=True),
        sa.Column("allocation_id", sa.String(length=64), nullable=True),
        sa.Column("environment_id", sa.String(length=64), nullable=True),
        sa.Column("build_id", sa.String(length=64), nullable=True),
        sa.Column("model_id", BigId, nullable=True),
        sa.Column("model_filename", sa.Text(), nullable=True),
        sa.Column("n_batch", sa.BigInteger(), nullable=True),
        sa.Column("n_ubatch", sa.BigInteger(), nullable=True),
        sa.Column("n_threads", sa.BigInteger(), nullable=True),
        sa.Column("type_k", sa.Text(), nullable=True),
        sa.Column("type_v", sa.Text(), nullable=True),
        sa.Column("flash_attn", sa.Text(), nullable=True),
        sa.Column("n_gpu_layers", sa.BigInteger(), nullable=True),
        sa.Column("mmap", sa.Text(), nullable=True),
        sa.Column("in_effect", Json, nullable=False),
        sa.Column("resolved", Json, nullable=False),
        sa.Column("n_samples", sa.BigInteger(), nullable=False),
        sa.Column("avg_ts", sa.Double(), nullable=True),
        sa.Column("stddev_ts", sa.Double(), nullable=True),
        sa.Column("median_ts", sa.Double(), nullable=True),
        sa.Column("min_ts", sa.Double(), nullable=True),
        sa.Column("max_ts", sa.Double(), nullable=True),
        sa.Column("prompt_ts", sa.Double(), nullable=True),
        sa.Column("gen_ts", sa.Double(), nullable=True),
        sa.Column("avg_ns", sa.BigInteger(), nullable=True),
        sa.Column("stddev_ns", sa.BigInteger(), nullable=True),
        sa.Column("latency_p50_ns", sa.BigInteger(), nullable=True),
        sa.Column("latency_p95_ns", sa.BigInteger(), nullable=True),
        sa.Column("latency_p99_ns", sa.BigInteger(), nullable=True),
        sa.Column("latency_max_ns", sa.BigInteger(), nullable=True),
        sa.Column("latency_histogram", Json, nullable=True),
        sa.Column("load_seconds", sa.Double(), nullable=True),
        sa.Column("fill_seconds", sa.Double(), nullable=True),
        sa.Column("warmup_seconds", sa.Double(), nullable=True),
        sa.Column("warmup_passes", sa.BigInteger(), nullable=True),
        sa.Column("quality", sa.Text(), nullable=True),
        sa.Column("quality_reasons", Json, nullable=False),
        sa.Column("failure_stage", sa.Text(), nullable=True),
        sa.Column("failure_kind", sa.Text(), nullable=True),
        sa.Column("failure_message", sa.Text(), nullable=True),
        sa.Column("failure_signal", sa.Text(), nullable=True),
        sa.Column("failure_exit_code", sa.BigInteger(), nullable=True),
        sa.Column("log_tail", Json, nullable=True),
        sa.Column("ray_node_id", sa.Text(), nullable=True),
        sa.Column("ray_task_id", sa.Text(), nullable=True),
        sa.Column("worker_pid", sa.BigInteger(), nullable=True),
        sa.Column("child_pid", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "status <> 'failed' OR failure_stage IS NOT NULL", name=op.f("ck_attempt_failed_has_a_stage")
        ),
        sa.CheckConstraint(
            "status <> 'measured' OR (avg_ts IS NOT NULL AND avg_ns IS NOT NULL AND n_samples > 0)",
            name=op.f("ck_attempt_measured_has_a_rate"),
        ),
        sa.CheckConstraint("status IN ('measured', 'failed')", name=op.f("ck_attempt_status_is_known")),
        sa.CheckConstraint("NOT (final AND superseded)", name=op.f("ck_attempt_final_is_not_superseded")),
        sa.CheckConstraint("avg_ns >= 1", name=op.f("ck_attempt_avg_ns_is_at_least_1")),
        sa.CheckConstraint("avg_ts > 0 AND avg_ts < 1e300", name=op.f("ck_attempt_avg_ts_is_positive")),
        sa.CheckConstraint(
            "fill_seconds >= 0 AND fill_seconds < 1e300", name=op.f("ck_attempt_fill_seconds_is_amount")
        ),
        sa.CheckConstraint("gen_ts > 0 AND gen_ts < 1e300", name=op.f("ck_attempt_gen_ts_is_positive")),
        sa.CheckConstraint("latency_max_ns >= 1", name=op.f("ck_attempt_latency_max_ns_is_at_least_1")),
        sa.CheckConstraint("latency_p50_ns >= 1", name=op.f("ck_attempt_latency_p50_ns_is_at_least_1")),
        sa.CheckConstraint("latency_p95_ns >= 1", name=op.f("ck_attempt_latency_p95_ns_is_at_least_1")),
        sa.CheckConstraint("latency_p99_ns >= 1", name=op.f("ck_attempt_latency_p99_ns_is_at_least_1")),
        sa.CheckConstraint(
            "load_seconds >= 0 AND load_seconds < 1e300", name=op.f("ck_attempt_load_seconds_is_amount")
        ),
        sa.CheckConstraint("max_ts > 0 AND max_ts < 1e300", name=op.f("ck_attempt_max_ts_is_positive")),
        sa.CheckConstraint("median_ts > 0 AND median_ts < 1e300", name=op.f("ck_attempt_median_ts_is_positive")),
        sa.CheckConstraint("min_ts > 0 AND min_ts < 1e300", name=op.f("ck_attempt_min_ts_is_positive")),
        sa.CheckConstraint("n_samples >= 0", name=op.f("ck_attempt_n_samples_is_at_least_0")),
        sa.CheckConstraint("number >= 1", name=op.f("ck_attempt_number_is_at_least_1")),
        sa.CheckConstraint("prompt_ts > 0 AND prompt_ts < 1e300", name=op.f("ck_attempt_prompt_ts_is_positive")),
        sa.CheckConstraint("stddev_ns >= 0", name=op.f("ck_attempt_stddev_ns_is_at_least_0")),
        sa.CheckConstraint("stddev_ts >= 0 AND stddev_ts < 1e300", name=op.f("ck_attempt_stddev_ts_is_amount")),
        sa.CheckConstraint("warmup_passes >= 0", name=op.f("ck_attempt_warmup_passes_is_at_least_0")),
        sa.CheckConstraint(
            "warmup_seconds >= 0 AND warmup_seconds < 1e300", name=op.f("ck_attempt_warmup_seconds_is_amount")
        ),
        sa.ForeignKeyConstraint(["allocation_id"], ["allocation.allocation_id"], name=op.f("fk_attempt_allocation_id")),
        sa.ForeignKeyConstraint(["build_id"], ["build.build_id"], name=op.f("fk_attempt_build_id")),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environment.environment_id"], name=op.f("fk_attempt_environment_id")
        ),
        sa.ForeignKeyConstraint(["hardware_id"], ["hardware.hardware_id"], name=op.f("fk_attempt_hardware_id")),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name=op.f("fk_attempt_job_id")),
        sa.ForeignKeyConstraint(["model_id"], ["model.id"], name=op.f("fk_attempt_model_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_attempt")),
        sa.UniqueConstraint("attempt_uid", name=op.f("uq_attempt_attempt_uid")),
        sa.UniqueConstraint("job_id", "number", name=op.f("uq_attempt_job_id_number")),
    )
    op.create_index(op.f("ix_attempt_started_at"), "attempt", ["started_at"], unique=False)
    op.create_index(
        "uq_attempt_final_job_id",
        "attempt",
        ["job_id"],
        unique=True,
        sqlite_where=sa.text("final"),
        postgresql_where=sa.text("final"),
    )
    op.create_table(
        "condition",
        sa.Column("attempt_id", BigId, nullable=False),
        sa.Column("cpu_share", sa.Double(), nullable=True),
        sa.Column("run_delay_share", sa.Double(), nullable=True),
        sa.Column("others_busy_cores", sa.Double(), nullable=True),
        sa.Column("steal_share", sa.Double(), nullable=True),
        sa.Column("major_faults", sa.BigInteger(), nullable=True),
        sa.Column("load1_before", sa.Double(), nullable=True),
        sa.Column("available_bytes_before", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "available_bytes_before >= 0", name=op.f("ck_condition_available_bytes_before_is_at_least_0")
        ),
        sa.CheckConstraint("cpu_share >= 0 AND cpu_share < 1e300", name=op.f("ck_condition_cpu_share_is_amount")),
        sa.CheckConstraint(
            "load1_before >= 0 AND load1_before < 1e300", name=op.f("ck_condition_load1_before_is_amount")
        ),
        sa.CheckConstraint("major_faults >= 0", name=op.f("ck_condition_major_faults_is_at_least_0")),
        sa.CheckConstraint(
            "others_busy_cores >= 0 AND others_busy_cores < 1e300",
            name=op.f("ck_condition_others_busy_cores_is_amount"),
        ),
        sa.CheckConstraint(
            "run_delay_share >= 0 AND run_delay_share < 1e300", name=op.f("ck_condition_run_delay_share_is_amount")
        ),
        sa.CheckConstraint("steal_share >= 0 AND steal_share < 1e300", name=op.f("ck_condition_steal_share_is_amount")),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_condition_attempt_id")),
        sa.PrimaryKeyConstraint("attempt_id", name=op.f("pk_condition")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "sample",
        sa.Column("attempt_id", BigId, nullable=False),
        sa.Column("repetition", sa.BigInteger(), nullable=False),
        sa.Column("n_tokens", sa.BigInteger(), nullable=False),
        sa.Column("elapsed_ns", sa.BigInteger(), nullable=False),
        sa.Column("prompt_ns", sa.BigInteger(), nullable=True),
        sa.Column("gen_ns", sa.BigInteger(), nullable=True),
        sa.Column("cpu_share", sa.Double(), nullable=True),
        sa.CheckConstraint("cpu_share >= 0 AND cpu_share < 1e300", name=op.f("ck_sample_cpu_share_is_amount")),
        sa.CheckConstraint("elapsed_ns >= 1", name=op.f("ck_sample_elapsed_ns_is_at_least_1")),
        sa.CheckConstraint("gen_ns >= 1", name=op.f("ck_sample_gen_ns_is_at_least_1")),
        sa.CheckConstraint("n_tokens >= 1", name=op.f("ck_sample_n_tokens_is_at_least_1")),
        sa.CheckConstraint("prompt_ns >= 1", name=op.f("ck_sample_prompt_ns_is_at_least_1")),
        sa.ForeignKeyConstraint(["attempt_id"], ["attempt.id"], name=op.f("fk_sample_attempt_id")),
        sa.PrimaryKeyConstraint("attempt_id", "repetition", name=op.f("pk_sample")),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("sample")
    op.drop_table("condition")
    op.drop_index(
        "uq_attempt_final_job_id",
        table_name="attempt",
        sqlite_where=sa.text("final"),
        postgresql_where=sa.text("final"),
    )
    op.drop_index(op.f("ix_attempt_started_at"), table_name="attempt")
    op.drop_table("attempt")
    op.drop_table("probe")
    op.drop_index(op.f("ix_job_model_id_n_prompt_n_gen_n_depth"), table_name="job")
    op.drop_index(op.f("ix_job_host_id_model_id_config_key"), table_name="job")
    op.drop_table("job")
    op.drop_table("host")
    op.drop_table("schema_info")
    op.drop_index(op.f("ix_run_created_at"), table_name="run")
    op.drop_table("run")
    op.drop_table("model")
    op.drop_table("hardware")
    op.drop_table("environment")
    op.drop_table("build")
    op.drop_table("allocation")
