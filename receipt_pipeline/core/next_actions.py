"""The one safe next action for every standing of a job; never "run everything again" (R105)."""

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
    """An action in the reader's words, and the command that does it; capitals stand for ids and files."""

    meaning: str
    command: str


ACTION_TEXTS: Mapping[NextAction, ActionText] = {
    NextAction.WAIT: ActionText("nothing; the product goes on by itself", "receipts status JOB"),
    NextAction.START_WORKER: ActionText("start a worker that carries the pinned release", "receipts up"),
    NextAction.RECONCILE: ActionText(
        "look the upload up; nothing is generated again before that", "receipts reconcile"
    ),
    NextAction.RESOLVE_QUARANTINE: ActionText(
        "compare the outputs and record which one stands, or that none does",
        "receipts investigations resolve INVESTIGATION --keep DIGEST",
    ),
    NextAction.READ_RESULT: ActionText("read the verified result", "receipts result JOB"),
    NextAction.READ_RESULT_AND_FIX_REJECTED: ActionText(
        "read the result; correct the scans on the rejection list and submit those alone",
        "receipts result JOB --rejections FILE",
    ),
    NextAction.RETRY_UNRESOLVED: ActionText(
        "look at what a retry would touch, then start a child job over these items alone",
        "receipts retry JOB --unresolved --preview",
    ),
    NextAction.RETRY_UNPUBLISHED: ActionText(
        "mend the object store, then start a child job over what was never published",
        "receipts retry JOB --unresolved --preview",
    ),
    NextAction.FIX_SCANS: ActionText(
        "correct the scans on the rejection list and submit those alone",
        "receipts result JOB --rejections FILE",
    ),
    NextAction.SUBMIT_AGAIN: ActionText(
        "submit the scans again under a new key; this job answers nothing any more",
        "receipts submit PATH --new",
    ),
    NextAction.SUBMIT_WANTED: ActionText(
        "submit those canceled scans that are wanted after all; finished items stay readable",
        "receipts submit PATH --new",
    ),
    NextAction.RESTORE_RELEASE: ActionText(
        "submit the scans under a release that is approved and whole", "receipts release list"
    ),
    NextAction.READ_INVESTIGATION: ActionText(
        "read the owned investigation before anything is tried again", "receipts investigations list"
    ),
    NextAction.RESTORE_OBJECT: ActionText(
        "restore the object from a backup, or withdraw the result", "receipts investigations list"
    ),
    NextAction.READ_RECEIPT: ActionText(
        "read the receipt, which stays; the payload was purged after its retention", "receipts status JOB"
    ),
    NextAction.FOLLOW_REPLACEMENT: ActionText("read the job that replaces this one", "receipts status OTHER"),
    NextAction.FOLLOW_CHILD: ActionText(
        "read the child job, which works on what this one left", "receipts status OTHER"
    ),
    NextAction.UPGRADE: ActionText("read it with a version that knows this reason", "receipts --version"),
}

Standing = Phase | DerivedPhase | TerminalClass
Key = tuple[JobState, Standing, str]


def _lines(
    state: JobState, standings: Iterable[Standing], *reasons: Reason | None, to: NextAction
) -> dict[Key, NextAction]:
    return {
        (state, standing, reason.code if reason else ""): to for standing in standings for reason in reasons
    }


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
_IN_WORK = (
    Phase.QUEUED,
    Phase.WORKING,
    Phase.RETRY_WAIT,
    Phase.PUBLISHING,
    Phase.CLOSING,
    DerivedPhase.DELAYED,
)

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
    _lines(
        _FAILED,
        [TerminalClass.DEPENDENCY_FAILED],
        UPLOAD_FAILED,
        RESULT_MISMATCH,
        to=NextAction.RETRY_UNPUBLISHED,
    ),
    _lines(_FAILED, [TerminalClass.IDENTITY_FAILED], *_IDENTITY_REASONS, to=NextAction.RESTORE_RELEASE),
    _lines(_FAILED, [TerminalClass.IDENTITY_FAILED], RESULT_WITHDRAWN, to=NextAction.SUBMIT_AGAIN),
    _lines(_FAILED, [TerminalClass.ATTEMPTS_EXHAUSTED], ATTEMPTS_EXHAUSTED, to=NextAction.READ_INVESTIGATION),
    _lines(_FAILED, [TerminalClass.TIMED_OUT], *_LIMITS_REACHED, to=NextAction.RETRY_UNRESOLVED),
    _lines(_FAILED, _FAILED_CLASSES, JOB_RETRIED, to=NextAction.FOLLOW_CHILD),
    _lines(_FAILED, _FAILED_CLASSES, RESULT_QUARANTINED, to=NextAction.RESOLVE_QUARANTINE),
    # Endings on request, or by the queue.
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
assert len(NEXT_ACTIONS) == sum(map(len, _GROUPS)), "a standing names one action"


@dataclass(frozen=True, slots=True)
class JobSituation:
    """What the next action depends on, as one snapshot of the ledger shows it.

    Attributes:
        shown: the stored phase of an open job, or what a reading past a deadline shows instead.
        reason_code: of the terminal record, "" where there is none.
        object_fault: reason of what was last found wrong with the result object, None when nothing was.
        retried: a child job was accepted over what this one left.
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


def governing_code(standing: JobSituation) -> str:
    """Return the code of what decides about the next action: the gravest of all that holds."""
    if standing.terminal_class is None:
        reason = _OF_PHASE.get(standing.shown)
        return reason.code if reason else ""
    if standing.quarantined:
        return RESULT_QUARANTINED.code
    if standing.state is JobState.SUCCEEDED:
        if standing.withdrawn:
            return RESULT_WITHDRAWN.code
        if standing.purged:
            return RESULT_RETIRED.code
        if standing.object_fault is not None:
            return standing.object_fault.code
    if standing.retried and standing.terminal_class is not TerminalClass.SUPERSEDED:
        return JOB_RETRIED.code
    if standing.terminal_class is TerminalClass.PARTIAL:
        left = standing.counts.get(ItemClass.UNRESOLVED, 0) + standing.counts.get(ItemClass.EXPIRED, 0)
        return ITEMS_UNRESOLVED.code if left else ITEMS_REJECTED.code
    if standing.terminal_class is TerminalClass.ATTEMPTS_EXHAUSTED:
        return ATTEMPTS_EXHAUSTED.code  # Whatever made the tries vain: a person looks before the next one.
    return standing.reason_code


def next_action(standing: JobSituation) -> NextAction:
    """Return the single safe next action; a reason that this version does not know asks for an upgrade."""
    shown: Standing = standing.terminal_class or standing.shown
    return NEXT_ACTIONS.get((standing.state, shown, governing_code(standing)), NextAction.UPGRADE)
