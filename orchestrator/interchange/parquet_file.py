"""Rows of a view as a Parquet file with a type for each column; needs pyarrow (`pip install tokfleet[parquet]`)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from schema.columns import Kind
from schema.errors import UsageError

AT_ONCE = 2000


def write_file(path: Path, columns: Sequence[str], known: Mapping[str, Kind], rows: Iterable[dict[str, Any]]) -> int:
    """Write the rows into a new file at `path` and return how many there were; JSON is text, times are UTC.

    Raises UsageError where pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError("Parquet needs pyarrow: install it with `pip install 'tokfleet[parquet]'`.") from error
    types = {
        "text": pyarrow.string(),
        "json": pyarrow.string(),
        "integer": pyarrow.int64(),
        "real": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "time": pyarrow.timestamp("us", tz="UTC"),
    }
    kinds = {name: known.get(name, "text") for name in columns}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in kinds.items()])
    done, left = 0, iter(rows)
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while some := list(islice(left, AT_ONCE)):
            arrays = [
                pyarrow.array([_value(row[name], kind) for row in some], types[kind]) for name, kind in kinds.items()
            ]
            writer.write_batch(pyarrow.record_batch(arrays, schema=schema))
            done += len(some)
    return done


def _value(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    if kind == "time":
        return datetime.fromisoformat(value)
    if kind == "json":
        return json.dumps(value, ensure_ascii=False)
    return str(value) if kind == "text" else value
