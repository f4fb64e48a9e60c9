"""Every standing that a job can come into names one safe next action, and none is to run everything again."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from receipt_pipeline.core.items import ItemClass, count_classes
from receipt_pipeline.core.lifecycle import CloseCause, DerivedPhase, JobState, Phase, TerminalClass, terminal_outcome
from receipt_pipeline.core.next_actions import (
    ACTION_TEXTS,
    NEXT_ACTIONS,
    JobSituation,
    NextAction,
    governing_code,
    next_action,
)
from receipt_pipeline.core.reasons import (
    IDENTITY_MISMATCH,
    IDENTITY_MISSING,
    IDENTITY_RETIRED,
    OBJECT_UNREADABLE,
    REASONS,
    RESULT_MISMATCH,
    RESULT_MISSING,
    RESULT_WITHDRAWN,
    UPLOAD_FAILED,
    Reason,
)
from receipt_pipeline.ledger.jobs.finalize import terminal_reason_code

OPEN: tuple[tuple[JobState, Phase | DerivedPhase], ...] = (
    (JobState.ACCEPTED, Phase.QUEUED),
    (JobState.ACCEPTED, Phase.NO_CAPABLE_WORKER),
    (JobState.ACCEPTED, DerivedPhase.OVERDUE),
    (JobState.RUNNING, Phase.QUEUED),
    (JobState.RUNNING, Phase.WORKING),
    (JobState.RUNNING, Phase.RETRY_WAIT),
    (JobState.RUNNING, Phase.PUBLISHING),
    (JobState.RUNNING, Phase.CLOSING),
    (JobState.RUNNING, DerivedPhase.DELAYED),
    (JobState.RUNNING, Phase.RECONCILING),
    (JobState.RUNNING, Phase.QUARANTINED),
)
REASONS_OF_CAUSE: Mapping[CloseCause, tuple[Reason | None, ...]] = {
    CloseCause.IDENTITY: (IDENTITY_MISMATCH, IDENTITY_MISSING, IDENTITY_RETIRED, RESULT_WITHDRAWN),
    CloseCause.PUBLICATION: (UPLOAD_FAILED, RESULT_MISMATCH),
}
# No item of such a job is finished, or every item has the class that its ending gave it.
NEVER_WORKED = {TerminalClass.EXPIRED}
NOTHING_LEFT = {TerminalClass.COMPLETE}
REPLACED = {TerminalClass.SUPERSEDED}


def closed_jobs() -> Iterator[JobSituation]:
    for classes in itertools.combinations_with_replacement(ItemClass, 2):
        counts = count_classes(classes)
        for cause, verified in itertools.product(CloseCause, (False, True)):
            state, terminal_class = terminal_outcome(counts, cause, object_verified=verified)
            for reason in REASONS_OF_CAUSE.get(cause, (None,)):
                if cause is CloseCause.SUPERSEDED:
                    reason = REASONS["JOB.SUPERSEDED.v1"]
                code = terminal_reason_code(terminal_class, cause, reason)
                if terminal_class is TerminalClass.EXPIRED:
                    counts = count_classes([ItemClass.EXPIRED] * 2)
                yield JobSituation(state, Phase.CLOSED, terminal_class, code, counts)


def with_what_came_later(closed: JobSituation) -> Iterator[JobSituation]:
    faults: tuple[Reason | None, ...] = (None,)
    if closed.state is JobState.SUCCEEDED:
        faults += (RESULT_MISSING, RESULT_MISMATCH, OBJECT_UNREADABLE)
    for quarantined, withdrawn, purged, retried in itertools.product((False, True), repeat=4):
        if quarantined and closed.terminal_class in NEVER_WORKED:
            continue
        if retried and closed.terminal_class in NOTHING_LEFT:
            continue
        for fault in faults:
            yield replace(
                closed,
                quarantined=quarantined,
                withdrawn=withdrawn,
                purged=purged and closed.state is JobState.SUCCEEDED,
                retried=retried,
                object_fault=fault,
            )


def every_standing() -> Iterator[JobSituation]:
    for state, shown in OPEN:
        yield JobSituation(state, shown, None, "", count_classes(()))
    for closed in closed_jobs():
        yield from with_what_came_later(closed)


@pytest.mark.requirement("R105")
def test_every_standing_names_one_action_and_every_line_of_the_table_can_be_reached() -> None:
    reached = set()
    for standing in every_standing():
        key = (standing.state, standing.terminal_class or standing.shown, governing_code(standing))
        assert key in NEXT_ACTIONS, key
        assert next_action(standing) is NEXT_ACTIONS[key]
        reached.add(key)
    assert set(NEXT_ACTIONS) - reached == set()
    assert set(NEXT_ACTIONS.values()) | {NextAction.UPGRADE} == set(NextAction)


@pytest.mark.requirement("R105")
def test_no_action_is_to_run_everything_again_where_something_was_finished() -> None:
    for (_, standing, code), action in NEXT_ACTIONS.items():
        if action is NextAction.SUBMIT_AGAIN:
            assert code == "RESULT.WITHDRAWN.v1", (standing, code)


def closing(*classes: ItemClass, cause: CloseCause = CloseCause.FINISHED, verified: bool = True) -> JobSituation:
    counts = count_classes(classes)
    state, terminal_class = terminal_outcome(counts, cause, object_verified=verified)
    reason = REASONS["JOB.SUPERSEDED.v1"] if cause is CloseCause.SUPERSEDED else None
    code = terminal_reason_code(terminal_class, cause, reason)
    return JobSituation(state, Phase.CLOSED, terminal_class, code, counts)


@pytest.mark.requirement("R103")
def test_the_seven_kinds_of_outcome_have_seven_actions() -> None:
    kept, refused, left = ItemClass.CLASSIFIED, ItemClass.REJECTED, ItemClass.UNRESOLVED
    unknown = JobSituation(JobState.RUNNING, Phase.RECONCILING, None, "", count_classes([kept]))
    outcomes = {
        "success": closing(kept, kept),
        "partial": closing(kept, left),
        "rejection": closing(refused, refused),
        "dependency failure": closing(kept, cause=CloseCause.PUBLICATION, verified=False),
        "cancellation": closing(kept, ItemClass.CANCELLED, cause=CloseCause.CANCELED, verified=False),
        "supersession": closing(ItemClass.SUPERSEDED, cause=CloseCause.SUPERSEDED, verified=False),
        "unknown effect": unknown,
    }
    assert {name: next_action(standing).value for name, standing in outcomes.items()} == {
        "success": "read_the_result",
        "partial": "retry_the_unresolved_items",
        "rejection": "fix_the_rejected_scans_and_submit_them",
        "dependency failure": "mend_the_store_and_retry_what_was_not_published",
        "cancellation": "submit_what_is_still_wanted_under_a_new_key",
        "supersession": "follow_the_replacing_job",
        "unknown effect": "reconcile",
    }


@pytest.mark.requirement("R149")
def test_an_unknown_storage_write_offers_reconcile_and_never_to_generate_again() -> None:
    unknown = JobSituation(JobState.RUNNING, Phase.RECONCILING, None, "", count_classes(()))
    action = next_action(unknown)
    assert action is NextAction.RECONCILE
    assert ACTION_TEXTS[action].command == "receipts reconcile"
    assert "nothing is generated again" in ACTION_TEXTS[action].meaning


def test_a_partial_result_whose_items_were_all_refused_asks_for_better_scans_only() -> None:
    partial = closing(ItemClass.CLASSIFIED, ItemClass.REJECTED)
    assert next_action(partial) is NextAction.READ_RESULT_AND_FIX_REJECTED
    assert governing_code(partial) == "ITEMS.REJECTED.v1"
    both = closing(ItemClass.CLASSIFIED, ItemClass.REJECTED, ItemClass.EXPIRED)
    assert governing_code(both) == "ITEMS.UNRESOLVED.v1"
    retried = replace(both, retried=True)
    assert (governing_code(retried), next_action(retried)) == ("JOB.RETRIED.v1", NextAction.FOLLOW_CHILD)


def test_whatever_made_the_tries_vain_a_person_looks_first() -> None:
    vain = JobSituation(
        JobState.FAILED, Phase.CLOSED, TerminalClass.ATTEMPTS_EXHAUSTED, "WORKER.LOST.v1", count_classes(())
    )
    assert next_action(vain) is NextAction.READ_INVESTIGATION


def test_a_reason_of_a_later_version_asks_for_an_upgrade() -> None:
    later = JobSituation(JobState.FAILED, Phase.CLOSED, TerminalClass.TIMED_OUT, "LATER.REASON.v9", count_classes(()))
    assert next_action(later) is NextAction.UPGRADE
