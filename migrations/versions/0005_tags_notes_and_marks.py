"""What people say about runs, hosts and results: tags, notes, and results that are not to be compared."""

import sqlalchemy as sa
from alembic import op

from schema.column_types import BigId, Json, UtcDateTime

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "label",
        sa.Column("id", BigId, nullable=False),
        sa.Column("about", sa.String(length=8), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("name", sa.Text(), nullable=True),
        sa.Column("said", sa.Text(), nullable=True),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("labelled_at", UtcDateTime(), nullable=False),
        sa.CheckConstraint("about IN ('run', 'host', 'result')", name=op.f("ck_label_about_is_known")),
        sa.CheckConstraint("kind IN ('tag', 'untag', 'note', 'bad', 'good')", name=op.f("ck_label_kind_is_known")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_label")),
    )
    op.create_index(op.f("ix_label_about_uid"), "label", ["about", "uid"])
    op.add_column("run", sa.Column("notes", Json, nullable=True))
    for table in ("host", "attempt"):
        op.add_column(table, sa.Column("tags", Json, nullable=True))
        op.add_column(table, sa.Column("notes", Json, nullable=True))
    op.add_column("attempt", sa.Column("marked_bad", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("attempt", sa.Column("mark_reason", sa.Text(), nullable=True))
    op.add_column("attempt", sa.Column("marked_by", sa.Text(), nullable=True))
    op.add_column("attempt", sa.Column("marked_at", UtcDateTime(), nullable=True))
    op.add_column("attempt", sa.Column("pruned_at", UtcDateTime(), nullable=True))
