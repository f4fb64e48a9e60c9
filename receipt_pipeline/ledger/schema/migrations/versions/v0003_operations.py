"""What operators are warned of, over which channels, and the quotas of named submitters."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, each as it was at this revision."""
    _create_alerts()
    op.create_table(
        "alert_links",
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("channel", sa.String, nullable=False),
        sa.Column("linked_by", sa.String, nullable=False),
        sa.Column("linked_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("kind", "channel", name="pk_alert_links"),
    )
    op.create_table(
        "alert_deliveries",
        sa.Column("alert_id", sa.String, nullable=False),
        sa.Column("channel", sa.String, nullable=False),
        sa.Column("sends", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("reference", sa.String, nullable=False, server_default=""),
        sa.Column("reason_code", sa.String, nullable=False, server_default=""),
        sa.Column("sent_at", sa.BigInteger, nullable=False),
        sa.ForeignKeyConstraint(["alert_id"], ["alerts.alert_id"], name="fk_alert_deliveries_alert_id"),
        sa.PrimaryKeyConstraint("alert_id", "channel", name="pk_alert_deliveries"),
    )
    op.create_table(
        "submitters",
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("caller", sa.String, nullable=False),
        sa.Column("quota_items", sa.Integer, nullable=False),
        sa.Column("added_by", sa.String, nullable=False),
        sa.Column("added_at", sa.BigInteger, nullable=False),
        sa.Column("changed_by", sa.String, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "caller", name="pk_submitters"),
    )


def downgrade() -> None:
    """Drop them again, those that refer to others first."""
    for table in ("submitters", "alert_deliveries", "alert_links", "alerts"):
        op.drop_table(table)


def _create_alerts() -> None:
    op.create_table(
        "alerts",
        sa.Column("alert_id", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("subject", sa.String, nullable=False),
        sa.Column("job_id", sa.String),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.Column("raised_at", sa.BigInteger, nullable=False),
        sa.Column("resolved_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("alert_id", name="pk_alerts"),
    )
    op.create_index(
        "uq_alerts_open",
        "alerts",
        ["kind", "subject"],
        unique=True,
        sqlite_where=sa.text("resolved_at IS NULL"),
        postgresql_where=sa.text("resolved_at IS NULL"),
    )
