"""What a column of a view is to the people who ask for it (stdlib only)."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "integer", "real", "boolean", "time", "json"]


@dataclass(frozen=True, slots=True)
class ViewColumn:
    """A column: its type, its unit (empty where it has none), and what it means.

    A `time` is a timestamp with time zone on PostgreSQL, and on SQLite text in UTC that sorts as time does. A `boolean`
    is 0 or 1 on SQLite. `json` is jsonb on PostgreSQL, text on SQLite.
    """

    name: str
    kind: Kind
    unit: str
    meaning: str


Columns = tuple[ViewColumn, ...]
