"""The views: what people who write SQL may rely on. Columns are only ever added.

Plain SQL that SQLite and PostgreSQL both understand, but for EPOCH: see `spelt`. `tokfleet db upgrade` drops them
before it changes a table and makes them again afterwards, so they need no migrations of their own. What each column
means stands in `schema.view_columns`.

In `results`, `latest` and `failures` a setting's bare name is what was in effect, as far as it could
be read back (else NULL); `asked_…` is what the sweep said. Names and values are those of llama-bench:
`flash_attn` is 0 or 1; rates are tokens per second, `…_ns` nanoseconds. `avg_ts` counts the tokens of
all sequences, `seq_ts` those of one; `verify_ms` is one pass over `n_verify` tokens. `mbu` is the decode rate as a
share of `ceiling_ts`, `mfu` the prefill rate as a share of an f32 matrix product, `bound` what set the pace: see
`orchestrator.roofline`. In `probes`, `value` is bytes per second, of `gemm_f32` FLOP per second.

Rows whose `method` is `fake` come from the stand-in that measures nothing, and people mark others as bad: `latest`,
which is what to compare, leaves both out.

`results` has imported rows beside the measured ones: `origin` tells them apart (see `schema.import_views`). `latest`
has none of them, since nobody knows what machine they are of, or how quiet it was.
"""

import re
from dataclasses import fields

from schema.canonical import digest
from schema.import_views import IMPORTED, ORIGIN, imported_results
from schema.machine_views import HOSTS, PROBES
from schema.record import Conditions

_IDENTITY = """
    r.run_uid AS run_uid,
    r.name AS run_name,
    r.tags AS tags,
    j.job_uid AS job_uid,
    a.attempt_uid AS attempt_uid,
    a.number AS attempt_number,
    j.config_key AS config_key,
    j.replica AS replica,
    h.host_uid AS host_uid,
    h.hostname AS host,
    a.hardware_id AS hardware_id,
    a.allocation_id AS allocation_id,
    a.environment_id AS environment_id,
    a.build_id AS build_id,
    asked.identity AS model_identity,
    asked.name AS model,
    j.kind AS kind,
    j.test AS test,
    j.n_prompt AS n_prompt,
    j.n_gen AS n_gen,
    j.n_depth AS n_depth,
    a.started_at AS test_time,
    a.ended_at AS ended_at,
    b.llama_cpp_commit AS build_commit,
    hw.cpu_name AS cpu_info,
    hw.gpu_names AS gpu_info,
    b.backends AS backends"""

_SETTINGS = """
    a.n_batch AS n_batch,
    a.n_ubatch AS n_ubatch,
    a.n_threads AS n_threads,
    a.type_k AS type_k,
    a.type_v AS type_v,
    a.n_gpu_layers AS n_gpu_layers,
    CASE a.flash_attn WHEN 'on' THEN 1 WHEN 'off' THEN 0 END AS flash_attn,
    a.load_mode AS load_mode,
    j.asked_n_batch AS asked_n_batch,
    j.asked_n_ubatch AS asked_n_ubatch,
    j.asked_n_threads AS asked_n_threads,
    j.asked_type_k AS asked_type_k,
    j.asked_type_v AS asked_type_v,
    j.asked_n_gpu_layers AS asked_n_gpu_layers,
    j.asked_flash_attn AS asked_flash_attn,
    CASE j.asked_load_mode WHEN 'mmap' THEN 'on' WHEN 'none' THEN 'off' ELSE j.asked_load_mode END AS asked_mmap,
    j.build AS asked_build,
    j.repetitions AS asked_repetitions,
    j.seed AS seed,
    j.n_parallel AS n_parallel,
    j.n_verify AS n_verify,
    b.method AS method,
    a.env AS env,
    j.asked_load_mode AS asked_load_mode,
    j.asked_env AS asked_env""" + "".join(
    f",\n    a.{name} AS {name},\n    j.asked_{name} AS asked_{name}"
    for name in (
        *("n_threads_batch", "n_cpu_moe", "split_mode", "main_gpu", "tensor_split", "tensor_buft_overrides"),
        *("devices", "no_kv_offload", "no_op_offload", "no_host", "embeddings", "repack", "lazy_mode"),
        *("cpu_mask", "cpu_strict", "poll", "prio", "numa", "host_settings"),
    )
)

_MODEL = """
    a.model_filename AS model_filename,
    m.model_type AS model_type,
    m.model_size AS model_size,
    m.model_n_params AS model_n_params,
    m.sha256 AS model_sha256,
    m.synthetic AS model_synthetic"""

_MEASURED = """
    a.avg_ns AS avg_ns,
    a.stddev_ns AS stddev_ns,
    a.avg_ts AS avg_ts,
    a.stddev_ts AS stddev_ts,
    a.median_ts AS median_ts,
    a.min_ts AS min_ts,
    a.max_ts AS max_ts,
    a.prompt_ts AS prompt_ts,
    a.gen_ts AS gen_ts,
    a.n_samples AS n_samples,
    CAST(a.latency_p50_ns AS DOUBLE PRECISION) / 1000000 AS latency_p50_ms,
    CAST(a.latency_p95_ns AS DOUBLE PRECISION) / 1000000 AS latency_p95_ms,
    CAST(a.latency_p99_ns AS DOUBLE PRECISION) / 1000000 AS latency_p99_ms,
    CAST(a.latency_max_ns AS DOUBLE PRECISION) / 1000000 AS latency_max_ms,
    a.load_seconds AS load_seconds,
    a.fill_seconds AS fill_seconds,
    a.warmup_seconds AS warmup_seconds,
    a.quality AS quality,
    a.quality_reasons AS quality_reasons,
    c.cpu_share AS cpu_share,
    c.run_delay_share AS run_delay_share,
    c.others_busy_cores AS others_busy_cores,
    c.steal_share AS steal_share,
    a.avg_ts / j.n_parallel AS seq_ts,
    CASE WHEN j.n_verify > 0 THEN 1000 * j.n_verify / a.avg_ts END AS verify_ms,
    CAST(a.first_token_ns AS DOUBLE PRECISION) / 1000000 AS first_token_ms,
    a.tokenize_ts AS tokenize_ts,
    a.peak_rss_bytes AS peak_rss_bytes,
    a.weights_bytes AS weights_bytes,
    a.cache_bytes AS cache_bytes,
    a.compute_bytes AS compute_bytes,
    a.buffers AS buffers"""

_FIRST_CONDITIONS = ("cpu_share", "run_delay_share", "others_busy_cores", "steal_share")
_CONDITIONS = "".join(
    f",\n    c.{own.name} AS {own.name}"
    for own in fields(Conditions)
    if own.name not in (*_FIRST_CONDITIONS, "energy", "gpu")
)

_LIMITS = f"""
    a.bytes_per_token AS bytes_per_token,
    a.kv_bytes_per_token AS kv_bytes_per_token,
    a.read_bytes_per_s AS read_bytes_per_s,
    a.ceiling_ts AS ceiling_ts,
    a.mbu AS mbu,
    a.flop_per_s AS flop_per_s,
    a.mfu AS mfu,
    a.bound AS bound,
    p.probe_uid AS probe_uid,
    a.series_uid AS series_uid,
    m.weight_bytes_per_token AS weight_bytes_per_token,
    m.kv_bytes_per_context_token AS kv_bytes_per_context_token,
    m.active_params AS active_params,
    m.prompt_params AS prompt_params,
    hw.cache_bytes AS cpu_cache_bytes,
    j.interleaved AS interleaved,
    j.across AS across,
    c.joules_total AS joules_total,
    c.joules_idle AS joules_idle,
    c.joules_per_prefill_token AS joules_per_prefill_token,
    c.joules_per_decoded_token AS joules_per_decoded_token,
    c.energy_seconds AS energy_seconds,
    c.energy_method AS energy_method,
    c.energy_valid AS energy_valid,
    c.energy_reason AS energy_reason,
    c.energy_parts AS energy_parts,
    c.gpu AS gpu_conditions{_CONDITIONS}"""

_FAILURE = """
    a.final AS final,
    a.superseded AS superseded,
    a.failure_stage AS stage,
    a.failure_kind AS failure_kind,
    a.failure_message AS message,
    a.failure_signal AS signal,
    a.failure_exit_code AS exit_code,
    a.n_samples AS n_samples,
    a.log_tail AS log_tail,
    a.series_uid AS series_uid,
    j.interleaved AS interleaved,
    j.across AS across"""

_WHEN = """
    EPOCH(a.started_at) AS test_epoch,
    EPOCH(a.ended_at) AS ended_epoch"""

_ENVIRONMENT = """
    e.os AS os,
    e.kernel AS kernel,
    e.governor AS governor,
    e.gpu_driver AS gpu_driver"""

_LABELS = """
    a.marked_bad AS marked_bad,
    a.mark_reason AS mark_reason,
    a.marked_by AS marked_by,
    a.marked_at AS marked_at,
    a.tags AS result_tags,
    a.notes AS notes,
    r.notes AS run_notes,
    h.tags AS host_tags,
    h.notes AS host_notes,
    a.pruned_at AS pruned_at"""

_FROM = """
FROM attempt AS a
JOIN job AS j ON j.id = a.job_id
JOIN run AS r ON r.id = j.run_id
JOIN host AS h ON h.id = j.host_id
JOIN model AS asked ON asked.id = j.model_id
LEFT JOIN model AS m ON m.id = a.model_id
LEFT JOIN build AS b ON b.build_id = a.build_id
LEFT JOIN hardware AS hw ON hw.hardware_id = a.hardware_id
LEFT JOIN condition AS c ON c.attempt_id = a.id
LEFT JOIN probe AS p ON p.id = a.probe_id
LEFT JOIN environment AS e ON e.environment_id = a.environment_id"""

_COLUMNS = f"{_IDENTITY},{_MODEL},{_SETTINGS},{_MEASURED},{_LIMITS},{_WHEN},{_ENVIRONMENT},{_LABELS},{ORIGIN}"

_OURS = f"SELECT{_COLUMNS}{_FROM}\nWHERE a.final AND a.status = 'measured'"

_ALL_RESULTS = f"{_OURS}\nUNION ALL\n{imported_results(_COLUMNS)}"

_LATEST = f"""{_OURS}
AND NOT a.marked_bad
AND NOT EXISTS (SELECT 1 FROM build AS fake WHERE fake.build_id = a.build_id AND fake.method = 'fake')
AND NOT EXISTS (
    SELECT 1 FROM attempt AS newer
    WHERE newer.subject_key = a.subject_key AND newer.final AND newer.status = 'measured' AND NOT newer.marked_bad
    AND (newer.started_at, newer.attempt_uid) > (a.started_at, a.attempt_uid)
)"""  # noqa: S608 - all of it is ours

_FAILURES = (
    f"SELECT{_IDENTITY},{_SETTINGS},{_FAILURE},{_WHEN},{_ENVIRONMENT},{_LABELS}{_FROM}\nWHERE a.status = 'failed'"
)

_SAMPLES = """SELECT
    r.run_uid AS run_uid,
    j.job_uid AS job_uid,
    a.attempt_uid AS attempt_uid,
    h.hostname AS host,
    asked.name AS model,
    j.kind AS kind,
    j.test AS test,
    a.status AS status,
    a.final AS final,
    s.repetition AS repetition,
    s.n_tokens AS n_tokens,
    s.elapsed_ns AS elapsed_ns,
    s.prompt_ns AS prompt_ns,
    s.gen_ns AS gen_ns,
    CAST(s.n_tokens AS DOUBLE PRECISION) * 1000000000 / s.elapsed_ns AS ts,
    s.cpu_share AS cpu_share,
    h.host_uid AS host_uid,
    j.config_key AS config_key,
    a.started_at AS test_time,
    EPOCH(a.started_at) AS test_epoch,
    a.quality AS quality
FROM sample AS s
JOIN attempt AS a ON a.id = s.attempt_id
JOIN job AS j ON j.id = a.job_id
JOIN run AS r ON r.id = j.run_id
JOIN host AS h ON h.id = j.host_id
JOIN model AS asked ON asked.id = j.model_id"""

_LABELLED = """SELECT
    l.about AS about,
    l.uid AS uid,
    l.kind AS kind,
    l.name AS name,
    l.said AS said,
    l.author AS author,
    l.labelled_at AS labelled_at,
    EPOCH(l.labelled_at) AS labelled_epoch
FROM label AS l"""

VIEWS = {
    "results": _OURS,
    "latest": _LATEST,
    "failures": _FAILURES,
    "samples": _SAMPLES,
    "hosts": HOSTS,
    "probes": PROBES,
    "labels": _LABELLED,
    "all_results": _ALL_RESULTS,
    "imported": IMPORTED,
}
"""Name and SELECT of every view, in the order in which they can be made; drop them in reverse."""

_EPOCH = {
    "sqlite": r"CAST(strftime('%s', substr(\1, 1, 19)) AS INTEGER)",
    "postgresql": r"CAST(FLOOR(EXTRACT(EPOCH FROM \1)) AS BIGINT)",
}

VIEW_HASH = digest([VIEWS, _EPOCH])
"""Tells a store whose views are not these; kept in schema_info."""


def spelt(query: str, dialect: str) -> str:
    """Return a view's SELECT as the database `dialect` (SQLAlchemy's name) writes it.

    All that differs is EPOCH(column): the whole seconds from 1970 to that instant.
    """
    return re.sub(r"\bEPOCH\(([a-z_.]+)\)", _EPOCH[dialect], query)
