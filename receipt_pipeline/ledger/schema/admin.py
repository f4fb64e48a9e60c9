"""Tables of alerts, quotas and legacy jobs."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, String, Table

from receipt_pipeline.ledger.schema.jobs import metadata
from receipt_pipeline.ledger.schema.types import Sequence64, UtcMicros

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

imported_jobs = Table(
    "imported_jobs",
    metadata,
    Column("job_id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("origin", String, nullable=False),
    Column("external_id", String, nullable=False),
    Column("caller", String, nullable=False),
    Column("idempotency_key", String),
    Column("items_requested", Integer, nullable=False),
    Column("state_as_written", String, nullable=False),
    Column("terminal_class", String),
    Column("decision", String),
    Column("reason_code", String, nullable=False),
    Column("submitted_at", UtcMicros, nullable=False),
    Column("ended_at", UtcMicros),
    Column("row_digest", String, nullable=False),
    Column("investigation_id", String),
    Column("imported_by", String, nullable=False),
    Column("imported_at", UtcMicros, nullable=False),
    Column("latest_seq", Sequence64, nullable=False, server_default="0"),
    sa.UniqueConstraint("tenant", "origin", "external_id"),
    # Each has a class or a question: nothing is taken over without an answer.
    CheckConstraint("terminal_class IS NOT NULL OR investigation_id IS NOT NULL", name="classed_or_asked"),
    CheckConstraint("(terminal_class IS NULL) = (ended_at IS NULL)", name="class_has_end"),
    CheckConstraint("items_requested > 0", name="some_items"),
    Index("ix_imported_jobs_tenant_idempotency_key", "tenant", "idempotency_key"),
)
