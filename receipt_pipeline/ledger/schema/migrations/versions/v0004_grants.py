"""Grants under which callers act, and the ways from a job to its children and to what it replaces."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only in a plain INTEGER primary key.
Sequence64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table of grants and the partial indexes of the family links."""
    op.create_table(
        "grants",
        sa.Column("grant_no", Sequence64, autoincrement=True, nullable=False),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("caller", sa.String, nullable=False),
        sa.Column("roles", sa.JSON, nullable=False),
        sa.Column("given_by", sa.String, nullable=False),
        sa.Column("given_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("revoked_by", sa.String),
        sa.Column("revoked_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("grant_no", name="pk_grants"),
    )
    op.create_index("ix_grants_tenant_caller", "grants", ["tenant", "caller"])
    _create_family_index("parent_job_id")
    _create_family_index("superseded_by")


def _create_family_index(column: str) -> None:
    condition = sa.text(f"{column} IS NOT NULL")
    op.create_index(f"ix_jobs_{column}", "jobs", [column], sqlite_where=condition, postgresql_where=condition)


def downgrade() -> None:
    """Drop them again."""
    op.drop_index("ix_jobs_superseded_by", table_name="jobs")
    op.drop_index("ix_jobs_parent_job_id", table_name="jobs")
    op.drop_table("grants")
