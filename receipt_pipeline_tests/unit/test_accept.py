"""Acceptance: replay first, scans verified while copied, one transaction, one answer."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.canonical import digest_of, digest_of_bytes, is_digest
from receipt_pipeline.core.errors import InputRefused, KeyConflict, NotAllowed, ObjectFault
from receipt_pipeline.core.principals import Principal, Role
from receipt_pipeline.core.reasons import STORAGE_FULL
from receipt_pipeline.effects.channels import FileChannel
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.effects.status_documents import send_status_documents
from receipt_pipeline.intake import accept as accepting
from receipt_pipeline.intake import scans as copying
from receipt_pipeline.intake.accept import Acceptance
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.releases import approve_release, move_alias
from receipt_pipeline.ledger.schema.jobs import events
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline_tests.builders import CALLER, RELEASE, TENANT
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.intake_home import (
    accept_manifest,
    an_intake,
    as_bytes,
    holders,
    item_rows,
    job_document,
    job_rows,
    refusal_of,
)

MINUTE_S = 60
OTHER = dataclasses.replace(RELEASE, policy_revision=digest_of("another policy"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.requirement("R002", "R003", "R004", "R005", "R013", "R016", "R040")
def test_an_accepted_job_carries_pins_digests_limits_and_the_ledgers_time(
    intake: IntakeContext, folder: Path, clock: FakeClock
) -> None:
    limits = {"max_queue_age_s": 3600, "processing_timeout_s": 900, "result_retention_s": 86_400, "max_attempts": 2}
    answer = accept_manifest(intake, job_document(folder, count=2, limits=limits), folder)
    (job,) = job_rows(intake.ledger)
    assert answer.pins == RELEASE.pins()
    assert {job[name] for name in answer.pins.as_document()} == set(answer.pins.as_document().values())
    pinned = (job["image_digest"], job["chain_revision"], job["risk_model_digest"], job["policy_revision"])
    assert all(is_digest(digest) for digest in pinned)
    assert job["submitted_at"] == clock.now() == answer.submitted_at
    assert {name: job[name] for name in limits} == limits
    assert [item["sha256"] for item in item_rows(intake.ledger)] == [
        digest_of_bytes((folder / f"scans/{number}.png").read_bytes()) for number in (1, 2)
    ]
    assert (job["items_requested"], job["contract"]) == (2, "receipt-job/v1")
    assert (job["tenant"], job["operation_class"]) == (TENANT, "receipt-classification")


@pytest.mark.requirement("R001", "R031")
def test_the_answer_says_where_to_ask_and_nothing_of_a_result(ledger: Ledger, home: Path, folder: Path) -> None:
    outbox = home / "outbox"
    intake = an_intake(ledger, home)
    effects = EffectContext(
        ledger=ledger, objects=intake.objects, channel=FileChannel(outbox), outbox_root=outbox, limits=intake.limits
    )

    def tell(job_id: str) -> None:
        send_status_documents(effects, limit=1, job_id=job_id)

    answer = accept_manifest(dataclasses.replace(intake, after_accept=tell), job_document(folder), folder)
    document = answer.as_document()
    assert {"job_id", "submitted_at", "status_location", "state", "pins", "queue_deadline", "replayed"} <= set(document)
    assert json.loads(Path(document["status_location"]).read_text())["job_id"] == answer.job_id
    assert document["state"] == "accepted"
    words = json.dumps(document).lower()
    assert not any(word in words for word in ("complete", "success", "clear", "score", "decision", "risk_ppm"))


@pytest.mark.requirement("R007", "R017")
def test_nobody_gets_a_decision_out_of_an_accepted_job(intake: IntakeContext, folder: Path) -> None:
    answer = accept_manifest(intake, job_document(folder), folder)
    with pytest.raises(AttributeError):
        answer.score  # type: ignore[attr-defined]  # noqa: B018
    with intake.ledger.reading() as tx:
        status = read_status(tx, answer.job_id)
    assert (status["state"], status["terminal_class"], status["result"]) == ("accepted", None, None)
    assert [item["decision"] for item in item_rows(intake.ledger)] == [None]


@pytest.mark.requirement("R012")
def test_the_caller_is_the_principals_whatever_the_request_says(intake: IntakeContext, folder: Path) -> None:
    accept_manifest(intake, job_document(folder), folder)
    assert [(job["caller"], job["tenant"]) for job in job_rows(intake.ledger)] == [(CALLER, TENANT)]
    document = job_document(folder, key="other", caller="the boss")
    with pytest.raises(InputRefused) as caught:
        accept_manifest(intake, document, folder)
    assert (caught.value.reason.code, caught.value.pointer) == ("FIELD.UNKNOWN.v1", "/caller")


def test_a_principal_without_the_role_is_turned_away(intake: IntakeContext, folder: Path) -> None:
    for principal in (
        Principal(TENANT, CALLER, frozenset({Role.ANALYST})),
        Principal("", CALLER, frozenset({Role.SUBMITTER})),
        Principal(TENANT, "", frozenset({Role.SUBMITTER})),
    ):
        with pytest.raises(NotAllowed) as caught:
            accept_manifest(intake, job_document(folder), folder, principal=principal)
        assert caught.value.reason.code == "NOT_PERMITTED.v1"
    assert job_rows(intake.ledger) == []


@pytest.mark.requirement("R018", "R021", "R025", "R086")
def test_a_repeat_joins_the_first_job_and_opens_no_scan(
    intake: IntakeContext, folder: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = job_document(folder)
    first = accept_manifest(intake, document, folder)
    clock.advance(MINUTE_S)
    (folder / "scans/1.png").unlink()

    def opened(*given: Any, **named: Any) -> int:
        raise AssertionError("a scan was opened for a repeat")

    monkeypatch.setattr(copying, "open_confined", opened)
    again = accept_manifest(intake, dict(reversed(document.items())), folder)
    assert (first.replayed, again.replayed) == (False, True)
    assert dataclasses.replace(again, replayed=False) == first
    with intake.ledger.reading() as tx:
        kinds = [row["kind"] for row in tx.rows(events.select().order_by(events.c.seq))]
    assert kinds[-2:] == ["accepted", "replayed"]
    assert len(job_rows(intake.ledger)) == 1


@pytest.mark.requirement("R019", "R026")
def test_a_used_key_with_another_request_is_a_conflict_that_names_fields_and_no_values(
    intake: IntakeContext, folder: Path
) -> None:
    document = job_document(folder)
    first = accept_manifest(intake, document, folder)
    changed = document | {"limits": {"max_attempts": 7}, "release": "2026-11"}
    with pytest.raises(KeyConflict) as caught:
        accept_manifest(intake, changed, folder)
    assert (caught.value.reason.code, caught.value.pointer) == ("KEY.CONFLICT.v1", "/idempotency_key")
    assert caught.value.facts["differing"] == ["limits.max_attempts", "release"]
    assert caught.value.facts["job_id"] == first.job_id
    same = document | {"limits": {"max_attempts": 3}, "effects": {}, "release": "production"}
    assert accept_manifest(intake, same, folder).job_id == first.job_id
    assert len(job_rows(intake.ledger)) == 1


@pytest.mark.requirement("R028")
def test_many_identical_requests_at_once_make_one_job(intake: IntakeContext, folder: Path) -> None:
    document = as_bytes(job_document(folder, count=2))

    def once(_: int) -> Acceptance:
        return accept_manifest(intake, document, folder)

    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(once, range(6)))
    assert len({answer.job_id for answer in answers}) == 1
    assert sorted(answer.replayed for answer in answers) == [False] + [True] * 5
    assert len(job_rows(intake.ledger)) == 1
    assert holders(intake.ledger) == {answers[0].job_id}


def test_the_loser_of_a_race_answers_as_a_repeat(
    intake: IntakeContext, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = job_document(folder)
    found, calls = accepting.find_replay, []
    first = accept_manifest(intake, document, folder)

    def blind_twice(tx: Any, **given: Any) -> Any:
        # Neither before copying nor in its own transaction does the loser see the winner.
        calls.append(1)
        return None if len(calls) <= 2 else found(tx, **given)

    monkeypatch.setattr(accepting, "find_replay", blind_twice)
    loser = accept_manifest(intake, document, folder)
    assert (loser.job_id, loser.replayed) == (first.job_id, True)
    assert len(job_rows(intake.ledger)) == 1


@pytest.mark.requirement("R036")
def test_moving_the_alias_changes_no_accepted_job(intake: IntakeContext, folder: Path) -> None:
    document = job_document(folder)
    first = accept_manifest(intake, document, folder)
    with intake.ledger.transaction() as tx:
        approve_release(tx, OTHER, name="2026-12", approved_by="kim")
        move_alias(tx, alias="production", release_id=OTHER.release_id, moved_by="kim")
    assert accept_manifest(intake, document, folder).pins == first.pins == RELEASE.pins()
    assert accept_manifest(intake, job_document(folder, key="later"), folder).pins == OTHER.pins()


@pytest.mark.requirement("R014")
def test_a_release_that_nobody_approved_is_refused(intake: IntakeContext, folder: Path) -> None:
    for release, code in ((OTHER.release_id, "RELEASE.UNAPPROVED.v1"), ("no-such", "RELEASE.UNKNOWN.v1")):
        assert refusal_of(intake, job_document(folder, release=release), folder) == (code, "/release")


@pytest.mark.requirement("R006")
def test_the_queue_deadline_comes_from_the_cutoff_and_must_lie_ahead(
    intake: IntakeContext, folder: Path, clock: FakeClock
) -> None:
    margin_s = intake.limits.intake.cutoff_margin_s
    for seconds in (-MINUTE_S, 0, margin_s):
        cutoff = (clock.now() + dt.timedelta(seconds=seconds)).isoformat()
        document = job_document(folder, reconciliation_cutoff=cutoff)
        assert refusal_of(intake, document, folder) == ("CUTOFF.PASSED.v1", "/reconciliation_cutoff")
    cutoff = (clock.now() + dt.timedelta(seconds=margin_s + MINUTE_S)).isoformat()
    answer = accept_manifest(intake, job_document(folder, reconciliation_cutoff=cutoff), folder)
    assert answer.queue_deadline == clock.now() + dt.timedelta(seconds=MINUTE_S)


def test_limits_that_can_hardly_be_met_are_accepted_with_a_warning(intake: IntakeContext, folder: Path) -> None:
    short = job_document(folder, count=2, limits={"processing_timeout_s": 3})
    assert accept_manifest(intake, short, folder).warnings == ("LIMIT.TOO_SHORT.v1",)
    alike = {"max_queue_age_s": 900, "processing_timeout_s": 900, "result_retention_s": 900}
    answer = accept_manifest(intake, job_document(folder, key="alike", limits=alike), folder)
    assert answer.warnings == ("LIMIT.ALL_EQUAL.v1",)


@pytest.mark.requirement("R044")
def test_the_same_envelope_days_later_selects_the_same_items(
    intake: IntakeContext, folder: Path, clock: FakeClock
) -> None:
    document = job_document(folder, count=3)
    first = accept_manifest(intake, document, folder)
    before = item_rows(intake.ledger)
    clock.advance(3 * 86_400)
    assert accept_manifest(intake, document, folder).job_id == first.job_id
    assert item_rows(intake.ledger) == before


def test_an_answer_does_not_depend_on_the_status_document(ledger: Ledger, home: Path, folder: Path) -> None:
    told = []

    def broken(job_id: str) -> None:
        told.append(job_id)
        raise ObjectFault(STORAGE_FULL)

    answer = accept_manifest(an_intake(ledger, home, after_accept=broken), job_document(folder), folder)
    assert told == [answer.job_id]
