"""Delivering: each try is a row, a lost send is found again, and nothing depends on arrival."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import select

from receipt_pipeline.accounting.report import report_document
from receipt_pipeline.core.effects import EffectDemand, EffectKind
from receipt_pipeline.core.failure_points import install_plan, remove_plan
from receipt_pipeline.core.reasons import NOTIFICATION_DROPPED, NOTIFICATION_FAILED
from receipt_pipeline.drill.failure_plan import Fault, Plan, PlannedFault
from receipt_pipeline.effects.channels import FileChannel, OutgoingMessage, SendFailed
from receipt_pipeline.effects.consume import consume_due
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.effects.deliver import DeliverySummary, deliver
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema.effects import deliveries, effects, outbox
from receipt_pipeline.ledger.schema.jobs import events
from receipt_pipeline_tests.fakes.accounted_home import an_accountant
from receipt_pipeline_tests.fakes.effects_home import a_stored_success, effects_home, rows_of, the_job
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_channel import ScriptedChannel, SenderKilled

NOTIFICATION_EFFECT = select(effects.c.state).where(effects.c.kind == EffectKind.NOTIFICATION)


def a_pass(services: EffectContext, *, limit: int = 10, time_bound_s: float = 60.0) -> DeliverySummary:
    return deliver(services, limit=limit, time_bound_s=time_bound_s)


def a_message(send_no: int = 1, *, tenant: str = "acme") -> OutgoingMessage:
    return OutgoingMessage("msg_1", tenant, "job.terminal", send_no, {"job_id": "job_1"})


@pytest.mark.requirement("R073")
def test_a_success_is_notified_once_with_ids_and_digests_only(ledger: Ledger, tmp_path: Path) -> None:
    services = effects_home(ledger, tmp_path)
    job = a_stored_success(services)
    assert a_pass(services) == DeliverySummary(delivered=1)
    assert a_pass(services) == DeliverySummary()
    (path,) = (tmp_path / "outbox" / "acme" / "notifications").iterdir()
    assert path.name == f"msg_{job.job_id}.1.json"
    written = json.loads(path.read_text())
    assert written["message_id"] == f"msg_{job.job_id}"
    assert set(written["payload"]) == {"job_id", "state", "terminal_class", "reason", "result_digest", "terminal_at"}
    (row,) = rows_of(services, select(deliveries))
    assert (row["outcome"], row["channel"], row["late"]) == ("delivered", "file", False)
    assert (tmp_path / "outbox" / row["reference"]).samefile(path)
    assert rows_of(services, NOTIFICATION_EFFECT) == [{"state": "committed"}]


@pytest.mark.requirement("R102", "R121")
def test_a_message_dropped_beyond_its_bound_leaves_the_job_succeeded(
    ledger: Ledger, tmp_path: Path, clock: FakeClock
) -> None:
    channel = ScriptedChannel(script=["lose"] * 9)
    services = effects_home(ledger, tmp_path, channel=channel)
    job = a_stored_success(services)
    for _ in range(5):
        a_pass(services)
        clock.advance(600)
    rows = rows_of(services, select(deliveries).order_by(deliveries.c.send_no))
    assert [(row["send_no"], row["outcome"]) for row in rows] == [(n, "dropped") for n in (1, 2, 3)]
    assert {row["reason_code"] for row in rows} == {NOTIFICATION_DROPPED.code} == {"NOTIFICATION.DROPPED.v1"}
    assert channel.sends == services.limits.delivery.delivery_attempts_max
    assert rows_of(services, select(outbox.c.state)) == [{"state": "abandoned"}]
    assert rows_of(services, NOTIFICATION_EFFECT) == [{"state": "failed"}]
    assert the_job(services, job.job_id).state == "succeeded"
    document = report_document(an_accountant(services, tmp_path))
    assert (document["succeeded"], document["failed"]) == (1, 0)
    assert document["notifications"] == {"delivered": 0, "dropped": 1, "late": 0, "duplicate": 0}


def test_a_dropped_message_is_due_again_only_after_its_pause(ledger: Ledger, tmp_path: Path, clock: FakeClock) -> None:
    services = effects_home(ledger, tmp_path, channel=ScriptedChannel(script=["lose"]))
    a_stored_success(services)
    assert a_pass(services) == DeliverySummary(dropped=1)
    assert a_pass(services) == DeliverySummary()
    clock.advance(services.limits.delivery.delivery_retry_s)
    assert a_pass(services) == DeliverySummary(delivered=1)


@pytest.mark.requirement("R093")
def test_a_sender_killed_before_its_row_sends_nothing_twice(ledger: Ledger, tmp_path: Path) -> None:
    channel = ScriptedChannel(script=["die"])
    services = effects_home(ledger, tmp_path, channel=channel)
    a_stored_success(services)
    with pytest.raises(SenderKilled):
        a_pass(services)
    assert rows_of(services, select(deliveries)) == []
    assert a_pass(services) == DeliverySummary(delivered=1)
    assert channel.sends == 1
    assert [row["outcome"] for row in rows_of(services, select(deliveries))] == ["delivered"]


def test_a_refused_send_is_recorded_as_failed_and_tried_again(ledger: Ledger, tmp_path: Path, clock: FakeClock) -> None:
    services = effects_home(ledger, tmp_path, channel=ScriptedChannel(script=["refuse"]))
    a_stored_success(services)
    assert a_pass(services) == DeliverySummary(failed=1)
    clock.advance(60)
    assert a_pass(services) == DeliverySummary(delivered=1)
    rows = rows_of(services, select(deliveries).order_by(deliveries.c.send_no))
    assert [row["reason_code"] for row in rows] == [NOTIFICATION_FAILED.code, ""]
    assert NOTIFICATION_FAILED.code == "NOTIFICATION.FAILED.v1"


def test_a_delivery_past_the_effects_deadline_counts_as_late(ledger: Ledger, tmp_path: Path, clock: FakeClock) -> None:
    services = effects_home(ledger, tmp_path)
    a_stored_success(services)
    clock.advance(services.limits.delivery.effect_deadline_s + 1)
    a_pass(services)
    assert [row["late"] for row in rows_of(services, select(deliveries))] == [True]


@pytest.mark.requirement("R151")
def test_creation_delivery_consumption_and_settlement_are_separate_evidence(ledger: Ledger, tmp_path: Path) -> None:
    services = effects_home(ledger, tmp_path)
    job = a_stored_success(services)
    a_pass(services)
    consume_due(services, limit=10, time_bound_s=60)
    kinds = [
        row["kind"]
        for row in rows_of(services, select(events.c.kind).where(events.c.job_id == job.job_id).order_by(events.c.seq))
    ]
    trail = [kind for kind in kinds if kind in ("message_created", "delivery", "consumed", "settled")]
    assert trail == ["message_created", "delivery", "settled", "consumed"]


def test_a_failure_plan_can_lose_one_message(ledger: Ledger, tmp_path: Path) -> None:
    services = effects_home(ledger, tmp_path)
    first, second = a_stored_success(services), a_stored_success(services)
    install_plan(Plan((PlannedFault("outbox_send.drop", Fault.ALTER),)))
    try:
        summary = a_pass(services)
    finally:
        remove_plan()
    assert summary == DeliverySummary(delivered=1, dropped=1)
    rows = rows_of(services, select(deliveries.c.job_id, deliveries.c.outcome))
    assert {row["job_id"]: row["outcome"] for row in rows} == {first.job_id: "dropped", second.job_id: "delivered"}


@pytest.mark.parametrize(("side", "expected"), [("before", "failed"), ("after", "delivered")])
def test_a_fault_around_the_send_is_settled_by_asking_the_channel(
    ledger: Ledger, tmp_path: Path, side: str, expected: str
) -> None:
    services = effects_home(ledger, tmp_path)
    a_stored_success(services)
    install_plan(Plan((PlannedFault(f"outbox_send.{side}", Fault.ERROR),)))
    try:
        a_pass(services)
    finally:
        remove_plan()
    assert [row["outcome"] for row in rows_of(services, select(deliveries))] == [expected]


def test_one_pass_ends_at_its_time_bound_and_says_what_is_left(ledger: Ledger, tmp_path: Path) -> None:
    services = effects_home(ledger, tmp_path)
    for _ in range(3):
        a_stored_success(services)
    assert a_pass(services, time_bound_s=0) == DeliverySummary(delivered=1, left=2)


def test_a_job_that_wants_no_notification_has_no_message(ledger: Ledger, tmp_path: Path) -> None:
    services = effects_home(ledger, tmp_path)
    a_stored_success(services, notification=EffectDemand.NONE)
    assert a_pass(services) == DeliverySummary()


def test_a_tenants_name_cannot_lead_out_of_the_outbox(tmp_path: Path) -> None:
    channel = FileChannel(tmp_path / "outbox")
    for tenant in ("..", "../x", "a/b", ".hidden"):
        channel.send(a_message(tenant=tenant))
        reference = channel.lookup(a_message(tenant=tenant))
        assert reference is not None
        assert (tmp_path / "outbox" / reference).resolve().is_relative_to(tmp_path / "outbox")
    assert [path.name for path in tmp_path.iterdir()] == ["outbox"]


def test_a_repeat_is_found_under_the_same_message_id(tmp_path: Path) -> None:
    channel = FileChannel(tmp_path)
    assert channel.lookup(a_message(3)) is None
    channel.send(a_message(1))
    assert channel.lookup(a_message(3)) == "acme/notifications/msg_1.1.json"
    channel.send(a_message(2))
    assert channel.lookup(a_message(3)) == "acme/notifications/msg_1.2.json"


def test_a_folder_that_cannot_be_written_refuses_by_reason(tmp_path: Path) -> None:
    (tmp_path / "acme").write_text("a file where the folder should be")
    with pytest.raises(SendFailed) as refused:
        FileChannel(tmp_path).send(a_message())
    assert refused.value.reason is NOTIFICATION_FAILED
    assert list(tmp_path.rglob("*.part")) == []
