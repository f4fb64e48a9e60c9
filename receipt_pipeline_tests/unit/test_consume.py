"""Consuming: verified successes make one task per decision, whatever arrives, how often, in what order."""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.effects import EffectDemand, EffectKind
from receipt_pipeline.core.errors import InputRefused, ObjectFault
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.pins import decision_id
from receipt_pipeline.core.reasons import EVENT_CONFLICT, EVENT_LATE, OBJECT_UNREADABLE
from receipt_pipeline.effects.consume import EventOutcome, consume_due, receive_event
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.expire import expire_job
from receipt_pipeline.ledger.schema.effects import (
    consumed,
    deliveries,
    effects,
    investigations,
    quarantine,
    review_tasks,
)
from receipt_pipeline.ledger.schema.jobs import events, items
from receipt_pipeline_tests.builders import (
    LIMITS,
    a_claimed_job,
    a_rejection,
    an_accepted_job,
    an_outcome,
    finish_items,
)
from receipt_pipeline_tests.fakes.effects_home import a_stored_success, an_event, effects_home, rows_of, the_job
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_channel import ScriptedChannel

OTHER_DIGEST = digest_of_bytes(b"another output")


def consume(services: EffectContext, **given: Any) -> dict[str, int]:
    return dict(consume_due(services, limit=given.pop("limit", 10), time_bound_s=60, **given).outcomes)


def send(services: EffectContext) -> None:
    deliver(services, limit=10, time_bound_s=60)


def tasks(services: EffectContext) -> list[dict[str, Any]]:
    return rows_of(services, select(review_tasks).order_by(review_tasks.c.job_id, review_tasks.c.ordinal))


def outcomes(services: EffectContext) -> list[str]:
    query = select(consumed.c.outcome).order_by(consumed.c.consumed_id)
    return [row["outcome"] for row in rows_of(services, query)]


@pytest.mark.requirement("R083", "R087")
def test_every_decision_of_a_verified_success_is_one_task_under_its_decision_id(services: EffectContext) -> None:
    job = a_stored_success(services, an_outcome(), an_outcome(Decision.REVIEW), a_rejection())
    send(services)
    assert consume(services) == {"acted": 1}
    made = tasks(services)
    assert [row["decision_id"] for row in made] == [
        decision_id(job_id=job.job_id, item_id=item_id, pins=job.pins) for item_id in ("r-001", "r-002")
    ]
    assert [(row["decision"], row["state"]) for row in made] == [("clear", "auto_cleared"), ("review", "open")]
    assert the_job(services, job.job_id).settled_at is not None


@pytest.mark.requirement("R084", "R088")
def test_the_same_success_delivered_twice_makes_one_task_and_is_counted(services: EffectContext) -> None:
    job = a_stored_success(services)
    first = receive_event(services, an_event(job, "ev-1"), source="notification")
    second = receive_event(services, an_event(job, "ev-2"), source="notification")
    assert (first.outcome, first.tasks_made) == (EventOutcome.ACTED, 1)
    assert (second.outcome, second.tasks_made) == (EventOutcome.DUPLICATE, 0)
    assert len(tasks(services)) == 1
    assert outcomes(services) == ["acted", "duplicate"]


@pytest.mark.requirement("R074", "R079")
def test_a_dropped_notification_is_made_up_for_by_polling_the_ledger(
    ledger: Ledger, tmp_path: Path, clock: FakeClock
) -> None:
    services = effects_home(ledger, tmp_path, channel=ScriptedChannel(script=["lose"]))
    job = a_stored_success(services)
    send(services)
    assert [row["outcome"] for row in rows_of(services, select(deliveries))] == ["dropped"]
    assert consume(services) == {"acted": 1}
    assert len(tasks(services)) == 1
    # The repeat that does arrive later tells nothing new; the one after it is a repeat.
    clock.advance(60)
    send(services)
    assert consume(services) == {"noted": 1}
    assert receive_event(services, an_event(job, "again"), source="notification").outcome == "duplicate"
    assert len(tasks(services)) == 1


@pytest.mark.requirement("R082")
@pytest.mark.parametrize("damage", ["gone", "altered", "longer"])
def test_a_notification_of_a_result_that_cannot_be_verified_is_not_acted_upon(
    services: EffectContext, damage: str
) -> None:
    job = a_stored_success(services)
    data = services.objects.read(job.result_key)
    services.objects.delete(job.result_key)
    if damage != "gone":
        services.objects.put(job.result_key, b"RESULT" if damage == "altered" else data + b"more")
    send(services)
    assert consume(services) == {"unverified": 1}
    assert tasks(services) == []
    assert consume(services) == {"unverified": 1}  # Looked at again, and not written down again.
    assert outcomes(services) == ["unverified", "unverified"]
    services.objects.put(job.result_key, data)
    assert consume(services) == {"acted": 1}
    assert len(tasks(services)) == 1


class UnreadableObjects:
    """A store that answers nothing."""

    def digest(self, key: str) -> tuple[str, int] | None:
        raise ObjectFault(OBJECT_UNREADABLE, key=key)


def test_a_store_that_is_away_leaves_the_decision_due(services: EffectContext) -> None:
    job = a_stored_success(services)
    away = dataclasses.replace(services, objects=UnreadableObjects())  # type: ignore[arg-type]
    assert consume(away) == {"unverified": 1}
    (row,) = rows_of(services, select(consumed))
    assert row["reason_code"] == OBJECT_UNREADABLE.code == "OBJECT.UNREADABLE.v1"
    query = select(effects.c.state).where(effects.c.kind == EffectKind.REVIEW_TASKS)
    assert rows_of(services, query) == [{"state": "intended"}]
    assert consume(services) == {"acted": 1}
    assert the_job(services, job.job_id).settled_at is not None


def test_results_that_stay_unreadable_do_not_keep_others_waiting(services: EffectContext, clock: FakeClock) -> None:
    for _ in range(3):
        job = a_stored_success(services)
        services.objects.delete(job.result_key)
        clock.advance(1)
    consume(services, limit=3)
    a_stored_success(services)
    assert consume(services, limit=1) == {"acted": 1}


@pytest.mark.requirement("R085")
def test_another_result_under_the_same_job_is_quarantined_and_the_first_tasks_disputed(services: EffectContext) -> None:
    job = a_stored_success(services)
    receive_event(services, an_event(job, "ev-1"), source="notification")
    before = tasks(services)
    taken = receive_event(services, an_event(job, "ev-2", result_digest=OTHER_DIGEST), source="notification")
    assert taken.outcome is EventOutcome.CONFLICT
    (held,) = rows_of(services, select(quarantine))
    assert {entry["digest"] for entry in held["digests"]} == {job.result_digest, OTHER_DIGEST}
    (question,) = rows_of(services, select(investigations))
    assert (question["kind"], question["job_id"]) == ("divergent_output", job.job_id)
    after = tasks(services)
    assert [row | {"disputed": False} for row in after] == before
    assert [row["disputed"] for row in after] == [True]
    reasons = [row["reason_code"] for row in rows_of(services, select(consumed.c.reason_code))]
    assert reasons == ["", EVENT_CONFLICT.code]
    assert EVENT_CONFLICT.code == "EVENT.CONFLICT.v1"


def test_a_quarantined_job_gets_no_tasks(services: EffectContext) -> None:
    job = a_stored_success(services)
    receive_event(services, an_event(job, "ev-1", result_digest=OTHER_DIGEST), source="notification")
    assert receive_event(services, an_event(job, "ev-2"), source="notification").outcome == "held"
    send(services)
    assert consume(services) == {"held": 1}
    assert tasks(services) == []


@pytest.mark.requirement("R054")
def test_a_success_event_after_expiry_is_recorded_as_late_and_changes_nothing(
    services: EffectContext, clock: FakeClock
) -> None:
    job = an_accepted_job(services.ledger)
    clock.set(job.queue_deadline)
    clock.advance(1)
    with services.ledger.transaction() as tx:
        assert expire_job(tx, job_id=job.job_id, limits=LIMITS)
    before = the_job(services, job.job_id)
    event = an_event(job, "ev-1", result_digest=OTHER_DIGEST)
    assert receive_event(services, event, source="notification").outcome is EventOutcome.LATE
    after = the_job(services, job.job_id)
    assert replace(after, latest_seq=0) == replace(before, latest_seq=0)
    assert (tasks(services), rows_of(services, select(quarantine))) == ([], [])
    (row,) = rows_of(services, select(consumed))
    assert row["reason_code"] == EVENT_LATE.code == "EVENT.LATE.v1"


def test_a_success_that_the_ledger_does_not_know_is_not_believed(services: EffectContext) -> None:
    job = a_claimed_job(services.ledger)
    finish_items(services.ledger, job)
    event = an_event(job.job, "ev-1", result_digest=OTHER_DIGEST)
    assert receive_event(services, event, source="notification").outcome is EventOutcome.UNVERIFIED
    assert tasks(services) == []
    assert the_job(services, job.token.job_id).state == "running"


def test_events_out_of_order_leave_the_state_to_the_ledger(services: EffectContext) -> None:
    job = a_stored_success(services)
    told = [
        receive_event(services, an_event(job, f"ev-{n}", state=state, result_digest=None), source="poll-api")
        for n, state in enumerate(["accepted", "succeeded", "running", "running", "failed"])
    ]
    assert [taken.outcome.value for taken in told] == ["late", "acted", "late", "late", "late"]
    assert the_job(services, job.job_id).state == "succeeded"


def test_an_event_of_an_unknown_job_is_recorded_and_harms_nothing(services: EffectContext) -> None:
    event = {"event_id": "ev-1", "job_id": "job_unknown", "state": "succeeded"}
    assert receive_event(services, event, source="notification").outcome is EventOutcome.UNKNOWN
    assert outcomes(services) == ["unknown"]


@pytest.mark.parametrize(
    ("spoilt", "pointer", "code"),
    [
        ({"event_id": None}, "/event_id", "FIELD.MISSING.v1"),
        ({"job_id": 7}, "/job_id", "FIELD.INVALID.v1"),
        ({"job_id": "x" * 201}, "/job_id", "FIELD.INVALID.v1"),
        ({"state": "done"}, "/state", "FIELD.INVALID.v1"),
        ({"result_digest": "abc"}, "/result_digest", "FIELD.INVALID.v1"),
    ],
)
def test_what_is_no_event_is_refused_by_name_and_not_recorded(
    services: EffectContext, spoilt: dict[str, Any], pointer: str, code: str
) -> None:
    event = {"event_id": "ev-1", "job_id": "job_1", "state": "succeeded"} | spoilt
    with pytest.raises(InputRefused) as refused:
        receive_event(services, event, source="notification")
    assert (refused.value.pointer, refused.value.reason.code) == (pointer, code)
    assert outcomes(services) == []


def test_the_same_event_again_is_a_duplicate_but_a_changed_result_under_its_id_a_conflict(
    services: EffectContext,
) -> None:
    job = a_stored_success(services)
    for expected in ("acted", "duplicate"):
        assert receive_event(services, an_event(job, "ev-1"), source="notification").outcome == expected
    changed = an_event(job, "ev-1", result_digest=OTHER_DIGEST)
    assert receive_event(services, changed, source="notification").outcome is EventOutcome.CONFLICT
    late = an_event(job, "ev-2", state="running", result_digest=None)
    told = [receive_event(services, late, source="notification").outcome.value for _ in range(2)]
    assert told == ["late", "duplicate"]


def test_two_consumers_at_once_make_one_task_and_count_no_duplicate(services: EffectContext) -> None:
    a_stored_success(services)
    send(services)
    start = threading.Barrier(2)

    def work() -> dict[str, int]:
        start.wait(timeout=30)
        return consume(services)

    with ThreadPoolExecutor(2) as pool:
        told = [future.result() for future in [pool.submit(work) for _ in range(2)]]
    assert sorted(sum(counts.values()) for counts in told) in ([0, 1], [1, 1])
    assert len(tasks(services)) == 1
    assert outcomes(services) == ["acted"]


def test_a_job_that_wants_no_tasks_gets_none(services: EffectContext) -> None:
    a_stored_success(services, review_tasks=EffectDemand.NONE)
    send(services)
    assert consume(services) == {"noted": 1}
    assert tasks(services) == []


def test_a_pass_for_one_job_leaves_the_others_alone(services: EffectContext) -> None:
    first, second = a_stored_success(services), a_stored_success(services)
    send(services)
    assert consume(services, job_id=second.job_id) == {"acted": 1}
    assert {row["job_id"] for row in tasks(services)} == {second.job_id}
    assert consume(services) == {"acted": 1}
    assert {row["job_id"] for row in tasks(services)} == {first.job_id, second.job_id}


def test_a_pass_over_consumed_work_does_nothing(services: EffectContext) -> None:
    a_stored_success(services)
    send(services)
    consume(services)
    before = rows_of(services, select(func.count()).select_from(events))
    assert consume(services) == {}
    assert rows_of(services, select(func.count()).select_from(events)) == before


@pytest.mark.requirement("R087")
def test_tasks_and_decisions_of_verified_successes_are_the_same_set(services: EffectContext) -> None:
    for job_items in ([an_outcome()], [an_outcome(Decision.REVIEW), an_outcome()], [a_rejection(), an_outcome()]):
        a_stored_success(services, *job_items)
    an_accepted_job(services.ledger)
    finish_items(services.ledger, a_claimed_job(services.ledger))
    for _ in range(3):
        send(services)
        consume(services)
    succeeded = rows_of(
        services,
        select(items.c.decision_id)
        .where(items.c.item_class == "classified")
        .where(items.c.job_id.in_(select(effects.c.job_id).where(effects.c.kind == EffectKind.REVIEW_TASKS))),
    )
    assert sorted(row["decision_id"] for row in tasks(services)) == sorted(row["decision_id"] for row in succeeded)
