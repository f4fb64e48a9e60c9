"""A home with a job in every state, and an accountant over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.core.attempts import FailureClass
from receipt_pipeline.core.items import Decision, ItemOutcome
from receipt_pipeline.core.reasons import RESULT_MISSING, UPLOAD_FAILED
from receipt_pipeline.effects.consume import consume_due, receive_event
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.ledger.investigations import InvestigationKind, InvestigationRequest, open_investigation
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.claim import ClaimedJob
from receipt_pipeline.ledger.jobs.expire import expire_job
from receipt_pipeline.ledger.jobs.failures import fail_attempt
from receipt_pipeline.ledger.jobs.finalize import close_without_result
from receipt_pipeline_tests.builders import (
    LIMITS,
    a_claimed_job,
    a_rejection,
    a_result,
    an_accepted_job,
    an_outcome,
    claimed,
    finish_items,
    publish,
)
from receipt_pipeline_tests.fakes.effects_home import a_stored_success, an_event, the_job
from receipt_pipeline_tests.fakes.fake_clock import FakeClock


def an_accountant(services: EffectContext, folder: Path) -> Accountant:
    """Return an accountant over the ledger of these services; its report lies in `folder/report`."""
    return Accountant(ledger=services.ledger, report_root=folder / "report", limits=services.limits)


def an_outcome_of(total_minor: int | None, currency: str | None = "EUR") -> ItemOutcome:
    total = None if total_minor is None else {"minor": total_minor, "currency": currency, "printed": "?"}
    fields = {"merchant": "SECRET SHOP", "total": total}
    return ItemOutcome(item_class=an_outcome().item_class, decision=Decision.CLEAR, risk_ppm=1, fields=fields)


def round_of_effects(services: EffectContext) -> None:
    deliver(services, limit=100, time_bound_s=60)
    consume_due(services, limit=100, time_bound_s=60)


def a_retried_success(services: EffectContext, clock: FakeClock) -> str:
    job = a_claimed_job(services.ledger)
    finish_items(services.ledger, job)
    with services.ledger.transaction() as tx:
        fail_attempt(tx, job.token, failure_class=FailureClass.TRANSIENT, reason=UPLOAD_FAILED, limits=LIMITS)
    clock.advance(LIMITS.work.retry_cap_s)
    again = claimed(services.ledger, job.token.job_id)
    result = a_result(again)
    services.objects.put(result.key, b"result")
    publish(services.ledger, again, result)
    return job.token.job_id


def a_job_in_every_state(services: EffectContext, clock: FakeClock) -> dict[str, Any]:
    """Make one job per ending and one that is open; return their ids by name."""
    made = {"clear": a_stored_success(services, an_outcome_of(1234)).job_id}
    made["review"] = a_stored_success(services, an_outcome(Decision.REVIEW), a_rejection(), items=2).job_id
    made["retried"] = a_retried_success(services, clock)
    expiring = an_accepted_job(services.ledger)
    clock.set(expiring.queue_deadline)
    clock.advance(1)
    with services.ledger.transaction() as tx:
        assert expire_job(tx, job_id=expiring.job_id, limits=LIMITS)
    made["expired"] = expiring.job_id
    made["canceled"] = an_accepted_job(services.ledger).job_id
    with services.ledger.transaction() as tx:
        cancel_job(tx, job_id=made["canceled"], limits=LIMITS)
    rejected = a_claimed_job(services.ledger)
    finish_items(services.ledger, rejected, a_rejection())
    made["failed"] = close(services, rejected)
    round_of_effects(services)
    first = the_job(services, made["clear"])
    receive_event(services, an_event(first, "again"), source="notification")
    clock.advance(5)
    made["open"] = an_accepted_job(services.ledger).job_id
    return made


def close(services: EffectContext, job: ClaimedJob) -> str:
    with services.ledger.transaction() as tx:
        close_without_result(tx, job.token, limits=LIMITS)
    return str(job.token.job_id)


def a_question(services: EffectContext, kind: InvestigationKind, job_id: str) -> str:
    with services.ledger.transaction() as tx:
        return open_investigation(
            tx,
            InvestigationRequest(
                kind,
                subject=job_id,
                job_id=job_id,
                reason=RESULT_MISSING,
                suspected_effect="none",
                allowed_repair="look",
            ),
            limits=LIMITS,
        )
