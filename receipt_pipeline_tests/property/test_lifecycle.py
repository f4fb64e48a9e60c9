"""Any order of claims, boundaries, losses, failures and endings keeps the invariants of a job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receipt_pipeline.core.attempts import FailureClass, FencingToken
from receipt_pipeline.core.errors import LeaseLost, NotAllowed
from receipt_pipeline.core.items import KEPT_CLASSES
from receipt_pipeline.core.lifecycle import HELD_PHASES, TERMINAL_STATES, CloseCause, JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.reasons import (
    ENGINE_OCR_UNAVAILABLE,
    IDENTITY_MISMATCH,
    UPLOAD_FAILED,
    UPLOAD_UNKNOWN,
    Reason,
)
from receipt_pipeline.core.request import LimitsRequest
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction, open_ledger
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import AttemptKind, ClaimedJob, claim_job, renew_lease
from receipt_pipeline.ledger.jobs.expire import expire_job, overrun_job
from receipt_pipeline.ledger.jobs.failures import fail_attempt, lose_lease, release_held, yield_job
from receipt_pipeline.ledger.jobs.finalize import close_without_result
from receipt_pipeline.ledger.jobs.publication import close_own_overdue_items
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.ledger.schema.jobs import items
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, assert_invariants, job_row, snapshot
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

LIMITS = Limits().replace(item_losses_max=2, closing_attempts_max=2, retry_base_s=1, retry_cap_s=4, overrun_grace_s=5)
FAILURES: list[tuple[FailureClass, Reason]] = [
    (FailureClass.TRANSIENT, ENGINE_OCR_UNAVAILABLE),
    (FailureClass.TRANSIENT, UPLOAD_FAILED),
    (FailureClass.AMBIGUOUS_UPLOAD, UPLOAD_UNKNOWN),
    (FailureClass.IDENTITY, IDENTITY_MISMATCH),
]
OUTCOMES = [builders.an_outcome(), builders.an_outcome(), builders.a_rejection()]
SECONDS = [0.5, 2, 5, 31]
CANCELS = 7
RUNS_OUT = 5
# How often each event is drawn, so that jobs come far before they end.
WEIGHTS = {
    "claim": 6,
    "pass_an_item_boundary": 6,
    "time_passes": 3,
    "fail": 3,
    "sweep_an_expired_lease": 2,
    "let_the_lease_end": 2,
    "close": 2,
    "yield_the_job": 1,
    "renew": 1,
    "sweep_an_overrun": 1,
    "let_the_time_run_out": 1,
    "expire": 1,
    "cancel": 1,
    "a_stale_worker_wakes": 2,
    "accept": 2,
}
EVENTS = st.sampled_from([name for name, weight in WEIGHTS.items() for _ in range(weight)])
# The number chooses the variant of its event.
STEPS = st.lists(st.tuples(EVENTS, st.integers(0, 11)), min_size=60, max_size=60)


class AnyOrder:
    """A job, its present worker, every worker that ever held it, and what may happen to them.

    The worker keeps to its protocol (it finishes what it began, it commits when nothing is open);
    everything else comes in any order and at any time. A closed job makes room for the next one.
    """

    def __init__(self, ledger: Ledger, clock: FakeClock) -> None:
        self.ledger = ledger
        self.clock = clock
        self.job_id = ""
        self.tokens: list[FencingToken] = []
        self.closed: dict[str, list[dict[str, Any]]] | None = None

    def accept(self, variant: int) -> None:
        if self.job_id and self.closed is None:
            return
        limits = LimitsRequest(
            max_attempts=1 + variant % 3, processing_timeout_s=900 if variant % 4 else 40, max_queue_age_s=60
        )
        job = builders.an_accepted_job(self.ledger, items=1 + variant // 4, limits=limits)
        self.job_id, self.tokens, self.closed = str(job.job_id), [], None

    def job(self) -> dict[str, Any]:
        return job_row(self.ledger, self.job_id)

    def unfinished(self) -> list[dict[str, Any]]:
        return [row for row in all_rows(self.ledger, items, self.job_id) if row["item_class"] is None]

    def holder(self) -> FencingToken | None:
        job = self.job()
        held = job["state"] == JobState.RUNNING and job["lease_owner"] is not None
        return FencingToken(self.job_id, job["lease_epoch"]) if held else None

    def time_passes(self, variant: int) -> None:
        self.clock.advance(SECONDS[variant % len(SECONDS)])

    def let_the_lease_end(self, _variant: int) -> None:
        self.clock.advance(LIMITS.work.lease_ttl_s)

    def let_the_time_run_out(self, variant: int) -> None:
        if variant == RUNS_OUT:
            self.clock.advance(900)

    def claim(self, variant: int) -> None:
        due = self.job()["retry_at"]
        if variant and due is not None and due > self.clock.now():
            self.clock.set(due)
        with self.ledger.transaction() as tx:
            answer = claim_job(tx, job_id=self.job_id, owner="worker", run_id="", limits=LIMITS)
        if isinstance(answer, ClaimedJob):
            assert all(answer.token.lease_epoch > token.lease_epoch for token in self.tokens)
            assert (answer.kind is AttemptKind.CLOSING) == (answer.job.close_cause is not None)
            self.tokens.append(answer.token)

    def pass_an_item_boundary(self, variant: int) -> None:
        token = self.holder()
        if token is None or self.job()["close_cause"] is not None:
            return
        unfinished = self.unfinished()
        begun = [row["ordinal"] for row in unfinished if row["begun_epoch"] == token.lease_epoch]
        waiting = [row["ordinal"] for row in unfinished if row["ordinal"] not in begun]
        outcome = OUTCOMES[variant % len(OUTCOMES)]
        finished = FinishedItem(ordinal=begun[0], outcome=outcome, invocations=1) if begun else None
        with self.ledger.transaction() as tx:
            boundary = write_checkpoint(
                tx, token, finished=finished, next_ordinal=waiting[0] if waiting else None, limits=LIMITS
            )
            if boundary.limit_reached is not None:
                close_own_overdue_items(tx, token, cause=boundary.limit_reached)

    def close(self, _variant: int) -> None:
        token = self.holder()
        if token is None or self.unfinished():
            return
        if {row["item_class"] for row in all_rows(self.ledger, items, self.job_id)} & KEPT_CLASSES:
            claimed = ClaimedJob(token, AttemptKind.WORK, JobRow.from_row(self.job()), [])
            builders.publish(self.ledger, claimed, builders.a_result(claimed, content=self.job_id))
            return
        with self.ledger.transaction() as tx:
            close_without_result(tx, token, limits=LIMITS)

    def renew(self, _variant: int) -> None:
        token = self.holder()
        if token is not None:
            with self.ledger.transaction() as tx:
                assert renew_lease(tx, token, lease_ttl_s=LIMITS.work.lease_ttl_s)

    def fail(self, variant: int) -> None:
        token = self.holder()
        failure_class, reason = FAILURES[variant] if variant < len(FAILURES) else FAILURES[0]
        if token is not None:
            with self.ledger.transaction() as tx:
                fail_attempt(tx, token, failure_class=failure_class, reason=reason, limits=LIMITS)

    def yield_the_job(self, _variant: int) -> None:
        token = self.holder()
        if token is not None:
            with self.ledger.transaction() as tx:
                yield_job(tx, token)

    def sweep_an_expired_lease(self, _variant: int) -> None:
        job = self.job()
        with self.ledger.transaction() as tx:
            lost = lose_lease(tx, job_id=self.job_id, seen_epoch=job["lease_epoch"], limits=LIMITS)
            expired = job["lease_expires_at"] is not None and job["lease_expires_at"] <= tx.now()
        assert lost is expired

    def sweep_an_overrun(self, _variant: int) -> None:
        epoch, grace_s = self.job()["lease_epoch"], LIMITS.work.overrun_grace_s
        with self.ledger.transaction() as tx:
            overrun_job(tx, job_id=self.job_id, seen_epoch=epoch, cause=CloseCause.TIMEOUT, grace_s=grace_s)

    def expire(self, _variant: int) -> None:
        job = self.job()
        with self.ledger.transaction() as tx:
            late = job["state"] == JobState.ACCEPTED and job["queue_deadline"] < tx.now()
            assert expire_job(tx, job_id=self.job_id, limits=LIMITS) is late

    def cancel(self, variant: int) -> None:
        job = self.job()
        if job["state"] not in TERMINAL_STATES and job["phase"] not in HELD_PHASES and variant != CANCELS:
            return
        try:
            with self.ledger.transaction() as tx:
                canceled = cancel_job(tx, job_id=self.job_id, limits=LIMITS)
        except NotAllowed:
            assert job["phase"] in HELD_PHASES
            self.answer_the_question(job)
        else:
            assert (canceled is None) == (job["state"] in TERMINAL_STATES)

    def answer_the_question(self, job: dict[str, Any]) -> None:
        with self.ledger.transaction() as tx:
            assert release_held(
                tx, job_id=self.job_id, seen_epoch=job["lease_epoch"], granted=False, limits=LIMITS
            ) is (job["closing_attempts"] < LIMITS.work.closing_attempts_max)

    def a_stale_worker_wakes(self, variant: int) -> None:
        stale = [token for token in self.tokens if token.lease_epoch != self.job()["lease_epoch"]]
        if not stale:
            return
        before = snapshot(self.ledger, self.job_id)
        for write in (_boundary, _yield, _fail, _close):
            with pytest.raises(LeaseLost), self.ledger.transaction() as tx:
                write(tx, stale[variant % len(stale)])
        assert snapshot(self.ledger, self.job_id) == before

    def check(self) -> None:
        assert_invariants(self.ledger, LIMITS, job_id=self.job_id)
        if self.closed is not None:
            assert snapshot(self.ledger, self.job_id) == self.closed
        elif self.job()["state"] in TERMINAL_STATES:
            self.closed = snapshot(self.ledger, self.job_id)


def _boundary(tx: LedgerTransaction, token: FencingToken) -> None:
    done = FinishedItem(ordinal=0, outcome=builders.an_outcome(total_minor=1), invocations=1)
    write_checkpoint(tx, token, finished=done, next_ordinal=None, limits=LIMITS)


def _yield(tx: LedgerTransaction, token: FencingToken) -> None:
    yield_job(tx, token)


def _fail(tx: LedgerTransaction, token: FencingToken) -> None:
    fail_attempt(tx, token, failure_class=FailureClass.TRANSIENT, reason=ENGINE_OCR_UNAVAILABLE, limits=LIMITS)


def _close(tx: LedgerTransaction, token: FencingToken) -> None:
    close_without_result(tx, token, limits=LIMITS)


@pytest.fixture(scope="module")
def in_memory() -> Iterator[tuple[Ledger, FakeClock]]:
    clock = FakeClock()
    ledger = open_ledger("sqlite://", clock=clock)
    ledger.migrate()
    yield ledger, clock
    ledger.close()


@pytest.mark.requirement("R011", "R062", "R067", "R112", "R120")
@settings(max_examples=25)
@given(steps=STEPS)
def test_any_order_of_events_keeps_the_invariants(
    in_memory: tuple[Ledger, FakeClock], steps: list[tuple[str, int]]
) -> None:
    order = AnyOrder(*in_memory)
    order.accept(variant=len(steps))
    for name, variant in steps:
        getattr(order, name)(variant)
        order.check()
