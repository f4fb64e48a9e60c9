"""Failure plans: read strictly, refused where drills are off, and acting at the named passage only."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from receipt_pipeline.core.errors import InputRefused, NotAllowed
from receipt_pipeline.core.failure_points import altered, install_plan, point, remove_plan
from receipt_pipeline.core.items import Decision
from receipt_pipeline.defs import resources
from receipt_pipeline.defs.resources import install_plan_of_environment
from receipt_pipeline.drill.failure_plan import (
    DrillFault,
    Fault,
    Plan,
    PlannedFault,
    install_from,
    plan_text,
    read_plan,
)
from receipt_pipeline_tests.builders import an_outcome


@pytest.fixture(autouse=True)
def _no_plan_stays() -> Iterator[None]:
    yield
    remove_plan()


def install(*faults: PlannedFault) -> Plan:
    plan = Plan(faults)
    install_plan(plan)
    return plan


def test_a_plan_survives_its_way_through_the_environment() -> None:
    faults = (
        PlannedFault("claim.before", Fault.KILL),
        PlannedFault("model.after", Fault.STALL, first=2, times=3, seconds=1.5),
        PlannedFault("outbox_send.drop", Fault.ALTER),
    )
    assert read_plan(plan_text(*faults)) == faults


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "{}x",
        "3",
        '["claim.before"]',
        '[{"point": "claim.before"}]',
        '[{"point": "claim.before", "fault": "explode"}]',
        '[{"point": "claim.before", "fault": "kill", "colour": "red"}]',
        '[{"fault": "kill"}]',
        '[{"point": "claim.during", "fault": "kill"}]',
        '[{"point": "no_such.drop", "fault": "alter"}]',
    ],
)
def test_a_text_that_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(InputRefused, match=r"SETTING\.INVALID\.v1") as refused:
        read_plan(text)
    assert refused.value.facts["variable"] == "RECEIPTS_DRILL_PLAN"


def test_a_plan_is_refused_where_drills_are_not_enabled() -> None:
    text = plan_text(PlannedFault("claim.before", Fault.ERROR))
    with pytest.raises(NotAllowed) as refused:
        install_from(text, enabled=False, silence=lambda: None)
    assert refused.value.reason.code == "DRILL.DISABLED.v1"
    point("claim.before")


def test_the_code_location_refuses_the_plan_of_an_environment_without_drills(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECEIPTS_DRILL_PLAN", plan_text(PlannedFault("claim.before", Fault.ERROR)))
    monkeypatch.setattr(resources, "_plans_installed", set())
    with pytest.raises(NotAllowed, match=r"DRILL\.DISABLED\.v1"):
        install_plan_of_environment()
    monkeypatch.setenv("RECEIPTS_DRILLS", "enabled")
    install_plan_of_environment()
    with pytest.raises(DrillFault):
        point("claim.before")


def test_no_plan_is_no_drill() -> None:
    assert not install_from("", enabled=False, silence=lambda: None)
    assert not install_from("", enabled=True, silence=lambda: None)
    point("claim.before")
    assert altered("outbox_send.drop", "message") == "message"


def test_a_fault_acts_from_its_first_passage_on_for_so_many_passages() -> None:
    install(PlannedFault("upload.before", Fault.ERROR, first=2, times=2))
    seen = []
    for _ in range(5):
        try:
            point("upload.before")
            seen.append("passed")
        except DrillFault as fault:
            seen.append(f"{fault.reason.code} {fault.facts['failure_point']}")
    failed = "DRILL.FAILED_HERE.v1 upload.before"
    assert seen == ["passed", failed, failed, "passed", "passed"]


def test_points_are_counted_apart() -> None:
    plan = install(PlannedFault("upload.after", Fault.ERROR, first=2))
    for name in ("upload.before", "upload.after", "upload.before"):
        point(name)
    assert plan.passages == {"upload.before": 2, "upload.after": 1}
    with pytest.raises(DrillFault):
        point("upload.after")


def test_kill_sends_the_process_itself_a_signal_that_nothing_catches(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    install(PlannedFault("commit.before", Fault.KILL))
    point("commit.before")
    assert sent == [(os.getpid(), signal.SIGKILL)]


@pytest.mark.parametrize(("fault", "silenced"), [(Fault.HANG, 1), (Fault.STALL, 0)])
def test_hang_silences_the_heartbeat_and_stall_leaves_it(
    monkeypatch: pytest.MonkeyPatch, fault: Fault, silenced: int
) -> None:
    calls: list[str] = []
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    text = plan_text(PlannedFault("checkpoint.before", fault, seconds=8))
    assert install_from(text, enabled=True, silence=lambda: calls.append("silent"))
    point("checkpoint.before")
    assert (len(calls), waited) == (silenced, [8])


def test_an_alteration_changes_one_output_so_that_it_is_another_decision() -> None:
    install(PlannedFault("model.change_output", Fault.ALTER, first=2))
    outcome = an_outcome(Decision.CLEAR)
    assert altered("model.change_output", outcome) is outcome
    other: Any = altered("model.change_output", outcome)
    assert other.outcome_digest != outcome.outcome_digest
    assert altered("model.change_output", outcome) is outcome


def test_a_dropped_message_is_nothing() -> None:
    install(PlannedFault("outbox_send.drop", Fault.ALTER))
    assert altered("outbox_send.drop", "message") is None
    assert altered("outbox_send.drop", "message") == "message"


def test_the_text_of_a_plan_is_plain_json() -> None:
    (entry,) = json.loads(plan_text(PlannedFault("claim.before", Fault.KILL)))
    once = {"first": 1, "times": 1, "seconds": 3600.0}
    assert entry == {"point": "claim.before", "fault": "kill", "until": "", "witness": ""} | once
