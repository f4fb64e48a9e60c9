"""Tables of alerts, quotas and legacy jobs."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import CheckConstraint, Column, ForeignKey, Index, Integer, String, Table

from receipt_pipeline.ledger.schema.jobs import metadata
from receipt_pipeline.ledger.schema.types import Sequence64, UtcMicros

alerts = Table(
    "alerts",
    metadata,
    Column("alert_id", String, primary_key=True, comment="id of the alert"),
    Column("kind", String, nullable=False, comment="kind of the alert"),
    Column("subject", String, nullable=False, comment="job id, or what it is about where that is no single job"),
    Column("job_id", String, comment="job it is about, empty where none"),
    Column("detail", sa.JSON, nullable=False, comment="the facts that raised it, as JSON"),
    Column("raised_at", UtcMicros, nullable=False, comment="time it was raised"),
    Column("resolved_at", UtcMicros, comment="time it was resolved, empty while it is active"),
    # The database itself keeps an alert from being raised twice.
    Index(
        "uq_alerts_open",
        "kind",
        "subject",
        unique=True,
        sqlite_where=sa.text("resolved_at IS NULL"),
        postgresql_where=sa.text("resolved_at IS NULL"),
    ),
    comment="what operators were warned of",
)

alert_links = Table(
    "alert_links",
    metadata,
    Column("kind", String, primary_key=True, comment="kind of the alert"),
    Column("channel", String, primary_key=True, comment="channel"),
    Column("linked_by", String, nullable=False, comment="who linked it"),
    Column("linked_at", UtcMicros, nullable=False, comment="time it was linked"),
    comment="channels through which each kind of alert is sent",
)

alert_deliveries = Table(
    "alert_deliveries",
    metadata,
    Column("alert_id", String, ForeignKey("alerts.alert_id"), primary_key=True, comment="id of the alert"),
    Column("channel", String, primary_key=True, comment="channel it was sent through"),
    Column("sends", Integer, nullable=False, comment="number of delivery attempts"),
    Column("outcome", String, nullable=False, comment="delivered or failed"),
    Column("reference", String, nullable=False, server_default="", comment="reference of the channel"),
    Column("reason_code", String, nullable=False, server_default="", comment="why it failed, empty otherwise"),
    Column("sent_at", UtcMicros, nullable=False, comment="time of the newest delivery attempt"),
    comment="the newest delivery attempt of each alert per channel",
)

submitters = Table(
    "submitters",
    metadata,
    Column("tenant", String, primary_key=True, comment="tenant of the submitter"),
    Column("caller", String, primary_key=True, comment="the submitter"),
    Column("quota_items", Integer, nullable=False, comment="number of items that may be open"),
    Column("added_by", String, nullable=False, comment="who added it"),
    Column("added_at", UtcMicros, nullable=False, comment="time it was added"),
    Column("changed_by", String, nullable=False, comment="who changed it last"),
    Column("changed_at", UtcMicros, nullable=False, comment="time of the last change"),
    comment="named submitters and their quotas",
)

imported_jobs = Table(
    "imported_jobs",
    metadata,
    Column("job_id", String, primary_key=True, comment="id of the record here"),
    Column("tenant", String, nullable=False, comment="tenant that owns the job"),
    Column("origin", String, nullable=False, comment="name of the legacy system"),
    Column("external_id", String, nullable=False, comment="id of the job in the legacy system"),
    Column("caller", String, nullable=False, comment="who submitted it there, empty where unknown"),
    Column("idempotency_key", String, comment="key under which the same request was submitted here too"),
    Column("items_requested", Integer, nullable=False, comment="number of its items"),
    Column("state_as_written", String, nullable=False, comment="its state as the legacy system names it"),
    Column("terminal_class", String, comment="class of that state here; empty for a job that was still open"),
    Column("decision", String, comment="decision of the legacy system: clear, or review when any item needed it"),
    Column("reason_code", String, nullable=False, comment="how the class was determined, or that the job was open"),
    Column("submitted_at", UtcMicros, nullable=False, comment="time of submission there"),
    Column("ended_at", UtcMicros, comment="time at which it ended there"),
    Column("row_digest", String, nullable=False, comment="digest of the imported row; an equal row changes nothing"),
    Column("investigation_id", String, comment="investigation opened because the job was still open"),
    Column("imported_by", String, nullable=False, comment="who imported it"),
    Column("imported_at", UtcMicros, nullable=False, comment="time of the import"),
    Column("latest_seq", Sequence64, nullable=False, server_default="0", comment="newest event of the record"),
    sa.UniqueConstraint("tenant", "origin", "external_id"),
    # Each has a class or a question: nothing is taken over without an answer.
    CheckConstraint("terminal_class IS NOT NULL OR investigation_id IS NOT NULL", name="classed_or_asked"),
    CheckConstraint("(terminal_class IS NULL) = (ended_at IS NULL)", name="class_has_end"),
    CheckConstraint("items_requested > 0", name="some_items"),
    Index("ix_imported_jobs_tenant_idempotency_key", "tenant", "idempotency_key"),
    comment="one row per job of a legacy system; as reported there, not verified here",
)
