"""Column types that mean the same on SQLite and PostgreSQL; migrations use them too, so they keep their meaning."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Dialect, Integer, String
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP
from sqlalchemy.types import TypeDecorator, TypeEngine


class UtcDateTime(TypeDecorator[datetime]):
    """An instant: aware datetimes of any zone in, UTC out; a naive one raises ValueError.

    On SQLite it is text of fixed width (`2026-01-02T03:04:05.000000Z`), so that text order is time order.
    """

    impl = String(27)
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Return `timestamptz` on PostgreSQL, text elsewhere."""
        return dialect.type_descriptor(TIMESTAMP(timezone=True) if dialect.name == "postgresql" else String(27))

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:
        """Return the instant in UTC as the database keeps it."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"The time {value} has no zone.")
        utc = value.astimezone(UTC)
        if dialect.name == "postgresql":
            return utc
        return utc.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        """Return the instant as an aware datetime in UTC."""
        if value is None:
            return None
        return (value if isinstance(value, datetime) else datetime.fromisoformat(value)).astimezone(UTC)


BigId = BigInteger().with_variant(Integer, "sqlite")
"""An id that SQLite can number by itself: only INTEGER is an alias of its rowid."""

Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
