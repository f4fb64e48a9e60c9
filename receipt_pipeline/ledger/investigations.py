"""Open, assign, resolve and re-check investigations."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, bindparam, insert, select, true, update

from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import (
    INVESTIGATION_CLOSED,
    INVESTIGATION_UNKNOWN_OWNER,
    NOT_FOUND,
    Reason,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import jobs


class InvestigationKind(StrEnum):
    """What an investigation is about; the rota names an owner per kind."""

    UNRESOLVED_ITEMS = "unresolved_items"
    UNKNOWN_EFFECT = "unknown_effect"
    DIVERGENT_OUTPUT = "divergent_output"
    MISSING_OBJECT = "missing_object"
    ALTERED_OBJECT = "altered_object"
    ORPHAN_OBJECT = "orphan_object"
    EFFECT_GAP = "effect_gap"
    MISSING_TERMINAL = "missing_terminal"
    UNBALANCED = "unbalanced"
    ATTEMPTS_BEYOND_BUDGET = "attempts_beyond_budget"
    IMPORTED_OPEN = "imported_open"


OPEN = "open"
RESOLVED = "resolved"

_KNOWN = (
    select(investigations.c.investigation_id, investigations.c.state, investigations.c.evidence)
    .where(investigations.c.kind == bindparam("of_kind"))
    .where(investigations.c.subject == bindparam("about"))
)


def open_investigation(
    tx: LedgerTransaction,
    kind: InvestigationKind,
    *,
    subject: str,
    job_id: str | None,
    reason: Reason,
    suspected_effect: str,
    allowed_repair: str,
    limits: Limits,
    evidence: Mapping[str, Any] | None = None,
    again: str = "",
    tenant: str = "",
) -> str:
    """Open one investigation per (kind, subject) with owner and deadline; returns its id.

    Asking again returns the first one, open or resolved: a settled question is not reopened
    without new evidence, which makes a new subject. `again` names that evidence: where the first
    question is resolved, it is asked once more as `<subject>#<again>`. `tenant` is whose it is where no
    job of this ledger says so.
    """
    known = _known(tx, kind, subject)
    if known is not None and known["state"] == RESOLVED and again:
        subject = f"{subject}#{again}"
        known = _known(tx, kind, subject)
    if known is not None:
        return _with_evidence(tx, known, evidence or {})
    job = tx.row(select(jobs.c.tenant, jobs.c.checkpoint).where(jobs.c.job_id == job_id)) if job_id else None
    tenant = job["tenant"] if job else tenant or _tenant_of_object(tx, subject)
    now = tx.now()
    investigation_id = new_id(tx, "inv")
    owner = limits.staffing.owner_of(kind)
    tx.execute(
        insert(investigations).values(
            investigation_id=investigation_id,
            job_id=job_id,
            kind=kind,
            subject=subject,
            owner=owner,
            escalation=limits.staffing.escalation,
            state=OPEN,
            opened_at=now,
            deadline_at=now + dt.timedelta(seconds=limits.staffing.investigation_deadline_s),
            reason_code=reason.code,
            suspected_effect=suspected_effect,
            last_safe_checkpoint=job["checkpoint"] if job else None,
            allowed_repair=allowed_repair,
            evidence=dict(evidence or {}),
            tenant=tenant,
        )
    )
    append_event(
        tx,
        EventKind.INVESTIGATION_OPENED,
        job_id=job_id,
        tenant=tenant,
        investigation_id=investigation_id,
        investigation_kind=kind.value,
        owner=owner,
        reason=reason.code,
    )
    return investigation_id


def _known(tx: LedgerTransaction, kind: InvestigationKind, subject: str) -> dict[str, Any] | None:
    return tx.row(_KNOWN, {"of_kind": kind, "about": subject})


def _tenant_of_object(tx: LedgerTransaction, subject: str) -> str:
    """Return the tenant that an object's key names, itself or by a job; "" for every other subject."""
    folder, _, rest = subject.partition("#")[0].removeprefix("set-aside/").partition("/")
    owner = rest.partition("/")[0]
    if folder == "scans":
        return owner
    named = select(jobs.c.tenant).where(jobs.c.job_id == owner)
    return str(tx.scalar(named) or "") if folder == "results" else ""


def _with_evidence(tx: LedgerTransaction, known: Mapping[str, Any], evidence: Mapping[str, Any]) -> str:
    """Let an open investigation carry the newest evidence; a resolved one keeps what was decided on."""
    merged = dict(known["evidence"]) | dict(evidence)
    if known["state"] == OPEN and merged != known["evidence"]:
        tx.execute(
            update(investigations)
            .where(investigations.c.investigation_id == known["investigation_id"])
            .values(evidence=merged)
        )
    return str(known["investigation_id"])


def read_investigation(
    tx: LedgerTransaction, investigation_id: str, *, tenant: str | None = None
) -> dict[str, Any]:
    """Return one investigation's row. Raises NotFound: unknown, or another tenant's."""
    row = tx.row(
        select(investigations)
        .where(investigations.c.investigation_id == investigation_id)
        .where(_is_visible(tenant))
    )
    if row is None:
        raise NotFound(NOT_FOUND, investigation_id=investigation_id)
    return row


def assign_investigation(
    tx: LedgerTransaction, investigation_id: str, *, owner: str, actor: str, limits: Limits
) -> None:
    """Give an open investigation to an active principal.

    Raises:
        InputRefused: INVESTIGATION.OWNER_INACTIVE.v1. NotAllowed: it is already resolved.
    """
    row = read_investigation(tx, investigation_id)
    if owner not in limits.staffing.principals:
        raise InputRefused(INVESTIGATION_UNKNOWN_OWNER, owner=owner)
    written = tx.execute(
        update(investigations)
        .where(investigations.c.investigation_id == investigation_id)
        .where(investigations.c.state == OPEN)
        .values(owner=owner)
    )
    if written.rowcount == 0:
        raise NotAllowed(INVESTIGATION_CLOSED, investigation_id=investigation_id)
    append_event(
        tx,
        EventKind.INVESTIGATION_ASSIGNED,
        job_id=row["job_id"],
        investigation_id=investigation_id,
        owner=owner,
        by=actor,
    )


def resolve_investigation(
    tx: LedgerTransaction, investigation_id: str, *, resolution: str, actor: str
) -> None:
    """Close an investigation with a recorded decision; the same decision again changes nothing."""
    row = read_investigation(tx, investigation_id)
    written = tx.execute(
        update(investigations)
        .where(investigations.c.investigation_id == investigation_id)
        .where(investigations.c.state == OPEN)
        .values(state=RESOLVED, resolution=resolution, resolved_by=actor, resolved_at=tx.now())
    )
    if written.rowcount == 0:
        if row["resolution"] == resolution:
            return
        raise NotAllowed(INVESTIGATION_CLOSED, investigation_id=investigation_id)
    append_event(
        tx,
        EventKind.INVESTIGATION_RESOLVED,
        job_id=row["job_id"],
        investigation_id=investigation_id,
        resolution=resolution,
        by=actor,
    )


def list_investigations(
    tx: LedgerTransaction, *, only_open: bool, tenant: str | None = None
) -> list[dict[str, Any]]:
    """Return investigations, those with the nearest deadline first; none that are another tenant's."""
    query = select(investigations).order_by(investigations.c.deadline_at, investigations.c.investigation_id)
    if only_open:
        query = query.where(investigations.c.state == OPEN)
    return tx.rows(query.where(_is_visible(tenant)))


def _is_visible(tenant: str | None) -> ColumnElement[bool]:
    """Return the condition that a tenant may see an investigation: its own, or one that concerns none."""
    return true() if tenant is None else investigations.c.tenant.in_((tenant, ""))


def is_owned(row: Mapping[str, Any], *, now: dt.datetime, principals: frozenset[str]) -> bool:
    """Tell whether an open investigation has an active owner and lies inside its deadline (D13)."""
    return row["owner"] in principals and row["deadline_at"] >= now
