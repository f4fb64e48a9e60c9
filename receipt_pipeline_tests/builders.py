"""Jobs in every state in one line, made by the ledger's own transitions and never by editing rows."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

from receipt_pipeline.core.canonical import digest_of, digest_of_bytes
from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.core.items import Decision, ItemClass, ItemOutcome
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.pins import Release
from receipt_pipeline.core.reasons import RISK_HIGH, SCAN_BROKEN
from receipt_pipeline.core.request import JOB_CONTRACT, ItemRequest, JobRequest, LimitsRequest, resolve_limits
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.accept import NewJob, StoredItem, insert_job
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import ClaimedJob, claim_job
from receipt_pipeline.ledger.jobs.finalize import VerifiedResult, commit_result
from receipt_pipeline.ledger.jobs.publication import record_intent
from receipt_pipeline.ledger.releases import SETUP, approve_release, move_alias
from receipt_pipeline.ledger.rows import JobRow

TENANT = "acme"
CALLER = "kim"
WORKER = "worker-a"
LIMITS = Limits()
NO_LIMITS = LimitsRequest()
RELEASE = Release(
    image_digest=digest_of("image"),
    chain_revision=digest_of("chain"),
    feature_contract="receipt-features/v1",
    risk_model_digest=digest_of("risk model"),
    policy_revision=digest_of("policy"),
)
_numbers = itertools.count(1)


def approve(ledger: Ledger, release: Release = RELEASE, *, name: str = "2026-11", alias: str = "production") -> str:
    """Approve a release and let the alias point at it; return its id. Repeating it changes nothing."""
    with ledger.transaction() as tx:
        release_id = approve_release(tx, release, name=name, approved_by=SETUP)
        move_alias(tx, alias=alias, release_id=release_id, moved_by=SETUP)
    return release_id


def a_request(
    *,
    items: int = 1,
    key: str | None = None,
    cutoff: dt.datetime | None = None,
    limits: LimitsRequest = NO_LIMITS,
    notification: EffectDemand = EffectDemand.BEST_EFFORT,
    review_tasks: EffectDemand = EffectDemand.REQUIRED,
    content: str = "",
) -> JobRequest:
    """Return a request with items r-001, r-002, …; the same content gives the same digests."""
    key = key or f"key-{next(_numbers)}"
    listed = tuple(
        ItemRequest(
            item_id=f"r-{number:03d}",
            uri=f"scans/r-{number:03d}.jpg",
            sha256=digest_of_bytes(f"{content or key}/{number}".encode()).removeprefix("sha256:"),
        )
        for number in range(1, items + 1)
    )
    return JobRequest(
        contract=JOB_CONTRACT,
        idempotency_key=key,
        items=listed,
        reconciliation_cutoff=cutoff,
        limits=limits,
        notification=notification,
        review_tasks=review_tasks,
    )


def stored(request: JobRequest) -> list[StoredItem]:
    return [
        StoredItem(
            item_id=item.item_id,
            id_explicit=item.id_explicit,
            label=item.label,
            sha256=f"sha256:{item.sha256}",
            size_bytes=item.size_bytes or 1000,
            media_type=item.media_type or "image/jpeg",
        )
        for item in request.items
    ]


def an_accepted_job(
    ledger: Ledger, request: JobRequest | None = None, *, tenant: str = TENANT, caller: str = CALLER, **given: Any
) -> JobRow:
    """Accept a job under the approved release and return its row; `given` goes to `a_request`."""
    approve(ledger)
    request = request or a_request(**given)
    frozen = resolve_limits(request.limits, items=len(request.items), cutoff_margin_s=LIMITS.intake.cutoff_margin_s)
    with ledger.transaction() as tx:
        return insert_job(
            tx, NewJob(tenant=tenant, caller=caller, request=request, limits=frozen, stored=stored(request))
        )


def claimed(ledger: Ledger, job_id: str, *, owner: str = WORKER, limits: Limits = LIMITS) -> ClaimedJob:
    with ledger.transaction() as tx:
        job = claim_job(tx, job_id=job_id, owner=owner, run_id=f"run-{owner}", limits=limits)
    assert isinstance(job, ClaimedJob), job
    return job


def a_claimed_job(ledger: Ledger, *, owner: str = WORKER, **given: Any) -> ClaimedJob:
    return claimed(ledger, an_accepted_job(ledger, **given).job_id, owner=owner)


def an_outcome(decision: Decision = Decision.CLEAR, *, total_minor: int = 1234) -> ItemOutcome:
    return ItemOutcome(
        item_class=ItemClass.CLASSIFIED,
        decision=decision,
        risk_ppm=40_000,
        fields={"total": {"amount_minor": total_minor, "currency": "EUR"}},
        reasons=() if decision is Decision.CLEAR else (RISK_HIGH.code,),
    )


def a_rejection() -> ItemOutcome:
    return ItemOutcome(item_class=ItemClass.REJECTED, reason_code=SCAN_BROKEN.code)


def finish_items(ledger: Ledger, job: ClaimedJob, *outcomes: ItemOutcome, limits: Limits = LIMITS) -> None:
    """Work off the claimed job's items in order; without outcomes, every one is classified as clear."""
    wanted = outcomes or (an_outcome(),) * len(job.items)
    with ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=None, next_ordinal=0, limits=limits)
    for ordinal, outcome in enumerate(wanted):
        following = ordinal + 1 if ordinal + 1 < len(job.items) else None
        finished = FinishedItem(ordinal=ordinal, outcome=outcome, invocations=1)
        with ledger.transaction() as tx:
            write_checkpoint(tx, job.token, finished=finished, next_ordinal=following, limits=limits)


def a_result(job: ClaimedJob, *, content: str = "result") -> VerifiedResult:
    """Return a result as if its object had been read back; its bytes exist nowhere."""
    digest = digest_of_bytes(content.encode())
    key = f"results/{job.token.job_id}/{job.token.lease_epoch}-{digest.removeprefix('sha256:')}"
    return VerifiedResult(key=key, digest=digest, size_bytes=len(content))


def publish(
    ledger: Ledger, job: ClaimedJob, result: VerifiedResult | None = None, *, limits: Limits = LIMITS
) -> VerifiedResult:
    """Record the intent and commit the result of a job whose items are finished."""
    result = result or a_result(job)
    with ledger.transaction() as tx:
        record_intent(tx, job.token, result, limits=limits)
    with ledger.transaction() as tx:
        commit_result(tx, job.token, result, limits=limits)
    return result


def a_succeeded_job(ledger: Ledger, *outcomes: ItemOutcome, **given: Any) -> ClaimedJob:
    """Accept, claim, finish and publish a job; as many items as outcomes are given, else as asked for."""
    if outcomes:
        given.setdefault("items", len(outcomes))
    job = a_claimed_job(ledger, **given)
    finish_items(ledger, job, *outcomes)
    publish(ledger, job)
    return job
