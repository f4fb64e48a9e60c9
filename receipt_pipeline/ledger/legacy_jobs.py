"""Imported legacy job records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import func, insert, select, update

from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import KeyConflict, NotFound
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.lifecycle import TerminalClass
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import IMPORT_BY_WORD, IMPORT_CONFLICT, IMPORT_OPEN_THERE, NOT_FOUND, REASONS
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.investigations import (
    OPEN,
    RESOLVED,
    InvestigationKind,
    InvestigationRequest,
    open_investigation,
    resolve_investigation,
)
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.schema.admin import imported_jobs
from receipt_pipeline.ledger.schema.effects import investigations

IMPORTED_PREFIX = "imp_"
# The origin of this product's own jobs where both kinds are listed together.
OWN_ORIGIN = "here"
# What may change while a job is open there; every other fact is fixed when it is submitted.
_MAY_CHANGE = frozenset({"state_as_written", "terminal_class", "ended_at", "decision"})


@dataclass(frozen=True, slots=True)
class LegacyJob:
    """One job as a legacy system reports it.

    Attributes:
        external_id: its id in the legacy system, unique within its origin.
        state_name: its state as the legacy system writes it.
        terminal_class: what that state means here, None for a job that has not ended.
        idempotency_key: the key under which the same request was submitted here too, if it was.
        decision: the one decision over all its items (`review` if any item needs it), if known.
    """

    external_id: str
    state_name: str
    terminal_class: TerminalClass | None
    submitted_at: dt.datetime
    ended_at: dt.datetime | None
    items_requested: int
    caller: str
    idempotency_key: str | None
    decision: Decision | None

    def as_row(self) -> dict[str, Any]:
        """Return the facts as columns."""
        return {
            "external_id": self.external_id,
            "state_as_written": self.state_name,
            "terminal_class": self.terminal_class.value if self.terminal_class else None,
            "submitted_at": self.submitted_at,
            "ended_at": self.ended_at,
            "items_requested": self.items_requested,
            "caller": self.caller,
            "idempotency_key": self.idempotency_key,
            "decision": self.decision.value if self.decision else None,
        }

    @property
    def digest(self) -> str:
        """Return the digest of all facts: equal rows of different files have equal digests."""
        facts = self.as_row()
        times = {name: value.isoformat() for name, value in facts.items() if isinstance(value, dt.datetime)}
        return digest_of(facts | times)


class ImportOutcome(StrEnum):
    """What the import of one row did."""

    IMPORTED = "imported"
    KNOWN = "known"
    ENDED = "ended"


def record_legacy_job(
    tx: LedgerTransaction, job: LegacyJob, *, tenant: str, origin: str, actor: str, limits: Limits
) -> tuple[str, ImportOutcome]:
    """Record a legacy job, or find it recorded; returns its id here and what that changed.

    A row that was open and has ended since gets its class, and its investigation is resolved. The
    caller has serialized the imports of this tenant and origin.

    Raises:
        KeyConflict: IMPORT.CONFLICT.v1 naming the fields that differ; the first record is kept.
    """
    known = tx.row(
        select(imported_jobs)
        .where(imported_jobs.c.tenant == tenant)
        .where(imported_jobs.c.origin == origin)
        .where(imported_jobs.c.external_id == job.external_id)
    )
    if known is None:
        return _insert(tx, job, tenant=tenant, origin=origin, actor=actor, limits=limits), ImportOutcome.IMPORTED
    job_id = str(known["job_id"])
    if known["row_digest"] == job.digest:
        return job_id, ImportOutcome.KNOWN
    differing = sorted(name for name, value in job.as_row().items() if value != known[name])
    if known["terminal_class"] is not None or not _MAY_CHANGE.issuperset(differing):
        raise KeyConflict(IMPORT_CONFLICT, job_id=job_id, differing=differing)
    reason = IMPORT_BY_WORD if job.terminal_class else IMPORT_OPEN_THERE
    values = job.as_row() | {"row_digest": job.digest, "reason_code": reason.code}
    tx.execute(update(imported_jobs).where(imported_jobs.c.job_id == job_id).values(**values))
    if job.terminal_class is None:
        _append(tx, EventKind.IMPORTED, job_id, tenant, state=job.state_name)
        return job_id, ImportOutcome.KNOWN
    _append(tx, EventKind.IMPORT_ENDED, job_id, tenant, state=job.state_name, terminal_class=job.terminal_class.value)
    _answer(tx, str(known["investigation_id"]), actor=actor)
    return job_id, ImportOutcome.ENDED


def _insert(tx: LedgerTransaction, job: LegacyJob, *, tenant: str, origin: str, actor: str, limits: Limits) -> str:
    job_id = new_id(tx, IMPORTED_PREFIX.removesuffix("_"))
    asked = None
    if job.terminal_class is None:
        asked = open_investigation(
            tx,
            InvestigationRequest(
                InvestigationKind.IMPORTED_OPEN,
                subject=job_id,
                job_id=job_id,
                reason=IMPORT_OPEN_THERE,
                suspected_effect=f"whatever {origin} may still do for its job",
                allowed_repair=f"look the job up in {origin} and import its final row, or record what was found",
                evidence={"origin": origin, "external_id": job.external_id, "state_as_written": job.state_name},
                tenant=tenant,
            ),
            limits=limits,
        )
    tx.execute(
        insert(imported_jobs).values(
            job.as_row()
            | {"job_id": job_id, "tenant": tenant, "origin": origin, "row_digest": job.digest}
            | {"reason_code": (IMPORT_OPEN_THERE if asked else IMPORT_BY_WORD).code}
            | {"investigation_id": asked, "imported_by": actor, "imported_at": tx.now()}
        )
    )
    told = {"terminal_class": job.terminal_class.value} if job.terminal_class else {}
    _append(tx, EventKind.IMPORTED, job_id, tenant, origin=origin, state=job.state_name, **told)
    return job_id


def _append(tx: LedgerTransaction, kind: EventKind, job_id: str, tenant: str, **data: Any) -> None:
    """Append an event and let the record point at it, as a job points at its newest one."""
    seq = append_event(tx, kind, job_id=job_id, tenant=tenant, **data)
    tx.execute(update(imported_jobs).where(imported_jobs.c.job_id == job_id).values(latest_seq=seq))


def _answer(tx: LedgerTransaction, investigation_id: str, *, actor: str) -> None:
    """Resolve the question with the row that answers it, unless a person has decided already."""
    state = tx.scalar(select(investigations.c.state).where(investigations.c.investigation_id == investigation_id))
    if state == OPEN:
        resolve_investigation(tx, investigation_id, resolution="its final row was imported", actor=actor)


def read_legacy_job(tx: LedgerTransaction, job_id: str, *, tenant: str | None = None) -> dict[str, Any]:
    """Return an imported job's row. Raises NotFound: unknown, or another tenant's."""
    query = select(imported_jobs).where(imported_jobs.c.job_id == job_id)
    row = tx.row(query if tenant is None else query.where(imported_jobs.c.tenant == tenant))
    if row is None:
        raise NotFound(NOT_FOUND, job_id=job_id)
    return row


def read_import_investigation(tx: LedgerTransaction, row: dict[str, Any]) -> dict[str, Any] | None:
    """Return the investigation that an imported job's row names, None where it names none."""
    asked = investigations.c.investigation_id == row["investigation_id"]
    return tx.row(select(investigations).where(asked)) if row["investigation_id"] else None


def count_legacy_jobs(tx: LedgerTransaction, tenant: str | None) -> list[dict[str, Any]]:
    """Count imported jobs by origin, class and the state of their question, None where none was asked."""
    query = (
        select(
            imported_jobs.c.origin,
            imported_jobs.c.terminal_class,
            investigations.c.state.label("question"),
            func.count().label("jobs"),
            func.sum(imported_jobs.c.items_requested).label("items"),
        )
        .outerjoin(investigations, investigations.c.investigation_id == imported_jobs.c.investigation_id)
        .group_by(imported_jobs.c.origin, imported_jobs.c.terminal_class, investigations.c.state)
        .order_by(imported_jobs.c.origin, imported_jobs.c.terminal_class, investigations.c.state)
    )
    return tx.rows(query if tenant is None else query.where(imported_jobs.c.tenant == tenant))


def undecided_legacy_jobs(tx: LedgerTransaction, tenant: str | None) -> list[str]:
    """Return the imported jobs that have neither a class nor a recorded decision about their question."""
    decided = select(investigations.c.investigation_id).where(investigations.c.state == RESOLVED)
    query = (
        select(imported_jobs.c.job_id)
        .where(imported_jobs.c.terminal_class.is_(None))
        .where(imported_jobs.c.investigation_id.not_in(decided))
        .order_by(imported_jobs.c.job_id)
    )
    query = query if tenant is None else query.where(imported_jobs.c.tenant == tenant)
    return [str(row["job_id"]) for row in tx.rows(query)]


def legacy_job_document(row: Mapping[str, Any], investigation: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the status of an imported job: outcome, safe next action, evidence, ids.

    Args:
        row: the imported job's row.
        investigation: the row of its investigation, None where none was opened.
    """
    reason = REASONS[row["reason_code"]]
    opened = None
    if investigation is not None:
        opened = {"investigation_id": investigation["investigation_id"], "state": investigation["state"]} | {
            name: investigation[name] for name in ("owner", "deadline_at", "allowed_repair")
        }
    is_open = opened is not None and opened["state"] == OPEN
    return {
        "contract": "older-job/v1",
        "stands": {
            "terminal_class": row["terminal_class"],
            "reason": {"code": reason.code, "meaning": reason.meaning, "next_step": reason.next_step},
            "items_requested": row["items_requested"],
            "decision_there": row["decision"],
            "verified_here": False,
        },
        "safe_now": {"next_step": opened["allowed_repair"] if opened and is_open else reason.next_step},
        "investigation": opened,
        "times": {name: row[name] for name in ("submitted_at", "ended_at", "imported_at")},
        "evidence": {"state_as_written": row["state_as_written"], "row_digest": row["row_digest"]},
        "identity": {
            name: row[name]
            for name in ("job_id", "tenant", "caller", "origin", "external_id", "idempotency_key", "imported_by")
        },
    }
