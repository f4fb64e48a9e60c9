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
    Column("release_id", String, primary_key=True, comment="digest of the release"),
    Column("name", String, nullable=False, comment="name of the release"),
    Column("image_digest", String, nullable=False, comment="digest of the image"),
    Column("chain_revision", String, nullable=False, comment="revision of the chain"),
    Column("feature_contract", String, nullable=False, comment="feature contract"),
    Column("risk_model_digest", String, nullable=False, comment="digest of the risk model"),
    Column("policy_revision", String, nullable=False, comment="revision of the policy"),
    Column("approved_by", String, nullable=False, comment="who approved it"),
    Column("approved_at", UtcMicros, nullable=False, comment="time of approval"),
    Column("retired_by", String, comment="who retired it"),
    Column("retired_at", UtcMicros, comment="time of retirement"),
    comment="approved releases",
)

aliases = Table(
    "aliases",
    metadata,
    Column("move_no", Sequence64, primary_key=True, autoincrement=True, comment="number of the move"),
    Column("alias", String, nullable=False, index=True, comment="name of the alias"),
    Column(
        "release_id",
        String,
        ForeignKey("releases.release_id"),
        nullable=False,
        comment="release it points at since then",
    ),
    Column("moved_by", String, nullable=False, comment="who moved it"),
    Column("moved_at", UtcMicros, nullable=False, comment="time of the move"),
    comment="every move of every alias",
)

grants = Table(
    "grants",
    metadata,
    Column("grant_no", Sequence64, primary_key=True, autoincrement=True, comment="number of the grant"),
    Column("tenant", String, nullable=False, comment="tenant in which it holds"),
    Column("caller", String, nullable=False, comment="principal who may act"),
    Column("roles", sa.JSON, nullable=False, comment="roles of the caller"),
    Column("given_by", String, nullable=False, comment="who gave it"),
    Column("given_at", UtcMicros, nullable=False, comment="time it was given"),
    Column("expires_at", UtcMicros, comment="time it ends, empty where it does not"),
    Column("revoked_by", String, comment="who revoked it"),
    Column("revoked_at", UtcMicros, comment="time of revocation"),
    Index("ix_grants_tenant_caller", "tenant", "caller"),
    comment="every grant of roles to a caller; the newest one decides",
)

workers = Table(
    "workers",
    metadata,
    Column("worker_id", String, primary_key=True, comment="id of the worker"),
    Column("release_ids", sa.JSON, nullable=False, comment="releases that it supports"),
    Column("started_at", UtcMicros, nullable=False, comment="time of its first registration"),
    Column("heartbeat_at", UtcMicros, nullable=False, comment="time of the last heartbeat"),
    comment="one row per installation that processes jobs",
)

submissions = Table(
    "submissions",
    metadata,
    Column("submission_id", String, primary_key=True, comment="id of the submission"),
    Column("tenant", String, nullable=False, comment="tenant that owns the job"),
    Column("caller", String, nullable=False, comment="principal who submitted it"),
    Column("door", String, nullable=False, comment="how it was submitted"),
    Column("label", String, nullable=False, comment="name of the document"),
    Column("place", String, nullable=False, server_default="", comment="folder or file it came from"),
    Column("document_digest", String, nullable=False, comment="digest of the document"),
    Column("state", String, nullable=False, comment="accepted, joined, conflict, refused, ignored or waiting"),
    Column(
        "reason_code",
        String,
        nullable=False,
        server_default="",
        comment="stable reason code, empty where there is none",
    ),
    Column("pointer", String, nullable=False, server_default="", comment="place of the fault in the document"),
    Column("facts", sa.JSON, nullable=False, comment="facts of the reason, as JSON"),
    Column("rows_total", Integer, nullable=False, server_default="0", comment="number of its rows or jobs"),
    Column("accepted", Integer, nullable=False, server_default="0", comment="rows that became jobs"),
    Column("joined", Integer, nullable=False, server_default="0", comment="rows that joined an existing job"),
    Column("refused", Integer, nullable=False, server_default="0", comment="rows that were refused"),
    Column("conflicts", Integer, nullable=False, server_default="0", comment="rows whose key names another request"),
    Column("stored", sa.JSON, nullable=False, comment="scans that were stored for it"),
    Column("received_at", UtcMicros, nullable=False, comment="time it was received"),
    Column("updated_at", UtcMicros, nullable=False, comment="time of the last change"),
    Index("ix_submissions_state_place", "state", "place"),
    comment="one row per submitted document",
)

submission_rows = Table(
    "submission_rows",
    metadata,
    Column(
        "submission_id",
        String,
        ForeignKey("submissions.submission_id"),
        primary_key=True,
        comment="id of the submission",
    ),
    Column("row_no", Integer, primary_key=True, comment="number of the row, from 1"),
    Column("outcome", String, nullable=False, comment="accepted, joined, conflict or refused"),
    Column("idempotency_key", String, nullable=False, server_default="", comment="the caller's key"),
    Column("job_id", String, comment="job of the row, empty where none was accepted"),
    Column(
        "reason_code",
        String,
        nullable=False,
        server_default="",
        comment="stable reason code, empty where there is none",
    ),
    Column("pointer", String, nullable=False, server_default="", comment="place of the fault in the document"),
    Column("facts", sa.JSON, nullable=False, comment="facts of the reason, as JSON"),
    comment="one row per row of a batch",
)

jobs = Table(
    "jobs",
    metadata,
    Column("job_id", String, primary_key=True, comment="id of the job"),
    Column("tenant", String, nullable=False, comment="tenant that owns the job"),
    Column("caller", String, nullable=False, comment="principal who submitted it"),
    Column("idempotency_key", String, nullable=False, comment="the caller's key; unique within the tenant"),
    Column("fingerprint", String, nullable=False, comment="digest of the request as written"),
    Column(
        "fingerprint_document",
        sa.JSON,
        nullable=False,
        comment="the request as written, as far as the fingerprint covers it",
    ),
    Column("contract", String, nullable=False, comment="contract of the request"),
    Column("operation_class", String, nullable=False, comment="what was requested"),
    Column("release_as_written", String, nullable=False, comment="alias, name or id as the caller wrote it"),
    Column(
        "release_id", String, ForeignKey("releases.release_id"), nullable=False, comment="release pinned at acceptance"
    ),
    Column("image_digest", String, nullable=False, comment="pinned image"),
    Column("chain_revision", String, nullable=False, comment="pinned revision of the chain"),
    Column("feature_contract", String, nullable=False, comment="pinned feature contract"),
    Column("risk_model_digest", String, nullable=False, comment="pinned risk model"),
    Column("policy_revision", String, nullable=False, comment="pinned policy"),
    Column("max_queue_age_s", Integer, nullable=False, comment="queue age limit in seconds"),
    Column(
        "processing_timeout_s", Integer, nullable=False, comment="processing limit from the first claim, in seconds"
    ),
    Column("result_retention_s", Integer, nullable=False, comment="how long the result is kept, in seconds"),
    Column("max_attempts", Integer, nullable=False, comment="limit of attempts that spend budget"),
    Column("cutoff_margin_s", Integer, nullable=False, comment="seconds before the cutoff at which queueing ends"),
    Column("cutoff_at", UtcMicros, comment="reconciliation cutoff, where one was given"),
    Column("queue_deadline", UtcMicros, nullable=False, comment="time after which an unclaimed job expires"),
    Column("processing_deadline", UtcMicros, comment="time after which no model may be invoked"),
    Column("notification", String, nullable=False, comment="required, best_effort or none"),
    Column("review_tasks", String, nullable=False, comment="required, best_effort or none"),
    Column("warnings", sa.JSON, nullable=False, comment="codes given at acceptance"),
    Column("items_requested", Integer, nullable=False, comment="number of accepted items"),
    Column("state", String, nullable=False, comment="accepted, running, succeeded, failed, expired or canceled"),
    Column("phase", String, nullable=False, comment="phase of an open job"),
    Column("terminal_class", String, comment="class of the terminal state"),
    Column(
        "reason_code",
        String,
        nullable=False,
        server_default="",
        comment="stable reason code, empty where there is none",
    ),
    Column("close_cause", String, comment="why the job was made to close"),
    Column(
        "lease_epoch",
        Integer,
        nullable=False,
        server_default="0",
        comment="current lease epoch; only its holder may write",
    ),
    Column("lease_owner", String, comment="worker that holds the lease"),
    Column("lease_expires_at", UtcMicros, comment="time at which the lease ends unless it is renewed"),
    Column("attempts_spent", Integer, nullable=False, server_default="0", comment="attempts that spent budget"),
    Column("closing_attempts", Integer, nullable=False, server_default="0", comment="attempts that only published"),
    Column("retry_at", UtcMicros, comment="time before which no attempt starts"),
    Column("wave_id", String, comment="wave that reserves the job"),
    Column(
        "checkpoint", Integer, nullable=False, server_default="0", comment="items up to which outcomes are committed"
    ),
    Column("checkpoint_at", UtcMicros, comment="time of the last checkpoint"),
    Column("result_key", String, comment="key of the result object"),
    Column("result_digest", String, comment="digest of the result object"),
    Column("result_size_bytes", Integer, comment="size of the result object in bytes"),
    Column("submitted_at", UtcMicros, nullable=False, comment="time of acceptance"),
    Column("claimed_at", UtcMicros, comment="time of the first claim"),
    Column("terminal_at", UtcMicros, comment="time of the terminal record"),
    Column("settled_at", UtcMicros, comment="time at which all required effects were committed"),
    Column("result_purged_at", UtcMicros, comment="time at which retention removed the result"),
    Column("latest_seq", Sequence64, nullable=False, server_default="0", comment="newest event of the job"),
    Column(
        "status_shown_seq",
        Sequence64,
        nullable=False,
        server_default="0",
        comment="newest event that its status document shows",
    ),
    Column("parent_job_id", String, comment="job whose unresolved items this one retries"),
    Column("superseded_by", String, comment="job that replaced it"),
    Column("lineage", String, nullable=False, comment="first job of the family"),
    sa.UniqueConstraint("tenant", "idempotency_key"),
    CheckConstraint(_one_of("state", JobState), name="state_known"),
    CheckConstraint(f"({_TERMINAL}) = (terminal_at IS NOT NULL)", name="terminal_has_time"),
    CheckConstraint(f"({_TERMINAL}) = (terminal_class IS NOT NULL)", name="terminal_has_class"),
    CheckConstraint(
        "state <> 'succeeded' OR (result_key IS NOT NULL AND result_digest IS NOT NULL)", name="success_has_result"
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
    comment="one row per accepted job",
)

items = Table(
    "items",
    metadata,
    Column("job_id", String, ForeignKey("jobs.job_id"), primary_key=True, comment="id of the job"),
    Column("ordinal", Integer, primary_key=True, comment="place in the job, from 0"),
    Column("item_id", String, nullable=False, comment="the caller's name of the item"),
    Column("id_explicit", Boolean, nullable=False, comment="whether the caller named the item"),
    Column("label", String, nullable=False, comment="name of the scan as submitted"),
    Column("sha256", String, nullable=False, comment="digest of the scan as accepted"),
    Column("size_bytes", Integer, nullable=False, comment="size in bytes"),
    Column("media_type", String, nullable=False, server_default="", comment="media type as stated"),
    Column("tenant", String, nullable=False, comment="tenant that owns the job"),
    Column("decision_id", String, nullable=False, comment="digest of job, item and pins; never of the output"),
    Column("item_class", String, comment="final class of the item"),
    Column("decision", String, comment="clear or review"),
    Column("risk_ppm", Integer, comment="probability of tampering in parts per million"),
    Column("fields", sa.JSON, comment="extracted fields, as JSON"),
    Column("reasons", sa.JSON, comment="reason codes, strongest first"),
    Column("evidence", sa.JSON, comment="what explains the outcome, as JSON"),
    Column(
        "reason_code",
        String,
        nullable=False,
        server_default="",
        comment="stable reason code, empty where there is none",
    ),
    Column("outcome_digest", String, comment="digest of the outcome, without job and decision id"),
    Column("written_epoch", Integer, comment="lease epoch that wrote the outcome"),
    Column("begun_epoch", Integer, comment="lease epoch that began the item"),
    Column("begun_at", UtcMicros, comment="time it was begun"),
    Column("finished_at", UtcMicros, comment="time of the outcome"),
    Column(
        "losses",
        Integer,
        nullable=False,
        server_default="0",
        comment="number of attempts that failed or were lost at it",
    ),
    Column("invocations", Integer, nullable=False, server_default="0", comment="model invocations it cost"),
    Column("earlier_job_id", String, comment="earlier job with the same bytes, as frozen at acceptance"),
    Column("earlier_ordinal", Integer, comment="item of that job"),
    Column(
        "earlier_alike",
        Boolean,
        nullable=False,
        server_default=sa.false(),
        comment="whether this item may keep the earlier decision",
    ),
    sa.UniqueConstraint("job_id", "item_id"),
    CheckConstraint(f"item_class IS NULL OR {_one_of('item_class', ItemClass)}", name="class_known"),
    CheckConstraint(
        "item_class IS NULL OR item_class NOT IN ('classified', 'unchanged') OR outcome_digest IS NOT NULL",
        name="kept_has_outcome",
    ),
    Index("ix_items_tenant_sha256", "tenant", "sha256"),
    Index("ix_items_decision_id", "decision_id"),
    comment="one row per accepted item",
)

attempts = Table(
    "attempts",
    metadata,
    Column("job_id", String, ForeignKey("jobs.job_id"), primary_key=True, comment="id of the job"),
    Column("lease_epoch", Integer, primary_key=True, comment="lease epoch under which it was written"),
    Column("attempt_no", Integer, nullable=False, comment="number of the attempt within the job"),
    Column("kind", String, nullable=False, comment="work, or closing: publishes and computes nothing"),
    Column("owner", String, nullable=False, comment="worker that held the lease"),
    Column("run_id", String, nullable=False, server_default="", comment="Dagster run it was processed in"),
    Column("opened_at", UtcMicros, nullable=False, comment="time it was opened"),
    Column("closed_at", UtcMicros, comment="time it ended"),
    Column("outcome", String, comment="committed, failed, lost, yielded, ..."),
    Column("failure_class", String, comment="what is known about its failure"),
    Column("spent_budget", Boolean, nullable=False, server_default=sa.false(), comment="whether it spent budget"),
    Column(
        "reason_code",
        String,
        nullable=False,
        server_default="",
        comment="stable reason code, empty where there is none",
    ),
    Column("output_digest", String, comment="digest of the result it published"),
    Column("invocations", Integer, nullable=False, server_default="0", comment="model invocations it cost"),
    Column("facts", sa.JSON, nullable=False, comment="processor, threads and times"),
    comment="one row per attempt at a job under one lease epoch",
)

refused_writes = Table(
    "refused_writes",
    metadata,
    Column("refusal_id", Sequence64, primary_key=True, autoincrement=True, comment="number of the rejection"),
    Column("job_id", String, ForeignKey("jobs.job_id"), nullable=False, index=True, comment="job that was written to"),
    Column("lease_epoch", Integer, nullable=False, comment="lease epoch of the writer"),
    Column("current_epoch", Integer, nullable=False, comment="lease epoch that held the job"),
    Column("write_kind", String, nullable=False, comment="what was to be written"),
    Column("ordinal", Integer, comment="item concerned, counted from 0; empty for the whole job"),
    Column("digest", String, comment="digest of the rejected output"),
    Column("refused_at", UtcMicros, nullable=False, comment="time of the rejection"),
    comment="late writes of workers that had lost their job: recorded and rejected",
)

waves = Table(
    "waves",
    metadata,
    Column("wave_id", String, primary_key=True, comment="id of the wave"),
    Column("dispatch_no", Integer, nullable=False, comment="number of the dispatch"),
    Column("state", String, nullable=False, comment="open or closed"),
    Column("items_total", Integer, nullable=False, comment="number of its items"),
    Column("jobs_total", Integer, nullable=False, comment="number of its jobs"),
    Column("created_at", UtcMicros, nullable=False, comment="time of the reservation"),
    Column("heartbeat_at", UtcMicros, nullable=False, comment="time of the last heartbeat"),
    Column("started_at", UtcMicros, comment="time of its first heartbeat"),
    Column("closed_at", UtcMicros, comment="time it was closed"),
    Column("run_id", String, nullable=False, server_default="", comment="Dagster run that processes it"),
    Index("ix_waves_state", "state"),
    comment="reservations of ready jobs for one Dagster run",
)

events = Table(
    "events",
    metadata,
    Column("seq", Sequence64, primary_key=True, autoincrement=True, comment="number of the event"),
    Column("job_id", String, index=True, comment="job it is about, empty where none"),
    Column("tenant", String, nullable=False, server_default="", comment="tenant that owns the job"),
    Column("kind", String, nullable=False, comment="what happened"),
    Column("lease_epoch", Integer, comment="lease epoch under which it was written"),
    Column("at", UtcMicros, nullable=False, comment="time of the change"),
    Column("data", sa.JSON, nullable=False, comment="ids, codes, counts and digests"),
    Column(
        "written_in",
        sa.BigInteger,
        server_default=WritingTransaction(),
        comment="number of the PostgreSQL transaction that wrote it, empty on SQLite",
    ),
    _index_where("ix_events_written_in", "written_in", condition="written_in IS NOT NULL"),
    comment="the journal: every change, in the transaction that made it",
)
