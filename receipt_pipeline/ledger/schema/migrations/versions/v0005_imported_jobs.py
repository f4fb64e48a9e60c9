"""Jobs that an older system ran: each with the class that its word means here, or an investigation."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

Sequence64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table of imported jobs."""
    op.create_table(
        "imported_jobs",
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("origin", sa.String, nullable=False),
        sa.Column("external_id", sa.String, nullable=False),
        sa.Column("caller", sa.String, nullable=False),
        sa.Column("idempotency_key", sa.String),
        sa.Column("items_requested", sa.Integer, nullable=False),
        sa.Column("state_as_written", sa.String, nullable=False),
        sa.Column("terminal_class", sa.String),
        sa.Column("decision", sa.String),
        sa.Column("reason_code", sa.String, nullable=False),
        sa.Column("submitted_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("row_digest", sa.String, nullable=False),
        sa.Column("investigation_id", sa.String),
        sa.Column("imported_by", sa.String, nullable=False),
        sa.Column("imported_at", sa.BigInteger, nullable=False),
        sa.Column("latest_seq", Sequence64, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("job_id", name="pk_imported_jobs"),
        sa.UniqueConstraint(
            "tenant", "origin", "external_id", name="uq_imported_jobs_tenant_origin_external_id"
        ),
        sa.CheckConstraint(
            "terminal_class IS NOT NULL OR investigation_id IS NOT NULL",
            name=op.f("ck_imported_jobs_classed_or_asked"),
        ),
        sa.CheckConstraint(
            "(terminal_class IS NULL) = (ended_at IS NULL)", name=op.f("ck_imported_jobs_class_has_end")
        ),
        sa.CheckConstraint("items_requested > 0", name=op.f("ck_imported_jobs_some_items")),
    )
    op.create_index("ix_imported_jobs_tenant_idempotency_key", "imported_jobs", ["tenant", "idempotency_key"])


def downgrade() -> None:
    """Drop it again; what was imported can be imported again."""
    op.drop_index("ix_imported_jobs_tenant_idempotency_key", table_name="imported_jobs")
    op.drop_table("imported_jobs")
