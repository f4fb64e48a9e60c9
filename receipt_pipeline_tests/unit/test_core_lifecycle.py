"""The table of transitions, the reference of source 001, and the one function that closes jobs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from receipt_pipeline.core.items import KEPT_CLASSES, ItemClass, count_classes, is_balanced
from receipt_pipeline.core.lifecycle import (
    HELD_PHASES,
    JOB_TRANSITIONS,
    TERMINAL_STATES,
    CloseCause,
    JobEvent,
    JobState,
    TerminalClass,
    async_job_state,
    terminal_outcome,
)

SOURCE_JOB = {
    "state": "accepted",
    "submitted_at": 1000,
    "max_queue_age": 47,
    "input_digest": "input-82",
    "model_digest": "risk-47",
}
COUNTS_MAX = 2
# Which class belongs to which state (D1).
STATE_OF_CLASS = {
    TerminalClass.COMPLETE: JobState.SUCCEEDED,
    TerminalClass.PARTIAL: JobState.SUCCEEDED,
    TerminalClass.REJECTED: JobState.FAILED,
    TerminalClass.DEPENDENCY_FAILED: JobState.FAILED,
    TerminalClass.IDENTITY_FAILED: JobState.FAILED,
    TerminalClass.ATTEMPTS_EXHAUSTED: JobState.FAILED,
    TerminalClass.TIMED_OUT: JobState.FAILED,
    TerminalClass.EXPIRED: JobState.EXPIRED,
    TerminalClass.CANCELED: JobState.CANCELED,
    TerminalClass.SUPERSEDED: JobState.CANCELED,
}


@pytest.mark.requirement("R010")
def test_there_are_six_states_and_no_other_word_is_one() -> None:
    assert [state.value for state in JobState] == ["accepted", "running", "succeeded", "failed", "expired", "canceled"]
    with pytest.raises(ValueError):
        JobState("cancelled")


def test_nothing_leaves_a_terminal_state() -> None:
    assert [edge for edge in JOB_TRANSITIONS if edge[0] in TERMINAL_STATES] == []


def test_nothing_returns_to_accepted_and_every_event_has_an_edge() -> None:
    assert JobState.ACCEPTED not in JOB_TRANSITIONS.values()
    assert {event for _, event in JOB_TRANSITIONS} == set(JobEvent)


def test_every_terminal_state_can_be_reached_from_accepted() -> None:
    reached = {JobState.ACCEPTED}
    for _ in JobState:
        reached |= {after for (before, _), after in JOB_TRANSITIONS.items() if before in reached}
    assert reached == set(JobState)


@pytest.mark.requirement("R049")
@pytest.mark.parametrize(("now_seconds", "state"), [(1020, "accepted"), (1047, "accepted"), (1048, "expired")])
def test_the_reference_says_expired_only_past_the_queue_age(now_seconds: int, state: str) -> None:
    assert async_job_state(SOURCE_JOB, now_seconds) == state


@pytest.mark.requirement("R049")
def test_the_reference_refuses_a_clock_before_submission() -> None:
    with pytest.raises(ValueError, match="clock before submission"):
        async_job_state(SOURCE_JOB, 999)
    assert async_job_state(SOURCE_JOB, 1000) == "accepted"


@pytest.mark.requirement("R049")
@pytest.mark.parametrize("missing", ["input_digest", "model_digest"])
def test_the_reference_fails_a_job_whose_digest_is_missing(missing: str) -> None:
    assert async_job_state(SOURCE_JOB | {missing: ""}, 1020) == "failed"
    assert async_job_state(SOURCE_JOB | {missing: None}, 1048) == "expired"


@pytest.mark.requirement("R049")
@pytest.mark.parametrize("state", sorted(TERMINAL_STATES))
def test_the_reference_leaves_a_terminal_state_as_it_is(state: JobState) -> None:
    job: dict[str, Any] = SOURCE_JOB | {"state": state.value, "input_digest": ""}
    assert async_job_state(job, 99_999) == state.value


def expected_outcome(counts: dict[ItemClass, int], cause: CloseCause, verified: bool) -> TerminalClass:
    total = sum(counts.values())
    kept = counts[ItemClass.CLASSIFIED] + counts[ItemClass.UNCHANGED]
    lines = [
        (cause is CloseCause.SUPERSEDED, TerminalClass.SUPERSEDED),
        (cause is CloseCause.CANCELED, TerminalClass.CANCELED),
        (cause is CloseCause.QUEUE_AGE, TerminalClass.EXPIRED),
        (cause is CloseCause.IDENTITY, TerminalClass.IDENTITY_FAILED),
        (cause is CloseCause.PUBLICATION, TerminalClass.DEPENDENCY_FAILED),
        (total > 0 and counts[ItemClass.REJECTED] == total, TerminalClass.REJECTED),
        (verified and kept > 0 and kept == total, TerminalClass.COMPLETE),
        (verified and kept > 0, TerminalClass.PARTIAL),
        (cause in (CloseCause.CUTOFF, CloseCause.TIMEOUT), TerminalClass.TIMED_OUT),
        (True, TerminalClass.ATTEMPTS_EXHAUSTED),
    ]
    return next(terminal_class for matches, terminal_class in lines if matches)


def test_closing_is_total_and_its_first_matching_line_decides() -> None:
    seen = set()
    combinations = itertools.product(range(COUNTS_MAX + 1), repeat=len(ItemClass))
    for numbers in combinations:
        counts = dict(zip(ItemClass, numbers, strict=True))
        for cause, verified in itertools.product(CloseCause, (False, True)):
            state, terminal_class = terminal_outcome(counts, cause, object_verified=verified)
            assert terminal_class is expected_outcome(counts, cause, verified), (counts, cause, verified)
            assert state is STATE_OF_CLASS[terminal_class]
            seen.add(terminal_class)
    assert seen == set(TerminalClass)


@pytest.mark.parametrize("cause", list(CloseCause))
def test_no_job_succeeds_without_a_verified_object(cause: CloseCause) -> None:
    state, _ = terminal_outcome(count_classes([ItemClass.CLASSIFIED]), cause, object_verified=False)
    assert state is not JobState.SUCCEEDED


def test_item_classes_of_a_closed_job_sum_to_its_denominator() -> None:
    counts = count_classes([ItemClass.CLASSIFIED, ItemClass.REJECTED, None, ItemClass.CLASSIFIED])
    assert counts[ItemClass.CLASSIFIED] == 2
    assert counts[ItemClass.UNRESOLVED] == 0
    assert is_balanced(requested=3, counts=counts)
    assert not is_balanced(requested=4, counts=counts)


def test_the_example_of_12480_items_balances() -> None:
    counts = count_classes(()) | {ItemClass.CLASSIFIED: 12_360, ItemClass.REJECTED: 120}
    assert is_balanced(requested=12_480, counts=counts)
    assert not is_balanced(requested=12_481, counts=counts)


def test_kept_classes_and_held_phases_are_the_named_ones() -> None:
    assert {item_class.value for item_class in KEPT_CLASSES} == {"classified", "unchanged"}
    assert {phase.value for phase in HELD_PHASES} == {"reconciling", "quarantined"}
