"""Records a person's answer to an investigation, after one more look at what it asks about."""

from __future__ import annotations

from typing import Any

from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.reasons import FACT_STANDS
from receipt_pipeline.ledger.investigations import OPEN, read_investigation, resolve_investigation
from receipt_pipeline.ledger.object_records import results_to_check
from receipt_pipeline.ledger.standing_facts import OBJECT_KINDS, fact_stands
from receipt_pipeline.ledger.withdrawals import withdraw_result
from receipt_pipeline.reconciliation.compare import Depth, look_at_result
from receipt_pipeline.reconciliation.services import Reconciler
from receipt_pipeline.reconciliation.sweep import record_sightings

WITHDRAW = "withdraw"


def answer_question(
    services: Reconciler, investigation_id: str, *, note: str, by: str, withdraw: bool = False
) -> None:
    """Resolve a question by a note, or give the lost result up; the same answer again changes nothing.

    Args:
        withdraw: the result that is missing or altered is given up; only for questions about objects.
    Raises:
        NotFound: no such question. NotAllowed: INVESTIGATION.CLOSED.v1 when it was answered otherwise;
            INVESTIGATION.FACT_STANDS.v1 while what it asks about is still so.
    """
    with services.ledger.reading() as tx:
        question = read_investigation(tx, investigation_id)
    answer = f"{WITHDRAW}: {note}" if withdraw and note else WITHDRAW if withdraw else note
    if question["state"] == OPEN and question["kind"] in OBJECT_KINDS:
        _look_again(services, question)
    with services.ledger.transaction() as tx:
        question = read_investigation(tx, investigation_id)
        if question["state"] == OPEN:
            if withdraw:
                assert question["kind"] in OBJECT_KINDS, question["kind"]
                withdraw_result(tx, job_id=question["job_id"], by=by)
            elif fact_stands(tx, question, limits=services.limits):
                repair = question["allowed_repair"]
                raise NotAllowed(FACT_STANDS, investigation_id=investigation_id, allowed_repair=repair)
        resolve_investigation(tx, investigation_id, resolution=answer, by=by)


def _look_again(services: Reconciler, question: dict[str, Any]) -> None:
    """Look at the object now: it may have been restored since the last sweep."""
    with services.ledger.reading() as tx:
        rows = results_to_check(tx, job_ids=[question["job_id"]])
    sightings = [look_at_result(services, row, depth=Depth.CONTENT) for row in rows]
    record_sightings(services, sightings)
