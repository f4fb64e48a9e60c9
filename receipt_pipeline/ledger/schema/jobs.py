"""Tables of jobs, items, attempts and events."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import Boolean, CheckConstraint, Column, ForeignKey, Index, Integer, String, Table

from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import JobState, TerminalClass
from receipt_pipeline.ledger.schema.types import Sequence64, UtcMicros, WritingTransaction

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _one_of(column: str, values: type[JobState] | type[ItemClass] | type[TerminalClass]) -> str:
    listed = ", ".join(f"'{value.value}'" for value in values)
    return f"{column} IN ({listed})"


def _index_where(name: str, *columns: str, condition: str) -> Index:
    return Index(name, *columns, sqlite_where=sa.text(condition), postgresql_where=sa.text(condition))


_TERMINAL = "state IN ('succeeded', 'failed', 'expired', 'canceled')"

releases = Table(
    "releases",
    metadata,
    Column("release_id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("image_digest", String, nullable=False),
    Column("chain_revision", String, nullable=False),
    Column("feature_contract", String, nullable=False),
    Column("risk_model_digest", String, nullable=False),
    Column("policy_revision", String, nullable=False),
    Column("approved_by", String, nullable=False),
    Column("approved_at", UtcMicros, nullable=False),
    Column("retired_by", String),
    Column("retired_at", UtcMicros),
)

aliases = Table(
    "aliases",
    metadata,
    Column("move_no", Sequence64, primary_key=True, autoincrement=True),
    Column("alias", String, nullable=False, index=True),
    Column("release_id", String, ForeignKey("releases.release_id"), nullable=False),
    Column("moved_by", String, nullable=False),
    Column("moved_at", UtcMicros, nullable=False),
)

grants = Table(
    "grants",
    metadata,
    Column("grant_no", Sequence64, primary_key=True, autoincrement=True),
    Column("tenant", String, nullable=False),
    Column("caller", String, nullable=False),
    Column("roles", sa.JSON, nullable=False),
    Column("given_by", String, nullable=False),
    Column("given_at", UtcMicros, nullable=False),
    Column("expires_at", UtcMicros),
    Column("revoked_by", String),
    Column("revoked_at", UtcMicros),
    Index("ix_grants_tenant_caller", "tenant", "caller"),
)

workers = Table(
    "workers",
    metadata,
    Column("worker_id", String, primary_key=True),
    Column("release_ids", sa.JSON, nullable=False),
    Column("started_at", UtcMicros, nullable=False),
    Column("heartbeat_at", UtcMicros, nullable=False),
)

submissions = Table(
    "submissions",
    metadata,
    Column("submission_id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("caller", String, nullable=False),
    Column("door", String, nullable=False),
    Column("label", String, nullable=False),
    Column("place", String, nullable=False, server_default=""),
    Column("document_digest", String, nullable=False),
    Column("state", String, nullable=False),
    Column("reason_code", String, nullable=False, server_default=""),
    Column("pointer", String, nullable=False, server_default=""),
    Column("facts", sa.JSON, nullable=False),
    Column("rows_total", Integer, nullable=False, server_default="0"),
    Column("accepted", Integer, nullable=False, server_default="0"),
    Column("joined", Integer, nullable=False, server_default="0"),
    Column("refused", Integer, nullable=False, server_default="0"),
    Column("conflicts", Integer, nullable=False, server_default="0"),
    Column("stored", sa.JSON, nullable=False),
    Column("received_at", UtcMicros, nullable=False),
    Column("updated_at", UtcMicros, nullable=False),
    Index("ix_submissions_state_place", "state", "place"),
)

submission_rows = Table(
    "submission_rows",
    metadata,
    Column("submission_id", String, ForeignKey("submissions.submission_id"), primary_key=True),
    Column("row_no", Integer, primary_key=True),
    Column("outcome", String, nullable=False),
    Column("idempotency_key", String, nullable=False, server_default=""),
    Column("job_id", String),
    Column("reason_code", String, nullable=False, server_default=""),
    Column("pointer", String, nullable=False, server_default=""),
    Column("facts", sa.JSON, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("job_id", String, primary_key=True),
    Column("tenant", String, nullable=False),
    Column("caller", String, nullable=False),
    Column("idempotency_key", String, nullable=False),
    Column("fingerprint", String, nullable=False),
    Column("fingerprint_document", sa.JSON, nullable=False),
    Column("contract", String, nullable=False),
    Column("operation_class", String, nullable=False),
    Column("release_as_written", String, nullable=False),
    Column("release_id", String, ForeignKey("releases.release_id"), nullable=False),
    Column("image_digest", String, nullable=False),
    Column("chain_revision", String, nullable=False),
    Column("feature_contract", String, nullable=False),
    Column("risk_model_digest", String, nullable=False),
    Column("policy_revision", String, nullable=False),
    Column("max_queue_age_s", Integer, nullable=False),
    Column("processing_timeout_s", Integer, nullable=False),
    Column("result_retention_s", Integer, nullable=False),
    Column("max_attempts", Integer, nullable=False),
    Column("cutoff_margin_s", Integer, nullable=False),
    Column("cutoff_at", UtcMicros),
    Column("queue_deadline", UtcMicros, nullable=False),
    Column("processing_deadline", UtcMicros),
    Column("notification", String, nullable=False),
    Column("review_tasks", String, nullable=False),
    Column("warnings", sa.JSON, nullable=False),
    Column("items_requested", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("phase", String, nullable=False),
    Column("terminal_class", String),
    Column("reason_code", String, nullable=False, server_default=""),
    Column("close_cause", String),
    Column("lease_epoch", Integer, nullable=False, server_default="0"),
    Column("lease_owner", String),
    Column("lease_expires_at", UtcMicros),
    Column("attempts_spent", Integer, nullable=False, server_default="0"),
    Column("closing_attempts", Integer, nullable=False, server_default="0"),
    Column("retry_at", UtcMicros),
    Column("wave_id", String),
    Column("checkpoint", Integer, nullable=False, server_default="0"),
    Column("checkpoint_at", UtcMicros),
    Column("result_key", String),
    Column("result_digest", String),
    Column("result_size_bytes", Integer),
    Column("submitted_at", UtcMicros, nullable=False),
    Column("claimed_at", UtcMicros),
    Column("terminal_at", UtcMicros),
    Column("settled_at", UtcMicros),
    Column("result_purged_at", UtcMicros),
    Column("latest_seq", Sequence64, nullable=False, server_default="0"),
    Column("status_shown_seq", Sequence64, nullable=False, server_default="0"),
    Column("parent_job_id", String),
    Column("superseded_by", String),
    Column("lineage", String, nullable=False),
    sa.UniqueConstraint("tenant", "idempotency_key"),
    CheckConstraint(_one_of("state", JobState), name="state_known"),
    CheckConstraint(f"({_TERMINAL}) = (terminal_at IS NOT NULL)", name="terminal_has_time"),
    CheckConstraint(f"({_TERMINAL}) = (terminal_class IS NOT NULL)", name="terminal_has_class"),
    CheckConstraint(
        "state <> 'succeeded' OR (result_key IS NOT NULL AND result_digest IS NOT NULL)",
        name="success_has_result",
    ),
    CheckConstraint("items_requested > 0", name="some_items"),
    CheckConstraint("(lease_owner IS NULL) = (lease_expires_at IS NULL)", name="lease_whole"),
    CheckConstraint(f"NOT ({_TERMINAL}) OR lease_owner IS NULL", name="terminal_unowned"),
    Index("ix_jobs_state_submitted_at", "state", "submitted_at"),
    Index("ix_jobs_state_queue_deadline", "state", "queue_deadline"),
    # Closed jobs are most of the table: what walks the open, the reserved or the unshown ones
    # must not read past them.
    _index_where("ix_jobs_open", "submitted_at", "job_id", condition="terminal_at IS NULL"),
    _index_where("ix_jobs_wave_id", "wave_id", condition="wave_id IS NOT NULL"),
    _index_where("ix_jobs_parent_job_id", "parent_job_id", condition="parent_job_id IS NOT NULL"),
    _index_where("ix_jobs_superseded_by", "superseded_by", condition="superseded_by IS NOT NULL"),
    _index_where("ix_jobs_status_unshown", "latest_seq", condition="latest_seq > status_shown_seq"),
)

items = Table(
    "items",
    metadata,
    Column("job_id", String, ForeignKey("jobs.job_id"), primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("item_id", String, nullable=False),
    Column("id_explicit", Boolean, nullable=False),
    Column("label", String, nullable=False),
    Column("sha256", String, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("media_type", String, nullable=False, server_default=""),
    Column("tenant", String, nullable=False),
    Column("decision_id", String, nullable=False),
    Column("item_class", String),
    Column("decision", String),
    Column("risk_ppm", Integer),
    Column("fields", sa.JSON),
    Column("reasons", sa.JSON),
    Column("evidence", sa.JSON),
    Column("reason_code", String, nullable=False, server_default=""),
    Column("outcome_digest", String),
    Column("written_epoch", Integer),
    Column("begun_epoch", Integer),
    Column("begun_at", UtcMicros),
    Column("finished_at", UtcMicros),
    Column("losses", Integer, nullable=False, server_default="0"),
    Column("invocations", Integer, nullable=False, server_default="0"),
    Column("earlier_job_id", String),
    Column("earlier_ordinal", Integer),
    Column("earlier_alike", Boolean, nullable=False, server_default=sa.false()),
    sa.UniqueConstraint("job_id", "item_id"),
    CheckConstraint(f"item_class IS NULL OR {_one_of('item_class', ItemClass)}", name="class_known"),
    CheckConstraint(
        "item_class IS NULL OR item_class NOT IN ('classified', 'unchanged') OR outcome_digest IS NOT NULL",
        name="kept_has_outcome",
    ),
    Index("ix_items_tenant_sha256", "tenant", "sha256"),
    Index("ix_items_decision_id", "decision_id"),
)

attempts = Table(
    "attempts",
    metadata,
    Column("job_id", String, ForeignKey("jobs.job_id"), primary_key=True),
    Column("lease_epoch", Integer, primary_key=True),
    Column("attempt_no", Integer, nullable=False),
    Column("kind", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("run_id", String, nullable=False, server_default=""),
    Column("opened_at", UtcMicros, nullable=False),
    Column("closed_at", UtcMicros),
    Column("outcome", String),
    Column("failure_class", String),
    Column("spent_budget", Boolean, nullable=False, server_default=sa.false()),
    Column("reason_code", String, nullable=False, server_default=""),
    Column("output_digest", String),
    Column("invocations", Integer, nullable=False, server_default="0"),
    Column("facts", sa.JSON, nullable=False),
)

refused_writes = Table(
    "refused_writes",
    metadata,
    Column("refusal_id", Sequence64, primary_key=True, autoincrement=True),
    Column("job_id", String, ForeignKey("jobs.job_id"), nullable=False, index=True),
    Column("lease_epoch", Integer, nullable=False),
    Column("current_epoch", Integer, nullable=False),
    Column("write_kind", String, nullable=False),
    Column("ordinal", Integer),
    Column("digest", String),
    Column("refused_at", UtcMicros, nullable=False),
)

waves = Table(
    "waves",
    metadata,
    Column("wave_id", String, primary_key=True),
    Column("dispatch_no", Integer, nullable=False),
    Column("state", String, nullable=False),
    Column("items_total", Integer, nullable=False),
    Column("jobs_total", Integer, nullable=False),
    Column("created_at", UtcMicros, nullable=False),
    Column("heartbeat_at", UtcMicros, nullable=False),
    Column("started_at", UtcMicros),
    Column("closed_at", UtcMicros),
    Column("run_id", String, nullable=False, server_default=""),
    Index("ix_waves_state", "state"),
)

events = Table(
    "events",
    metadata,
    Column("seq", Sequence64, primary_key=True, autoincrement=True),
    Column("job_id", String, index=True),
    Column("tenant", String, nullable=False, server_default=""),
    Column("kind", String, nullable=False),
    Column("lease_epoch", Integer),
    Column("at", UtcMicros, nullable=False),
    Column("data", sa.JSON, nullable=False),
    Column("written_in", sa.BigInteger, server_default=WritingTransaction()),
    _index_where("ix_events_written_in", "written_in", condition="written_in IS NOT NULL"),
)
