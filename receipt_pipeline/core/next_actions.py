"""The one safe next action for every standing of a job; never "run everything again"."""

from __future__ import annotations

from enum import StrEnum

from receipt_pipeline.core.job_lifecycle import JobState, Phase, TerminalClass


class NextAction(StrEnum):
    """What the reader of a status may safely do now."""

    WAIT = "wait"
    START_WORKER = "start_a_worker_that_carries_the_release"
    RECONCILE = "reconcile"
    RESOLVE_QUARANTINE = "resolve_the_quarantine"
    READ_RESULT = "read_the_result"
    READ_RESULT_AND_FIX_REJECTED = "read_the_result_and_fix_what_is_not_in_it"
    FIX_SCANS = "fix_the_rejected_scans_and_submit_them"
    SUBMIT_AGAIN = "submit_again_under_a_new_key"
    RESTORE_RELEASE = "submit_under_an_approved_release"
    READ_INVESTIGATION = "read_the_investigation"
    FOLLOW_REPLACEMENT = "follow_the_replacing_job"


_OPEN: dict[Phase, NextAction] = {
    Phase.QUEUED: NextAction.WAIT,
    Phase.NO_CAPABLE_WORKER: NextAction.START_WORKER,
    Phase.WORKING: NextAction.WAIT,
    Phase.RETRY_WAIT: NextAction.WAIT,
    Phase.PUBLISHING: NextAction.WAIT,
    Phase.CLOSING: NextAction.WAIT,
    Phase.RECONCILING: NextAction.RECONCILE,
    Phase.QUARANTINED: NextAction.RESOLVE_QUARANTINE,
}
_TERMINAL: dict[TerminalClass, NextAction] = {
    TerminalClass.COMPLETE: NextAction.READ_RESULT,
    TerminalClass.PARTIAL: NextAction.READ_RESULT_AND_FIX_REJECTED,
    TerminalClass.REJECTED: NextAction.FIX_SCANS,
    TerminalClass.DEPENDENCY_FAILED: NextAction.SUBMIT_AGAIN,
    TerminalClass.IDENTITY_FAILED: NextAction.RESTORE_RELEASE,
    TerminalClass.ATTEMPTS_EXHAUSTED: NextAction.READ_INVESTIGATION,
    TerminalClass.TIMED_OUT: NextAction.READ_INVESTIGATION,
    TerminalClass.EXPIRED: NextAction.SUBMIT_AGAIN,
    TerminalClass.CANCELED: NextAction.SUBMIT_AGAIN,
    TerminalClass.SUPERSEDED: NextAction.FOLLOW_REPLACEMENT,
}


def next_action(
    *, state: JobState, phase: Phase, terminal_class: TerminalClass | None, quarantined: bool
) -> NextAction:
    """Return the single safe next action; total over every standing."""
    if quarantined:
        return NextAction.RESOLVE_QUARANTINE
    if terminal_class is not None:
        return _TERMINAL[terminal_class]
    assert state in (JobState.ACCEPTED, JobState.RUNNING), state
    return _OPEN[phase]
