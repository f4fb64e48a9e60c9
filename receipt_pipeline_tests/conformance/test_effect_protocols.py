"""Every effect of the protocol table, killed at every side of its call: one effect, or one owned question."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from receipt_pipeline.core.alerts import AlertKind
from receipt_pipeline.core.effects import (
    EFFECT_PROTOCOLS,
    WHEN_UNKNOWN,
    Capability,
    EffectDemand,
    EffectKind,
    EffectProtocol,
    WhenUnknown,
)
from receipt_pipeline.effects.alerts import deliver_alerts
from receipt_pipeline.ledger.effects.alerts import AlertFinding, link_alerts, raise_alert
from receipt_pipeline.ledger.schema import effects as effect_tables
from receipt_pipeline.reconciliation.repair import decide_investigation, reconcile, reconcile_ledger
from receipt_pipeline.reconciliation.take_over import take_over_expired_leases
from receipt_pipeline_tests.builders import TENANT
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench, assert_nothing_left
from receipt_pipeline_tests.fakes.scripted_channel import ScriptedChannel, SenderKilled
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S, ActingPlan

SIDES = ("before the call", "after the call")
CASES = [
    pytest.param(protocol, capability, side, id=f"{protocol.kind}-{capability}-{side}".replace(" ", "_"))
    for protocol in EFFECT_PROTOCOLS
    for capability in protocol.capabilities
    for side in SIDES
]


class Killed(BaseException):
    """Ends a pass where a crash would."""


def die() -> None:
    raise Killed


def effect_of(house: ReconcileBench, job_id: str, kind: EffectKind) -> dict[str, Any]:
    [row] = house.bench.effects(job_id, kind)
    return row


def upload(house: ReconcileBench, capability: Capability, side: str) -> None:
    job_id = house.bench.accept(key="upload", items=2)
    place = "upload.before" if side == SIDES[0] else "upload.after"
    with pytest.raises(Killed), ActingPlan({place: die}):
        house.bench.work(job_id)
    stored = house.bench.stored_results(job_id)
    assert house.bench.job(job_id)["state"] == "running", "no answered call closes a job (R091)"
    house.clock.advance(PAST_RETRY_S)
    take_over_expired_leases(house.services)
    house.bench.work_until_closed(job_id)
    job, rows = house.bench.job(job_id), house.bench.effects(job_id)
    assert [row["state"] for row in rows].count("committed") == 1
    assert {row["expected_digest"] for row in rows} == {job["result_digest"]}
    assert house.bench.stored_results(job_id) == [job["result_key"]]
    if stored:
        assert stored == [job["result_key"]], "what the first attempt stored is published, not put again"
        assert house.bench.objects.puts == stored


def make_tasks(house: ReconcileBench, capability: Capability, side: str) -> None:
    job_id = house.succeeded(key="tasks")["job_id"]
    place = "consume.before" if side == SIDES[0] else "consume.after"
    with pytest.raises(Killed), ActingPlan({place: die}):
        house.finish_effects()
    house.finish_effects()
    tasks = house.bench.rows(effect_tables.review_tasks, job_id)
    assert {row["decision_id"] for row in tasks} == {i["decision_id"] for i in house.bench.items(job_id)}
    assert len(tasks) == 2
    assert effect_of(house, job_id, EffectKind.REVIEW_TASKS)["state"] == "committed"


def notify(house: ReconcileBench, capability: Capability, side: str) -> None:
    word = "die_first" if side == SIDES[0] else "die"
    channel = house.channel = ScriptedChannel(script=[word], capability=capability)
    job_id = house.succeeded(key="notify")["job_id"]
    with pytest.raises(SenderKilled):
        house.finish_effects()
    if capability is not Capability.LOOKUP:
        house.finish_effects()
        assert channel.sends == 1, "a message that is being sent is nobody else's"
        house.clock.advance(house.limits.delivery.send_ttl_s)
    house.finish_effects()
    arrived = [message.message_id for message in channel.arrived]
    assert set(arrived) <= {f"msg_{job_id}"}, "the key is the same on every attempt (R090)"
    state = effect_of(house, job_id, EffectKind.NOTIFICATION)["state"]
    if WHEN_UNKNOWN[capability] is WhenUnknown.LOOK_UP:
        assert (state, len(arrived)) == ("committed", 1)
    elif WHEN_UNKNOWN[capability] is WhenUnknown.REPEAT_WITH_KEY:
        assert (state, channel.sends) == ("committed", 2)
    else:
        assert (state, channel.sends) == ("unknown", 1)
        assert_owned_and_never_repeated(house, channel, job_id)


def assert_owned_and_never_repeated(house: ReconcileBench, channel: ScriptedChannel, job_id: str) -> None:
    [question] = [row for row in house.investigations() if row["kind"] == "unknown_effect"]
    assert question["owner"] in house.limits.staffing.principals
    assert (question["job_id"], question["reason_code"]) == (job_id, "NOTIFICATION.UNKNOWN.v1")
    assert question["suspected_effect"]
    assert question["allowed_repair"]
    assert question["last_safe_checkpoint"] == 2
    reconcile_ledger(house.services, granted=True)
    house.clock.advance(house.limits.delivery.effect_deadline_s + 1)
    house.finish_effects()
    assert channel.sends == 1
    assert [row["kind"] for row in house.investigations()] == ["unknown_effect"]
    decide_investigation(house.services, question["investigation_id"], note="they have it", actor="operations")
    assert reconcile_ledger(house.services).messages_settled == (f"msg_{job_id}",)
    assert effect_of(house, job_id, EffectKind.NOTIFICATION)["state"] == "abandoned"
    assert channel.sends == 1


def show_status(house: ReconcileBench, capability: Capability, side: str) -> None:
    from receipt_pipeline.durable_files import status_path
    from receipt_pipeline.effects.status_documents import restore_status_documents, send_status_documents

    job = house.finished(key="status")
    send_status_documents(house.effects, limit=10)
    path = status_path(house.effects.outbox_root, tenant=job["tenant"], job_id=job["job_id"])
    first = path.read_text()
    if side == SIDES[0]:
        path.unlink()
        assert restore_status_documents(house.effects, limit=10, recent_s=60) == 1
    else:
        house.edit("UPDATE jobs SET status_shown_seq = 0 WHERE job_id = :job", job=job["job_id"])
        assert send_status_documents(house.effects, limit=10) == 1
    assert path.read_text() == first


def publish_report(house: ReconcileBench, capability: Capability, side: str) -> None:
    from receipt_pipeline.accounting.publish import publish_report as publish
    from receipt_pipeline.accounting.query import read_published
    from receipt_pipeline_tests.fakes.accounted_home import an_accountant

    house.finished(key="report")
    accountant = an_accountant(house.effects, house.folder)
    place = "publish_report.before" if side == SIDES[0] else "publish_report.after"
    with pytest.raises(Killed), ActingPlan({place: die}):
        publish(accountant)
    published = publish(accountant)
    assert read_published(accountant)["seq"] == published.seq
    assert [path.name for path in accountant.report_root.glob("*.duckdb")] == [accountant.published.name]


DRIVERS: dict[EffectKind, Callable[[ReconcileBench, Capability, str], None]] = {
    EffectKind.RESULT_OBJECT: upload,
    EffectKind.REVIEW_TASKS: make_tasks,
    EffectKind.NOTIFICATION: notify,
    EffectKind.STATUS_DOCUMENT: show_status,
    EffectKind.REPORT_PUBLICATION: publish_report,
}


@pytest.mark.requirement("R090", "R091", "R094", "R095", "R104")
@pytest.mark.parametrize(("protocol", "capability", "side"), CASES)
def test_a_crash_on_either_side_of_the_call_leaves_one_effect_or_one_owned_question(
    house: ReconcileBench, protocol: EffectProtocol, capability: Capability, side: str
) -> None:
    DRIVERS[protocol.kind](house, capability, side)
    reconcile(house.services)
    assert_nothing_left(house)


@pytest.mark.requirement("R095")
def test_every_protocol_of_the_table_is_driven() -> None:
    assert set(DRIVERS) == {protocol.kind for protocol in EFFECT_PROTOCOLS} == set(EffectKind)
    assert set(WHEN_UNKNOWN) == set(Capability)


@pytest.mark.requirement("R094", "R104")
@pytest.mark.parametrize("word", ["vanish", "hide"])
@pytest.mark.parametrize("capability", list(Capability))
def test_a_call_without_an_answer_is_followed_up_by_what_the_channel_can_do(
    house: ReconcileBench, capability: Capability, word: str
) -> None:
    channel = house.channel = ScriptedChannel(script=[word], capability=capability)
    job_id = house.succeeded(key="silent", notification=EffectDemand.REQUIRED)["job_id"]
    house.finish_effects()
    arrived = len(channel.arrived)
    house.clock.advance(house.limits.delivery.delivery_retry_s)
    house.finish_effects()
    state = effect_of(house, job_id, EffectKind.NOTIFICATION)["state"]
    if capability is Capability.NEITHER:
        assert (state, channel.sends, len(channel.arrived)) == ("unknown", 1, arrived)
        assert house.bench.job(job_id)["settled_at"] is None
        assert_owned_and_never_repeated_though_required(house, job_id)
        return
    assert state == "committed"
    assert channel.sends == (1 if capability is Capability.LOOKUP and arrived else 2)
    assert {message.message_id for message in channel.arrived} == {f"msg_{job_id}"}
    outcomes = [row["outcome"] for row in house.bench.rows(effect_tables.deliveries, job_id)]
    assert outcomes[-1] == "delivered"
    assert house.bench.job(job_id)["settled_at"] is not None


def assert_owned_and_never_repeated_though_required(house: ReconcileBench, job_id: str) -> None:
    house.clock.advance(house.limits.delivery.effect_deadline_s + 1)
    assert not house.check("effects_have_no_gaps").passed
    [question] = [row for row in house.investigations() if row["kind"] == "unknown_effect"]
    decide_investigation(house.services, question["investigation_id"], note="not there", actor="operations")
    reconcile_ledger(house.services)
    assert house.check("effects_have_no_gaps").passed
    assert house.bench.job(job_id)["settled_at"] is not None


@pytest.mark.parametrize("capability", list(Capability))
def test_an_alert_leaves_over_every_channel_and_only_one_that_can_be_asked_is_asked(
    house: ReconcileBench, capability: Capability
) -> None:
    channel = house.channel = ScriptedChannel(capability=capability)
    with house.ledger.transaction() as tx:
        link_alerts(tx, AlertKind.TEST, channel=channel.name, linked_by="operations")
        raise_alert(tx, AlertFinding(AlertKind.TEST, "asked for", None, {}))
    assert deliver_alerts(house.effects, tenant=TENANT, limit=10) == {"delivered": 1, "failed": 0}
    assert deliver_alerts(house.effects, tenant=TENANT, limit=10) == {"delivered": 0, "failed": 0}
    assert channel.sends == 1


@pytest.mark.requirement("R104")
def test_while_a_channel_cannot_be_asked_nothing_is_sent_again(house: ReconcileBench) -> None:
    channel = house.channel = ScriptedChannel(script=["hide"], blind_lookups=0)
    job_id = house.succeeded(key="blind")["job_id"]
    channel.blind_lookups = 10
    for _ in range(5):
        house.finish_effects()
        house.clock.advance(house.limits.delivery.delivery_retry_s * 10)
    assert channel.sends == 0, "without an answer before the first call there is no call either"
    assert effect_of(house, job_id, EffectKind.NOTIFICATION)["state"] == "unknown"
    [question] = house.investigations()
    assert (question["kind"], question["subject"]) == ("unknown_effect", f"{job_id}:notification")
    [message] = house.bench.messages(job_id)
    assert (message["state"], message["sends"]) == ("unknown", house.limits.delivery.delivery_attempts_max)

    channel.blind_lookups = 0
    channel.arrived.append(arrived_before(house, job_id))
    house.clock.advance(house.limits.work.retry_cap_s)
    house.finish_effects()
    assert effect_of(house, job_id, EffectKind.NOTIFICATION)["state"] == "committed"
    reconcile_ledger(house.services)
    assert house.investigations() == []


def arrived_before(house: ReconcileBench, job_id: str) -> Any:
    from receipt_pipeline.effects.channels import OutgoingMessage

    [row] = house.bench.messages(job_id)
    return OutgoingMessage(row["message_id"], row["tenant"], row["kind"], 1, row["payload"])


@pytest.mark.requirement("R104")
def test_an_unknown_message_that_certainly_never_arrived_is_given_up_and_its_question_heals(
    house: ReconcileBench,
) -> None:
    channel = house.channel = ScriptedChannel(blind_lookups=house.limits.delivery.delivery_attempts_max)
    job_id = house.succeeded(key="absent")["job_id"]
    for _ in range(house.limits.delivery.delivery_attempts_max):
        house.finish_effects()
        house.clock.advance(house.limits.delivery.delivery_retry_s * 10)
    assert effect_of(house, job_id, EffectKind.NOTIFICATION)["state"] == "unknown"
    house.clock.advance(house.limits.work.retry_cap_s)
    house.finish_effects()
    assert (effect_of(house, job_id, EffectKind.NOTIFICATION)["state"], channel.sends) == ("failed", 0)
    reconcile_ledger(house.services)
    assert house.investigations() == []
    assert house.bench.job(job_id)["state"] == "succeeded"
    assert len(house.bench.rows(effect_tables.deliveries, job_id)) == channel_tries(house, job_id)


def channel_tries(house: ReconcileBench, job_id: str) -> int:
    with house.ledger.reading() as tx:
        return int(tx.scalar(select(effect_tables.outbox.c.sends).where(effect_tables.outbox.c.job_id == job_id)))
