"""Replace an open job by a manifest or by another job."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound, PipelineError
from receipt_pipeline.core.failure_points import point
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.principals import Principal, Role, require
from receipt_pipeline.core.reasons import CONTRACT_UNKNOWN, NOT_FOUND, STATE_REFUSES, SUPERSEDE_ITSELF
from receipt_pipeline.core.request import JOB_CONTRACT, JobRequest
from receipt_pipeline.intake.accept import Arrival, accept_job
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.manifest import parse_document
from receipt_pipeline.intake.scans import FolderScans, list_loader, read_document
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.accept import Lineage
from receipt_pipeline.ledger.jobs.cancel import link_replacement, supersede_job
from receipt_pipeline.ledger.rows import JobRow, read_job
from receipt_pipeline.ledger.status import read_own_job

ENTRY_POINT = "supersede"


def supersede_by_job(intake: IntakeContext, job_id: str, *, by_job_id: str, principal: Principal) -> str:
    """Close an open job in favor of one that is open or has succeeded; returns the replacing job's id.

    Repeating it changes nothing.

    Raises:
        NotFound: either is unknown or foreign. InputRefused: SUPERSEDE.ITSELF.v1.
        NotAllowed: STATE.REFUSES.v1 when the job is closed in another way, or on hold.
    """
    with intake.ledger.reading() as tx:
        for asked in (job_id, by_job_id):
            require(principal, Role.SUBMITTER, Role.OPERATOR, record=read_job(tx, asked))
    point("supersede.before")
    with intake.ledger.transaction() as tx:
        close_for(tx, intake, job_id, by_job_id=by_job_id, actor=principal.caller)
    point("supersede.after")
    _announce(intake, job_id, by_job_id)
    return by_job_id


def supersede_by_manifest(intake: IntakeContext, job_id: str, *, manifest: Path, principal: Principal) -> str:
    """Accept a manifest and close an open job in its favour, in one transaction; returns the new job's id.

    The new job shares the lineage of the old one, so its scans do not count as submitted twice.

    Raises:
        As `accept_job` and `supersede_by_job`; nothing is accepted when the old job cannot be replaced.
    """
    with intake.ledger.reading() as tx:
        require(principal, Role.SUBMITTER, record=read_job(tx, job_id))
        old = read_own_job(tx, job_id, tenant=principal.tenant)
    scans = FolderScans(manifest.resolve().parent)
    document = read_document(scans, manifest.resolve().name, pointer="")
    request = parse_document(document, suffix=manifest.suffix.lower(), load_list=list_loader(scans))
    if not isinstance(request, JobRequest):
        raise InputRefused(CONTRACT_UNKNOWN, pointer="/contract", expected=JOB_CONTRACT)

    def close(tx: LedgerTransaction, new: JobRow, replayed: bool) -> None:
        close_for(tx, intake, job_id, by_job_id=new.job_id, actor=principal.caller)

    point("supersede.before")
    arrival = Arrival(principal, scans, ENTRY_POINT)
    family = Lineage(lineage=old.lineage)
    answer = accept_job(intake, request, arrival, family=family, in_transaction=close)
    point("supersede.after")
    _announce(intake, job_id, answer.job_id)
    return answer.job_id


def close_for(tx: LedgerTransaction, intake: IntakeContext, job_id: str, *, by_job_id: str, actor: str) -> None:
    """Close the old job and link both records, in the caller's transaction."""
    old, new = read_job(tx, job_id, lock=True), read_job(tx, by_job_id)
    if old is None or new is None:
        raise NotFound(NOT_FOUND, job_id=job_id)
    if old.superseded_by == by_job_id:
        return
    abandoned = new.terminal_at is not None and new.state != JobState.SUCCEEDED
    if job_id == by_job_id or abandoned or new.superseded_by is not None:
        raise InputRefused(SUPERSEDE_ITSELF, pointer="--by", job_id=job_id, by_job_id=by_job_id)
    if supersede_job(tx, job_id=job_id, superseded_by=by_job_id, limits=intake.limits) is None:
        raise NotAllowed(STATE_REFUSES, job_id=job_id, state=old.state)
    link_replacement(tx, job_id=job_id, by_job_id=by_job_id, actor=actor)


def _announce(intake: IntakeContext, *job_ids: str) -> None:
    for job_id in job_ids:
        with suppress(PipelineError, OSError):  # A status document that is not written now is written later.
            intake.after_accept(job_id)
