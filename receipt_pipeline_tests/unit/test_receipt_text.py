"""The receipt as text: its shape, and the sum that balances, compared with the text as it should be."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest

from receipt_pipeline.core.items import ItemClass
from receipt_pipeline.core.receipt_text import kept_items_text, render_consequence, render_receipt
from receipt_pipeline.core.status_document import JobFacts, status_document
from receipt_pipeline_tests.builders import RELEASE

DAY = dt.datetime(2026, 11, 28, 14, 2, tzinfo=dt.UTC)

GOLDEN = """\
# operation
job exp_731 / fp 91aa91aa91aa / receipt-classification/v1
accepted 2026-11-28T14:02:00Z; 12,480 items requested; can no longer be canceled
# execution
attempts 2 / lease 5 / checkpoint 12,480 of 12,480
succeeded, phase closed; observed 2026-11-28T14:11:40Z, checkpoint 40 s before
# completion
12,360 classified / 120 rejected / 0 unresolved
12,360 + 120 + 0 = 12,480, the accepted scope
120 x SCAN.BROKEN.v1: {broken}
object 7afc7afc7afc verified
partial, closed 2026-11-28T14:11:00Z; notification: 1 delivered; all effects committed 2026-11-28T14:11:00Z"""


def facts(**given: Any) -> JobFacts:
    closed = DAY + dt.timedelta(minutes=9)
    job = {
        "job_id": "exp_731", "operation_class": "receipt-classification",
        "fingerprint": "sha256:" + "91aa" * 16, "latest_seq": 90, "state": "succeeded",
        "phase": "closed", "terminal_class": "partial",
        "reason_code": "", "items_requested": 12_480, "checkpoint": 12_480, "checkpoint_at": closed,
        "lease_expires_at": None, "result_digest": "sha256:" + "7afc" * 16, "result_size_bytes": 9,
        "result_purged_at": None, "submitted_at": DAY, "queue_deadline": DAY, "claimed_at": DAY,
        "terminal_at": closed, "settled_at": closed, "warnings": [], "parent_job_id": None,
        "superseded_by": None, "notification": "best_effort", "review_tasks": "required",
        "release_id": RELEASE.release_id,
    }  # fmt: skip
    job |= {name: getattr(RELEASE, name) for name in RELEASE.__slots__}
    return JobFacts(
        job=job | given,
        counts={ItemClass.CLASSIFIED: 12_360, ItemClass.REJECTED: 120},
        attempts=({}, {}),
        effects=(),
        deliveries=({"outcome": "delivered"},),
        investigations=(),
        quarantined=False,
        object_outcome="ok",
        read_at=closed + dt.timedelta(seconds=40),
        reasons={"SCAN.BROKEN.v1": 120},
    )


@pytest.mark.requirement("R125")
def test_a_receipt_shows_operation_execution_and_a_completion_that_balances() -> None:
    document = status_document(facts())
    meaning = document["item_reasons"][0]["meaning"]
    assert render_receipt(document, lease_epoch=5) == GOLDEN.format(broken=meaning)
    assert document["items"]["requested"] == 12_360 + 120 + 0


@pytest.mark.requirement("R122", "R125")
def test_without_its_epoch_a_receipt_is_the_customers() -> None:
    assert "lease" not in render_receipt(status_document(facts()))


def test_an_open_job_says_what_is_still_to_come_and_that_nothing_is_decided() -> None:
    open_row = {"state": "running", "phase": "working", "terminal_class": None, "terminal_at": None}
    known = facts(**open_row, result_digest=None, checkpoint=9_000, settled_at=None)
    text = render_receipt(status_document(replace(known, counts={ItemClass.CLASSIFIED: 9_000}, reasons={})))
    assert "checkpoint 9,000 of 12,480" in text
    assert "9,000 + 0 + 0 = 9,000; 3,480 not finished" in text
    assert text.endswith("not closed: no result is final yet")


def test_an_altered_object_is_not_called_verified() -> None:
    text = render_receipt(status_document(replace(facts(), object_outcome="mismatch")))
    assert "object 7afc7afc7afc NOT verified" in text


@pytest.mark.requirement("R148")
def test_a_reader_learns_first_what_was_asked_what_stands_and_what_is_safe() -> None:
    asked, stands, safe = render_consequence(status_document(facts())).splitlines()
    assert asked == "asked: receipt-classification of 12,480 items, 2026-11-28T14:02:00Z"
    assert stands == "result: succeeded / partial; 12,360 of 12,480 items in the verified result"
    assert safe.startswith("next: Read the result, then correct the scans")
    assert safe.endswith("(`receipts result JOB --rejections FILE`)")


WORKING = {"state": "running", "phase": "retry_wait", "terminal_class": None, "result_digest": None}
TIMED_OUT = {"state": "failed", "terminal_class": "timed_out", "result_digest": None}


@pytest.mark.parametrize(
    ("given", "stands"),
    [(WORKING, "running, retry wait; not closed yet"), (TIMED_OUT, "failed / timed_out; there is no result")],
)
def test_what_stands_never_promises_more_than_there_is(given: dict[str, Any], stands: str) -> None:
    assert kept_items_text(status_document(facts(**given))) == stands
    doubted = replace(facts(), object_outcome="mismatch")
    assert "NOT verified" in kept_items_text(status_document(doubted))
