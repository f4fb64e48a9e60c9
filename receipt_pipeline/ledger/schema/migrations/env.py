"""Runs Alembic's migrations on the connection that the ledger hands over."""

from __future__ import annotations

from alembic import context

from receipt_pipeline.ledger.schema import effects as effect_tables
from receipt_pipeline.ledger.schema import jobs as tables

assert effect_tables.effects.metadata is tables.metadata
connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=tables.metadata, render_as_batch=True)
context.run_migrations()
