"""Failure classes, spaced retries, effect transitions, limits, reasons and failure points."""

from __future__ import annotations

from typing import Any

import pytest

from receipt_pipeline.core.attempts import FAILURE_RULES, FailureClass, retry_delay_s
from receipt_pipeline.core.effects import EFFECT_PROTOCOLS, EFFECT_TRANSITIONS, EffectKind, EffectState
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.failure_points import (
    ALTERATIONS,
    BOUNDARIES,
    POINTS,
    altered,
    install_plan,
    point,
    remove_plan,
)
from receipt_pipeline.core.limits import Staffing
from receipt_pipeline.core.reasons import STALE_LEASE, Remedy


def test_every_failure_class_has_one_rule() -> None:
    assert set(FAILURE_RULES) == set(FailureClass)


@pytest.mark.requirement("R108")
def test_the_class_of_a_failure_decides_remedy_and_budget() -> None:
    assert FAILURE_RULES[FailureClass.TRANSIENT].remedy is Remedy.RETRY
    assert FAILURE_RULES[FailureClass.TRANSIENT].spends_budget
    assert FAILURE_RULES[FailureClass.AMBIGUOUS_UPLOAD].remedy is Remedy.LOOK_UP
    assert FAILURE_RULES[FailureClass.VALIDATION].remedy is Remedy.FIX_INPUT
    free = {failure for failure, rule in FAILURE_RULES.items() if not rule.spends_budget}
    assert free == {FailureClass.VALIDATION, FailureClass.IDENTITY, FailureClass.DIVERGENT, FailureClass.YIELDED}


def test_retries_are_spaced_by_doubling_up_to_a_cap_with_a_quarter_of_jitter() -> None:
    for spent in range(1, 20):
        pause = retry_delay_s(job_id="job_1", spent=spent, base_s=5, cap_s=300)
        plain = min(300, 5 * 2 ** (spent - 1))
        assert plain <= pause <= plain * 1.25


def test_the_pause_replays_exactly_and_differs_between_jobs() -> None:
    def pause(job_id: str) -> float:
        return retry_delay_s(job_id=job_id, spent=2, base_s=5, cap_s=300)

    assert pause("job_1") == pause("job_1")
    assert len({pause(f"job_{number}") for number in range(20)}) > 10


def test_a_committed_or_abandoned_effect_stays_as_it_is() -> None:
    left = {before for before, _ in EFFECT_TRANSITIONS}
    assert left == {EffectState.INTENDED, EffectState.UNKNOWN, EffectState.FAILED}
    # What failed may still turn out to have happened; nothing goes back to an intent or a doubt.
    assert {after for before, after in EFFECT_TRANSITIONS if before is EffectState.FAILED} == {EffectState.COMMITTED}
    assert EffectState.INTENDED not in {after for _, after in EFFECT_TRANSITIONS}


def test_every_kind_of_effect_says_intent_call_reference_and_reconciliation() -> None:
    assert [protocol.kind for protocol in EFFECT_PROTOCOLS] == list(EffectKind)
    for protocol in EFFECT_PROTOCOLS:
        assert all((protocol.intent, protocol.call, protocol.reference, protocol.reconcile))


def test_the_rota_names_an_owner_for_every_kind() -> None:
    staffing = Staffing(rota={"default": "operations", "effect_gap": "finance"})
    assert staffing.owner_of("effect_gap") == "finance"
    assert staffing.owner_of("anything") == "operations"
    assert Staffing().owner_of("anything") in Staffing().principals


def test_an_error_says_code_place_meaning_and_facts() -> None:
    error = PipelineError(STALE_LEASE, pointer="/items/0", lease_epoch=4)
    assert str(error) == f"LEASE.STALE_EPOCH.v1 at /items/0: {STALE_LEASE.meaning} (lease_epoch: 4)"
    document = error.as_document()
    assert document["code"] == "LEASE.STALE_EPOCH.v1"
    assert document["remedy"] == "stand_down"
    assert document["next_step"] == STALE_LEASE.next_step
    assert document["facts"] == {"lease_epoch": 4}


class RecordingPlan:
    """Keeps what it was asked, and turns every value over."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def reached(self, point_name: str) -> None:
        self.seen.append(point_name)

    def altered(self, alteration: str, value: Any) -> Any:
        self.seen.append(alteration)
        return value[::-1]


def test_every_boundary_has_a_point_before_and_after() -> None:
    assert len(set(BOUNDARIES)) == len(BOUNDARIES)
    assert len(POINTS) == 2 * len(BOUNDARIES)


def test_a_plan_acts_at_points_only_while_it_is_installed() -> None:
    plan = RecordingPlan()
    point("claim.before")
    install_plan(plan)
    try:
        point("claim.after")
        assert altered("model.change_output", "abc") == "cba"
    finally:
        remove_plan()
    point("commit.before")
    assert altered("model.change_output", "abc") == "abc"
    assert plan.seen == ["claim.after", "model.change_output"]


def test_an_unknown_point_or_alteration_is_a_broken_promise() -> None:
    with pytest.raises(AssertionError):
        point("claim.during")
    with pytest.raises(AssertionError):
        altered("claim.before", 1)
    assert ALTERATIONS.isdisjoint(POINTS)
