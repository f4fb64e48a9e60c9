"""Retry the unresolved items of a closed job as a child job."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import IntegrityError

from receipt_pipeline.core.errors import NotAllowed, ObjectFault, PipelineError
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.items import ItemClass, can_retry, count_classes
from receipt_pipeline.core.lifecycle import TerminalClass
from receipt_pipeline.core.principals import Principal, Role, require
from receipt_pipeline.core.reasons import RETRY_INPUT_GONE, RETRY_NOTHING_LEFT
from receipt_pipeline.core.request import JobRequest
from receipt_pipeline.intake.accept import HOLD_OF_JOB, HOLD_WHILE_COPYING, acceptance_of, spend_quota
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.ledger.effects.objects import hold_objects, release_holds
from receipt_pipeline.ledger.jobs.retry import (
    accept_child,
    child_request,
    cutoff_of_child,
    find_child,
    refuse_open_parent,
)
from receipt_pipeline.ledger.rows import ItemRow, JobRow, read_items, read_job
from receipt_pipeline.ledger.status import read_own_job
from receipt_pipeline.objects.store import scan_key


@dataclass(frozen=True, slots=True)
class RetryScope:
    """Which items of a closed job a retry touches.

    Attributes:
        touched: rows of the items that a child processes.
        unreadable: rows of unresolved items whose stored scan is missing or changed; they are not touched.
        child: the job that an identical retry has made, None if there is none.
    """

    parent: JobRow
    counts: dict[ItemClass, int]
    touched: tuple[ItemRow, ...]
    unreadable: tuple[ItemRow, ...]
    request: JobRequest
    child: JobRow | None

    def as_document(self) -> dict[str, Any]:
        """Return the preview: every touched item by id, the untouched ones, and the pins."""
        parent = self.parent
        stay = len(self.touched) + len(self.unreadable)
        return {
            "parent": parent.job_id,
            "terminal": {"state": parent.state, "class": parent.terminal_class},
            "items": {"requested": parent.items_requested} | {name.value: count for name, count in self.counts.items()},
            "touched": [_touched_item(item) for item in self.touched],
            "not_readable": [_touched_item(item) for item in self.unreadable],
            "untouched": parent.items_requested - stay,
            "pins": parent.pins.as_document(),
            "reconciliation_cutoff": _iso(self.request.reconciliation_cutoff),
            "child": self.child.job_id if self.child else None,
        }


def _iso(value: dt.datetime | None) -> str | None:
    return value.isoformat() if value else None


def _touched_item(item: ItemRow) -> dict[str, Any]:
    return {
        "item_id": item.item_id,
        "label": item.label,
        "class": item.item_class,
        "reason": item.reason_code,
        "sha256": item.sha256,
    }


def preview_retry(
    intake: IntakeContext, job_id: str, *, principal: Principal, cutoff: dt.datetime | None = None
) -> RetryScope:
    """Return what a retry would touch; nothing is written.

    Raises:
        NotFound: unknown or foreign. NotAllowed: the job is open or on hold, has no unresolved items, or
            none of them can be read again; see the reason.
    """
    with intake.ledger.reading() as tx:
        require(principal, Role.SUBMITTER, Role.OPERATOR, record=read_job(tx, job_id))
        parent = read_own_job(tx, job_id, tenant=principal.tenant)
        refuse_open_parent(tx, parent)
        rows = read_items(tx, job_id)
        given = cutoff or cutoff_of_child(tx, parent)
    terminal_class = parent.terminal_class
    assert terminal_class is not None, "a closed job has its class"
    unpublished = terminal_class is TerminalClass.DEPENDENCY_FAILED
    left = [row for row in rows if can_retry(row.item_class, row.reason_code, result_unpublished=unpublished)]
    if not left:
        raise NotAllowed(RETRY_NOTHING_LEFT, job_id=job_id, terminal_class=terminal_class.value)
    touched = tuple(row for row in left if _is_readable(intake, row))
    if not touched:
        raise NotAllowed(RETRY_INPUT_GONE, job_id=job_id, item_ids=[row.item_id for row in left])
    request = child_request(parent, touched, cutoff=given)
    with intake.ledger.reading() as tx:
        child = find_child(tx, parent, request)
    unreadable = tuple(row for row in left if row not in touched)
    counts = count_classes(row.item_class for row in rows)
    return RetryScope(parent, counts, touched, unreadable, request, child)


def _is_readable(intake: IntakeContext, item: ItemRow) -> bool:
    """Return whether the stored scan is the accepted one."""
    try:
        found = intake.objects.digest(scan_key(item.tenant, item.sha256))
    except ObjectFault:
        return False
    return found is not None and found[0] == item.sha256


def retry_unresolved(
    intake: IntakeContext, job_id: str, *, principal: Principal, cutoff: dt.datetime | None = None
) -> dict[str, Any]:
    """Accept a child for the unresolved items of a closed job, or join the one of an identical retry.

    The parent's record, pins and stored scans do not change, and both records name each other.

    Returns:
        The child's acceptance, with `parent`, and the ids in `touched`.
    Raises:
        As `preview_retry`; NotAllowed AUTHORITY.*, InputRefused RELEASE.RETIRED.v1 and QUOTA.EXCEEDED.v1.
    """
    scope = preview_retry(intake, job_id, principal=principal, cutoff=cutoff)
    keys = [scan_key(item.tenant, item.sha256) for item in scope.touched]
    holder = f"retry/{scope.request.idempotency_key}"
    point("hold.before")
    with intake.ledger.transaction() as tx:
        hold_objects(tx, keys, holder=holder, hold_kind=HOLD_WHILE_COPYING)
    point("hold.after")
    try:
        # Checked again under the hold, because a sweep may have removed scans meanwhile.
        scope = preview_retry(intake, job_id, principal=principal, cutoff=cutoff)
        point("accept.before")
        child, joined = _accept_or_join(intake, scope, principal=principal, keys=keys, holder=holder)
        point("accept.after")
    except PipelineError:
        with intake.ledger.transaction() as tx:
            release_holds(tx, holder=holder)
        raise
    for changed_id in (child.job_id, job_id):
        with suppress(PipelineError, OSError):  # A status document that is not written now is written later.
            intake.after_accept(changed_id)
    answer = acceptance_of(intake, child, replayed=joined).as_document()
    return answer | {"parent": job_id, "touched": [item.item_id for item in scope.touched]}


def _accept_or_join(
    intake: IntakeContext, scope: RetryScope, *, principal: Principal, keys: Sequence[str], holder: str
) -> tuple[JobRow, bool]:
    try:
        return _accept(intake, scope, principal=principal, keys=keys, holder=holder)
    except IntegrityError:
        # Another retry committed the same child meanwhile, so this one joins it.
        return _accept(intake, scope, principal=principal, keys=keys, holder=holder)


def _accept(
    intake: IntakeContext, scope: RetryScope, *, principal: Principal, keys: Sequence[str], holder: str
) -> tuple[JobRow, bool]:
    with intake.ledger.transaction() as tx:
        if scope.child is None:
            spend_quota(tx, principal, items=len(scope.touched))
        child, joined = accept_child(
            tx, parent=scope.parent, touched=scope.touched, request=scope.request, caller=principal.caller
        )
        if not joined:
            hold_objects(tx, keys, holder=child.job_id, hold_kind=HOLD_OF_JOB)
        release_holds(tx, holder=holder)
        return child, joined
