"""What an attempt is a newer or older result of, and indexes for the questions that people ask most."""

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

FAILED, COMPARED = "status = 'failed'", "final AND status = 'measured' AND NOT marked_bad"
AT_ONCE = 5000
ATTEMPTS = """SELECT a.id, h.host_uid, a.hardware_id, m.identity, a.build_id, j.config_key
FROM attempt AS a JOIN job AS j ON j.id = a.job_id
JOIN host AS h ON h.id = j.host_id JOIN model AS m ON m.id = j.model_id
WHERE a.id > :last ORDER BY a.id LIMIT :most"""


def upgrade() -> None:
    op.add_column("attempt", sa.Column("subject_key", sa.String(length=32), nullable=True))
    _fill_in()
    op.create_index(
        "ix_attempt_subject_key_started_at",
        "attempt",
        ["subject_key", "started_at", "attempt_uid"],
        sqlite_where=sa.text(COMPARED),
        postgresql_where=sa.text(COMPARED),
    )
    op.create_index(
        "ix_attempt_failed_started_at",
        "attempt",
        ["started_at"],
        sqlite_where=sa.text(FAILED),
        postgresql_where=sa.text(FAILED),
    )
    op.create_index(op.f("ix_job_config_key_host_id"), "job", ["config_key", "host_id"])


def _fill_in() -> None:
    connection, last = op.get_bind(), -1
    change = sa.text("UPDATE attempt SET subject_key = :key WHERE id = :id")
    while found := connection.execute(sa.text(ATTEMPTS), {"last": last, "most": AT_ONCE}).all():
        connection.execute(change, [{"id": row[0], "key": _key(list(row[1:]))} for row in found])
        last = found[-1][0]


def _key(parts: list[str | None]) -> str:
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]
