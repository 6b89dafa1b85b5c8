"""The columns that say where a row comes from, and those of `imported` (stdlib only). See `schema.view_columns`."""

from collections.abc import Iterable

from schema.columns import Columns, ViewColumn
from schema.label_columns import LABELS
from schema.result_columns import IDENTITY, MEASURED, MODEL, SETTINGS

ORIGIN: Columns = (
    ViewColumn("origin", "text", "", "`measured` by tokfleet, or `imported` from a file: those only in `all_results`"),
    ViewColumn("source_file", "text", "", "the file that an imported row was read from"),
    ViewColumn("source_line", "integer", "", "its line there, from 1"),
    ViewColumn("doubts", "text", "", "what speaks against an imported row, in sentences; nobody judged its quality"),
)


def _of(columns: Iterable[ViewColumn], *names: str) -> Columns:
    by_name = {column.name: column for column in columns}
    return tuple(by_name[name] for name in names)


IMPORTED: Columns = (
    ViewColumn("import_key", "text", "", "hash of what the row says; in `all_results` the `attempt_uid`"),
    *_of(ORIGIN, "source_file", "source_line"),
    ViewColumn("source_table", "text", "", "its table, of an SQLite file, where the line is its number"),
    ViewColumn("source_sha256", "text", "", "SHA-256 of the file as it was imported"),
    ViewColumn("imported_at", "time", "", "when"),
    ViewColumn("incomplete", "boolean", "", "whether the file's run did not end as it should"),
    ViewColumn("tags", "json", "", "words of the file's name, where they were asked for, an object"),
    ViewColumn("format", "text", "", "`md`, `json`, `jsonl`, `csv`, `sql`, `sqlite` or `batched-bench`"),
    ViewColumn(
        "likely_same_as", "text", "", "`import_key` of a row with more of the same result; `all_results` has that"
    ),
    *_of(IDENTITY, "host_uid", "host"),
    ViewColumn("method", "text", "", "`llama-bench` or `batched-bench`"),
    *_of(IDENTITY, "kind", "test", "n_prompt", "n_gen", "n_depth"),
    *_of(SETTINGS, "n_parallel"),
    ViewColumn("test_time", "time", "", "when the test began, as the file says; a table does not"),
    *_of(MEASURED, "avg_ts", "stddev_ts", "avg_ns", "stddev_ns", "n_samples"),
    ViewColumn("samples_ns", "json", "ns", "time of each repetition, a list, where the file has them"),
    ViewColumn("samples_ts", "json", "tokens/s", "rate of each repetition, a list, where the file has them"),
    *_of(ORIGIN, "doubts"),
    *_of(LABELS, "marked_bad", "mark_reason", "result_tags", "notes"),
    *_of(IDENTITY, "model"),
    *_of(MODEL, "model_type", "model_filename", "model_size", "model_n_params"),
    ViewColumn("printed_size", "text", "", "the model's size as a table prints it, with two decimals"),
    ViewColumn("printed_params", "text", "", "the same of its parameters"),
    *_of(IDENTITY, "build_commit"),
    ViewColumn("build_number", "integer", "", "llama.cpp's number of that commit"),
    *_of(IDENTITY, "cpu_info", "gpu_info", "backends"),
    ViewColumn("extras", "json", "", "fields that have no column here, as written, an object"),
    ViewColumn("raw", "text", "", "the row as it stands in the file"),
    *(
        column
        for column in SETTINGS
        if column.name.startswith("asked_")
        and column.name
        not in (*("asked_mmap", "asked_build", "asked_repetitions", "asked_env", "asked_host_settings"),)
    ),
)
