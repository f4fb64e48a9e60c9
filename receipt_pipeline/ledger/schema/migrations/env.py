"""Runs Alembic's migrations on the connection that the ledger passes."""

from __future__ import annotations

from alembic import context

from receipt_pipeline.ledger.schema.jobs import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata)
context.run_migrations()
