"""Every pair of state and event: inside the table it happens, outside it is refused with rows unchanged."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.errors import LeaseLost, NotAllowed
from receipt_pipeline.core.lifecycle import JOB_TRANSITIONS, JobEvent, JobState
from receipt_pipeline.core.reasons import IDENTITY_RETIRED
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.claim import ClaimedJob, claim_job, requeue_job
from receipt_pipeline.ledger.jobs.expire import expire_job
from receipt_pipeline.ledger.jobs.failures import close_for_identity, hold_unknown_effect, lose_lease, yield_job
from receipt_pipeline.ledger.jobs.finalize import VerifiedResult, close_without_result, commit_result
from receipt_pipeline.ledger.jobs.publication import record_intent
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import attempts, events, items, jobs
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, job_row, snapshot
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

LIMITS = builders.LIMITS
DAY_S = 86_400
UNOWNED_FIRST = {JobEvent.CLAIM, JobEvent.RETIRE_RELEASE}
NEEDS_TIME = {JobEvent.QUEUE_AGE_REACHED, JobEvent.TAKE_OVER}


def a_job_in(ledger: Ledger, clock: FakeClock, state: JobState) -> str:
    if state is JobState.SUCCEEDED:
        return builders.a_succeeded_job(ledger).token.job_id
    if state in (JobState.RUNNING, JobState.FAILED):
        claimed = builders.a_claimed_job(ledger)
        failed = state is JobState.FAILED
        builders.finish_items(ledger, claimed, builders.a_rejection() if failed else builders.an_outcome())
        if failed:
            with ledger.transaction() as tx:
                close_without_result(tx, claimed.token, limits=LIMITS)
        return claimed.token.job_id
    job_id = str(builders.an_accepted_job(ledger).job_id)
    if state is JobState.EXPIRED:
        clock.advance(DAY_S + 1)
        with ledger.transaction() as tx:
            assert expire_job(tx, job_id=job_id, limits=LIMITS)
    if state is JobState.CANCELED:
        with ledger.transaction() as tx:
            assert cancel_job(tx, job_id=job_id, limits=LIMITS)
    return job_id


def token_of(job: dict[str, Any]) -> FencingToken:
    return FencingToken(job["job_id"], job["lease_epoch"])


def commit_another_result(tx: LedgerTransaction, job: dict[str, Any]) -> None:
    result = VerifiedResult(key=f"results/{job['job_id']}/other", digest="sha256:other", size_bytes=5)
    if job["state"] == JobState.RUNNING:
        record_intent(tx, token_of(job), result, limits=LIMITS)
    commit_result(tx, token_of(job), result, limits=LIMITS)


APPLY: dict[JobEvent, Callable[[LedgerTransaction, dict[str, Any]], Any]] = {
    JobEvent.CLAIM: lambda tx, job: claim_job(tx, job_id=job["job_id"], owner="worker-b", run_id="", limits=LIMITS),
    JobEvent.QUEUE_AGE_REACHED: lambda tx, job: expire_job(tx, job_id=job["job_id"], limits=LIMITS),
    JobEvent.RETIRE_RELEASE: lambda tx, job: close_for_identity(
        tx, job["job_id"], reason=IDENTITY_RETIRED, limits=LIMITS
    ),
    JobEvent.TAKE_OVER: lambda tx, job: lose_lease(
        tx, job_id=job["job_id"], seen_epoch=job["lease_epoch"], limits=LIMITS
    ),
    JobEvent.RELEASE_LEASE: lambda tx, job: yield_job(tx, token_of(job)),
    JobEvent.HOLD: lambda tx, job: hold_unknown_effect(tx, JobRow.from_row(job), limits=LIMITS),
    JobEvent.COMMIT_RESULT: commit_another_result,
    JobEvent.CLOSE_FAILED: lambda tx, job: close_without_result(tx, token_of(job), limits=LIMITS),
    JobEvent.REQUEUE: lambda tx, job: requeue_job(tx, job_id=job["job_id"], actor="operations"),
    JobEvent.CANCEL: lambda tx, job: cancel_job(tx, job_id=job["job_id"], limits=LIMITS),
}
OUTSIDE = [pair for pair in itertools.product(JobState, JobEvent) if pair not in JOB_TRANSITIONS]


def named(pair: tuple[JobState, JobEvent]) -> str:
    return f"{pair[0].value}-{pair[1].value}"


def apply(ledger: Ledger, event: JobEvent, job: dict[str, Any]) -> Any:
    try:
        with ledger.transaction() as tx:
            return APPLY[event](tx, job)
    except (LeaseLost, NotAllowed) as refusal:
        return type(refusal)


@pytest.mark.parametrize("pair", OUTSIDE, ids=named)
def test_an_event_outside_the_table_is_refused_and_no_row_changes(
    ledger: Ledger, clock: FakeClock, pair: tuple[JobState, JobEvent]
) -> None:
    state, event = pair
    job_id = a_job_in(ledger, clock, state)
    if event in NEEDS_TIME:
        clock.advance(DAY_S + 1)
    before = (snapshot(ledger, job_id), all_rows(ledger, events), all_rows(ledger, investigations))
    apply(ledger, event, job_row(ledger, job_id))
    assert (snapshot(ledger, job_id), all_rows(ledger, events), all_rows(ledger, investigations)) == before


@pytest.mark.requirement("R010")
@pytest.mark.parametrize("pair", list(JOB_TRANSITIONS), ids=named)
def test_an_event_inside_the_table_leads_where_the_table_says_and_is_journaled(
    ledger: Ledger, clock: FakeClock, pair: tuple[JobState, JobEvent]
) -> None:
    state, event = pair
    job_id = a_job_in(ledger, clock, state)
    if state is JobState.RUNNING and event in UNOWNED_FIRST:
        apply(ledger, JobEvent.RELEASE_LEASE, job_row(ledger, job_id))
    if event in NEEDS_TIME:
        clock.advance(DAY_S + 1)
    before = job_row(ledger, job_id)
    assert before["state"] == state
    apply(ledger, event, before)
    after = job_row(ledger, job_id)
    assert after["state"] == JOB_TRANSITIONS[pair]
    assert after["latest_seq"] > before["latest_seq"]
    # Ownership changes with every event but a success, which its own worker's token closes.
    assert after["lease_epoch"] == before["lease_epoch"] + (event is not JobEvent.COMMIT_RESULT)


def refused(ledger: Ledger, statement: sa.Executable) -> bool:
    try:
        with ledger.transaction() as tx:
            tx.execute(statement)
    except sa.exc.IntegrityError:
        return True
    return False


@pytest.mark.parametrize(
    "values",
    [
        {"state": "cancelled"},
        {"state": "failed"},
        {"terminal_class": "complete"},
        {"phase": "closed", "state": "succeeded"},
        {"items_requested": 0},
        {"lease_owner": None},
        {"lease_expires_at": None},
    ],
    ids=lambda values: "-".join(f"{name}={value}" for name, value in values.items()),
)
def test_the_database_repeats_the_invariants_of_a_job(ledger: Ledger, values: dict[str, Any]) -> None:
    job = builders.a_claimed_job(ledger)
    statement = sa.update(jobs).where(jobs.c.job_id == job.token.job_id).values(**values)
    assert refused(ledger, statement)


def test_the_database_knows_no_success_without_result_and_no_owner_of_a_closed_job(
    ledger: Ledger, clock: FakeClock
) -> None:
    job = builders.a_succeeded_job(ledger)
    this = sa.update(jobs).where(jobs.c.job_id == job.token.job_id)
    assert refused(ledger, this.values(result_digest=None))
    assert refused(ledger, this.values(lease_owner="w", lease_expires_at=clock.now()))


def test_the_database_knows_the_classes_of_items_and_that_a_kept_one_has_its_outcome(ledger: Ledger) -> None:
    job = builders.a_succeeded_job(ledger)
    this = sa.update(items).where(items.c.job_id == job.token.job_id)
    assert refused(ledger, this.values(item_class="applied"))
    assert refused(ledger, this.values(outcome_digest=None))


def test_an_attempt_belongs_to_a_job_and_to_one_epoch_of_it(ledger: Ledger, clock: FakeClock) -> None:
    job: ClaimedJob = builders.a_claimed_job(ledger)
    [row] = all_rows(ledger, attempts, job.token.job_id)
    assert refused(ledger, sa.insert(attempts).values(**row))
    assert refused(ledger, sa.insert(attempts).values(**(row | {"job_id": "job_unknown"})))
