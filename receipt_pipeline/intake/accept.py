"""Accept one job within the submitter's quota."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import IntegrityError

from receipt_pipeline.core.errors import InputRefused, PipelineError
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.principals import Principal, Role, require
from receipt_pipeline.core.reasons import QUOTA_EXCEEDED
from receipt_pipeline.core.request import JobRequest, resolve_limits
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.scans import CopyProgress, ScanSource, copy_scans
from receipt_pipeline.ledger.effects.objects import COPYING, held_keys, hold_objects, release_holds
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.grants import lock_submitter, open_items, read_submitter, require_authority
from receipt_pipeline.ledger.jobs.accept import Lineage, NewJob, StoredItem, find_replay, insert_job, record_replay
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.objects.store import scan_key

NO_FAMILY = Lineage()
HOLD_WHILE_COPYING = COPYING
HOLD_OF_JOB = "scan"
COPY_ROUNDS_MAX = 3


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The answer to a submission: its status location and its pins, never a result."""

    job_id: str
    idempotency_key: str
    submitted_at: dt.datetime
    status_location: str
    state: str
    pins: Pins
    queue_deadline: dt.datetime
    replayed: bool
    warnings: tuple[str, ...]

    def as_document(self) -> dict[str, Any]:
        """Return the acceptance as a JSON document; times are ISO 8601 in UTC."""
        return {
            "job_id": self.job_id,
            "idempotency_key": self.idempotency_key,
            "submitted_at": self.submitted_at.isoformat(),
            "status_location": self.status_location,
            "state": self.state,
            "pins": self.pins.as_document(),
            "queue_deadline": self.queue_deadline.isoformat(),
            "replayed": self.replayed,
            "warnings": list(self.warnings),
        }


# Called in the committing transaction with the job's row and whether it answers a repeat.
InTransaction = Callable[[LedgerTransaction, JobRow, bool], None]


def record_nothing(tx: LedgerTransaction, job: JobRow, replayed: bool) -> None:
    """Add nothing to the committing transaction."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What arrived: from whom, where its scans are, through which entry point, and its label."""

    principal: Principal
    scans: ScanSource
    entry_point: str
    label: str = ""
    place: str = ""


def accept_job(
    intake: IntakeContext,
    request: JobRequest,
    arrival: Arrival,
    *,
    progress: CopyProgress | None = None,
    family: Lineage = NO_FAMILY,
    in_transaction: InTransaction = record_nothing,
) -> Acceptance:
    """Accept one job, or answer the request as the repeat of an accepted one.

    A repeat is answered from the ledger; no scan is opened for it.

    Args:
        progress: scans that an earlier pass stored, and the time limit of this one.
        in_transaction: what the caller records in the same transaction.
    Raises:
        InputRefused, KeyConflict, NotAllowed, ObjectFault, LedgerUnavailable: nothing was accepted.
        PassEnded: the time limit was reached; the next pass continues.
    """
    require(arrival.principal, Role.SUBMITTER)
    commit, progress = _Commit(request, arrival, family, in_transaction), progress or CopyProgress()
    repeat = commit.record_repeat(intake)
    if repeat is not None:
        return _acknowledge(intake, repeat, replayed=True)
    with intake.ledger.reading() as tx:
        check_quota(tx, arrival.principal, items=len(request.items))
    for ordinal, item in enumerate(request.items):
        arrival.scans.confine(item, progress.pointer_of(ordinal))
    job, replayed = _copy_and_commit(intake, commit, progress)
    return _acknowledge(intake, job, replayed=replayed)


def _copy_and_commit(intake: IntakeContext, commit: _Commit, progress: CopyProgress) -> tuple[JobRow, bool]:
    """Hold, copy and commit; again in the rare case that holds were lost meanwhile."""
    request, tenant = commit.request, commit.arrival.principal.tenant
    holder = progress.submission_id or f"{tenant}/{request.fingerprint}"
    try:
        for _ in range(COPY_ROUNDS_MAX):
            _hold_while_copying(intake, request, tenant=tenant, holder=holder)
            stored = copy_scans(intake, request, tenant=tenant, scans=commit.arrival.scans, progress=progress)
            found = commit.run(intake, stored, holder=holder)
            if found is not None:
                return found
    except InputRefused:
        # A delivery that waits for its scans comes again, and keeps what it holds.
        if progress.submission_id is None:
            with intake.ledger.transaction() as tx:
                release_holds(tx, holder=holder)
        raise
    raise AssertionError("holds were lost in every round")


def _hold_while_copying(intake: IntakeContext, request: JobRequest, *, tenant: str, holder: str) -> None:
    """Hold the objects before the first byte is copied, so that no sweep removes them."""
    point("hold.before")
    keys = [scan_key(tenant, item.sha256) for item in request.items]
    with intake.ledger.transaction() as tx:
        hold_objects(tx, keys, holder=holder, hold_kind=HOLD_WHILE_COPYING)
    point("hold.after")


@dataclass(frozen=True, slots=True)
class _Commit:
    """The one transaction that turns a request with stored scans into a job."""

    request: JobRequest
    arrival: Arrival
    family: Lineage
    in_transaction: InTransaction

    def record_repeat(self, intake: IntakeContext) -> JobRow | None:
        """Return the job that this request repeats, after recording the repeat; None when it is new."""
        tenant = self.arrival.principal.tenant
        with intake.ledger.reading() as tx:
            if find_replay(tx, tenant=tenant, request=self.request) is None:
                return None
        with intake.ledger.transaction() as tx:
            job = find_replay(tx, tenant=tenant, request=self.request)
            assert job is not None, "an accepted job is never deleted"
            record_replay(tx, job, door=self.arrival.entry_point)
            self.in_transaction(tx, job, True)
        return job

    def run(self, intake: IntakeContext, stored: tuple[StoredItem, ...], *, holder: str) -> tuple[JobRow, bool] | None:
        """Return (job, replayed), or None when holds were lost and the scans must be copied again."""
        point("accept.before")
        try:
            with intake.ledger.transaction() as tx:
                found = self._write(intake, tx, stored, holder)
        except IntegrityError:
            # Another process committed the same key meanwhile, so this is its repeat.
            repeat = self.record_repeat(intake)
            if repeat is None:
                raise
            found = (repeat, True)
        point("accept.after")
        return found

    def _write(
        self, intake: IntakeContext, tx: LedgerTransaction, stored: tuple[StoredItem, ...], holder: str
    ) -> tuple[JobRow, bool] | None:
        principal, request = self.arrival.principal, self.request
        tenant = principal.tenant
        job = find_replay(tx, tenant=tenant, request=request)
        replayed = job is not None
        if job is None:
            require_authority(tx, tenant=tenant, caller=principal.caller)
            keys = {scan_key(tenant, item.sha256) for item in request.items}
            if held_keys(tx, keys) != keys:
                return None
            spend_quota(tx, principal, items=len(stored))
            limits = resolve_limits(
                request.limits, items=len(stored), cutoff_margin_s=intake.limits.intake.cutoff_margin_s
            )
            job = insert_job(
                tx,
                NewJob(
                    tenant=tenant,
                    caller=principal.caller,
                    request=request,
                    limits=limits,
                    stored=stored,
                    family=self.family,
                    shadow=intake.rollout.is_shadow(principal.caller),
                ),
            )
            hold_objects(tx, keys, holder=job.job_id, hold_kind=HOLD_OF_JOB)
        else:
            record_replay(tx, job, door=self.arrival.entry_point)
        release_holds(tx, holder=holder)
        self.in_transaction(tx, job, replayed)
        return job, replayed


def _acknowledge(intake: IntakeContext, job: JobRow, *, replayed: bool) -> Acceptance:
    # The job is accepted whatever happens now. A status document that could not be written is written
    # later, because its shown sequence is behind the newest event of the job.
    with suppress(PipelineError, OSError):
        intake.after_accept(job.job_id)
    return acceptance_of(intake, job, replayed=replayed)


def acceptance_of(intake: IntakeContext, job: JobRow, *, replayed: bool) -> Acceptance:
    """Return the acceptance of an accepted job's row."""
    return Acceptance(
        job_id=job.job_id,
        idempotency_key=job.idempotency_key,
        submitted_at=job.submitted_at,
        status_location=intake.status_location(job.tenant, job.job_id),
        state=job.state,
        pins=job.pins,
        queue_deadline=job.queue_deadline,
        replayed=replayed,
        warnings=tuple(job.warnings),
    )


def check_quota(tx: LedgerTransaction, principal: Principal, *, items: int) -> None:
    """Refuse early, before a scan is copied; the commit checks again.

    Raises:
        InputRefused: QUOTA.EXCEEDED.v1 with quota, open items and requested items.
    """
    row = read_submitter(tx, tenant=principal.tenant, caller=principal.caller)
    _check_items(tx, principal, quota=None if row is None else row["quota_items"], items=items)


def spend_quota(tx: LedgerTransaction, principal: Principal, *, items: int) -> None:
    """Refuse what exceeds the quota; the row of the submitter is locked until the transaction ends.

    Raises:
        InputRefused: QUOTA.EXCEEDED.v1.
    """
    quota = lock_submitter(tx, tenant=principal.tenant, caller=principal.caller)
    _check_items(tx, principal, quota=quota, items=items)


def _check_items(tx: LedgerTransaction, principal: Principal, *, quota: int | None, items: int) -> None:
    if quota is None:
        return
    already = open_items(tx, tenant=principal.tenant, caller=principal.caller)
    if already + items > quota:
        raise InputRefused(QUOTA_EXCEEDED, quota_items=quota, open_items=already, asked_items=items)
