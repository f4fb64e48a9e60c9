"""Open, assign and resolve investigations."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, bindparam, func, insert, or_, select, true, update

from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import INVESTIGATION_CLOSED, INVESTIGATION_UNKNOWN_OWNER, NOT_FOUND, Reason
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


# A lost or altered result can be withdrawn instead of restored.
OBJECT_KINDS = frozenset({InvestigationKind.MISSING_OBJECT, InvestigationKind.ALTERED_OBJECT})

OPEN = "open"
RESOLVED = "resolved"
# Resolves what is no longer violated, and assigns what is overdue.
RECONCILER = "system:reconcile"


@dataclass(frozen=True, slots=True)
class InvestigationRequest:
    """What is to be investigated about one subject, and what may be done about it.

    Attributes:
        subject: unique per kind; without `#`, which numbers repetitions.
        reopened_as: names new evidence: once the first one is resolved, `<subject>#<reopened_as>` opens.
        a_note_resolves: a person's decision ends it although nothing changes.
        tenant: whose it is where no job of this ledger says so.
    """

    kind: InvestigationKind
    subject: str
    job_id: str | None
    reason: Reason
    suspected_effect: str
    allowed_repair: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    reopened_as: str = ""
    a_note_resolves: bool = False
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class InvestigationRow:
    """One investigation; the comments of the columns say what each field means."""

    investigation_id: str
    job_id: str | None
    kind: InvestigationKind
    subject: str
    owner: str
    escalation: str
    state: str
    opened_at: dt.datetime
    deadline_at: dt.datetime
    reason_code: str
    suspected_effect: str
    last_safe_checkpoint: int | None
    allowed_repair: str
    evidence: Mapping[str, Any]
    resolution: str
    resolved_by: str | None
    resolved_at: dt.datetime | None
    tenant: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> InvestigationRow:
        """Read one row of `select(investigations)`."""
        return cls(**{**row, "kind": InvestigationKind(row["kind"])})


_BY_SUBJECT = (
    select(investigations.c.investigation_id, investigations.c.state, investigations.c.evidence)
    .where(investigations.c.kind == bindparam("of_kind"))
    .where(investigations.c.subject == bindparam("about"))
)


def open_investigation(tx: LedgerTransaction, request: InvestigationRequest, *, limits: Limits) -> str:
    """Open one investigation per kind and subject with owner and deadline; returns its id.

    A repeated request returns the first one, open or resolved: nothing that was resolved opens again
    without new evidence, which `reopened_as` names.
    """
    subject = request.subject
    known = _find_known(tx, request.kind, subject)
    if known is not None and known["state"] == RESOLVED and request.reopened_as:
        subject = f"{subject}#{request.reopened_as}"
        known = _find_known(tx, request.kind, subject)
    if known is not None:
        return _add_evidence(tx, known, request.evidence)
    return _insert(tx, request, subject=subject, limits=limits)


def open_while_violated(tx: LedgerTransaction, request: InvestigationRequest, *, limits: Limits) -> bool:
    """Open the investigation of a violation unless it is open or decided; returns whether it is new.

    If reconciliation had resolved it because the violation was gone, the violation's return is new
    evidence and opens the next number. So does a violation that remains although a person has resolved
    it, unless a note resolves it: no note makes an object exist.
    """
    # Two passes at the same time would both find nothing.
    tx.serialise(f"question:{request.kind.value}:{request.subject}")
    opened = _list_numbered(tx, request)
    latest = opened[-1] if opened else None
    is_open = latest is not None and latest["state"] == OPEN
    decided = latest is not None and not is_open and latest["resolved_by"] != RECONCILER
    if decided and request.a_note_resolves:
        return False
    if latest is not None and is_open:
        _add_evidence(tx, latest, request.evidence)
        return False
    number = len(opened) + 1
    subject = request.subject if number == 1 else f"{request.subject}#{number}"
    _insert(tx, request, subject=subject, limits=limits)
    return True


def _find_known(tx: LedgerTransaction, kind: InvestigationKind, subject: str) -> dict[str, Any] | None:
    return tx.row(_BY_SUBJECT, {"of_kind": kind, "about": subject})


def _list_numbered(tx: LedgerTransaction, request: InvestigationRequest) -> list[dict[str, Any]]:
    table = investigations.c
    prefix = f"{request.subject}#"
    is_numbered = func.substr(table.subject, 1, len(prefix)) == prefix
    return tx.rows(
        select(table.investigation_id, table.state, table.resolved_by, table.evidence)
        .where(table.kind == request.kind)
        .where(or_(table.subject == request.subject, is_numbered))
        .order_by(table.opened_at, table.investigation_id)
    )


def _insert(tx: LedgerTransaction, request: InvestigationRequest, *, subject: str, limits: Limits) -> str:
    job_id = request.job_id
    job = tx.row(select(jobs.c.tenant, jobs.c.checkpoint).where(jobs.c.job_id == job_id)) if job_id else None
    tenant = job["tenant"] if job else request.tenant or _tenant_of_object(tx, subject)
    now = tx.now()
    investigation_id = new_id(tx, "inv")
    owner = limits.staffing.owner_of(request.kind)
    tx.execute(
        insert(investigations).values(
            investigation_id=investigation_id,
            job_id=job_id,
            kind=request.kind,
            subject=subject,
            owner=owner,
            escalation=limits.staffing.escalation,
            state=OPEN,
            opened_at=now,
            deadline_at=now + dt.timedelta(seconds=limits.staffing.investigation_deadline_s),
            reason_code=request.reason.code,
            suspected_effect=request.suspected_effect,
            last_safe_checkpoint=job["checkpoint"] if job else None,
            allowed_repair=request.allowed_repair,
            evidence=dict(request.evidence),
            tenant=tenant,
        )
    )
    append_event(
        tx,
        EventKind.INVESTIGATION_OPENED,
        job_id=job_id,
        tenant=tenant,
        investigation_id=investigation_id,
        investigation_kind=request.kind.value,
        owner=owner,
        reason=request.reason.code,
    )
    return investigation_id


def _tenant_of_object(tx: LedgerTransaction, subject: str) -> str:
    """Return the tenant that an object's key names, itself or by a job; "" for every other subject."""
    folder, _, rest = plain_subject(subject).removeprefix("set-aside/").partition("/")
    owner = rest.partition("/")[0]
    if folder == "scans":
        return owner
    named = select(jobs.c.tenant).where(jobs.c.job_id == owner)
    return str(tx.scalar(named) or "") if folder == "results" else ""


def _add_evidence(tx: LedgerTransaction, known: Mapping[str, Any], evidence: Mapping[str, Any]) -> str:
    """Record the newest evidence with an open investigation; a resolved one keeps what was decided on."""
    merged = dict(known["evidence"]) | dict(evidence)
    if known["state"] == OPEN and merged != known["evidence"]:
        tx.execute(
            update(investigations)
            .where(investigations.c.investigation_id == known["investigation_id"])
            .values(evidence=merged)
        )
    return str(known["investigation_id"])


def read_investigation(tx: LedgerTransaction, investigation_id: str, *, tenant: str | None = None) -> InvestigationRow:
    """Return one investigation. Raises NotFound: unknown, or another tenant's."""
    row = tx.row(
        select(investigations).where(investigations.c.investigation_id == investigation_id).where(_is_visible(tenant))
    )
    if row is None:
        raise NotFound(NOT_FOUND, investigation_id=investigation_id)
    return InvestigationRow.from_row(row)


def list_investigations(tx: LedgerTransaction, *, only_open: bool, tenant: str | None = None) -> list[dict[str, Any]]:
    """Return investigations, those with the nearest deadline first; none that are another tenant's."""
    query = select(investigations).order_by(investigations.c.deadline_at, investigations.c.investigation_id)
    if only_open:
        query = query.where(investigations.c.state == OPEN)
    return tx.rows(query.where(_is_visible(tenant)))


def _is_visible(tenant: str | None) -> ColumnElement[bool]:
    """Return the condition that a tenant may see an investigation: its own, or one that concerns none."""
    return true() if tenant is None else investigations.c.tenant.in_((tenant, ""))


def is_owned(row: Mapping[str, Any], *, now: dt.datetime, principals: frozenset[str]) -> bool:
    """Return whether an open investigation has an active owner and is inside its deadline."""
    return row["owner"] in principals and row["deadline_at"] >= now


def assign_investigation(
    tx: LedgerTransaction, investigation_id: str, *, owner: str, actor: str, limits: Limits
) -> None:
    """Assign an open investigation to an active principal.

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
        job_id=row.job_id,
        investigation_id=investigation_id,
        owner=owner,
        by=actor,
    )


_OVERDUE = (
    select(investigations.c.investigation_id)
    .where(investigations.c.state == OPEN)
    .where(investigations.c.deadline_at < bindparam("now"))
    .where(investigations.c.owner != bindparam("escalation"))
    .order_by(investigations.c.investigation_id)
)


def escalate_overdue(tx: LedgerTransaction, *, limits: Limits) -> list[str]:
    """Assign open investigations past their deadline to the escalation of the rota; returns their ids.

    The deadline stays as it is: an overdue investigation counts as unowned until someone resolves it.
    """
    escalation = limits.staffing.escalation
    if escalation not in limits.staffing.principals:
        return []
    overdue = [row["investigation_id"] for row in tx.rows(_OVERDUE, {"now": tx.now(), "escalation": escalation})]
    for investigation_id in overdue:
        assign_investigation(tx, investigation_id, owner=escalation, actor=RECONCILER, limits=limits)
    return overdue


def resolve_investigation(tx: LedgerTransaction, investigation_id: str, *, resolution: str, actor: str) -> None:
    """Resolve an investigation with a recorded decision; the same decision again changes nothing."""
    row = read_investigation(tx, investigation_id)
    written = tx.execute(
        update(investigations)
        .where(investigations.c.investigation_id == investigation_id)
        .where(investigations.c.state == OPEN)
        .values(state=RESOLVED, resolution=resolution, resolved_by=actor, resolved_at=tx.now())
    )
    if written.rowcount == 0:
        if row.resolution == resolution:
            return
        raise NotAllowed(INVESTIGATION_CLOSED, investigation_id=investigation_id)
    append_event(
        tx,
        EventKind.INVESTIGATION_RESOLVED,
        job_id=row.job_id,
        investigation_id=investigation_id,
        resolution=resolution,
        by=actor,
    )


# Every pass runs this once per kind.
_OPEN_OF_KIND = (
    select(investigations.c.investigation_id, investigations.c.subject)
    .where(investigations.c.kind == bindparam("of_kind"))
    .where(investigations.c.state == OPEN)
    .order_by(investigations.c.investigation_id)
)


def resolve_gone(
    tx: LedgerTransaction, kind: InvestigationKind, *, unresolved_subjects: Collection[str], resolution: str
) -> list[str]:
    """Resolve the open investigations of a kind whose subject is no longer violated; returns their ids.

    Args:
        unresolved_subjects: the subjects that are violated now, without numbers.
    """
    gone = [
        row["investigation_id"]
        for row in tx.rows(_OPEN_OF_KIND, {"of_kind": kind})
        if plain_subject(row["subject"]) not in unresolved_subjects
    ]
    for investigation_id in gone:
        resolve_investigation(tx, investigation_id, resolution=resolution, actor=RECONCILER)
    return gone


def plain_subject(subject: str) -> str:
    """Return a subject without the number of its repetition."""
    return subject.partition("#")[0]
