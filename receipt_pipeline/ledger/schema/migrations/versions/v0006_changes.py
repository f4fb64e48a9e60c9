"""How a reader that comes again finds what changed: the writer of an event, the event of an object check."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only in a plain INTEGER primary key.
Sequence64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
WRITTEN = sa.text("written_in IS NOT NULL")


def upgrade() -> None:
    """Add both columns; rows that are there already stay without a writer: they are older than any reader."""
    if op.get_bind().dialect.name == "postgresql":
        op.add_column("events", sa.Column("written_in", sa.BigInteger))
        # Given apart from the column, so that no row that is there already is rewritten.
        op.alter_column(
            "events", "written_in", server_default=sa.text("((pg_current_xact_id())::text)::bigint")
        )
    else:
        op.add_column("events", sa.Column("written_in", sa.BigInteger, server_default=sa.text("NULL")))
    op.create_index(
        "ix_events_written_in", "events", ["written_in"], sqlite_where=WRITTEN, postgresql_where=WRITTEN
    )
    op.add_column("object_checks", sa.Column("latest_seq", Sequence64, nullable=False, server_default="0"))
    op.create_index("ix_object_checks_latest_seq", "object_checks", ["latest_seq"])


def downgrade() -> None:
    """Drop them again."""
    op.drop_index("ix_object_checks_latest_seq", table_name="object_checks")
    op.drop_column("object_checks", "latest_seq")
    op.drop_index("ix_events_written_in", table_name="events")
    op.drop_column("events", "written_in")
