"""What submitters do: submit scans, follow their jobs, read results, cancel, replace and retry."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from receipt_pipeline.app.context import AppContext
from receipt_pipeline.core.audiences import ROLES_OF_AUDIENCE, Audience
from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.principals import Principal, Role, require
from receipt_pipeline.core.reasons import STATE_REFUSES
from receipt_pipeline.core.receipt_text import cancellation_document, compensation
from receipt_pipeline.core.request import DEFAULT_RELEASE
from receipt_pipeline.effects import results
from receipt_pipeline.intake import retry
from receipt_pipeline.intake.scans import read_one_scan
from receipt_pipeline.intake.submit import submit_paths
from receipt_pipeline.intake.supersede import supersede_by_job, supersede_by_manifest
from receipt_pipeline.ledger import status as ledger_status
from receipt_pipeline.ledger.jobs import cancel
from receipt_pipeline.ledger.legacy_jobs import (
    IMPORTED_PREFIX,
    legacy_job_document,
    read_import_investigation,
    read_legacy_job,
)
from receipt_pipeline.ledger.rows import read_items, read_job
from receipt_pipeline.ledger.submissions import submission_status
from receipt_pipeline.worker.classify_now import classify_now


def submit(
    context: AppContext,
    principal: Principal,
    paths: Sequence[Path],
    *,
    key: str | None = None,
    new: bool = False,
    release: str | None = None,
) -> list[dict[str, Any]]:
    """Submit manifests, folders and scans; returns one answer per delivery, with a line per row."""
    answers = submit_paths(context.intake, paths, principal=principal, key=key, new=new, release=release)
    return [answer.as_document() for answer in answers]


def read_status(
    context: AppContext, principal: Principal, job_id: str, *, audience: str = Audience.CUSTOMER
) -> dict[str, Any]:
    """Return a job's status document for one audience, which needs one of that audience's roles.

    The document of an imported job is the same for every audience.
    """
    tenant = principal.tenant
    with context.ledger.reading() as tx:
        if job_id.startswith(IMPORTED_PREFIX):
            row = read_legacy_job(tx, job_id, tenant=tenant)
            require(principal, Role.OPERATOR, Role.ANALYST, record=row)
            return legacy_job_document(row, read_import_investigation(tx, row))
        require(principal, *ROLES_OF_AUDIENCE[Audience(audience)], record=read_job(tx, job_id))
        return ledger_status.read_status(tx, job_id, tenant=tenant, audience=audience)


def read_submission(context: AppContext, principal: Principal, submission_id: str) -> dict[str, Any]:
    """Return the status of a delivery of the tenant."""
    require(principal, *Role)
    with context.ledger.reading() as tx:
        return submission_status(tx, submission_id, tenant=principal.tenant)


def list_jobs(context: AppContext, principal: Principal, *, state: JobState | None = None) -> list[dict[str, Any]]:
    """Return the tenant's jobs, newest first."""
    require(principal, *Role)
    with context.ledger.reading() as tx:
        return ledger_status.list_jobs(tx, tenant=principal.tenant, state=state)


def read_result(context: AppContext, principal: Principal, job_id: str) -> dict[str, Any]:
    """Return a closed job's items with fields and decisions, verified."""
    _require_reader(context, principal, job_id)
    return results.read_result(context.effects, job_id, tenant=principal.tenant)


def list_rejections(context: AppContext, principal: Principal, job_id: str) -> list[dict[str, str]]:
    """Return which items of a closed job validation refused, why, and what to do about each."""
    _require_reader(context, principal, job_id)
    with context.ledger.reading() as tx:
        return results.read_rejections(tx, job_id, tenant=principal.tenant)


def _require_reader(context: AppContext, principal: Principal, job_id: str) -> None:
    with context.ledger.reading() as tx:
        require(principal, *Role, record=read_job(tx, job_id))


def classify_scan(
    context: AppContext, principal: Principal, scan: Path, *, release: str | None = None
) -> dict[str, Any]:
    """Answer one scan now under what the release or alias means now; no job."""
    require(principal, Role.SUBMITTER)
    data = read_one_scan(scan, size_bytes_max=context.intake.scan_size_bytes_max)
    return classify_now(
        context.ledger, context.chains, data, release=release or DEFAULT_RELEASE, tenant=principal.tenant
    )


def cancel_job(context: AppContext, principal: Principal, job_id: str) -> dict[str, Any]:
    """Cancel an open job: returns what stopped, what is kept, what remains, and whether anything undoes it.

    Raises:
        NotAllowed: STATE.REFUSES.v1 for a closed job, with what is kept and what could undo it.
    """
    # Outside the transaction: a pause here must not keep the ledger's writers waiting.
    point("cancel.before")
    with context.ledger.transaction() as tx:
        require(principal, Role.SUBMITTER, Role.OPERATOR, record=read_job(tx, job_id))
        before = cancel.cancel_job(tx, job_id=job_id, limits=context.settings.limits)
    point("cancel.after")
    if before is None:
        raise NotAllowed(STATE_REFUSES, job_id=job_id, **_closed_job_facts(context, job_id))
    answer = _ended(context, principal, job_id)
    sentence = (
        f"{job_id} is canceled: {_items(answer['stopped'])} stopped, {_items(answer['stands'])} finished "
        f"and still readable, {_items(answer['unresolved'])} unresolved. Nothing of this job is sent on."
    )
    return answer | {"sentence": sentence}


def _ended(context: AppContext, principal: Principal, job_id: str) -> dict[str, Any]:
    """Return the status of a job that was ended on request, with the outcome of each item."""
    with context.ledger.reading() as tx:
        explained = cancellation_document(
            [item.as_mapping() for item in read_items(tx, job_id)], ledger_status.read_facts(tx, job_id).effects
        )
        return ledger_status.read_status(tx, job_id, tenant=principal.tenant) | explained


def _closed_job_facts(context: AppContext, job_id: str) -> dict[str, Any]:
    with context.ledger.reading() as tx:
        facts = ledger_status.read_facts(tx, job_id)
    return {
        "state": facts.job["state"],
        "stands": {name.value: count for name, count in facts.counts.items() if count},
        "compensating_action": compensation(facts.effects)["what"],
    }


def _items(names: Sequence[str]) -> str:
    return f"{len(names)} {'item' if len(names) == 1 else 'items'}"


def supersede_job(context: AppContext, principal: Principal, job_id: str, *, by: str) -> dict[str, Any]:
    """Replace an open job by another job, or by a manifest that is accepted for it.

    Args:
        by: a job id, or the path of a manifest.
    """
    manifest = Path(by)
    if manifest.is_file():
        by_job_id = supersede_by_manifest(context.intake, job_id, manifest=manifest, principal=principal)
    else:
        by_job_id = supersede_by_job(context.intake, job_id, by_job_id=by, principal=principal)
    answer = _ended(context, principal, job_id)
    sentence = (
        f"{job_id} is replaced by {by_job_id}: {_items(answer['stopped'])} abandoned "
        f"({', '.join(answer['stopped']) or 'none'}), {_items(answer['stands'])} finished and still readable."
    )
    return answer | {"abandoned": answer["stopped"], "replaced_by": by_job_id, "sentence": sentence}


def preview_retry(
    context: AppContext, principal: Principal, job_id: str, *, cutoff: dt.datetime | None = None
) -> dict[str, Any]:
    """Return which items a retry would touch and which it leaves; nothing is written."""
    return retry.preview_retry(context.intake, job_id, principal=principal, cutoff=cutoff).as_document()


def retry_job(
    context: AppContext, principal: Principal, job_id: str, *, cutoff: dt.datetime | None = None
) -> dict[str, Any]:
    """Accept a child job over the unresolved items of a closed job, or join the one that exists."""
    return retry.retry_unresolved(context.intake, job_id, principal=principal, cutoff=cutoff)
