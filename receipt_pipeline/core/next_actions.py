"""One safe next action for every situation of a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.lifecycle import DerivedPhase, JobState, Phase, TerminalClass
from receipt_pipeline.core.reasons import (
    ALL_REJECTED,
    ATTEMPTS_EXHAUSTED,
    CANCELED_BY_CALLER,
    CUTOFF_REACHED,
    IDENTITY_MISMATCH,
    IDENTITY_MISSING,
    IDENTITY_RETIRED,
    ITEMS_REJECTED,
    ITEMS_UNRESOLVED,
    JOB_RETRIED,
    NO_CAPABLE_WORKER,
    OBJECT_UNREADABLE,
    PROCESSING_TIMEOUT,
    QUEUE_AGE_REACHED,
    RESULT_MISMATCH,
    RESULT_MISSING,
    RESULT_QUARANTINED,
    RESULT_RETIRED,
    RESULT_WITHDRAWN,
    SUPERSEDED_BY_JOB,
    UPLOAD_FAILED,
    UPLOAD_UNKNOWN,
    Reason,
)


class NextAction(StrEnum):
    """What the reader of a status may safely do now."""

    WAIT = "wait"
    START_WORKER = "start_a_worker_that_carries_the_release"
    RECONCILE = "reconcile"
    RESOLVE_QUARANTINE = "resolve_the_quarantine"
    READ_RESULT = "read_the_result"
    READ_RESULT_AND_FIX_REJECTED = "read_the_result_and_fix_what_is_not_in_it"
    RETRY_UNRESOLVED = "retry_the_unresolved_items"
    RETRY_UNPUBLISHED = "mend_the_store_and_retry_what_was_not_published"
    FIX_SCANS = "fix_the_rejected_scans_and_submit_them"
    SUBMIT_AGAIN = "submit_the_scans_again_under_a_new_key"
    SUBMIT_WANTED = "submit_what_is_still_wanted_under_a_new_key"
    RESTORE_RELEASE = "submit_under_an_approved_release"
    READ_INVESTIGATION = "read_the_investigation"
    RESTORE_OBJECT = "restore_the_object_or_withdraw_the_result"
    READ_RECEIPT = "read_the_receipt_that_stays"
    FOLLOW_REPLACEMENT = "follow_the_replacing_job"
    FOLLOW_CHILD = "follow_the_child_job"
    UPGRADE = "upgrade_to_read_the_reason"


@dataclass(frozen=True, slots=True)
class ActionText:
    """An action as a sentence, and its command, with ids and files in capitals."""

    meaning: str
    command: str


ACTION_TEXTS: Mapping[NextAction, ActionText] = {
    NextAction.WAIT: ActionText("Nothing to do. Processing continues automatically.", "receipts status JOB"),
    NextAction.START_WORKER: ActionText("No running worker supports this job's release. Start one.", "receipts up"),
    NextAction.RECONCILE: ActionText(
        "It is not known whether the result was stored. Look it up; nothing is generated again before that.",
        "receipts reconcile",
    ),
    NextAction.RESOLVE_QUARANTINE: ActionText(
        "The job has different outputs. Compare them and record which one is valid, or that none is.",
        "receipts investigations resolve INVESTIGATION --keep DIGEST",
    ),
    NextAction.READ_RESULT: ActionText("Read the verified result.", "receipts result JOB"),
    NextAction.READ_RESULT_AND_FIX_REJECTED: ActionText(
        "Read the result, then correct the scans on the rejection list and submit only those.",
        "receipts result JOB --rejections FILE",
    ),
    NextAction.RETRY_UNRESOLVED: ActionText(
        "Preview a retry of the unresolved items, then start it without --preview.", "receipts retry JOB --preview"
    ),
    NextAction.RETRY_UNPUBLISHED: ActionText(
        "Repair the object store, preview a retry of the unpublished items, then start it without --preview.",
        "receipts retry JOB --preview",
    ),
    NextAction.FIX_SCANS: ActionText(
        "All files were rejected. Correct the scans on the rejection list and submit them.",
        "receipts result JOB --rejections FILE",
    ),
    NextAction.SUBMIT_AGAIN: ActionText(
        "This job has no valid result. Submit the scans again under a new key.", "receipts submit PATH --new"
    ),
    NextAction.SUBMIT_WANTED: ActionText(
        "The job was canceled. Submit the scans that you still need; finished items stay readable.",
        "receipts submit PATH --new",
    ),
    NextAction.RESTORE_RELEASE: ActionText(
        "The job's release cannot be used. Submit the scans under an approved release.", "receipts release list"
    ),
    NextAction.READ_INVESTIGATION: ActionText(
        "All attempts failed. Read the investigation before you retry.", "receipts investigations list"
    ),
    NextAction.RESTORE_OBJECT: ActionText(
        "The stored result is missing or damaged. Restore it from a backup, or withdraw the result.",
        "receipts investigations list",
    ),
    NextAction.READ_RECEIPT: ActionText(
        "The result was deleted after its retention time. The receipt is still available.", "receipts status JOB"
    ),
    NextAction.FOLLOW_REPLACEMENT: ActionText("Another job replaces this one. Read that job.", "receipts status OTHER"),
    NextAction.FOLLOW_CHILD: ActionText(
        "A child job processes the unresolved items. Read that job.", "receipts status OTHER"
    ),
    NextAction.UPGRADE: ActionText(
        "This version does not know the reason. Read it with a later version.", "receipts --version"
    ),
}

Shown = Phase | DerivedPhase | TerminalClass
Key = tuple[JobState, Shown, str]


def _lines(state: JobState, shown: Iterable[Shown], *reasons: Reason | None, to: NextAction) -> dict[Key, NextAction]:
    return {(state, phase, reason.code if reason else ""): to for phase in shown for reason in reasons}


_FAILED_CLASSES = (
    TerminalClass.REJECTED,
    TerminalClass.DEPENDENCY_FAILED,
    TerminalClass.IDENTITY_FAILED,
    TerminalClass.ATTEMPTS_EXHAUSTED,
    TerminalClass.TIMED_OUT,
)
_SUCCEEDED_CLASSES = (TerminalClass.COMPLETE, TerminalClass.PARTIAL)
_IDENTITY_REASONS = (IDENTITY_MISMATCH, IDENTITY_MISSING, IDENTITY_RETIRED)
_LIMITS_REACHED = (PROCESSING_TIMEOUT, CUTOFF_REACHED)
_OBJECT_FAULTS = (RESULT_MISSING, RESULT_MISMATCH, OBJECT_UNREADABLE)
_ACCEPTED, _RUNNING = JobState.ACCEPTED, JobState.RUNNING
_SUCCEEDED, _FAILED = JobState.SUCCEEDED, JobState.FAILED
_CANCELED, _EXPIRED = JobState.CANCELED, JobState.EXPIRED
_IN_WORK = (Phase.QUEUED, Phase.WORKING, Phase.RETRY_WAIT, Phase.PUBLISHING, Phase.CLOSING, DerivedPhase.DELAYED)

_GROUPS: tuple[dict[Key, NextAction], ...] = (
    # Open jobs.
    _lines(_ACCEPTED, [Phase.QUEUED], None, to=NextAction.WAIT),
    _lines(_ACCEPTED, [DerivedPhase.OVERDUE], QUEUE_AGE_REACHED, to=NextAction.WAIT),
    _lines(_ACCEPTED, [Phase.NO_CAPABLE_WORKER], NO_CAPABLE_WORKER, to=NextAction.START_WORKER),
    _lines(_RUNNING, _IN_WORK, None, to=NextAction.WAIT),
    _lines(_RUNNING, [Phase.RECONCILING], UPLOAD_UNKNOWN, to=NextAction.RECONCILE),
    _lines(_RUNNING, [Phase.QUARANTINED], RESULT_QUARANTINED, to=NextAction.RESOLVE_QUARANTINE),
    # Successes.
    _lines(_SUCCEEDED, [TerminalClass.COMPLETE], None, to=NextAction.READ_RESULT),
    _lines(_SUCCEEDED, [TerminalClass.PARTIAL], ITEMS_REJECTED, to=NextAction.READ_RESULT_AND_FIX_REJECTED),
    _lines(_SUCCEEDED, [TerminalClass.PARTIAL], ITEMS_UNRESOLVED, to=NextAction.RETRY_UNRESOLVED),
    _lines(_SUCCEEDED, [TerminalClass.PARTIAL], JOB_RETRIED, to=NextAction.FOLLOW_CHILD),
    _lines(_SUCCEEDED, _SUCCEEDED_CLASSES, RESULT_QUARANTINED, to=NextAction.RESOLVE_QUARANTINE),
    _lines(_SUCCEEDED, _SUCCEEDED_CLASSES, RESULT_WITHDRAWN, to=NextAction.SUBMIT_AGAIN),
    _lines(_SUCCEEDED, _SUCCEEDED_CLASSES, *_OBJECT_FAULTS, to=NextAction.RESTORE_OBJECT),
    _lines(_SUCCEEDED, _SUCCEEDED_CLASSES, RESULT_RETIRED, to=NextAction.READ_RECEIPT),
    # Failures.
    _lines(_FAILED, [TerminalClass.REJECTED], ALL_REJECTED, to=NextAction.FIX_SCANS),
    _lines(_FAILED, [TerminalClass.DEPENDENCY_FAILED], UPLOAD_FAILED, RESULT_MISMATCH, to=NextAction.RETRY_UNPUBLISHED),
    _lines(_FAILED, [TerminalClass.IDENTITY_FAILED], *_IDENTITY_REASONS, to=NextAction.RESTORE_RELEASE),
    _lines(_FAILED, [TerminalClass.IDENTITY_FAILED], RESULT_WITHDRAWN, to=NextAction.SUBMIT_AGAIN),
    _lines(_FAILED, [TerminalClass.ATTEMPTS_EXHAUSTED], ATTEMPTS_EXHAUSTED, to=NextAction.READ_INVESTIGATION),
    _lines(_FAILED, [TerminalClass.TIMED_OUT], *_LIMITS_REACHED, to=NextAction.RETRY_UNRESOLVED),
    _lines(_FAILED, _FAILED_CLASSES, JOB_RETRIED, to=NextAction.FOLLOW_CHILD),
    _lines(_FAILED, _FAILED_CLASSES, RESULT_QUARANTINED, to=NextAction.RESOLVE_QUARANTINE),
    # Expired, canceled and replaced jobs.
    _lines(_EXPIRED, [TerminalClass.EXPIRED], QUEUE_AGE_REACHED, to=NextAction.RETRY_UNRESOLVED),
    _lines(_EXPIRED, [TerminalClass.EXPIRED], JOB_RETRIED, to=NextAction.FOLLOW_CHILD),
    _lines(_CANCELED, [TerminalClass.CANCELED], CANCELED_BY_CALLER, to=NextAction.SUBMIT_WANTED),
    _lines(_CANCELED, [TerminalClass.CANCELED], JOB_RETRIED, to=NextAction.FOLLOW_CHILD),
    _lines(_CANCELED, [TerminalClass.SUPERSEDED], SUPERSEDED_BY_JOB, to=NextAction.FOLLOW_REPLACEMENT),
    _lines(
        _CANCELED,
        [TerminalClass.CANCELED, TerminalClass.SUPERSEDED],
        RESULT_QUARANTINED,
        to=NextAction.RESOLVE_QUARANTINE,
    ),
)

NEXT_ACTIONS: Mapping[Key, NextAction] = {key: action for group in _GROUPS for key, action in group.items()}
assert len(NEXT_ACTIONS) == sum(map(len, _GROUPS)), "each situation has one action"


@dataclass(frozen=True, slots=True)
class JobSituation:
    """What the next action depends on, as one snapshot of the ledger shows it.

    Attributes:
        shown: the stored phase of an open job, or what is shown instead of it past a deadline.
        reason_code: of the terminal record, "" if there is none.
        object_fault: what was last found wrong with the result object, None if nothing.
        retried: a child job was accepted for its unresolved items.
    """

    state: JobState
    shown: Phase | DerivedPhase
    terminal_class: TerminalClass | None
    reason_code: str
    counts: Mapping[ItemClass, int]
    quarantined: bool = False
    withdrawn: bool = False
    purged: bool = False
    object_fault: Reason | None = None
    retried: bool = False


_OF_PHASE: Mapping[Phase | DerivedPhase, Reason] = {
    Phase.NO_CAPABLE_WORKER: NO_CAPABLE_WORKER,
    DerivedPhase.OVERDUE: QUEUE_AGE_REACHED,
    Phase.RECONCILING: UPLOAD_UNKNOWN,
    Phase.QUARANTINED: RESULT_QUARANTINED,
}


def governing_code(situation: JobSituation) -> str:
    """Return the code that decides about the next action: the most severe one that applies."""
    if situation.terminal_class is None:
        reason = _OF_PHASE.get(situation.shown)
        return reason.code if reason else ""
    if situation.quarantined:
        return RESULT_QUARANTINED.code
    if situation.state is JobState.SUCCEEDED:
        if situation.withdrawn:
            return RESULT_WITHDRAWN.code
        if situation.purged:
            return RESULT_RETIRED.code
        if situation.object_fault is not None:
            return situation.object_fault.code
    if situation.retried and situation.terminal_class is not TerminalClass.SUPERSEDED:
        return JOB_RETRIED.code
    if situation.terminal_class is TerminalClass.PARTIAL:
        left = situation.counts.get(ItemClass.UNRESOLVED, 0) + situation.counts.get(ItemClass.EXPIRED, 0)
        return ITEMS_UNRESOLVED.code if left else ITEMS_REJECTED.code
    if situation.terminal_class is TerminalClass.ATTEMPTS_EXHAUSTED:
        return ATTEMPTS_EXHAUSTED.code  # Whatever the attempts failed of, a person looks first.
    return situation.reason_code


def next_action(situation: JobSituation) -> NextAction:
    """Return the one safe next action; a reason that this version does not know asks for an upgrade."""
    shown: Shown = situation.terminal_class or situation.shown
    return NEXT_ACTIONS.get((situation.state, shown, governing_code(situation)), NextAction.UPGRADE)
