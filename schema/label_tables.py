"""What people say about runs, hosts and results: a row for each time that somebody said something.

What holds now stands beside the thing itself, in `tags`, `notes` and `marked_bad` of its own table, so that no
question has to put it together; both are written in one transaction.
"""

from sqlalchemy import CheckConstraint, Column, Index, String, Table, Text

from schema.column_types import UtcDateTime
from schema.table_parts import metadata, number, texts

label = Table(
    "label",
    metadata,
    number(),
    Column("about", String(8), nullable=False),
    Column("uid", Text, nullable=False),
    Column("kind", String(8), nullable=False),
    *texts("name", "said"),
    Column("author", Text, nullable=False),
    Column("labelled_at", UtcDateTime, nullable=False),
    CheckConstraint("about IN ('run', 'host', 'result')", name="about_is_known"),
    CheckConstraint("kind IN ('tag', 'untag', 'note', 'bad', 'good')", name="kind_is_known"),
    Index(None, "about", "uid"),
)
"""`uid` is a run_uid, host_uid or attempt_uid. `name` is a tag's key; `said` its value, a note's text or a reason."""
