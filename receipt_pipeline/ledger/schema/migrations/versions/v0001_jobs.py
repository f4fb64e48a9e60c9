"""The first schema, first half: releases, submissions, jobs, items, attempts, waves, events."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only in a plain INTEGER primary key.
Sequence64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables of this half, each as it was at this revision."""
    _create_events()
    _create_releases()
    _create_submissions()
    _create_waves()
    _create_workers()
    _create_aliases()
    _create_jobs()
    _create_submission_rows()
    _create_attempts()
    _create_items()
    _create_refused_writes()


def downgrade() -> None:
    """Drop them again, those that refer to others first."""
    op.drop_table("refused_writes")
    op.drop_table("items")
    op.drop_table("attempts")
    op.drop_table("submission_rows")
    op.drop_table("jobs")
    op.drop_table("aliases")
    op.drop_table("workers")
    op.drop_table("waves")
    op.drop_table("submissions")
    op.drop_table("releases")
    op.drop_table("events")


def _create_events() -> None:
    op.create_table(
        "events",
        sa.Column("seq", Sequence64, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String),
        sa.Column("tenant", sa.String, nullable=False, server_default=""),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("lease_epoch", sa.Integer),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("data", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_events"),
    )
    op.create_index("ix_events_job_id", "events", ["job_id"])


def _create_releases() -> None:
    op.create_table(
        "releases",
        sa.Column("release_id", sa.String, nullable=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("image_digest", sa.String, nullable=False),
        sa.Column("chain_revision", sa.String, nullable=False),
        sa.Column("feature_contract", sa.String, nullable=False),
        sa.Column("risk_model_digest", sa.String, nullable=False),
        sa.Column("policy_revision", sa.String, nullable=False),
        sa.Column("approved_by", sa.String, nullable=False),
        sa.Column("approved_at", sa.BigInteger, nullable=False),
        sa.Column("retired_by", sa.String),
        sa.Column("retired_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("release_id", name="pk_releases"),
    )


def _create_submissions() -> None:
    op.create_table(
        "submissions",
        sa.Column("submission_id", sa.String, nullable=False),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("caller", sa.String, nullable=False),
        sa.Column("door", sa.String, nullable=False),
        sa.Column("label", sa.String, nullable=False),
        sa.Column("place", sa.String, nullable=False, server_default=""),
        sa.Column("document_digest", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("reason_code", sa.String, nullable=False, server_default=""),
        sa.Column("pointer", sa.String, nullable=False, server_default=""),
        sa.Column("facts", sa.JSON, nullable=False),
        sa.Column("rows_total", sa.Integer, nullable=False, server_default="0"),
        sa.Column("accepted", sa.Integer, nullable=False, server_default="0"),
        sa.Column("joined", sa.Integer, nullable=False, server_default="0"),
        sa.Column("refused", sa.Integer, nullable=False, server_default="0"),
        sa.Column("conflicts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("stored", sa.JSON, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("submission_id", name="pk_submissions"),
    )
    op.create_index("ix_submissions_state_place", "submissions", ["state", "place"])


def _create_waves() -> None:
    op.create_table(
        "waves",
        sa.Column("wave_id", sa.String, nullable=False),
        sa.Column("dispatch_no", sa.Integer, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("items_total", sa.Integer, nullable=False),
        sa.Column("jobs_total", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("closed_at", sa.BigInteger),
        sa.Column("run_id", sa.String, nullable=False, server_default=""),
        sa.PrimaryKeyConstraint("wave_id", name="pk_waves"),
    )
    op.create_index("ix_waves_state", "waves", ["state"])


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("worker_id", sa.String, nullable=False),
        sa.Column("release_ids", sa.JSON, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("heartbeat_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("worker_id", name="pk_workers"),
    )


def _create_aliases() -> None:
    op.create_table(
        "aliases",
        sa.Column("move_no", Sequence64, autoincrement=True, nullable=False),
        sa.Column("alias", sa.String, nullable=False),
        sa.Column(
            "release_id",
            sa.String,
            sa.ForeignKey("releases.release_id", name="fk_aliases_release_id"),
            nullable=False,
        ),
        sa.Column("moved_by", sa.String, nullable=False),
        sa.Column("moved_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("move_no", name="pk_aliases"),
    )
    op.create_index("ix_aliases_alias", "aliases", ["alias"])


def _jobs_request_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("caller", sa.String, nullable=False),
        sa.Column("idempotency_key", sa.String, nullable=False),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("fingerprint_document", sa.JSON, nullable=False),
        sa.Column("contract", sa.String, nullable=False),
        sa.Column("operation_class", sa.String, nullable=False),
        sa.Column("release_as_written", sa.String, nullable=False),
        sa.Column(
            "release_id",
            sa.String,
            sa.ForeignKey("releases.release_id", name="fk_jobs_release_id"),
            nullable=False,
        ),
        sa.Column("image_digest", sa.String, nullable=False),
        sa.Column("chain_revision", sa.String, nullable=False),
        sa.Column("feature_contract", sa.String, nullable=False),
        sa.Column("risk_model_digest", sa.String, nullable=False),
        sa.Column("policy_revision", sa.String, nullable=False),
        sa.Column("max_queue_age_s", sa.Integer, nullable=False),
        sa.Column("processing_timeout_s", sa.Integer, nullable=False),
        sa.Column("result_retention_s", sa.Integer, nullable=False),
        sa.Column("max_attempts", sa.Integer, nullable=False),
        sa.Column("cutoff_margin_s", sa.Integer, nullable=False),
        sa.Column("cutoff_at", sa.BigInteger),
        sa.Column("queue_deadline", sa.BigInteger, nullable=False),
        sa.Column("processing_deadline", sa.BigInteger),
        sa.Column("notification", sa.String, nullable=False),
        sa.Column("review_tasks", sa.String, nullable=False),
        sa.Column("warnings", sa.JSON, nullable=False),
        sa.Column("items_requested", sa.Integer, nullable=False),
    ]


def _jobs_progress_columns() -> list[sa.Column[Any]]:
    return [
        sa.Column("state", sa.String, nullable=False),
        sa.Column("phase", sa.String, nullable=False),
        sa.Column("terminal_class", sa.String),
        sa.Column("reason_code", sa.String, nullable=False, server_default=""),
        sa.Column("close_cause", sa.String),
        sa.Column("lease_epoch", sa.Integer, nullable=False, server_default="0"),
        sa.Column("lease_owner", sa.String),
        sa.Column("lease_expires_at", sa.BigInteger),
        sa.Column("attempts_spent", sa.Integer, nullable=False, server_default="0"),
        sa.Column("closing_attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("retry_at", sa.BigInteger),
        sa.Column("wave_id", sa.String),
        sa.Column("checkpoint", sa.Integer, nullable=False, server_default="0"),
        sa.Column("checkpoint_at", sa.BigInteger),
        sa.Column("result_key", sa.String),
        sa.Column("result_digest", sa.String),
        sa.Column("result_size_bytes", sa.Integer),
        sa.Column("submitted_at", sa.BigInteger, nullable=False),
        sa.Column("claimed_at", sa.BigInteger),
        sa.Column("terminal_at", sa.BigInteger),
        sa.Column("settled_at", sa.BigInteger),
        sa.Column("result_purged_at", sa.BigInteger),
        sa.Column("latest_seq", Sequence64, nullable=False, server_default="0"),
        sa.Column("status_shown_seq", Sequence64, nullable=False, server_default="0"),
        sa.Column("parent_job_id", sa.String),
        sa.Column("superseded_by", sa.String),
        sa.Column("lineage", sa.String, nullable=False),
    ]


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        *_jobs_request_columns(),
        *_jobs_progress_columns(),
        sa.PrimaryKeyConstraint("job_id", name="pk_jobs"),
        sa.UniqueConstraint("tenant", "idempotency_key", name="uq_jobs_tenant_idempotency_key"),
        sa.CheckConstraint(
            "(lease_owner IS NULL) = (lease_expires_at IS NULL)", name=op.f("ck_jobs_lease_whole")
        ),
        sa.CheckConstraint("items_requested > 0", name=op.f("ck_jobs_some_items")),
        sa.CheckConstraint(
            "state IN ('accepted', 'running', 'succeeded', 'failed', 'expired', 'canceled')",
            name=op.f("ck_jobs_state_known"),
        ),
        sa.CheckConstraint(
            "state <> 'succeeded' OR (result_key IS NOT NULL AND result_digest IS NOT NULL)",
            name=op.f("ck_jobs_success_has_result"),
        ),
        sa.CheckConstraint(
            "(state IN ('succeeded', 'failed', 'expired', 'canceled')) = (terminal_class IS NOT NULL)",
            name=op.f("ck_jobs_terminal_has_class"),
        ),
        sa.CheckConstraint(
            "(state IN ('succeeded', 'failed', 'expired', 'canceled')) = (terminal_at IS NOT NULL)",
            name=op.f("ck_jobs_terminal_has_time"),
        ),
        sa.CheckConstraint(
            "NOT (state IN ('succeeded', 'failed', 'expired', 'canceled')) OR lease_owner IS NULL",
            name=op.f("ck_jobs_terminal_unowned"),
        ),
    )
    op.create_index(
        "ix_jobs_open",
        "jobs",
        ["submitted_at", "job_id"],
        sqlite_where=sa.text("terminal_at IS NULL"),
        postgresql_where=sa.text("terminal_at IS NULL"),
    )
    op.create_index("ix_jobs_state_queue_deadline", "jobs", ["state", "queue_deadline"])
    op.create_index("ix_jobs_state_submitted_at", "jobs", ["state", "submitted_at"])
    op.create_index(
        "ix_jobs_status_unshown",
        "jobs",
        ["latest_seq"],
        sqlite_where=sa.text("latest_seq > status_shown_seq"),
        postgresql_where=sa.text("latest_seq > status_shown_seq"),
    )
    op.create_index(
        "ix_jobs_wave_id",
        "jobs",
        ["wave_id"],
        sqlite_where=sa.text("wave_id IS NOT NULL"),
        postgresql_where=sa.text("wave_id IS NOT NULL"),
    )


def _create_submission_rows() -> None:
    op.create_table(
        "submission_rows",
        sa.Column(
            "submission_id",
            sa.String,
            sa.ForeignKey("submissions.submission_id", name="fk_submission_rows_submission_id"),
            nullable=False,
        ),
        sa.Column("row_no", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("idempotency_key", sa.String, nullable=False, server_default=""),
        sa.Column("job_id", sa.String),
        sa.Column("reason_code", sa.String, nullable=False, server_default=""),
        sa.Column("pointer", sa.String, nullable=False, server_default=""),
        sa.Column("facts", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("submission_id", "row_no", name="pk_submission_rows"),
    )


def _create_attempts() -> None:
    op.create_table(
        "attempts",
        sa.Column(
            "job_id", sa.String, sa.ForeignKey("jobs.job_id", name="fk_attempts_job_id"), nullable=False
        ),
        sa.Column("lease_epoch", sa.Integer, nullable=False),
        sa.Column("attempt_no", sa.Integer, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("run_id", sa.String, nullable=False, server_default=""),
        sa.Column("opened_at", sa.BigInteger, nullable=False),
        sa.Column("closed_at", sa.BigInteger),
        sa.Column("outcome", sa.String),
        sa.Column("failure_class", sa.String),
        sa.Column("spent_budget", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("reason_code", sa.String, nullable=False, server_default=""),
        sa.Column("output_digest", sa.String),
        sa.Column("invocations", sa.Integer, nullable=False, server_default="0"),
        sa.Column("facts", sa.JSON, nullable=False),
        sa.PrimaryKeyConstraint("job_id", "lease_epoch", name="pk_attempts"),
    )


def _create_items() -> None:
    op.create_table(
        "items",
        sa.Column("job_id", sa.String, sa.ForeignKey("jobs.job_id", name="fk_items_job_id"), nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("item_id", sa.String, nullable=False),
        sa.Column("id_explicit", sa.Boolean, nullable=False),
        sa.Column("label", sa.String, nullable=False),
        sa.Column("sha256", sa.String, nullable=False),
        sa.Column("size_bytes", sa.Integer, nullable=False),
        sa.Column("media_type", sa.String, nullable=False, server_default=""),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("decision_id", sa.String, nullable=False),
        sa.Column("item_class", sa.String),
        sa.Column("decision", sa.String),
        sa.Column("risk_ppm", sa.Integer),
        sa.Column("fields", sa.JSON),
        sa.Column("reasons", sa.JSON),
        sa.Column("evidence", sa.JSON),
        sa.Column("reason_code", sa.String, nullable=False, server_default=""),
        sa.Column("outcome_digest", sa.String),
        sa.Column("written_epoch", sa.Integer),
        sa.Column("begun_epoch", sa.Integer),
        sa.Column("begun_at", sa.BigInteger),
        sa.Column("finished_at", sa.BigInteger),
        sa.Column("losses", sa.Integer, nullable=False, server_default="0"),
        sa.Column("invocations", sa.Integer, nullable=False, server_default="0"),
        sa.Column("earlier_job_id", sa.String),
        sa.Column("earlier_ordinal", sa.Integer),
        sa.Column("earlier_alike", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.PrimaryKeyConstraint("job_id", "ordinal", name="pk_items"),
        sa.UniqueConstraint("job_id", "item_id", name="uq_items_job_id_item_id"),
        sa.CheckConstraint(
            "item_class IS NULL OR item_class IN ('classified', 'unchanged', 'rejected', 'cancelled',"
            " 'superseded', 'expired', 'unresolved')",
            name=op.f("ck_items_class_known"),
        ),
        sa.CheckConstraint(
            "item_class IS NULL OR item_class NOT IN ('classified', 'unchanged')"
            " OR outcome_digest IS NOT NULL",
            name=op.f("ck_items_kept_has_outcome"),
        ),
    )
    op.create_index("ix_items_decision_id", "items", ["decision_id"])
    op.create_index("ix_items_tenant_sha256", "items", ["tenant", "sha256"])


def _create_refused_writes() -> None:
    op.create_table(
        "refused_writes",
        sa.Column("refusal_id", Sequence64, autoincrement=True, nullable=False),
        sa.Column(
            "job_id", sa.String, sa.ForeignKey("jobs.job_id", name="fk_refused_writes_job_id"), nullable=False
        ),
        sa.Column("lease_epoch", sa.Integer, nullable=False),
        sa.Column("current_epoch", sa.Integer, nullable=False),
        sa.Column("write_kind", sa.String, nullable=False),
        sa.Column("ordinal", sa.Integer),
        sa.Column("digest", sa.String),
        sa.Column("refused_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("refusal_id", name="pk_refused_writes"),
    )
    op.create_index("ix_refused_writes_job_id", "refused_writes", ["job_id"])
