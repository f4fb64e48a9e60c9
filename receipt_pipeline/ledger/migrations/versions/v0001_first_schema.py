"""The first schema: jobs, items, attempts, effects, objects, investigations, events."""

from __future__ import annotations

from alembic import op

from receipt_pipeline.ledger import effect_tables, tables

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create every table of the first schema."""
    assert effect_tables.effects.metadata is tables.metadata
    tables.metadata.create_all(op.get_bind())


def downgrade() -> None:
    """Drop every table of the first schema."""
    tables.metadata.drop_all(op.get_bind())
