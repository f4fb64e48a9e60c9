"""The report document equals an independent recount of the ledger, and names what is wrong by id."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from receipt_pipeline.accounting.checks import ACCOUNTING_CHECKS
from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.report import rank, report_document
from receipt_pipeline.core.limits import Staffing
from receipt_pipeline.effects.consume import receive_event
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.effects.objects import ObjectObservation, ObjectOutcome, record_object_check
from receipt_pipeline.ledger.investigations import InvestigationKind, resolve_investigation
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.effects import consumed, deliveries, review_tasks
from receipt_pipeline.ledger.schema.jobs import attempts, events, items, jobs
from receipt_pipeline_tests.builders import LIMITS, a_claimed_job, an_accepted_job
from receipt_pipeline_tests.fakes.accounted_home import a_job_in_every_state, a_question, round_of_effects
from receipt_pipeline_tests.fakes.effects_home import a_stored_success, an_event, rows_of, the_job
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

REPORT_KEYS = [
    "accepted",
    "in_flight",
    "terminal",
    "succeeded",
    "verified_succeeded",
    "failed",
    "expired",
    "canceled",
    "retried",
    "attempts",
    "unresolved",
    "unresolved_items",
    "missing_terminal",
    "effect_gaps",
    "orphan_terminal",
    "overlapping",
    "success_without_object",
    "object_without_success",
    "object_mismatch",
    "divergent",
    "notifications",
    "consumer",
    "time_to_completion_s",
    "investigations",
    "state",
    "gate",
]


def gate_offenders(accountant: Accountant) -> list[str]:
    return [str(row["job_id"]) for row in ACCOUNTING_CHECKS["release_gate"].run(accountant).violations]


def recount(services: EffectContext) -> dict[str, Any]:
    jobs_by_id = {row["job_id"]: row for row in rows_of(services, select(jobs))}
    told = {row["job_id"] for row in rows_of(services, select(events)) if row["kind"] == "terminal"}
    by_state = {
        state: {job_id for job_id, row in jobs_by_id.items() if row["state"] == state and job_id in told}
        for state in ("succeeded", "failed", "expired", "canceled")
    }
    tries = rows_of(services, select(attempts))
    retried = {
        first["job_id"]
        for first in tries
        for later in tries
        if first["job_id"] == later["job_id"]
        and first["outcome"] in ("failed", "lost")
        and later["lease_epoch"] > first["lease_epoch"]
    }
    sent = rows_of(services, select(deliveries))
    received = [row["outcome"] for row in rows_of(services, select(consumed))]
    spans = sorted(
        (row["terminal_at"] - row["submitted_at"]).total_seconds() for row in jobs_by_id.values() if row["terminal_at"]
    )
    return {
        "accepted": len(jobs_by_id),
        "terminal": sum(map(len, by_state.values())),
        **{state: len(ids) for state, ids in by_state.items()},
        "retried": len(retried),
        "attempts": {
            outcome: sum(row["outcome"] == outcome for row in tries)
            for outcome in ("committed", "failed", "lost", "yielded")
        },
        "unresolved_items": sum(row["item_class"] == "unresolved" for row in rows_of(services, select(items))),
        "notifications": {
            "delivered": len({row["message_id"] for row in sent if row["outcome"] == "delivered"}),
            "dropped": len({row["message_id"] for row in sent if row["outcome"] == "dropped"}),
            "late": sum(row["late"] for row in sent) + received.count("late"),
            "duplicate": received.count("duplicate"),
        },
        "consumer": {
            "review_tasks": len(rows_of(services, select(review_tasks))),
            "duplicates": received.count("duplicate"),
            "conflicts": received.count("conflict"),
        },
        "time_to_completion_s": {"p50": spans[(len(spans) + 1) // 2 - 1], "p95": spans[-1], "max": spans[-1]},
    }


@pytest.mark.requirement("R088", "R132", "R135", "R136", "R137")
def test_the_document_equals_a_recount_with_plain_sets(
    services: EffectContext, accountant: Accountant, clock: FakeClock
) -> None:
    a_job_in_every_state(services, clock)
    document = report_document(accountant)
    assert [name for name in document if name in REPORT_KEYS] == REPORT_KEYS
    again = recount(services)
    assert {name: document[name] for name in again} == again
    assert (again["accepted"], again["succeeded"], again["retried"]) == (7, 3, 1)
    assert (document["in_flight"], document["unresolved"], document["verified_succeeded"]) == (1, 0, 3)
    assert document["accepted"] == document["terminal"] + document["in_flight"] + document["unresolved"]
    assert again["consumer"]["duplicates"] == 1
    assert (document["state"], document["gate"]) == ("accounted", "pass")


def test_an_empty_ledger_is_empty_and_does_not_pass(accountant: Accountant) -> None:
    document = report_document(accountant)
    assert (document["state"], document["gate"], document["accepted"]) == ("empty", "fail", 0)
    assert document["time_to_completion_s"] == {"p50": None, "p95": None, "max": None}
    assert not ACCOUNTING_CHECKS["release_gate"].run(accountant).passed


@pytest.mark.requirement("R080", "R138", "R139")
def test_a_job_past_its_deadline_is_missing_and_red_until_its_question_is_owned(
    services: EffectContext, accountant: Accountant, clock: FakeClock
) -> None:
    job = a_claimed_job(services.ledger)
    job_id = job.token.job_id
    clock.set(the_job(services, job_id).processing_deadline)
    clock.advance(LIMITS.work.overrun_grace_s + 1)
    document = report_document(accountant)
    assert (document["missing_terminal"], document["unresolved"]) == ([job_id], 1)
    assert (document["failed"], document["succeeded"], document["in_flight"]) == (0, 0, 0)
    assert (document["state"], document["gate"]) == ("investigate", "fail")
    assert gate_offenders(accountant) == [job_id]
    question = a_question(services, InvestigationKind.MISSING_TERMINAL, job_id)
    document = report_document(accountant)
    assert (document["state"], document["gate"]) == ("investigate", "pass")
    assert [row["id"] for row in document["investigations"]] == [question]
    assert set(document["investigations"][0]) == {"id", "job_id", "kind", "owner", "deadline", "state"}
    clock.advance(LIMITS.staffing.investigation_deadline_s + 1)
    assert report_document(accountant)["gate"] == "fail"


def test_a_question_whose_owner_is_no_active_principal_is_unowned(
    services: EffectContext, accountant: Accountant
) -> None:
    job = a_stored_success(services)
    round_of_effects(services)
    a_question(services, InvestigationKind.ORPHAN_OBJECT, job.job_id)
    assert report_document(accountant)["gate"] == "pass"
    staffing = Staffing(principals=frozenset({"someone-else"}))
    limits = dataclasses.replace(accountant.limits, staffing=staffing)
    document = report_document(dataclasses.replace(accountant, limits=limits))
    assert (document["state"], document["gate"]) == ("accounted", "fail")


def test_a_withheld_terminal_event_makes_the_job_missing(services: EffectContext, accountant: Accountant) -> None:
    job = a_stored_success(services)
    with services.ledger.transaction() as tx:
        tx.execute(delete(events).where(events.c.kind == "terminal"))
    document = report_document(accountant)
    assert (document["missing_terminal"], document["succeeded"]) == ([job.job_id], 0)


def test_forged_terminal_records_make_the_account_invalid_and_are_named(
    services: EffectContext, accountant: Accountant
) -> None:
    job = a_stored_success(services)
    with services.ledger.transaction() as tx:
        append_event(tx, EventKind.TERMINAL, job_id="job_nobody", state="failed", terminal_class="rejected")
        append_event(tx, EventKind.TERMINAL, job_id=job.job_id, state="failed", terminal_class="rejected")
    document = report_document(accountant)
    assert (document["orphan_terminal"], document["overlapping"]) == (["job_nobody"], [job.job_id])
    assert (document["state"], document["gate"]) == ("invalid", "fail")
    assert set(gate_offenders(accountant)) == {"job_nobody", job.job_id}


@pytest.mark.requirement("R081")
@pytest.mark.parametrize(
    ("outcome", "listed", "kind"),
    [
        (ObjectOutcome.MISSING, "success_without_object", InvestigationKind.MISSING_OBJECT),
        (ObjectOutcome.MISMATCH, "object_mismatch", InvestigationKind.ALTERED_OBJECT),
    ],
)
def test_a_result_that_is_gone_or_altered_is_named_until_it_is_back(
    services: EffectContext, accountant: Accountant, outcome: ObjectOutcome, listed: str, kind: InvestigationKind
) -> None:
    job = a_stored_success(services)
    round_of_effects(services)

    def look(found: ObjectOutcome) -> dict[str, Any]:
        with services.ledger.transaction() as tx:
            record_object_check(
                tx,
                ObjectObservation(
                    object_key=str(job.result_key),
                    job_id=job.job_id,
                    outcome=found,
                    found_digest=job.result_digest if found is ObjectOutcome.OK else None,
                ),
            )
        return report_document(accountant)

    assert look(ObjectOutcome.OK)["verified_succeeded"] == 1
    document = look(outcome)
    assert (document[listed], document["verified_succeeded"]) == ([job.job_id], 0)
    assert (document["state"], document["gate"]) == ("investigate", "fail")
    question = a_question(services, kind, job.job_id)
    assert report_document(accountant)["gate"] == "pass"
    with services.ledger.transaction() as tx:
        resolve_investigation(tx, question, resolution="restored from the archive", actor="operations")
    document = look(ObjectOutcome.OK)
    assert (document["state"], document["gate"], document["verified_succeeded"]) == ("accounted", "pass", 1)


def test_an_object_without_success_is_listed_by_its_key(services: EffectContext, accountant: Accountant) -> None:
    with services.ledger.transaction() as tx:
        record_object_check(
            tx, ObjectObservation(object_key="results/x/1-y", job_id=None, outcome=ObjectOutcome.ORPHAN)
        )
    assert report_document(accountant)["object_without_success"] == ["results/x/1-y"]


@pytest.mark.requirement("R085")
def test_divergent_outputs_are_named_and_owned(services: EffectContext, accountant: Accountant) -> None:
    job = a_stored_success(services)
    round_of_effects(services)
    other = "sha256:" + "c" * 64
    receive_event(services, an_event(job, "ev-2", result_digest=other), source="notification")
    document = report_document(accountant)
    assert (document["divergent"], document["consumer"]["conflicts"]) == ([job.job_id], 1)
    assert (document["state"], document["gate"]) == ("investigate", "pass")


def test_a_required_effect_past_its_deadline_is_a_gap(
    services: EffectContext, accountant: Accountant, clock: FakeClock
) -> None:
    job = a_stored_success(services)
    assert report_document(accountant)["effect_gaps"] == []
    clock.advance(LIMITS.delivery.effect_deadline_s + 1)
    document = report_document(accountant)
    assert (document["effect_gaps"], document["gate"]) == ([job.job_id], "fail")
    a_question(services, InvestigationKind.EFFECT_GAP, job.job_id)
    assert report_document(accountant)["gate"] == "pass"


def test_a_cutoff_judges_open_jobs_by_their_deadlines_and_leaves_later_ones_out(
    services: EffectContext, accountant: Accountant, clock: FakeClock
) -> None:
    job = an_accepted_job(services.ledger)
    before = report_document(accountant, cutoff=job.queue_deadline)
    after = report_document(accountant, cutoff=job.queue_deadline + dt.timedelta(seconds=1))
    assert (before["in_flight"], before["missing_terminal"]) == (1, [])
    assert (after["in_flight"], after["missing_terminal"]) == (0, [job.job_id])
    early = report_document(accountant, cutoff=job.submitted_at - dt.timedelta(seconds=1))
    assert (early["accepted"], early["state"]) == (0, "empty")
    assert after["cutoff"] == (job.queue_deadline + dt.timedelta(seconds=1)).isoformat()


@pytest.mark.requirement("R054")
def test_a_late_event_after_expiry_is_counted_and_changes_no_class(
    services: EffectContext, accountant: Accountant, clock: FakeClock
) -> None:
    made = a_job_in_every_state(services, clock)
    before = report_document(accountant)
    expired = the_job(services, made["expired"])
    event = an_event(expired, "late", result_digest=None)
    assert receive_event(services, event, source="notification").outcome == "late"
    after = report_document(accountant)
    assert after["notifications"]["late"] == before["notifications"]["late"] + 1
    same = ("accepted", "terminal", "succeeded", "expired", "state", "gate")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}


def test_a_success_whose_publication_was_never_committed_is_not_verified(
    services: EffectContext, accountant: Accountant
) -> None:
    job = a_stored_success(services)
    with services.ledger.transaction() as tx:
        tx.execute(update(jobs).where(jobs.c.job_id == job.job_id).values(result_digest="sha256:" + "d" * 64))
    assert report_document(accountant)["verified_succeeded"] == 0


def test_percentiles_are_times_that_occurred() -> None:
    assert [rank(100, percent) for percent in (50, 95, 100)] == [50, 95, 100]
    assert [rank(values, 50) for values in (1, 2, 3)] == [1, 1, 2]
