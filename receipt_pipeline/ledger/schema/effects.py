"""Tables of effects, objects, tasks and investigations."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, String, Table

from receipt_pipeline.ledger.schema.jobs import metadata
from receipt_pipeline.ledger.schema.types import Sequence64, UtcMicros

effects = Table(
    "effects",
    metadata,
    Column("effect_id", String, primary_key=True),
    Column("job_id", String, ForeignKey("jobs.job_id"), nullable=False),
    Column("lease_epoch", Integer, nullable=False),
    Column("kind", String, nullable=False),
    Column("required", Boolean, nullable=False),
    Column("idempotency_key", String, nullable=False, unique=True),
    Column("state", String, nullable=False),
    Column("expected_digest", String),
    Column("size_bytes", Integer),
    Column("provider_reference", String, nullable=False, server_default=""),
    Column("reason_code", String, nullable=False, server_default=""),
    Column("intended_at", UtcMicros, nullable=False),
    Column("updated_at", UtcMicros, nullable=False),
    Column("committed_at", UtcMicros),
    Column("deadline_at", UtcMicros),
    # With fewer columns SQLite would answer for one job by reading every effect of the kind.
    Index("ix_effects_job_id_kind_state", "job_id", "kind", "state"),
    Index("ix_effects_kind_state", "kind", "state"),
)

outbox = Table(
    "outbox",
    metadata,
    Column("message_id", String, primary_key=True),
    Column("job_id", String, ForeignKey("jobs.job_id"), nullable=False, unique=True),
    Column("tenant", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("payload", sa.JSON, nullable=False),
    Column("state", String, nullable=False),
    Column("sends", Integer, nullable=False, server_default="0"),
    Column("created_at", UtcMicros, nullable=False),
    Column("due_at", UtcMicros, nullable=False),
    Column("settled_at", UtcMicros),
    Index("ix_outbox_state_due_at", "state", "due_at"),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("delivery_id", String, primary_key=True),
    Column("message_id", String, ForeignKey("outbox.message_id"), nullable=False, index=True),
    Column("job_id", String, nullable=False, index=True),
    Column("send_no", Integer, nullable=False),
    Column("channel", String, nullable=False),
    Column("outcome", String, nullable=False),
    Column("reference", String, nullable=False, server_default=""),
    Column("reason_code", String, nullable=False, server_default=""),
    Column("late", Boolean, nullable=False, server_default=sa.false()),
    Column("delivered_at", UtcMicros, nullable=False),
)

consumed = Table(
    "consumed",
    metadata,
    Column("consumed_id", Sequence64, primary_key=True, autoincrement=True),
    Column("event_id", String, nullable=False, index=True),
    Column("job_id", String, nullable=False, index=True),
    Column("event_kind", String, nullable=False),
    Column("source", String, nullable=False),
    Column("result_digest", String),
    Column("outcome", String, nullable=False),
    Column("reason_code", String, nullable=False, server_default=""),
    Column("tasks_made", Integer, nullable=False, server_default="0"),
    Column("received_at", UtcMicros, nullable=False),
)

review_tasks = Table(
    "review_tasks",
    metadata,
    Column("decision_id", String, primary_key=True),
    Column("job_id", String, ForeignKey("jobs.job_id"), nullable=False, index=True),
    Column("tenant", String, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("item_id", String, nullable=False),
    Column("decision", String, nullable=False),
    Column("reasons", sa.JSON, nullable=False),
    Column("result_digest", String, nullable=False),
    Column("outcome_digest", String, nullable=False),
    Column("state", String, nullable=False),
    Column("disputed", Boolean, nullable=False, server_default=sa.false()),
    Column("created_at", UtcMicros, nullable=False),
    Column("closed_at", UtcMicros),
)

object_refs = Table(
    "object_refs",
    metadata,
    Column("object_key", String, primary_key=True),
    Column("holder", String, primary_key=True),
    Column("hold_kind", String, nullable=False),
    Column("held_at", UtcMicros, nullable=False),
)

object_checks = Table(
    "object_checks",
    metadata,
    Column("object_key", String, primary_key=True),
    Column("job_id", String),
    Column("outcome", String, nullable=False),
    Column("expected_digest", String),
    Column("found_digest", String),
    Column("expected_size_bytes", Integer),
    Column("found_size_bytes", Integer),
    Column("pins_stated", Boolean),
    Column("checked_at", UtcMicros, nullable=False),
    Column("latest_seq", Sequence64, nullable=False, server_default="0", index=True),
)

tombstones = Table(
    "tombstones",
    metadata,
    Column("object_key", String, primary_key=True),
    Column("job_id", String),
    Column("reason", String, nullable=False),
    Column("digest", String),
    Column("buried_at", UtcMicros, nullable=False),
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("quarantine_id", String, primary_key=True),
    Column("job_id", String, ForeignKey("jobs.job_id"), nullable=False, index=True),
    Column("subject", String, nullable=False),
    Column("digests", sa.JSON, nullable=False),
    Column("before_terminal", Boolean, nullable=False),
    Column("state", String, nullable=False),
    Column("opened_at", UtcMicros, nullable=False),
    Column("resolved_at", UtcMicros),
    Column("resolution", String, nullable=False, server_default=""),
    Column("investigation_id", String, nullable=False),
    sa.UniqueConstraint("job_id", "subject"),
)

investigations = Table(
    "investigations",
    metadata,
    Column("investigation_id", String, primary_key=True),
    Column("job_id", String, index=True),
    Column("kind", String, nullable=False),
    Column("subject", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("escalation", String, nullable=False),
    Column("state", String, nullable=False),
    Column("opened_at", UtcMicros, nullable=False),
    Column("deadline_at", UtcMicros, nullable=False),
    Column("reason_code", String, nullable=False),
    Column("suspected_effect", String, nullable=False),
    Column("last_safe_checkpoint", Integer),
    Column("allowed_repair", String, nullable=False),
    Column("evidence", sa.JSON, nullable=False),
    Column("resolution", String, nullable=False, server_default=""),
    Column("resolved_by", String),
    Column("resolved_at", UtcMicros),
    sa.UniqueConstraint("kind", "subject"),
    Index("ix_investigations_state", "state"),
)
