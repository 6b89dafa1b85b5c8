"""The table of what a lab knows of its hosts besides their fingerprints: their names and labels, and who drained one.

None of it is a fact of the machine, and none of it enters a result.
"""

from sqlalchemy import Boolean, Column, ForeignKey, Table, false

from schema.column_types import UtcDateTime
from schema.table_parts import metadata, texts, values

host_state = Table(
    "host_state",
    metadata,
    Column("host_id", ForeignKey("host.id"), primary_key=True),
    Column("drained", Boolean, nullable=False, server_default=false()),
    *texts("why", "who"),
    Column("changed_at", UtcDateTime),
    *texts("label"),
    *values("labels"),
    Column("seen_at", UtcDateTime),
)
"""`drained`: the host gets no new jobs until it is resumed. `label` and `labels` are what it told the cluster last."""
