"""Tables of effects, objects, tasks and investigations."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Boolean, Column, ForeignKey, Index, Integer, String, Table

from receipt_pipeline.ledger.schema.jobs import metadata
from receipt_pipeline.ledger.schema.types import Sequence64, UtcMicros

effects = Table(
    "effects",
    metadata,
    Column("effect_id", String, primary_key=True, comment="id of the effect"),
    Column("job_id", String, ForeignKey("jobs.job_id"), nullable=False, comment="id of the job"),
    Column("lease_epoch", Integer, nullable=False, comment="lease epoch under which it was written"),
    Column("kind", String, nullable=False, comment="result_object, review_tasks or notification"),
    Column("required", Boolean, nullable=False, comment="whether a missing one is a gap"),
    Column(
        "idempotency_key", String, nullable=False, unique=True, comment="stable key under which the effect is repeated"
    ),
    Column("state", String, nullable=False, comment="intended, unknown, committed, failed or abandoned"),
    Column("expected_digest", String, comment="digest that the ledger expects"),
    Column("size_bytes", Integer, comment="size in bytes"),
    Column(
        "provider_reference", String, nullable=False, server_default="", comment="reference of the receiving system"
    ),
    Column(
        "reason_code",
        String,
        nullable=False,
        server_default="",
        comment="stable reason code, empty where there is none",
    ),
    Column("intended_at", UtcMicros, nullable=False, comment="time of the intent"),
    Column("updated_at", UtcMicros, nullable=False, comment="time of the last change"),
    Column("committed_at", UtcMicros, comment="time at which it was known to have happened"),
    Column("deadline_at", UtcMicros, comment="time by which it is due"),
    # With fewer columns SQLite would answer for one job by reading every effect of the kind.
    Index("ix_effects_job_id_kind_state", "job_id", "kind", "state"),
    Index("ix_effects_kind_state", "kind", "state"),
    comment="one row per intended consequence of a job",
)

outbox = Table(
    "outbox",
    metadata,
    Column("message_id", String, primary_key=True, comment="id of the message"),
    Column("job_id", String, ForeignKey("jobs.job_id"), nullable=False, unique=True, comment="job that it is about"),
    Column("tenant", String, nullable=False, comment="tenant that owns the job"),
    Column("kind", String, nullable=False, comment="kind of the message"),
    Column("payload", sa.JSON, nullable=False, comment="the message, as JSON"),
    Column("state", String, nullable=False, comment="due, sending, sent, unknown or abandoned"),
    Column("sends", Integer, nullable=False, server_default="0", comment="number of delivery attempts"),
    Column("created_at", UtcMicros, nullable=False, comment="time at which it was written, with the outcome"),
    Column("due_at", UtcMicros, nullable=False, comment="time of the next delivery attempt"),
    Column("settled_at", UtcMicros, comment="time of its final state"),
    Index("ix_outbox_state_due_at", "state", "due_at"),
    comment="one row per notification to send",
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("delivery_id", String, primary_key=True, comment="id of the delivery attempt"),
    Column(
        "message_id",
        String,
        ForeignKey("outbox.message_id"),
        nullable=False,
        index=True,
        comment="id of the message; the same on every repeat",
    ),
    Column("job_id", String, nullable=False, index=True, comment="id of the job"),
    Column("send_no", Integer, nullable=False, comment="number of the delivery attempt"),
    Column("channel", String, nullable=False, comment="channel it was sent through"),
    Column("outcome", String, nullable=False, comment="delivered, dropped or failed"),
    Column("reference", String, nullable=False, server_default="", comment="reference of the channel"),
    Column(
        "reason_code",
        String,
        nullable=False,
        server_default="",
        comment="stable reason code, empty where there is none",
    ),
    Column(
        "late",
        Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="whether it arrived after the deadline of its effect",
    ),
    Column("delivered_at", UtcMicros, nullable=False, comment="time of the delivery attempt"),
    comment="one row per delivery attempt of a message",
)

consumed = Table(
    "consumed",
    metadata,
    Column("consumed_id", Sequence64, primary_key=True, autoincrement=True, comment="number of the row"),
    Column("event_id", String, nullable=False, index=True, comment="id of the event"),
    Column("job_id", String, nullable=False, index=True, comment="id of the job"),
    Column("event_kind", String, nullable=False, comment="state that the event claims"),
    Column("source", String, nullable=False, comment="where it came from"),
    Column("result_digest", String, comment="result digest in the event"),
    Column(
        "outcome",
        String,
        nullable=False,
        comment="acted, noted, duplicate, late, conflict, unverified, held or unknown",
    ),
    Column(
        "reason_code",
        String,
        nullable=False,
        server_default="",
        comment="stable reason code, empty where there is none",
    ),
    Column("tasks_made", Integer, nullable=False, server_default="0", comment="new tasks because of it"),
    Column("received_at", UtcMicros, nullable=False, comment="time it was received"),
    comment="one row per event that the review system received",
)

review_tasks = Table(
    "review_tasks",
    metadata,
    Column("decision_id", String, primary_key=True, comment="digest of job, item and pins; never of the output"),
    Column("job_id", String, ForeignKey("jobs.job_id"), nullable=False, index=True, comment="id of the job"),
    Column("tenant", String, nullable=False, comment="tenant that owns the job"),
    Column("ordinal", Integer, nullable=False, comment="place in the job, from 0"),
    Column("item_id", String, nullable=False, comment="item that the decision is about"),
    Column("decision", String, nullable=False, comment="clear or review"),
    Column("reasons", sa.JSON, nullable=False, comment="reason codes, strongest first"),
    Column("result_digest", String, nullable=False, comment="digest of the result object"),
    Column("outcome_digest", String, nullable=False, comment="digest of the outcome, without job and decision id"),
    Column("state", String, nullable=False, comment="open, auto_cleared or done"),
    Column(
        "disputed",
        Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="whether another output of the job exists",
    ),
    Column("created_at", UtcMicros, nullable=False, comment="time it was created"),
    Column("closed_at", UtcMicros, comment="time it was closed"),
    comment="one row per decision of a verified success",
)

object_refs = Table(
    "object_refs",
    metadata,
    Column("object_key", String, primary_key=True, comment="key of the object"),
    Column("holder", String, primary_key=True, comment="who needs the object"),
    Column("hold_kind", String, nullable=False, comment="why the object is needed"),
    Column("held_at", UtcMicros, nullable=False, comment="time since which it is needed"),
    comment="who still needs a stored object",
)

object_checks = Table(
    "object_checks",
    metadata,
    Column("object_key", String, primary_key=True, comment="key of the object"),
    Column("job_id", String, comment="job of the key"),
    Column("outcome", String, nullable=False, comment="ok, missing, mismatch, orphan or unreadable"),
    Column("expected_digest", String, comment="digest that the ledger expects"),
    Column("found_digest", String, comment="digest of the stored object"),
    Column("expected_size_bytes", Integer, comment="size that the ledger expects"),
    Column("found_size_bytes", Integer, comment="size of the stored object"),
    Column("pins_stated", Boolean, comment="whether the result restates the pins of its job"),
    Column("checked_at", UtcMicros, nullable=False, comment="time of the first check with this outcome"),
    Column("latest_seq", Sequence64, nullable=False, server_default="0", index=True, comment="newest event about it"),
    comment="last check of each object key",
)

tombstones = Table(
    "tombstones",
    metadata,
    Column("object_key", String, primary_key=True, comment="key of the object"),
    Column("job_id", String, comment="job of the key, empty where none"),
    Column("reason", String, nullable=False, comment="why the object is gone"),
    Column("digest", String, comment="digest of the object"),
    Column("buried_at", UtcMicros, nullable=False, comment="time of the tombstone"),
    comment="object keys that were removed or withdrawn",
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("quarantine_id", String, primary_key=True, comment="id of the row"),
    Column("job_id", String, ForeignKey("jobs.job_id"), nullable=False, index=True, comment="id of the job"),
    Column("subject", String, nullable=False, comment="result, or item:<ordinal>"),
    Column("digests", sa.JSON, nullable=False, comment="every digest and who wrote it"),
    Column("before_terminal", Boolean, nullable=False, comment="whether the job was still open"),
    Column("state", String, nullable=False, comment="open or resolved"),
    Column("opened_at", UtcMicros, nullable=False, comment="time it was opened"),
    Column("resolved_at", UtcMicros, comment="time of the recorded decision"),
    Column("resolution", String, nullable=False, server_default="", comment="the recorded decision"),
    Column("investigation_id", String, nullable=False, comment="id of the investigation"),
    sa.UniqueConstraint("job_id", "subject"),
    comment="divergent outputs: all kept, none served",
)

investigations = Table(
    "investigations",
    metadata,
    Column("investigation_id", String, primary_key=True, comment="id of the investigation"),
    Column("job_id", String, index=True, comment="id of the job, empty where it is about none"),
    Column("kind", String, nullable=False, comment="kind of the investigation"),
    Column("subject", String, nullable=False, comment="what it is about"),
    Column("owner", String, nullable=False, comment="who owns it"),
    Column("escalation", String, nullable=False, comment="who takes over after the deadline"),
    Column("state", String, nullable=False, comment="open or resolved"),
    Column("opened_at", UtcMicros, nullable=False, comment="time it was opened"),
    Column("deadline_at", UtcMicros, nullable=False, comment="time by which it is due"),
    Column("reason_code", String, nullable=False, comment="stable reason code, empty where there is none"),
    Column("suspected_effect", String, nullable=False, comment="what may have happened outside the ledger"),
    Column("last_safe_checkpoint", Integer, comment="checkpoint up to which outcomes are safe"),
    Column("allowed_repair", String, nullable=False, comment="the repair that destroys nothing"),
    Column("evidence", sa.JSON, nullable=False, comment="ids, digests and counts"),
    Column("resolution", String, nullable=False, server_default="", comment="the recorded decision"),
    Column("resolved_by", String, comment="who decided"),
    Column("resolved_at", UtcMicros, comment="time of the recorded decision"),
    Column(
        "tenant",
        String,
        nullable=False,
        server_default="",
        comment="tenant that it concerns, empty where it concerns no single one",
    ),
    sa.UniqueConstraint("kind", "subject"),
    Index("ix_investigations_state", "state"),
    comment="owned investigations with a deadline: the only alternative to a terminal record",
)
