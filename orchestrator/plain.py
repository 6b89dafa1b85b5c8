"""What a database's driver gives for a column, as the same plain value from each (standard library only)."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """Return `value` as SQLite gives it, which knows no times, no switches and no JSON.

    A time is text in UTC of fixed width (`2026-01-02T03:04:05.000000Z`), true and false are 1 and 0, a list
    or an object is JSON text, a decimal number is whole or a float; all else is as it is.
    """
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    if isinstance(value, dict | list):
        return json.dumps(value)
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def plain_row(row: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the row with every value plain."""
    return {str(name): plain(value) for name, value in row.items()}
