"""The tables of what others measured: the files that were imported, and their rows as those files say it.

Nothing in them was found out by us: no fingerprint, no quality, no setting in effect. What a file does not say is NULL.
"""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    String,
    Table,
    Text,
    false,
    text,
)

from schema.column_types import Json, UtcDateTime
from schema.import_views import GIVEN_SETTINGS
from schema.settings import NUMBERS
from schema.table_parts import amount, count, counts, metadata, number, rate, ref, texts, values

DOUBLE = "same_as IS NOT NULL"


def _given() -> Iterator[Column[Any]]:
    """Settings as the file gives them, which are those that its command asked for."""
    for name in GIVEN_SETTINGS:
        yield Column(f"asked_{name}", BigInteger if name in NUMBERS else Text)


import_file = Table(
    "import_file",
    metadata,
    number(),
    Column("sha256", String(64), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    *count("n_bytes", nullable=False),
    Column("imported_at", UtcDateTime, nullable=False),
    Column("tokfleet_version", Text, nullable=False),
    Column("tags", Json, nullable=False),
    Column("incomplete", Boolean, nullable=False),
    *count("n_refused", nullable=False),
    Column("refusals", Json, nullable=False),
    Column("notes", Json, nullable=False),
)

import_row = Table(
    "import_row",
    metadata,
    number(),
    Column("import_key", Text, nullable=False, unique=True),
    ref("file_id", "import_file.id", nullable=False),
    *count("line", nullable=False),
    Column("table_name", Text),
    Column("format", Text, nullable=False),
    Column("raw", Text, nullable=False),
    ref("host_id", "host.id"),
    # a row that is likely the same result as a row with more in it is kept, and counts for nothing
    Column("same_as", ForeignKey("import_row.import_key", deferrable=True, initially="DEFERRED")),
    Column("printed_key", Text, nullable=False),
    Column("timed_key", Text),
    *count("n_facts", nullable=False),
    # what was measured, and how
    Column("method", Text, nullable=False),
    Column("kind", String(16), nullable=False),
    Column("test", Text, nullable=False),
    *count("n_prompt", nullable=False),
    *count("n_gen", nullable=False),
    *count("n_depth", nullable=False),
    *count("n_parallel", least=1, nullable=False),
    Column("tested_at", UtcDateTime),
    *_given(),
    Column("extras", Json, nullable=False),
    *texts("model", "model_type", "model_filename"),
    *counts("model_size", "model_n_params"),
    *texts("printed_size", "printed_params", "build_commit"),
    Column("build_number", BigInteger),
    *texts("cpu_info", "gpu_info", "backends"),
    # what came out
    Column("avg_ts", Double, nullable=False),
    CheckConstraint("avg_ts > 0 AND avg_ts < 1e300", name="avg_ts_is_positive"),
    *amount("stddev_ts"),
    *rate("median_ts"),
    *rate("min_ts"),
    *rate("max_ts"),
    *rate("prompt_ts"),
    *rate("gen_ts"),
    *count("avg_ns", least=1),
    *count("stddev_ns"),
    *count("n_samples", least=1),
    *values("samples_ns", "samples_ts"),
    Column("doubts", Text),
    # what people said of it since
    *values("tags", "notes"),
    Column("marked_bad", Boolean, nullable=False, server_default=false()),
    *texts("mark_reason", "marked_by"),
    Column("marked_at", UtcDateTime),
    Index(None, "file_id"),
    Index(None, "host_id"),
    Index(None, "same_as", sqlite_where=text(DOUBLE), postgresql_where=text(DOUBLE)),
    Index(None, "printed_key"),
    Index(None, "timed_key"),
    Index(None, "tested_at"),
)
