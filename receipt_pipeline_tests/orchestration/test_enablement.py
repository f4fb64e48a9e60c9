"""A submitter starts small, and gets more only while capacity and queue age are watched."""

from __future__ import annotations

import json
from typing import Any

import pytest

from receipt_pipeline.app import admin, maintenance, operator, submitter
from receipt_pipeline.app.admin import FIRST_QUOTA_ITEMS
from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline_tests.builders import CALLER, TENANT
from receipt_pipeline_tests.intake_home import as_bytes, job_document
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome


def told(home: OpenedHome) -> list[dict[str, Any]]:
    folder = home.app.settings.outbox / home.app.settings.tenant / "notifications"
    documents = [json.loads(path.read_text()) for path in sorted(folder.glob("alert_*.json"))]
    return [document["payload"] for document in documents]


def refused(home: OpenedHome, quota: int) -> list[str]:
    with pytest.raises(NotAllowed) as error:
        admin.change_quota(home.app, home.principal, CALLER, quota_items=quota)
    assert error.value.reason.code == "QUOTA.NOT_RAISED.v1"
    missing = error.value.facts["missing"]
    assert isinstance(missing, list)
    return [str(line) for line in missing]


@pytest.mark.requirement("R144")
def test_more_is_refused_until_both_alerts_leave_over_a_channel_that_was_tried_within_a_day(opened: OpenedHome) -> None:
    services = opened.app
    assert admin.add_submitter(services, services.principal(), CALLER)["quota_items"] == FIRST_QUOTA_ITEMS
    more = FIRST_QUOTA_ITEMS * 10
    assert [line.partition(":")[0] for line in refused(opened, more)] == [
        "link capacity to a channel",
        "link queue_age to a channel",
    ]
    operator.link_alerts(services, services.principal(), "capacity", channel="file")
    assert [line.partition(":")[0] for line in refused(opened, more)] == [
        "link queue_age to a channel",
        "deliver a test alert through file",
    ]
    operator.link_alerts(services, services.principal(), "queue_age", channel="file")
    assert operator.test_alerts(services, services.principal()) | {"alert_id": ""} == {
        "alert_id": "",
        "delivered": 1,
        "failed": 0,
    }
    assert admin.change_quota(services, services.principal(), CALLER, quota_items=more)["quota_items"] == more
    assert [document["kind"] for document in told(opened)] == ["test"]

    opened.clock.advance(services.settings.alert_thresholds().test_valid_s + 1)
    assert refused(opened, more * 2) == ["deliver a test alert through file: receipts alerts test"]
    assert admin.change_quota(services, services.principal(), CALLER, quota_items=5)["quota_items"] == 5


@pytest.mark.requirement("R144")
def test_more_is_refused_while_the_queue_is_too_old_already(opened: OpenedHome) -> None:
    services = opened.app
    admin.add_submitter(services, services.principal(), CALLER)
    operator.link_alerts(services, services.principal(), "all", channel="file")
    operator.test_alerts(services, services.principal())
    opened.submit("waiting")
    opened.clock.advance(services.settings.alert_thresholds().queue_age_s + 1)
    assert "wait until the alert queue_age is resolved" in refused(opened, FIRST_QUOTA_ITEMS + 1)
    assert {"queue_age", "test"} <= {document["kind"] for document in told(opened)}


def test_a_quota_holds_at_acceptance_and_is_free_again_when_jobs_close(opened: OpenedHome) -> None:
    services = opened.app
    caller = services.settings.caller
    admin.add_submitter(services, services.principal(), caller)
    admin.change_quota(services, services.principal(), caller, quota_items=1)
    first = opened.submit("first")
    place = services.settings.inbox / TENANT
    (place / "second.json").write_bytes(as_bytes(job_document(place, key="second")))
    (answer,) = submitter.submit(
        services, services.principal(), [place / "second.json"], key=None, new=False, release=None
    )
    assert answer["lines"][0]["reason"]["code"] == "QUOTA.EXCEEDED.v1", answer
    assert [job["idempotency_key"] for job in submitter.list_jobs(services, services.principal())] == ["first"]
    assert admin.list_submitters(services, services.principal())[0]["open_items"] == 1
    assert opened.submit("first") == first
    for wave_id in opened.dispatch():
        assert opened.run_wave(wave_id).success
    assert admin.list_submitters(services, services.principal())[0]["open_items"] == 0
    assert opened.submit("second") != first


@pytest.mark.parametrize(
    ("use", "arguments", "named", "code"),
    [
        (operator.link_alerts, ["weather"], {"channel": "file"}, "ALERT.UNKNOWN.v1"),
        (operator.link_alerts, ["capacity"], {"channel": "pigeon"}, "CHANNEL.UNKNOWN.v1"),
        (admin.add_submitter, ["../x"], {}, "SETTING.INVALID.v1"),
        (admin.change_quota, ["nobody"], {"quota_items": 5}, "NOT_FOUND.v1"),
    ],
)
def test_what_cannot_be_is_refused_by_its_code(
    opened: OpenedHome, use: Any, arguments: list[str], named: dict[str, Any], code: str
) -> None:
    with pytest.raises((InputRefused, NotFound)) as error:
        use(opened.app, opened.principal, *arguments, **named)
    assert error.value.reason.code == code


def test_an_alert_that_could_not_be_sent_is_sent_again_within_its_bound(
    opened: OpenedHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = opened.app
    operator.link_alerts(services, services.principal(), "all", channel="file")
    folder = services.settings.outbox / services.settings.tenant / "notifications"
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("a file where the folder should be")
    assert operator.test_alerts(services, services.principal())["failed"] == 1
    folder.unlink()
    maintenance.review_alerts(services)
    assert [document["kind"] for document in told(opened)] == ["test"]
    maintenance.review_alerts(services)
    assert len(told(opened)) == 1
