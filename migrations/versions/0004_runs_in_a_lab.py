"""What a run in a lab of several hosts keeps besides."""

import sqlalchemy as sa
from alembic import op

from schema.column_types import BigId, Json, UtcDateTime

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    _host_states()
    _host_settings()
    op.add_column("run", sa.Column("priority", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("run", sa.Column("driven_at", UtcDateTime(), nullable=True))


def _host_states() -> None:
    op.create_table(
        "host_state",
        sa.Column("host_id", BigId, nullable=False),
        sa.Column("drained", sa.Boolean(), nullable=False, server_default=sa.false()),
        sa.Column("why", sa.Text(), nullable=True),
        sa.Column("who", sa.Text(), nullable=True),
        sa.Column("changed_at", UtcDateTime(), nullable=True),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("labels", Json, nullable=True),
        sa.Column("seen_at", UtcDateTime(), nullable=True),
        sa.ForeignKeyConstraint(["host_id"], ["host.id"], name=op.f("fk_host_state_host_id")),
        sa.PrimaryKeyConstraint("host_id", name=op.f("pk_host_state")),
    )


def _host_settings() -> None:
    op.add_column("job", sa.Column("asked_host_settings", sa.Text(), nullable=False, server_default="none"))
    op.add_column("attempt", sa.Column("host_settings", sa.Text(), nullable=True))
