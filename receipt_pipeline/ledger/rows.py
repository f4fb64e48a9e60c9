"""Rows of the ledger as typed records, and tenant filters."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, CompoundSelect, bindparam, select, true, union_all

from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.effects import EffectDemand, EffectKind, EffectState
from receipt_pipeline.core.items import Decision, ItemClass, ItemOutcome
from receipt_pipeline.core.lifecycle import TERMINAL_STATES, CloseCause, JobState, Phase, TerminalClass
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.request import JobLimits
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.schema.admin import imported_jobs
from receipt_pipeline.ledger.schema.jobs import items, jobs

E = TypeVar("E", bound=StrEnum)
_SET_ASIDE, _SCANS, _RESULTS = "set-aside/", "scans/", "results/"


@dataclass(frozen=True, slots=True)
class TenantScope:
    """Everything but what belongs to another tenant; what belongs to nobody is everybody's to find.

    Attributes:
        tenant: None for the product itself, which sees all.
        foreign: ids of the other tenants' jobs.
    """

    tenant: str | None = None
    foreign: frozenset[str] = frozenset()

    def shows_job(self, job_id: str | None) -> bool:
        """Return whether a job may be shown."""
        return job_id not in self.foreign

    def shows_key(self, key: str) -> bool:
        """Return whether an object's key may be shown: it names a job, or a tenant."""
        plain = key.removeprefix(_SET_ASIDE)
        owner = plain.split("/")[1] if plain.count("/") else ""
        if plain.startswith(_SCANS):
            return self.tenant in (None, owner)
        return self.shows_job(owner) if plain.startswith(_RESULTS) else True

    def owned(self, job_id: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return the condition that a row's job is not another tenant's."""
        if self.tenant is None:
            return true()
        return job_id.not_in(_ids_of_others(self.tenant))


def _member(kind: type[E], value: str | None) -> E | None:
    return None if value is None else kind(value)


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job as the ledger holds it; the comments of the columns say what each field means."""

    job_id: str
    tenant: str
    caller: str
    idempotency_key: str
    fingerprint: str
    fingerprint_document: Mapping[str, Any]
    contract: str
    operation_class: str
    release_as_written: str
    release_id: str
    image_digest: str
    chain_revision: str
    feature_contract: str
    risk_model_digest: str
    policy_revision: str
    max_queue_age_s: int
    processing_timeout_s: int
    result_retention_s: int
    max_attempts: int
    cutoff_margin_s: int
    cutoff_at: dt.datetime | None
    queue_deadline: dt.datetime
    processing_deadline: dt.datetime | None
    notification: EffectDemand
    review_tasks: EffectDemand
    warnings: Sequence[str]
    items_requested: int
    state: JobState
    phase: Phase
    terminal_class: TerminalClass | None
    reason_code: str
    close_cause: CloseCause | None
    lease_epoch: int
    lease_owner: str | None
    lease_expires_at: dt.datetime | None
    attempts_spent: int
    closing_attempts: int
    retry_at: dt.datetime | None
    wave_id: str | None
    checkpoint: int
    checkpoint_at: dt.datetime | None
    result_key: str | None
    result_digest: str | None
    result_size_bytes: int | None
    submitted_at: dt.datetime
    claimed_at: dt.datetime | None
    terminal_at: dt.datetime | None
    settled_at: dt.datetime | None
    result_purged_at: dt.datetime | None
    latest_seq: int
    status_shown_seq: int
    parent_job_id: str | None
    superseded_by: str | None
    lineage: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> JobRow:
        """Read one row of `select(jobs)`."""
        members = {
            "notification": EffectDemand(row["notification"]),
            "review_tasks": EffectDemand(row["review_tasks"]),
            "state": JobState(row["state"]),
            "phase": Phase(row["phase"]),
            "terminal_class": _member(TerminalClass, row["terminal_class"]),
            "close_cause": _member(CloseCause, row["close_cause"]),
        }
        return cls(**{**row, **members})

    @property
    def token(self) -> FencingToken:
        """Return the token of whoever holds the job at this epoch."""
        return FencingToken(self.job_id, self.lease_epoch)

    @property
    def pins(self) -> Pins:
        """Return the identities that were frozen at acceptance."""
        return Pins.from_document(self.as_mapping())

    @property
    def limits(self) -> JobLimits:
        """Return the limits that were frozen at acceptance."""
        return JobLimits(**{name: getattr(self, name) for name in JobLimits.__slots__})

    def as_mapping(self) -> dict[str, Any]:
        """Return the row by column name, for documents that restate it."""
        return {name: getattr(self, name) for name in JobRow.__slots__}


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One item of a job; the comments of the columns say what each field means."""

    job_id: str
    ordinal: int
    item_id: str
    id_explicit: bool
    label: str
    sha256: str
    size_bytes: int
    media_type: str
    tenant: str
    decision_id: str
    item_class: ItemClass | None
    decision: Decision | None
    risk_ppm: int | None
    fields: Mapping[str, Any] | None
    reasons: Sequence[str] | None
    evidence: Mapping[str, Any] | None
    reason_code: str
    outcome_digest: str | None
    written_epoch: int | None
    begun_epoch: int | None
    begun_at: dt.datetime | None
    finished_at: dt.datetime | None
    losses: int
    invocations: int
    earlier_job_id: str | None
    earlier_ordinal: int | None
    earlier_alike: bool

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> ItemRow:
        """Read one row of `select(items)`."""
        members = {"item_class": _member(ItemClass, row["item_class"]), "decision": _member(Decision, row["decision"])}
        return cls(**{**row, **members})

    def as_mapping(self) -> dict[str, Any]:
        """Return the row by column name, for documents that restate it."""
        return {name: getattr(self, name) for name in ItemRow.__slots__}

    @property
    def outcome(self) -> ItemOutcome:
        """Return the outcome that the row holds; the item has its class."""
        assert self.item_class is not None, (self.job_id, self.ordinal)
        return ItemOutcome(
            item_class=self.item_class,
            decision=self.decision,
            risk_ppm=self.risk_ppm,
            fields=self.fields or {},
            reasons=tuple(self.reasons or ()),
            reason_code=self.reason_code,
            evidence=self.evidence or {},
        )


@dataclass(frozen=True, slots=True)
class EffectRow:
    """One intended consequence of a job; the comments of the columns say what each field means."""

    effect_id: str
    job_id: str
    lease_epoch: int
    kind: EffectKind
    required: bool
    idempotency_key: str
    state: EffectState
    expected_digest: str | None
    size_bytes: int | None
    provider_reference: str
    reason_code: str
    intended_at: dt.datetime
    updated_at: dt.datetime
    committed_at: dt.datetime | None
    deadline_at: dt.datetime | None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> EffectRow:
        """Read one row of `select(effects)`."""
        return cls(**{**row, "kind": EffectKind(row["kind"]), "state": EffectState(row["state"])})


def is_terminal() -> ColumnElement[bool]:
    """Return the condition that a job's row is closed."""
    return jobs.c.state.in_(sorted(TERMINAL_STATES))


# Nearly every transaction begins with one of these: built once, complete by themselves. Not FOR UPDATE: rows
# that refer to the job are written before its lock is requested, and two such transactions would deadlock.
_READ_JOB = select(jobs).where(jobs.c.job_id == bindparam("job"))
_LOCK_JOB = _READ_JOB.with_for_update(key_share=True)
_READ_ITEMS = select(items).where(items.c.job_id == bindparam("job")).order_by(items.c.ordinal)


def read_job(tx: LedgerTransaction, job_id: str, *, lock: bool = False) -> JobRow | None:
    """Return the job's row, locked for this transaction where the database locks rows."""
    row = tx.row(_LOCK_JOB if lock else _READ_JOB, {"job": job_id})
    return None if row is None else JobRow.from_row(row)


def read_items(tx: LedgerTransaction, job_id: str) -> list[ItemRow]:
    """Return the job's items in order."""
    return [ItemRow.from_row(row) for row in tx.rows(_READ_ITEMS, {"job": job_id})]


WHOLE = TenantScope()


def _ids_of_others(tenant: str) -> CompoundSelect[Any]:
    """Select the ids of the other tenants' jobs, those that an older system ran among them."""
    return union_all(
        select(jobs.c.job_id).where(jobs.c.tenant != tenant),
        select(imported_jobs.c.job_id).where(imported_jobs.c.tenant != tenant),
    )


def read_scope(tx: LedgerTransaction, tenant: str | None) -> TenantScope:
    """Return what a tenant may see; without a tenant, everything."""
    if tenant is None:
        return WHOLE
    others = tx.execute(_ids_of_others(tenant)).scalars()
    return TenantScope(tenant, frozenset(str(job_id) for job_id in others))
