"""Imported rows in views: beside the measured ones in `all_results`, with all that their files say in `imported`.

`all_results` has them under the same columns; those that only a measurement of ours can fill are NULL. To make a NULL
of the column's own type, which SQLite needs to look into both halves by their indexes, the tables of measurements are
joined on a key that no row has.
"""

from dataclasses import fields

from schema.settings import Settings

GIVEN_SETTINGS = tuple(own.name for own in fields(Settings) if own.name not in ("env", "host_settings"))
"""Settings that a file may say."""

ORIGIN = """
    'measured' AS origin,
    CAST(NULL AS TEXT) AS source_file,
    CAST(NULL AS BIGINT) AS source_line,
    CAST(NULL AS TEXT) AS doubts"""
"""Columns that say of a measured row that it is one."""

_SAME_NAMES = (
    *("kind", "test", "n_prompt", "n_gen", "n_depth", "n_parallel", "build_commit", "cpu_info", "gpu_info", "backends"),
    *("model", "model_filename", "model_type", "model_size", "model_n_params", "method", "doubts", "n_samples"),
    *("notes", "marked_bad", "mark_reason", "marked_by", "marked_at"),
    *("avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "median_ts", "min_ts", "max_ts", "prompt_ts", "gen_ts"),
    *(f"asked_{name}" for name in GIVEN_SETTINGS),
)
_OWN = {
    "tags": "f.tags",
    "job_uid": "CAST(i.import_key AS VARCHAR(64))",
    "attempt_uid": "i.import_key",
    "host_uid": "h.host_uid",
    "host": "h.hostname",
    "test_time": "i.tested_at",
    "test_epoch": "EPOCH(i.tested_at)",
    "asked_mmap": "CASE i.asked_load_mode WHEN 'mmap' THEN 'on' WHEN 'none' THEN 'off' ELSE i.asked_load_mode END",
    "seq_ts": "i.avg_ts / i.n_parallel",
    "n_verify": "CAST(0 AS BIGINT)",
    "origin": "'imported'",
    "source_file": "f.name",
    "source_line": "i.line",
    "result_tags": "i.tags",
    **{name: f"i.{name}" for name in _SAME_NAMES},
}

_FROM = """
FROM import_row AS i
JOIN import_file AS f ON f.id = i.file_id
LEFT JOIN host AS h ON h.id = i.host_id"""

_NOTHING = """
LEFT JOIN attempt AS a ON a.id = -1
LEFT JOIN job AS j ON j.id = -1
LEFT JOIN run AS r ON r.id = -1
LEFT JOIN model AS asked ON asked.id = -1
LEFT JOIN model AS m ON m.id = -1
LEFT JOIN build AS b ON b.build_id = ''
LEFT JOIN hardware AS hw ON hw.hardware_id = ''
LEFT JOIN condition AS c ON c.attempt_id = -1
LEFT JOIN probe AS p ON p.id = -1
LEFT JOIN environment AS e ON e.environment_id = ''"""


def imported_results(columns: str) -> str:
    """Return the SELECT of imported rows for `all_results`; `columns` are those of measured rows, one a line.

    A row that is likely the same result as another one is left out: that other one is there.
    """
    pairs = [line.strip().rstrip(",").rpartition(" AS ") for line in columns.strip().splitlines()]
    listed = ",\n".join(f"    {_OWN.get(name, expression)} AS {name}" for expression, _, name in pairs)
    return f"SELECT\n{listed}{_FROM}{_NOTHING}\nWHERE i.same_as IS NULL"


IMPORTED = (
    """SELECT
    i.import_key AS import_key,
    f.name AS source_file,
    i.line AS source_line,
    i.table_name AS source_table,
    f.sha256 AS source_sha256,
    f.imported_at AS imported_at,
    f.incomplete AS incomplete,
    f.tags AS tags,
    i.format AS format,
    i.same_as AS likely_same_as,
    h.host_uid AS host_uid,
    h.hostname AS host,
    i.method AS method,
    i.kind AS kind,
    i.test AS test,
    i.n_prompt AS n_prompt,
    i.n_gen AS n_gen,
    i.n_depth AS n_depth,
    i.n_parallel AS n_parallel,
    i.tested_at AS test_time,
    i.avg_ts AS avg_ts,
    i.stddev_ts AS stddev_ts,
    i.avg_ns AS avg_ns,
    i.stddev_ns AS stddev_ns,
    i.n_samples AS n_samples,
    i.samples_ns AS samples_ns,
    i.samples_ts AS samples_ts,
    i.doubts AS doubts,
    i.marked_bad AS marked_bad,
    i.mark_reason AS mark_reason,
    i.tags AS result_tags,
    i.notes AS notes,
    i.model AS model,
    i.model_type AS model_type,
    i.model_filename AS model_filename,
    i.model_size AS model_size,
    i.model_n_params AS model_n_params,
    i.printed_size AS printed_size,
    i.printed_params AS printed_params,
    i.build_commit AS build_commit,
    i.build_number AS build_number,
    i.cpu_info AS cpu_info,
    i.gpu_info AS gpu_info,
    i.backends AS backends,
    i.extras AS extras,
    i.raw AS raw"""
    + "".join(f",\n    i.asked_{name} AS asked_{name}" for name in GIVEN_SETTINGS)
    + _FROM
)
