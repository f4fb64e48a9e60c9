"""Outbox, deliveries, review tasks and settlement on every ledger."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import replace

import pytest

from receipt_pipeline.core.effects import EffectDemand
from receipt_pipeline.core.errors import NotAllowed, NotFound
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.reasons import NOTIFICATION_DROPPED, NOTIFICATION_FAILED
from receipt_pipeline.ledger.effects.consumption import (
    ConsumedEvent,
    close_review_task,
    due_consumption,
    make_review_tasks,
    record_consumed,
)
from receipt_pipeline.ledger.effects.outbox import (
    DeliveryResult,
    due_messages,
    mark_status_shown,
    record_delivery,
    stale_status_jobs,
    unconsumed_deliveries,
)
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.finalize import finish_job_if_done
from receipt_pipeline.ledger.jobs.quarantine import hold_divergent, record_rejected_write
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.ledger.schema.effects import deliveries, effects, outbox, review_tasks
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import (
    all_rows,
    assert_invariants,
    event_kinds,
    item_classes,
    job_row,
)
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

LIMITS = builders.LIMITS
THREADS = 4
EVIDENCE = {"message_created", "delivery", "consumed"}


def send(ledger: Ledger, job_id: str, outcome: str) -> None:
    reason = {"dropped": NOTIFICATION_DROPPED, "failed": NOTIFICATION_FAILED}.get(outcome)
    with ledger.transaction() as tx:
        [message] = due_messages(tx, limit=10, job_id=job_id)
        record_delivery(tx, message, DeliveryResult("file", outcome, "ref", reason), limits=LIMITS)


def effect_state(ledger: Ledger, job_id: str, kind: str) -> str:
    [state] = [row["state"] for row in all_rows(ledger, effects, job_id) if row["kind"] == kind]
    return str(state)


def consume(ledger: Ledger, job_id: str) -> int:
    with ledger.transaction() as tx:
        made = make_review_tasks(tx, JobRow.from_row(job_row(ledger, job_id)))
        append_event(tx, EventKind.CONSUMED, job_id=job_id, tasks_made=made)
        return made


@pytest.mark.requirement("R093", "R151")
def test_a_message_is_sent_once_and_its_delivery_is_evidence_of_its_own(ledger: Ledger, clock: FakeClock) -> None:
    job_id = builders.a_succeeded_job(ledger).token.job_id
    send(ledger, job_id, "delivered")
    with ledger.reading() as tx:
        assert due_messages(tx, limit=10) == []
        [waiting] = unconsumed_deliveries(tx, limit=10)
    assert (waiting["job_id"], waiting["payload"]["state"]) == (job_id, "succeeded")
    [delivery] = all_rows(ledger, deliveries, job_id)
    assert (delivery["send_no"], delivery["outcome"], delivery["late"]) == (1, "delivered", False)
    [message] = all_rows(ledger, outbox, job_id)
    assert (message["state"], message["sends"], message["settled_at"]) == ("sent", 1, clock.now())
    assert effect_state(ledger, job_id, "notification") == "committed"
    with ledger.transaction() as tx:
        record_consumed(tx, ConsumedEvent(delivery["delivery_id"], job_id, "job.terminal", "file", "acted"))
        assert unconsumed_deliveries(tx, limit=10) == []
    evidence = [kind for kind in event_kinds(ledger, job_id) if kind in EVIDENCE]
    assert evidence == ["message_created", "delivery", "consumed"]


@pytest.mark.requirement("R102")
def test_a_notification_that_is_lost_is_repeated_in_bounds_and_never_changes_the_job(
    ledger: Ledger, clock: FakeClock
) -> None:
    job_id = builders.a_succeeded_job(ledger).token.job_id
    state = job_row(ledger, job_id)["state"]
    pauses = []
    for outcome in ("dropped", "failed", "failed"):
        send(ledger, job_id, outcome)
        [message] = all_rows(ledger, outbox, job_id)
        if message["state"] == "due":
            pauses.append((message["due_at"] - clock.now()).total_seconds())
            with ledger.reading() as tx:
                assert due_messages(tx, limit=10) == [], "not before the pause is over"
            clock.set(message["due_at"])
    assert pauses == [LIMITS.delivery.delivery_retry_s, LIMITS.delivery.delivery_retry_s * 2]
    assert [row["outcome"] for row in all_rows(ledger, deliveries, job_id)] == ["dropped", "failed", "failed"]
    [message] = all_rows(ledger, outbox, job_id)
    assert (message["state"], message["sends"]) == ("abandoned", LIMITS.delivery.delivery_attempts_max)
    [notification] = [r for r in all_rows(ledger, effects, job_id) if r["kind"] == "notification"]
    assert (notification["state"], notification["reason_code"]) == ("failed", "NOTIFICATION.FAILED.v1")
    assert job_row(ledger, job_id)["state"] == state == "succeeded"
    assert consume(ledger, job_id) == 1


@pytest.mark.requirement("R054")
def test_a_notification_after_its_deadline_is_recorded_as_late_and_changes_nothing(
    ledger: Ledger, clock: FakeClock
) -> None:
    job = builders.an_accepted_job(ledger)
    with ledger.transaction() as tx:
        cancel_job(tx, job_id=job.job_id, limits=LIMITS)
    before = job_row(ledger, job.job_id)
    clock.advance(LIMITS.delivery.effect_deadline_s + 1)
    send(ledger, job.job_id, "delivered")
    [delivery] = all_rows(ledger, deliveries, job.job_id)
    assert delivery["late"]
    after = job_row(ledger, job.job_id)
    assert {name for name in before if before[name] != after[name]} == {"latest_seq"}


def test_what_a_slow_sender_delivered_is_sent_though_another_had_given_it_up(ledger: Ledger) -> None:
    builders.a_succeeded_job(ledger)
    with ledger.reading() as tx:
        (slow,) = due_messages(tx, limit=1)
    for sends in range(LIMITS.delivery.delivery_attempts_max):
        with ledger.transaction() as tx:
            failed = DeliveryResult("file", "failed", reason=NOTIFICATION_FAILED)
            record_delivery(tx, replace(slow, sends=sends), failed, limits=LIMITS)
    assert [row["state"] for row in all_rows(ledger, outbox)] == ["abandoned"]
    with ledger.transaction() as tx:
        record_delivery(tx, slow, DeliveryResult("file", "delivered", "late"), limits=LIMITS)
    (message,) = all_rows(ledger, outbox)
    assert (message["state"], message["sends"]) == ("sent", LIMITS.delivery.delivery_attempts_max)
    states = {row["kind"]: row["state"] for row in all_rows(ledger, effects)}
    assert states["notification"] == "committed"


def test_two_senders_that_raced_leave_two_deliveries_and_one_settled_message(ledger: Ledger) -> None:
    job_id = builders.a_succeeded_job(ledger).token.job_id
    with ledger.reading() as tx:
        [message] = due_messages(tx, limit=10)
    for _ in range(2):
        with ledger.transaction() as tx:
            record_delivery(tx, message, DeliveryResult("file", "delivered"), limits=LIMITS)
    assert [row["send_no"] for row in all_rows(ledger, deliveries, job_id)] == [1, 1]
    [settled] = all_rows(ledger, outbox, job_id)
    assert (settled["state"], settled["sends"]) == ("sent", 1)


@pytest.mark.requirement("R084", "R088")
def test_tasks_are_made_once_per_decision_however_often_the_success_arrives(ledger: Ledger) -> None:
    job = builders.a_succeeded_job(
        ledger, builders.an_outcome(), builders.an_outcome(Decision.REVIEW), builders.a_rejection()
    )
    job_id = job.token.job_id
    assert [consume(ledger, job_id) for _ in range(3)] == [2, 0, 0]
    tasks = {row["item_id"]: row for row in all_rows(ledger, review_tasks, job_id)}
    assert {item_id: row["state"] for item_id, row in tasks.items()} == {"r-001": "auto_cleared", "r-002": "open"}
    assert {row["decision_id"] for row in tasks.values()} == {
        item.decision_id for item in job.items if item.item_id != "r-003"
    }
    assert effect_state(ledger, job_id, "review_tasks") == "committed"
    with ledger.transaction() as tx:
        to_review = tasks["r-002"]["decision_id"]
        with pytest.raises(NotFound):
            close_review_task(tx, decision_id=to_review, tenant="umbrella", actor="robin")
        close_review_task(tx, decision_id=to_review, tenant=builders.TENANT, actor="robin")
        with pytest.raises(NotAllowed):
            close_review_task(tx, decision_id=to_review, tenant=builders.TENANT, actor="robin")
        assert due_consumption(tx, limit=10) == []


def test_consumers_at_once_make_each_task_once(ledger: Ledger) -> None:
    job_id = builders.a_succeeded_job(ledger, items=3).token.job_id
    start = threading.Barrier(THREADS)
    made: list[int] = []

    def act() -> None:
        start.wait()
        made.append(consume(ledger, job_id))

    threads = [threading.Thread(target=act) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [0] * (THREADS - 1) + [3]
    assert len(all_rows(ledger, review_tasks, job_id)) == 3


def test_only_verified_successes_that_nothing_holds_are_due(ledger: Ledger, clock: FakeClock) -> None:
    due = builders.a_succeeded_job(ledger).token.job_id
    builders.an_accepted_job(ledger)
    builders.a_claimed_job(ledger)
    divergent = builders.a_succeeded_job(ledger)
    with ledger.transaction() as tx:
        record_rejected_write(tx, divergent.token, write_kind="commit", digest="sha256:other")
        assert hold_divergent(tx, job_id=divergent.token.job_id, subject="result", limits=LIMITS)
    with ledger.reading() as tx:
        assert [row["job_id"] for row in due_consumption(tx, limit=10)] == [due]
        assert due_consumption(tx, limit=10, job_id=divergent.token.job_id) == []
    assert consume(ledger, divergent.token.job_id) == 0, "it was quarantined after its object was verified"
    assert effect_state(ledger, divergent.token.job_id, "review_tasks") == "intended"
    assert item_classes(ledger, divergent.token.job_id) == ["classified"]


def commit_effect(ledger: Ledger, job_id: str, name: str) -> None:
    if name == "tasks":
        consume(ledger, job_id)
    else:
        send(ledger, job_id, "delivered")


@pytest.mark.parametrize("last", ["tasks", "notification"])
def test_settlement_is_the_time_of_the_last_required_effect(ledger: Ledger, clock: FakeClock, last: str) -> None:
    job_id = builders.a_succeeded_job(ledger, notification=EffectDemand.REQUIRED).token.job_id
    clock.advance(1)
    commit_effect(ledger, job_id, "notification" if last == "tasks" else "tasks")
    assert job_row(ledger, job_id)["settled_at"] is None
    clock.advance(1)
    commit_effect(ledger, job_id, last)
    assert job_row(ledger, job_id)["settled_at"] == clock.now()
    clock.advance(1)
    with ledger.transaction() as tx:
        assert not finish_job_if_done(tx, job_id)
    assert event_kinds(ledger, job_id).count("settled") == 1
    assert_invariants(ledger, LIMITS)


def test_a_status_document_is_stale_until_it_shows_the_newest_event(ledger: Ledger) -> None:
    job = builders.an_accepted_job(ledger)
    other = builders.an_accepted_job(ledger)
    with ledger.transaction() as tx:
        assert stale_status_jobs(tx, limit=10) == [job.job_id, other.job_id]
        assert mark_status_shown(tx, job.job_id, seq=job.latest_seq)
        assert stale_status_jobs(tx, limit=10) == [other.job_id]
    builders.claimed(ledger, job.job_id)
    with ledger.transaction() as tx:
        assert stale_status_jobs(tx, limit=10) == [other.job_id, job.job_id]
        assert not mark_status_shown(tx, job.job_id, seq=job.latest_seq), "it moved on meanwhile"


def test_an_effect_keeps_its_idempotency_key_and_its_deadline(ledger: Ledger, clock: FakeClock) -> None:
    job_id = builders.a_succeeded_job(ledger).token.job_id
    keys = {row["kind"]: row["idempotency_key"] for row in all_rows(ledger, effects, job_id)}
    assert keys["review_tasks"] == f"{job_id}:review_tasks"
    assert keys["notification"] == f"{job_id}:notification"
    send(ledger, job_id, "failed")
    assert {row["kind"]: row["idempotency_key"] for row in all_rows(ledger, effects, job_id)} == keys
    [row] = [r for r in all_rows(ledger, effects, job_id) if r["kind"] == "notification"]
    assert row["deadline_at"] == clock.now() + dt.timedelta(seconds=LIMITS.delivery.effect_deadline_s)
