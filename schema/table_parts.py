"""What tables are made of: the one MetaData, and columns with the CHECKs that keep impossible numbers out.

A number that is not known is NULL, never a stand-in. SQLite turns NaN into NULL, so what must be
there when an attempt is measured is also said by a CHECK; `schema.accept` refuses NaN before that.
"""

from typing import Any

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, Double, ForeignKey, MetaData, Text

from schema.column_types import BigId, Json

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def number() -> Column[int]:
    """Return an `id` that the database counts up."""
    return Column("id", BigId, primary_key=True)


def ref(name: str, target: str, *, nullable: bool = True) -> Column[Any]:
    """Return a reference to `target`, `table.column`."""
    return Column(name, ForeignKey(target), nullable=nullable)


def texts(*names: str) -> tuple[Column[str], ...]:
    """Return columns of text."""
    return tuple(Column(name, Text) for name in names)


def switches(*names: str) -> tuple[Column[bool], ...]:
    """Return columns that are true, false or unknown."""
    return tuple(Column(name, Boolean) for name in names)


def values(*names: str) -> tuple[Column[Any], ...]:
    """Return columns of JSON."""
    return tuple(Column(name, Json) for name in names)


def rate(name: str) -> tuple[Column[float], CheckConstraint]:
    """Return a number above zero and finite; PostgreSQL orders NaN and infinity above every number."""
    return Column(name, Double), CheckConstraint(f"{name} > 0 AND {name} < 1e300", name=f"{name}_is_positive")


def amount(name: str) -> tuple[Column[float], CheckConstraint]:
    """Return a number from zero up and finite."""
    return Column(name, Double), CheckConstraint(f"{name} >= 0 AND {name} < 1e300", name=f"{name}_is_amount")


def count(
    name: str, *, least: int = 0, nullable: bool = True, default: int | None = None
) -> tuple[Column[int], CheckConstraint]:
    """Return a whole number of at least `least`; `default` is what rows from before the column have."""
    check = CheckConstraint(f"{name} >= {least}", name=f"{name}_is_at_least_{least}")
    given = None if default is None else str(default)
    return Column(name, BigInteger, nullable=nullable, server_default=given), check


Parts = tuple[Column[Any] | CheckConstraint, ...]


def amounts(*names: str) -> Parts:
    """Return an `amount` for each name."""
    return tuple(part for name in names for part in amount(name))


def counts(*names: str) -> Parts:
    """Return a `count` for each name."""
    return tuple(part for name in names for part in count(name))
