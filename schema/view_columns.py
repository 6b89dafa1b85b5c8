"""Every column of every view, with its type, its unit and what it means: the one place for it (stdlib only).

`tokfleet sql --schema` shows it, and docs/sql.md has it from here (`python -m scripts.sql_page`).
"""

from schema.columns import Columns
from schema.import_columns import IMPORTED, ORIGIN
from schema.label_columns import HOST_LABELS, LABEL, LABELS
from schema.machine_columns import HOST, PROBE
from schema.result_columns import (
    CONDITIONS,
    ENERGY,
    ENVIRONMENT,
    FAILURE,
    IDENTITY,
    LIMITS,
    MEASURED,
    MODEL,
    SAMPLE,
    SERIES,
    SETTINGS,
    WHEN,
)

VIEW_MEANINGS = {
    "results": "One row for each job that was measured: its final attempt.",
    "latest": "Of `results`, the newest row for each host, hardware, model, build and configuration, "
    "without those of the stand-in that measures nothing and those marked bad: what to compare.",
    "failures": "One row for each attempt that failed. `final` ones are how the job ended; others were tried again.",
    "samples": "One row for each repetition of each attempt.",
    "hosts": "One row for each machine, as its newest fingerprint describes it.",
    "probes": "One row for each figure that a probe of a machine found.",
    "labels": "One row for each time that somebody tagged, noted or marked something.",
    "all_results": "The rows of `results`, and those that were imported from files: `origin` tells them apart.",
    "imported": "One row for each result that was read from a file, with all that the file says of it.",
}

_RESULT: Columns = (
    *(*IDENTITY, *MODEL, *SETTINGS, *MEASURED, *LIMITS, *SERIES, *ENERGY, *CONDITIONS, *WHEN, *ENVIRONMENT),
    *(*LABELS, *ORIGIN),
)

VIEW_COLUMNS: dict[str, Columns] = {
    "results": _RESULT,
    "latest": _RESULT,
    "failures": (*IDENTITY, *SETTINGS, *FAILURE, *SERIES, *WHEN, *ENVIRONMENT, *LABELS),
    "samples": SAMPLE,
    "hosts": (*HOST, *HOST_LABELS),
    "probes": PROBE,
    "labels": LABEL,
    "all_results": _RESULT,
    "imported": IMPORTED,
}
"""The columns of each view; the database may have them in another order."""
