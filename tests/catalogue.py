"""Everything that a database says it has in it, so that two can be compared; names to definitions."""

import re
from typing import Any

from sqlalchemy import Connection

from orchestrator.database import database_at

_POSTGRES = """
SELECT c.relname || '.' || a.attname,
    concat_ws(' ', format_type(a.atttypid, a.atttypmod), CASE WHEN a.attnotnull THEN 'NOT NULL' END,
        pg_get_expr(d.adbin, d.adrelid), co.collname, a.attidentity)
FROM pg_attribute AS a
JOIN pg_class AS c ON c.oid = a.attrelid
LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
LEFT JOIN pg_collation AS co ON co.oid = a.attcollation
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT conrelid::regclass || '.' || conname, pg_get_constraintdef(oid)
FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
UNION ALL
SELECT tablename || '.' || indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL
SELECT viewname, pg_get_viewdef(format('%%I', viewname)::regclass) FROM pg_views WHERE schemaname = 'public'
"""


def catalogue(url: str) -> dict[str, Any]:
    """Return what is in the database at `url`, but for the order of columns and the version table."""
    engine = database_at(url).reader()
    try:
        with engine.connect() as connection:
            found = _of_postgres(connection) if connection.dialect.name == "postgresql" else _of_sqlite(connection)
    finally:
        engine.dispose()
    return {name: text for name, text in found.items() if not name.startswith("alembic_version")}


def _of_postgres(connection: Connection) -> dict[str, Any]:
    return {str(name): text for name, text in connection.exec_driver_sql(_POSTGRES)}


def _of_sqlite(connection: Connection) -> dict[str, Any]:
    found = {}
    for name, kind, sql in connection.exec_driver_sql(
        "SELECT name, type, sql FROM sqlite_master WHERE sql IS NOT NULL"
    ):
        if kind == "view":
            found[name] = sql
        else:
            plain = sql.replace(f'CREATE TABLE "{name}"', f"CREATE TABLE {name}")  # so is one quoted that is made anew
            found[name] = sorted(part.strip() for part in re.split(r",\s*(?![^(]*\))|\n", plain) if part.strip(" ,"))
    return found
