"""Investigations and quarantine on every ledger: owned, dated, asked once, and nothing divergent served."""

from __future__ import annotations

import datetime as dt

import pytest

from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.reasons import RESULT_MISSING
from receipt_pipeline.ledger.effects.consumption import make_review_tasks
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.investigations import (
    InvestigationKind,
    InvestigationRequest,
    assign_investigation,
    is_owned,
    list_investigations,
    open_investigation,
    resolve_investigation,
)
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import ClaimedJob, ClaimRefused, claim_job
from receipt_pipeline.ledger.jobs.failures import lose_lease
from receipt_pipeline.ledger.jobs.quarantine import (
    competing_digests,
    hold_divergent,
    open_quarantines,
    record_rejected_write,
)
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.ledger.schema.effects import investigations, quarantine, review_tasks
from receipt_pipeline.ledger.schema.jobs import events
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import (
    all_rows,
    assert_invariants,
    attempt_outcomes,
    event_kinds,
    item_classes,
    job_row,
    open_questions,
)
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

LIMITS = builders.LIMITS
OTHER = builders.an_outcome(total_minor=99).outcome_digest


def ask(ledger: Ledger, subject: str, *, job_id: str | None = None, again: str = "") -> str:
    with ledger.transaction() as tx:
        return open_investigation(
            tx,
            InvestigationRequest(
                InvestigationKind.MISSING_OBJECT,
                subject=subject,
                job_id=job_id,
                reason=RESULT_MISSING,
                suspected_effect="the object is gone",
                allowed_repair="restore it",
                evidence={"asked": again or "first"},
                reopened_as=again,
            ),
            limits=LIMITS,
        )


def question(ledger: Ledger, investigation_id: str) -> dict[str, object]:
    [row] = [r for r in all_rows(ledger, investigations) if r["investigation_id"] == investigation_id]
    return row


@pytest.mark.requirement("R111")
def test_a_question_has_owner_deadline_checkpoint_and_repair(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.a_succeeded_job(ledger, items=2)
    row = question(ledger, ask(ledger, "key", job_id=job.token.job_id))
    deadline = clock.now() + dt.timedelta(seconds=LIMITS.staffing.investigation_deadline_s)
    assert (row["owner"], row["escalation"], row["state"]) == ("operations", "operations-lead", "open")
    assert (row["opened_at"], row["deadline_at"]) == (clock.now(), deadline)
    assert (row["suspected_effect"], row["last_safe_checkpoint"], row["allowed_repair"]) == (
        "the object is gone",
        2,
        "restore it",
    )
    assert row["reason_code"] == "RESULT.MISSING.v1"
    assert event_kinds(ledger, job.token.job_id)[-1] == "investigation_opened"


def test_a_question_is_asked_once_and_again_only_on_new_evidence(ledger: Ledger) -> None:
    first = ask(ledger, "key")
    assert ask(ledger, "key") == first
    assert ask(ledger, "key", again="second") == first, "it is still open"
    with ledger.transaction() as tx:
        resolve_investigation(tx, first, resolution="restored", actor="kim")
    assert ask(ledger, "key") == first, "a settled question is not reopened"
    second = ask(ledger, "key", again="second")
    assert second != first
    assert ask(ledger, "key", again="second") == second
    assert question(ledger, second)["subject"] == "key#second"
    with ledger.reading() as tx:
        assert [row["investigation_id"] for row in list_investigations(tx, only_open=True)] == [second]
        assert len(list_investigations(tx, only_open=False)) == 2


def test_a_question_is_given_only_to_an_active_principal(ledger: Ledger) -> None:
    asked = ask(ledger, "key")
    with pytest.raises(InputRefused) as refused, ledger.transaction() as tx:
        assign_investigation(tx, asked, owner="stranger", actor="kim", limits=LIMITS)
    assert refused.value.reason.code == "INVESTIGATION.OWNER_INACTIVE.v1"
    with ledger.transaction() as tx:
        assign_investigation(tx, asked, owner="operations-lead", actor="kim", limits=LIMITS)
    assert question(ledger, asked)["owner"] == "operations-lead"
    with pytest.raises(NotFound) as missing, ledger.transaction() as tx:
        assign_investigation(tx, "inv_unknown", owner="operations", actor="kim", limits=LIMITS)
    assert missing.value.reason.code == "NOT_FOUND.v1"
    assert [row["kind"] for row in all_rows(ledger, events)] == ["investigation_opened", "investigation_assigned"]


def test_a_resolution_is_recorded_once_and_stands(ledger: Ledger, clock: FakeClock) -> None:
    asked = ask(ledger, "key")
    for _ in range(2):
        with ledger.transaction() as tx:
            resolve_investigation(tx, asked, resolution="restored", actor="kim")
    row = question(ledger, asked)
    assert (row["state"], row["resolution"], row["resolved_by"]) == ("resolved", "restored", "kim")
    assert row["resolved_at"] == clock.now()
    with pytest.raises(NotAllowed) as caught, ledger.transaction() as tx:
        resolve_investigation(tx, asked, resolution="lost", actor="robin")
    assert caught.value.reason.code == "INVESTIGATION.CLOSED.v1"
    with pytest.raises(NotAllowed), ledger.transaction() as tx:
        assign_investigation(tx, asked, owner="operations", actor="kim", limits=LIMITS)
    assert question(ledger, asked) == row


def test_owned_means_an_active_owner_inside_the_deadline(ledger: Ledger, clock: FakeClock) -> None:
    row = question(ledger, ask(ledger, "key"))
    assert is_owned(row, now=clock.now(), principals=LIMITS.staffing.principals)
    assert not is_owned(row, now=clock.now(), principals=frozenset({"robin"}))
    late = clock.now() + dt.timedelta(seconds=LIMITS.staffing.investigation_deadline_s, microseconds=1)
    assert not is_owned(row, now=late, principals=LIMITS.staffing.principals)


def a_job_after_takeover(ledger: Ledger, clock: FakeClock) -> tuple[ClaimedJob, ClaimedJob]:
    stale = builders.a_claimed_job(ledger, items=2)
    clock.advance(LIMITS.work.lease_ttl_s)
    with ledger.transaction() as tx:
        assert lose_lease(tx, job_id=stale.token.job_id, seen_epoch=1, limits=LIMITS)
    clock.advance(LIMITS.work.retry_cap_s)
    return stale, builders.claimed(ledger, stale.token.job_id)


def refuse(ledger: Ledger, job: ClaimedJob, *, ordinal: int | None, digest: str) -> None:
    with ledger.transaction() as tx:
        record_rejected_write(tx, job.token, write_kind="checkpoint", ordinal=ordinal, digest=digest)


@pytest.mark.requirement("R085")
def test_an_outcome_that_differs_from_a_refused_one_holds_the_job_before_its_end(
    ledger: Ledger, clock: FakeClock
) -> None:
    stale, present = a_job_after_takeover(ledger, clock)
    refuse(ledger, stale, ordinal=0, digest=OTHER)
    done = FinishedItem(ordinal=0, outcome=builders.an_outcome(), invocations=1)
    with ledger.transaction() as tx:
        boundary = write_checkpoint(tx, present.token, finished=done, next_ordinal=1, limits=LIMITS)
    assert (boundary.held, boundary.begun) == (True, False)
    row = job_row(ledger, present.token.job_id)
    assert (row["state"], row["phase"], row["lease_owner"]) == ("running", "quarantined", None)
    assert row["lease_epoch"] == present.token.lease_epoch + 1
    [held] = all_rows(ledger, quarantine, present.token.job_id)
    assert (held["subject"], held["before_terminal"], held["state"]) == ("item:0", True, "open")
    assert {(entry["digest"], entry["lease_epoch"]) for entry in held["digests"]} == {
        (OTHER, stale.token.lease_epoch),
        (done.outcome.outcome_digest, present.token.lease_epoch),
    }
    assert attempt_outcomes(ledger, present.token.job_id) == ["lost", "quarantined"]
    [asked] = open_questions(ledger, present.token.job_id)
    assert (asked["kind"], asked["investigation_id"]) == ("divergent_output", held["investigation_id"])
    with ledger.transaction() as tx:
        refused = claim_job(tx, job_id=present.token.job_id, owner="w", run_id="", limits=LIMITS)
    assert isinstance(refused, ClaimRefused)
    assert_invariants(ledger, LIMITS)


def test_an_equal_outcome_of_a_refused_write_holds_nothing(ledger: Ledger, clock: FakeClock) -> None:
    stale, present = a_job_after_takeover(ledger, clock)
    refuse(ledger, stale, ordinal=0, digest=builders.an_outcome().outcome_digest)
    builders.finish_items(ledger, present)
    builders.publish(ledger, present)
    assert job_row(ledger, present.token.job_id)["state"] == "succeeded"
    assert all_rows(ledger, quarantine) == []


@pytest.mark.requirement("R085")
def test_divergence_after_the_terminal_record_changes_no_class_and_disputes_the_tasks(ledger: Ledger) -> None:
    job = builders.a_succeeded_job(ledger, builders.an_outcome(Decision.REVIEW))
    with ledger.transaction() as tx:
        make_review_tasks(tx, JobRow.from_row(job_row(ledger, job.token.job_id)))
    before = job_row(ledger, job.token.job_id)
    refuse(ledger, job, ordinal=None, digest=OTHER)
    with ledger.transaction() as tx:
        assert hold_divergent(tx, job_id=job.token.job_id, subject="result", limits=LIMITS)
        assert hold_divergent(tx, job_id=job.token.job_id, subject="result", limits=LIMITS) is None
        assert len(open_quarantines(tx, job.token.job_id)) == len(open_quarantines(tx)) == 1
        known = competing_digests(tx, job_id=job.token.job_id, subject="result")
    assert [entry["digest"] for entry in known] == [before["result_digest"], OTHER]
    after = job_row(ledger, job.token.job_id)
    assert {name for name in before if before[name] != after[name]} == {"latest_seq"}
    assert [row["disputed"] for row in all_rows(ledger, review_tasks)] == [True]
    [held] = all_rows(ledger, quarantine)
    assert held["before_terminal"] is False
    assert item_classes(ledger, job.token.job_id) == ["classified"]
    assert len(open_questions(ledger, job.token.job_id)) == 1


def test_a_digest_that_turns_up_later_is_kept_and_asked_about_anew(ledger: Ledger) -> None:
    job = builders.a_succeeded_job(ledger)
    for digest in (OTHER, "sha256:third"):
        refuse(ledger, job, ordinal=None, digest=digest)
        with ledger.transaction() as tx:
            hold_divergent(tx, job_id=job.token.job_id, subject="result", limits=LIMITS)
    [held] = all_rows(ledger, quarantine)
    assert [entry["digest"] for entry in held["digests"]][1:] == [OTHER, "sha256:third"]
    decide(ledger, held)
    with ledger.transaction() as tx:
        assert hold_divergent(tx, job_id=job.token.job_id, subject="result", limits=LIMITS) is None
        assert open_quarantines(tx) == []
    refuse(ledger, job, ordinal=None, digest="sha256:fourth")
    with ledger.transaction() as tx:
        again = hold_divergent(tx, job_id=job.token.job_id, subject="result", limits=LIMITS)
    assert again == held["quarantine_id"]
    [row] = all_rows(ledger, quarantine)
    assert (row["state"], len(row["digests"])) == ("open", 4)
    [asked] = open_questions(ledger, job.token.job_id)
    assert asked["investigation_id"] == row["investigation_id"] != held["investigation_id"]


def decide(ledger: Ledger, held: dict[str, object]) -> None:
    from receipt_pipeline.ledger.jobs.quarantine import DecisionNote, keep_output

    job_id = str(held["job_id"])
    digest = job_row(ledger, job_id)["result_digest"]
    with ledger.transaction() as tx:
        keep_output(tx, job_id=job_id, digest=digest, note=DecisionNote("kim"), limits=LIMITS)
