"""Each investigation names the tenant that it concerns: the list of one tenant is a plain condition."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, String, text

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; an investigation of a job takes its tenant, every other concerns no single one."""
    op.add_column("investigations", Column("tenant", String, nullable=False, server_default=""))
    for jobs in ("jobs", "imported_jobs"):
        op.execute(
            text(
                f"UPDATE investigations SET tenant = (SELECT tenant FROM {jobs}"
                f" WHERE {jobs}.job_id = investigations.job_id)"
                f" WHERE job_id IN (SELECT job_id FROM {jobs})"
            )
        )


def downgrade() -> None:
    """Drop the column; the job still says whose it is."""
    op.drop_column("investigations", "tenant")
