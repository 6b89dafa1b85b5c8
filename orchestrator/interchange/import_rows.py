"""What a file says as rows of the tables `import_file` and `import_row` (pure)."""

import re
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from orchestrator.interchange.doubles import Identity
from orchestrator.interchange.found import Found, Row
from schema.settings import SYMBOLIC_SETTINGS

Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """A file as its rows refer to it: where it was, which it was, and what it holds."""

    name: str
    sha256: str
    n_bytes: int
    found: Found
    tags: dict[str, str] = field(default_factory=dict)


def storable(text: str) -> str:
    """Return `text` as every database takes it: no NUL, and bytes that were no UTF-8 spelt out."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")


def file_row(file: SourceFile, imported_at: datetime, version: str) -> Values:
    """Return the row of `file`, with what was refused of it."""
    found = file.found
    return {
        "sha256": file.sha256,
        "name": storable(file.name),
        "n_bytes": file.n_bytes,
        "imported_at": imported_at,
        "tokfleet_version": version,
        "tags": {storable(name): storable(value) for name, value in file.tags.items()},
        "incomplete": found.incomplete,
        "n_refused": found.n_refused,
        "refusals": [
            {"line": refusal.line, "reason": storable(refusal.reason), "severity": refusal.severity}
            for refusal in found.refusals
        ],
        "notes": [storable(note) for note in found.notes],
    }


def imported_row(row: Row, who: Identity, file_id: int, host_id: int | None) -> Values:
    """Return the row of one result: its settings are those asked for, and what it does not say is None."""
    given = {f"asked_{name}": value for name, value in row.settings.items()}
    symbols = {f"asked_{name}": str(row.settings[name]) for name in SYMBOLIC_SETTINGS if name in row.settings}
    model = asdict(row.model)
    return {
        "import_key": who.import_key,
        "file_id": file_id,
        "line": row.line,
        "table_name": storable(row.table) or None,
        "format": row.format,
        "raw": storable(row.raw),
        "host_id": host_id,
        "same_as": None,
        "printed_key": who.printed_key,
        "timed_key": who.timed_key,
        "n_facts": who.n_facts,
        "method": "batched-bench" if row.format == "batched-bench" else "llama-bench",
        "kind": row.test.kind,
        "test": row.test.name,
        **{name: value for name, value in asdict(row.test).items() if name != "n_verify"},
        "tested_at": None if row.tested_at is None else datetime.fromisoformat(row.tested_at),
        **given,
        **symbols,
        "extras": {storable(name): storable(value) for name, value in row.extras.items()},
        "model": _model_name(model),
        "model_filename": model.pop("filename"),
        **model,
        **{name: getattr(row, name) for name in ("build_commit", "build_number", "cpu_info", "gpu_info", "backends")},
        **_rates(row),
        "doubts": " ".join(row.doubts) or None,
    }


def _model_name(model: Mapping[str, Any]) -> str | None:
    """Return what people call the model: its file's name, else llama.cpp's words for it."""
    name = re.split(r"[\\/]", model["filename"] or "")[-1]
    return name or model["model_type"]


def _rates(row: Row) -> Values:
    """Return the figures; a spread that is not known is None, and so is what needs several samples."""
    samples = row.samples
    rates = [1e9 * sample.n_tokens / sample.elapsed_ns for sample in samples] if len(samples) > 1 else []
    return {
        "avg_ts": row.avg_ts,
        "stddev_ts": row.spread_ts,
        "median_ts": statistics.median(rates) if rates else None,
        "min_ts": min(rates, default=None),
        "max_ts": max(rates, default=None),
        "prompt_ts": row.avg_ts if row.test.kind == "pp" else None,
        "gen_ts": row.avg_ts if row.test.kind == "tg" else None,
        "avg_ns": row.avg_ns,
        "stddev_ns": None if row.spread_ts is None else row.stddev_ns,
        "n_samples": row.repetitions,
        "samples_ns": list(row.samples_ns) or None,
        "samples_ts": list(row.samples_ts) or None,
    }


def filling(row: Row) -> Values:
    """Return what a fuller form of a known row has that the other may lack: its samples, and the model's path."""
    filename = row.model.filename
    rates = _rates(row)
    return {
        "model": _model_name(asdict(row.model)) if filename else None,
        "model_filename": filename,
        "n_facts": row.n_facts,
        **{name: rates[name] for name in ("n_samples", "samples_ns", "samples_ts", "median_ts", "min_ts", "max_ts")},
    }
