"""The tables of machines: who they are, what they are made of, what runs on them, and what probes found.

Of hardware, allocation and environment the columns are what people ask for in SQL; `facts` is everything that the
worker told, as its id was taken of it, so that a new fact needs no new column.
"""

from sqlalchemy import Column, Index, String, Table, Text

from schema.column_types import Json, UtcDateTime
from schema.table_parts import amount, amounts, count, counts, metadata, number, ref, switches, texts, values

hardware = Table(
    "hardware",
    metadata,
    Column("hardware_id", String(64), primary_key=True),
    *texts("arch", "cpu_name", "cpu_vendor"),
    *counts("n_packages", "n_cores_physical", "n_cores_logical"),
    *values("isa", "caches"),
    *count("memory_gib"),
    Column("gpu_names", Text),
    *values("gpus"),
    *texts("gpu_status", "product_name", "hypervisor"),
    Column("core_types", Text),
    *counts("n_numa_nodes", "cache_bytes", "gpu_memory_bytes"),
    *values("facts"),
)

allocation = Table(
    "allocation",
    metadata,
    Column("allocation_id", String(64), primary_key=True),
    *count("n_cpus"),
    *amount("cpu_quota_cores"),
    *count("memory_limit_bytes"),
    Column("container", Text),
    *values("facts"),
)

environment = Table(
    "environment",
    metadata,
    Column("environment_id", String(64), primary_key=True),
    *texts("os", "kernel", "libc", "python", "governor", "gpu_driver"),
    *values("facts"),
)

build = Table(
    "build",
    metadata,
    Column("build_id", String(64), primary_key=True),
    *texts("binding", "llama_cpp_commit", "library_sha256", "system_info", "cmake_args", "compiler", "backends"),
    *values("devices"),
    *switches("gpu_offload"),
    Column("method", Text),
    *values("offload_devices"),
)

host = Table(
    "host",
    metadata,
    number(),
    Column("host_uid", Text, nullable=False, unique=True),
    *texts("uid_source", "hostname", "cloned_from", "probable_same_as"),
    Column("fingerprint_at", UtcDateTime),
    ref("hardware_id", "hardware.hardware_id"),
    ref("allocation_id", "allocation.allocation_id"),
    ref("environment_id", "environment.environment_id"),
    ref("build_id", "build.build_id"),
    *values("sources", "errors", "evidence", "state", "memory_modules"),
    *values("tags", "notes"),
)

probe = Table(
    "probe",
    metadata,
    number(),
    Column("probe_uid", Text, nullable=False, unique=True),
    ref("host_id", "host.id", nullable=False),
    ref("hardware_id", "hardware.hardware_id"),
    ref("allocation_id", "allocation.allocation_id"),
    Column("kind", Text, nullable=False),
    Column("taken_at", UtcDateTime, nullable=False),
    Column("details", Json, nullable=False),
    ref("environment_id", "environment.environment_id"),
    *texts("series_uid", "moment", "device", "method"),
    *count("version"),
    *amounts("value"),
    *count("n_threads", least=1),
    *switches("theoretical", "saturated", "core_limited", "contended", "cache_suspect"),
    *values("points", "errors"),
    Index(None, "host_id", "kind", "taken_at"),
    Index(None, "series_uid"),
)
