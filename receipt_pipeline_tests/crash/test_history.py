"""The judge of the journal finds every kind of broken promise, and none in a sound story."""

from __future__ import annotations

from typing import Any

import pytest

from receipt_pipeline_tests.crash.history import tally, violations


def event(kind: str, epoch: int | None = None, **data: Any) -> dict[str, Any]:
    """Return an event of the one job of these stories."""
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
    event("consumed", outcome="acted", tasks_made=1),
    event("consumed", outcome="duplicate", tasks_made=0),
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
    "a decision is acted upon twice": (12, event("consumed", outcome="acted", tasks_made=0)),
}


def test_a_sound_story_breaks_no_promise() -> None:
    assert violations(SOUND) == []
    counts = tally(SOUND)
    assert (counts["takeovers"], counts["refused_stale_writes"], counts["tasks_made"]) == (1, 1, 1)


@pytest.mark.parametrize("story", BROKEN)
def test_a_broken_promise_is_found(story: str) -> None:
    place, told = BROKEN[story]
    assert violations([*SOUND[:place], told, *SOUND[place:]]) != []


def test_a_success_that_nobody_acted_upon_is_found() -> None:
    assert violations(SOUND[:10]) == ["job_1: acted 0 times on ['succeeded']"]
