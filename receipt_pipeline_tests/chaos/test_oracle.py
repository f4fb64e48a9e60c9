"""The oracle finds every kind of defect in a journal, and none in a sound one."""

from __future__ import annotations

from typing import Any

import pytest

from receipt_pipeline.core.limits import Limits
from receipt_pipeline_tests.chaos.oracle.effects import one_action_per_decision
from receipt_pipeline_tests.chaos.oracle.evidence import TABLES, LedgerRows, find_violations
from receipt_pipeline_tests.chaos.oracle.records import (
    journal_has_one_holder_at_a_time,
    journal_records_each_event_once,
)


def event(kind: str, epoch: int | None = None, **data: Any) -> dict[str, Any]:
    """Return an event of the one job of these journals."""
    return {"job_id": "job_1", "kind": kind, "lease_epoch": epoch, "seq": 0, "data": data}


SOUND = [
    event("accepted"),
    event("claimed", 1),
    event("attempt_closed", 1, outcome="lost"),
    event("claimed", 3),
    event("item_finished", 3, ordinal=0),
    event("write_refused", 1),
    event("result_intended", 3),
    event("terminal", 3, state="succeeded"),
    event("message_created"),
    event("attempt_closed", 3, outcome="committed"),
]
BROKEN = {
    "the same epoch is claimed twice": (3, event("claimed", 1)),
    "a job is claimed while another holds it": (4, event("claimed", 4)),
    "an item is written under an old epoch": (4, event("item_finished", 1, ordinal=1)),
    "an item is written after the attempt was closed": (3, event("item_finished", 1, ordinal=1)),
    "a result is intended under an old epoch": (5, event("result_intended", 1)),
    "an attempt is closed that nobody holds": (3, event("attempt_closed", 1, outcome="lost")),
    "an item is finished twice": (5, event("item_finished", 3, ordinal=0)),
    "a job ends twice": (9, event("terminal", 3, state="succeeded")),
    "a job ends under an old epoch": (7, event("terminal", 1, state="succeeded")),
    "a closed job is claimed": (10, event("claimed", 4)),
    "a job is accepted twice": (1, event("accepted")),
    "a message is made twice": (9, event("message_created")),
}


def violations(journal: list[dict[str, Any]]) -> list[str]:
    """Return what the invariants of the journal find in one job's events."""
    rows: dict[str, list[Any]] = {table: [] for table in TABLES}
    rows |= {"jobs": [{"job_id": "job_1"}], "events": journal}
    found = LedgerRows(rows=rows, limits=Limits(), now=0, second=1)
    checked = (journal_has_one_holder_at_a_time, journal_records_each_event_once)
    return [str(violation) for violation in find_violations(found, checked)]


def test_a_sound_journal_breaks_no_invariant() -> None:
    assert violations(SOUND) == []


@pytest.mark.parametrize("defect", BROKEN)
def test_a_defect_in_the_journal_is_found(defect: str) -> None:
    place, added = BROKEN[defect]
    assert violations([*SOUND[:place], added, *SOUND[place:]]) != []


@pytest.mark.parametrize(("acted", "tasks"), [(1, 1), (0, 0), (2, 1), (1, 2)])
def test_a_success_is_acted_upon_once_with_one_task_per_decision(acted: int, tasks: int) -> None:
    rows: dict[str, list[Any]] = {
        "jobs": [{"job_id": "job_1"}],
        "items": [{"job_id": "job_1", "item_class": "classified", "decision_id": "d-0"}],
        "effects": [{"job_id": "job_1", "kind": "review_tasks", "state": "committed"}],
        "consumed": [{"job_id": "job_1", "outcome": "acted", "tasks_made": number == 0} for number in range(acted)],
        "review_tasks": [{"job_id": "job_1", "decision_id": f"d-{number}"} for number in range(tasks)],
    }
    found = LedgerRows(rows=rows, limits=Limits(), now=0, second=1)
    assert bool(list(find_violations(found, (one_action_per_decision,)))) is ((acted, tasks) != (1, 1))
