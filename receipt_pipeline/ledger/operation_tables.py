"""Tables of what operators are warned of, over which channels, and how much each submitter may hand in."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Column, ForeignKey, Index, Integer, String, Table

from receipt_pipeline.ledger.columns import UtcMicros
from receipt_pipeline.ledger.tables import metadata

alerts = Table(
    "alerts",
    metadata,
    Column("alert_id", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("job_id", String),
    Column("detail", sa.JSON, nullable=False),
    Column("raised_at", UtcMicros, nullable=False),
    Column("resolved_at", UtcMicros),
    # The database itself keeps an alert from being raised twice.
    Index(
        "uq_alerts_open",
        "kind",
        "subject",
        unique=True,
        sqlite_where=sa.text("resolved_at IS NULL"),
        postgresql_where=sa.text("resolved_at IS NULL"),
    ),
)

alert_links = Table(
    "alert_links",
    metadata,
    Column("kind", String, primary_key=True),
    Column("channel", String, primary_key=True),
    Column("linked_by", String, nullable=False),
    Column("linked_at", UtcMicros, nullable=False),
)

alert_deliveries = Table(
    "alert_deliveries",
    metadata,
    Column("alert_id", String, ForeignKey("alerts.alert_id"), primary_key=True),
    Column("channel", String, primary_key=True),
    Column("sends", Integer, nullable=False),
    Column("outcome", String, nullable=False),
    Column("reference", String, nullable=False, server_default=""),
    Column("reason_code", String, nullable=False, server_default=""),
    Column("sent_at", UtcMicros, nullable=False),
)

submitters = Table(
    "submitters",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("caller", String, primary_key=True),
    Column("quota_items", Integer, nullable=False),
    Column("added_by", String, nullable=False),
    Column("added_at", UtcMicros, nullable=False),
    Column("changed_by", String, nullable=False),
    Column("changed_at", UtcMicros, nullable=False),
)
