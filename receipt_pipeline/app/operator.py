"""What operators do: investigations, requeue, reconciliation and alerts."""

from __future__ import annotations

from typing import Any

from receipt_pipeline.app import maintenance
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.app.submitter import read_status
from receipt_pipeline.core.alerts import MEANINGS, AlertKind
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.principals import Principal, Role, require
from receipt_pipeline.core.reasons import ALERT_UNKNOWN, CHANNEL_UNKNOWN, FIELD_INVALID
from receipt_pipeline.effects.alerts import alert_document, deliver_alerts
from receipt_pipeline.ledger import investigations
from receipt_pipeline.ledger.effects import alerts
from receipt_pipeline.ledger.investigations import OBJECT_KINDS, InvestigationKind
from receipt_pipeline.ledger.jobs.claim import Requeued
from receipt_pipeline.ledger.jobs.claim import requeue_job as requeue_in_ledger
from receipt_pipeline.ledger.rows import read_job, read_scope
from receipt_pipeline.reconciliation.quarantine import resolve_quarantine
from receipt_pipeline.reconciliation.repair import decide_investigation

ALERTS_SHOWN_MAX = 500


def reconcile(context: AppContext, principal: Principal) -> dict[str, int]:
    """Run every comparison and repair once; jobs on hold get a new bound to close within."""
    require(principal, Role.OPERATOR)
    return maintenance.reconcile_everything(context, granted=True)


def requeue_job(context: AppContext, principal: Principal, job_id: str) -> dict[str, Any]:
    """Take a running job from its worker and queue it again; returns what that changed.

    Raises:
        NotAllowed: the job is closed or on hold; the reason says what to do instead.
    """
    point("requeue.before")
    with context.ledger.transaction() as tx:
        require(principal, Role.OPERATOR, record=read_job(tx, job_id))
        did = requeue_in_ledger(tx, job_id=job_id, actor=principal.caller)
    point("requeue.after")
    return read_status(context, principal, job_id) | {
        "changed": did.changed,
        "fenced": did.fenced,
        "lease_epoch": {"before": did.epoch_before, "now": did.epoch},
        "sentence": _requeue_sentence(did),
    }


def _requeue_sentence(did: Requeued) -> str:
    if not did.changed:
        return f"{did.job_id} is waiting for its first claim and no worker has it. Nothing was changed."
    worker = f"Worker {did.fenced} can no longer write to it" if did.fenced else "No worker had it"
    return (
        f"{did.job_id} is queued again (lease epoch {did.epoch_before} -> {did.epoch}). {worker}; "
        "finished items are kept and no attempt was counted."
    )


# Investigations.


def list_investigations(context: AppContext, principal: Principal, *, only_open: bool) -> list[dict[str, Any]]:
    """Return the tenant's investigations and those about objects of no tenant, nearest deadline first."""
    require(principal, Role.OPERATOR, Role.ANALYST)
    with context.ledger.reading() as tx:
        return investigations.list_investigations(tx, only_open=only_open, tenant=principal.tenant)


def assign_investigation(context: AppContext, principal: Principal, investigation_id: str, *, owner: str) -> None:
    """Assign an investigation to an active principal."""
    require(principal, Role.OPERATOR)
    with context.ledger.transaction() as tx:
        investigations.read_investigation(tx, investigation_id, tenant=principal.tenant)
        investigations.assign_investigation(
            tx, investigation_id, owner=owner, actor=principal.caller, limits=context.settings.limits
        )


def resolve_investigation(
    context: AppContext,
    principal: Principal,
    investigation_id: str,
    *,
    note: str = "",
    keep: str | None = None,
    withdraw: bool = False,
) -> None:
    """Record a decision; that of a quarantine also names the digest to keep, or withdraws the result.

    Raises:
        NotAllowed: INVESTIGATION.FACT_STANDS.v1 while its cause is still present.
    """
    require(principal, Role.OPERATOR)
    if not (note.strip() or keep or withdraw):
        raise InputRefused(FIELD_INVALID, pointer="--note", wanted="what was found and decided")
    with context.ledger.reading() as tx:
        row = investigations.read_investigation(tx, investigation_id, tenant=principal.tenant)
    _check_decision(row.kind, keep=keep, withdraw=withdraw)
    if row.kind == InvestigationKind.DIVERGENT_OUTPUT and row.state == "open":
        assert row.job_id is not None, row
        resolve_quarantine(
            context.reconciler, job_id=row.job_id, actor=principal.caller, keep=keep, withdraw=withdraw, note=note
        )
        return
    decide_investigation(
        context.reconciler,
        investigation_id,
        note=note,
        actor=principal.caller,
        withdraw=withdraw and row.kind in OBJECT_KINDS,
    )


def _check_decision(kind: str, *, keep: str | None, withdraw: bool) -> None:
    """Refuse a decision that this kind of investigation does not take."""
    given = (bool(keep), withdraw)
    if kind == InvestigationKind.DIVERGENT_OUTPUT:
        fits, wanted = given in ((True, False), (False, True)), "--keep DIGEST or --withdraw"
    elif kind in OBJECT_KINDS:
        fits, wanted = not keep, "--withdraw, or a note once the object is restored"
    else:
        fits, wanted = given == (False, False), "neither --keep nor --withdraw"
    if not fits:
        raise InputRefused(FIELD_INVALID, pointer="investigation", wanted=wanted)


# Alerts.


def list_alerts(context: AppContext, principal: Principal, *, everything: bool = False) -> list[dict[str, Any]]:
    """Return the active alerts, or the newest of all, each with its meaning and first step.

    Alerts about another tenant's job are left out; those about no single job are for every tenant.
    """
    require(principal, Role.OPERATOR, Role.ANALYST)
    with context.ledger.reading() as tx:
        rows = alerts.list_alerts(tx, limit=ALERTS_SHOWN_MAX) if everything else alerts.open_alerts(tx)
        scope = read_scope(tx, principal.tenant)
    return [alert_document(row) for row in rows if scope.shows_job(row["job_id"])]


def list_alert_links(context: AppContext, principal: Principal) -> list[dict[str, Any]]:
    """Return which kinds of alerts are sent through which channels."""
    require(principal, Role.OPERATOR)
    with context.ledger.reading() as tx:
        return alerts.list_links(tx)


def link_alerts(context: AppContext, principal: Principal, kind: str, *, channel: str) -> bool:
    """Send alerts of one kind, or of `all`, through a channel; returns whether anything is new.

    Raises:
        InputRefused: ALERT.UNKNOWN.v1, CHANNEL.UNKNOWN.v1.
    """
    require(principal, Role.OPERATOR)
    if kind != "all" and kind not in {known.value for known in AlertKind}:
        raise InputRefused(ALERT_UNKNOWN, kind=kind, kinds=["all", *(known.value for known in AlertKind)])
    if channel != context.effects.channel.name:
        raise InputRefused(CHANNEL_UNKNOWN, channel=channel, channels=[context.effects.channel.name])
    kinds = list(AlertKind) if kind == "all" else [AlertKind(kind), AlertKind.TEST]
    with context.ledger.transaction() as tx:
        new = [alerts.link_alerts(tx, each, channel=channel, linked_by=principal.caller) for each in kinds]
    return any(new)


def test_alerts(context: AppContext, principal: Principal) -> dict[str, Any]:
    """Send a test alert through every linked channel; returns it with the outcome of each send."""
    require(principal, Role.OPERATOR)
    subject = f"asked for by {principal.caller}"
    with context.ledger.transaction() as tx:
        finding = alerts.AlertFinding(AlertKind.TEST, subject, None, {"meaning": MEANINGS[AlertKind.TEST].meaning})
        for row in alerts.open_alerts(tx):
            if (row["kind"], row["subject"]) == ("test", subject):
                alerts.resolve_alert(tx, row)
        alert_id = alerts.raise_alert(tx, finding)
        alerts.resolve_alert(tx, {"alert_id": alert_id, "kind": "test", "subject": subject})
    sent = deliver_alerts(context.effects, tenant=principal.tenant, limit=maintenance.ALERTS_SENT_MAX)
    return {"alert_id": alert_id, **sent}
