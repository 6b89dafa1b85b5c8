"""What Alembic runs: the migrations, on the connection and in the transaction that the caller gives."""

from typing import Any, Literal

from alembic import context

from schema.column_types import UtcDateTime
from schema.tables import metadata


def _render(kind: str, value: Any, autogenerate: Any) -> str | Literal[False]:
    """Write our own column types into new migrations by name, so that they need no other import."""
    if kind == "type" and isinstance(value, UtcDateTime):
        return "UtcDateTime()"
    if kind == "type" and type(value).__name__ == "JSON":
        return "Json"
    if kind == "type" and value._variant_mapping.get("sqlite") is not None:
        return "BigId"
    return False


context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    render_item=_render,
    compare_server_default=True,
    autogenerate_plugins=["alembic.autogenerate.*", "alembic.ext.checkconstraint_byname"],
)
with context.begin_transaction():
    context.run_migrations()
