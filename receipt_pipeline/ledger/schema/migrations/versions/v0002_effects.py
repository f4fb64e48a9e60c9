"""The first schema, second half: effects, deliveries, tasks, objects, quarantine, investigations."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# SQLite numbers rows by itself only in a plain INTEGER primary key.
Sequence64 = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables of this half, each as it was at this revision."""
    _create_consumed()
    _create_investigations()
    _create_object_checks()
    _create_object_refs()
    _create_tombstones()
    _create_effects()
    _create_outbox()
    _create_quarantine()
    _create_review_tasks()
    _create_deliveries()


def downgrade() -> None:
    """Drop them again, those that refer to others first."""
    op.drop_table("deliveries")
    op.drop_table("review_tasks")
    op.drop_table("quarantine")
    op.drop_table("outbox")
    op.drop_table("effects")
    op.drop_table("tombstones")
    op.drop_table("object_refs")
    op.drop_table("object_checks")
    op.drop_table("investigations")
    op.drop_table("consumed")


def _create_consumed() -> None:
    op.create_table(
        "consumed",
        sa.Column("consumed_id", Sequence64, autoincrement=True, nullable=False),
        sa.Column("event_id", sa.String, nullable=False),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("event_kind", sa.String, nullable=False),
        sa.Column("source", sa.String, nullable=False),
        sa.Column("result_digest", sa.String),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("reason_code", sa.String, nullable=False, server_default=""),
        sa.Column("tasks_made", sa.Integer, nullable=False, server_default="0"),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("consumed_id", name="pk_consumed"),
    )
    op.create_index("ix_consumed_event_id", "consumed", ["event_id"])
    op.create_index("ix_consumed_job_id", "consumed", ["job_id"])


def _create_investigations() -> None:
    op.create_table(
        "investigations",
        sa.Column("investigation_id", sa.String, nullable=False),
        sa.Column("job_id", sa.String),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("subject", sa.String, nullable=False),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("escalation", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("opened_at", sa.BigInteger, nullable=False),
        sa.Column("deadline_at", sa.BigInteger, nullable=False),
        sa.Column("reason_code", sa.String, nullable=False),
        sa.Column("suspected_effect", sa.String, nullable=False),
        sa.Column("last_safe_checkpoint", sa.Integer),
        sa.Column("allowed_repair", sa.String, nullable=False),
        sa.Column("evidence", sa.JSON, nullable=False),
        sa.Column("resolution", sa.String, nullable=False, server_default=""),
        sa.Column("resolved_by", sa.String),
        sa.Column("resolved_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("investigation_id", name="pk_investigations"),
        sa.UniqueConstraint("kind", "subject", name="uq_investigations_kind_subject"),
    )
    op.create_index("ix_investigations_job_id", "investigations", ["job_id"])
    op.create_index("ix_investigations_state", "investigations", ["state"])


def _create_object_checks() -> None:
    op.create_table(
        "object_checks",
        sa.Column("object_key", sa.String, nullable=False),
        sa.Column("job_id", sa.String),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("expected_digest", sa.String),
        sa.Column("found_digest", sa.String),
        sa.Column("expected_size_bytes", sa.Integer),
        sa.Column("found_size_bytes", sa.Integer),
        sa.Column("pins_stated", sa.Boolean),
        sa.Column("checked_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("object_key", name="pk_object_checks"),
    )


def _create_object_refs() -> None:
    op.create_table(
        "object_refs",
        sa.Column("object_key", sa.String, nullable=False),
        sa.Column("holder", sa.String, nullable=False),
        sa.Column("hold_kind", sa.String, nullable=False),
        sa.Column("held_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("object_key", "holder", name="pk_object_refs"),
    )


def _create_tombstones() -> None:
    op.create_table(
        "tombstones",
        sa.Column("object_key", sa.String, nullable=False),
        sa.Column("job_id", sa.String),
        sa.Column("reason", sa.String, nullable=False),
        sa.Column("digest", sa.String),
        sa.Column("buried_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("object_key", name="pk_tombstones"),
    )


def _create_effects() -> None:
    op.create_table(
        "effects",
        sa.Column("effect_id", sa.String, nullable=False),
        sa.Column(
            "job_id", sa.String, sa.ForeignKey("jobs.job_id", name="fk_effects_job_id"), nullable=False
        ),
        sa.Column("lease_epoch", sa.Integer, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("required", sa.Boolean, nullable=False),
        sa.Column("idempotency_key", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("expected_digest", sa.String),
        sa.Column("size_bytes", sa.Integer),
        sa.Column("provider_reference", sa.String, nullable=False, server_default=""),
        sa.Column("reason_code", sa.String, nullable=False, server_default=""),
        sa.Column("intended_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("committed_at", sa.BigInteger),
        sa.Column("deadline_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("effect_id", name="pk_effects"),
        sa.UniqueConstraint("idempotency_key", name="uq_effects_idempotency_key"),
    )
    op.create_index("ix_effects_job_id_kind_state", "effects", ["job_id", "kind", "state"])
    op.create_index("ix_effects_kind_state", "effects", ["kind", "state"])


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("message_id", sa.String, nullable=False),
        sa.Column("job_id", sa.String, sa.ForeignKey("jobs.job_id", name="fk_outbox_job_id"), nullable=False),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("sends", sa.Integer, nullable=False, server_default="0"),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=False),
        sa.Column("settled_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("message_id", name="pk_outbox"),
        sa.UniqueConstraint("job_id", name="uq_outbox_job_id"),
    )
    op.create_index("ix_outbox_state_due_at", "outbox", ["state", "due_at"])


def _create_quarantine() -> None:
    op.create_table(
        "quarantine",
        sa.Column("quarantine_id", sa.String, nullable=False),
        sa.Column(
            "job_id", sa.String, sa.ForeignKey("jobs.job_id", name="fk_quarantine_job_id"), nullable=False
        ),
        sa.Column("subject", sa.String, nullable=False),
        sa.Column("digests", sa.JSON, nullable=False),
        sa.Column("before_terminal", sa.Boolean, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("opened_at", sa.BigInteger, nullable=False),
        sa.Column("resolved_at", sa.BigInteger),
        sa.Column("resolution", sa.String, nullable=False, server_default=""),
        sa.Column("investigation_id", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("quarantine_id", name="pk_quarantine"),
        sa.UniqueConstraint("job_id", "subject", name="uq_quarantine_job_id_subject"),
    )
    op.create_index("ix_quarantine_job_id", "quarantine", ["job_id"])


def _create_review_tasks() -> None:
    op.create_table(
        "review_tasks",
        sa.Column("decision_id", sa.String, nullable=False),
        sa.Column(
            "job_id", sa.String, sa.ForeignKey("jobs.job_id", name="fk_review_tasks_job_id"), nullable=False
        ),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("item_id", sa.String, nullable=False),
        sa.Column("decision", sa.String, nullable=False),
        sa.Column("reasons", sa.JSON, nullable=False),
        sa.Column("result_digest", sa.String, nullable=False),
        sa.Column("outcome_digest", sa.String, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("disputed", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("closed_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("decision_id", name="pk_review_tasks"),
    )
    op.create_index("ix_review_tasks_job_id", "review_tasks", ["job_id"])


def _create_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("delivery_id", sa.String, nullable=False),
        sa.Column(
            "message_id",
            sa.String,
            sa.ForeignKey("outbox.message_id", name="fk_deliveries_message_id"),
            nullable=False,
        ),
        sa.Column("job_id", sa.String, nullable=False),
        sa.Column("send_no", sa.Integer, nullable=False),
        sa.Column("channel", sa.String, nullable=False),
        sa.Column("outcome", sa.String, nullable=False),
        sa.Column("reference", sa.String, nullable=False, server_default=""),
        sa.Column("reason_code", sa.String, nullable=False, server_default=""),
        sa.Column("late", sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column("delivered_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("delivery_id", name="pk_deliveries"),
    )
    op.create_index("ix_deliveries_job_id", "deliveries", ["job_id"])
    op.create_index("ix_deliveries_message_id", "deliveries", ["message_id"])
