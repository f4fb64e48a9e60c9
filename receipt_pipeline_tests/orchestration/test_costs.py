"""What jobs cost stands in the report, and equals a recount over the ledger's own rows."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from receipt_pipeline.app import analyst, maintenance
from receipt_pipeline.ledger.schema.effects import deliveries
from receipt_pipeline.ledger.schema.jobs import attempts, events, items, jobs
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome


@pytest.mark.requirement("R143")
def test_every_cost_line_equals_a_recount_of_the_ledgers_rows(opened: OpenedHome) -> None:
    job_id = str(opened.bench.finished(key="done", items=3)["job_id"])
    waiting = opened.submit("waiting")
    maintenance.publish_report(opened.app)
    costs = {row["job_id"]: row for row in analyst.query_report(opened.app, opened.principal, "SELECT * FROM costs")}
    assert set(costs) == {job_id, waiting}
    with opened.app.ledger.reading() as tx:
        (job,) = tx.rows(select(jobs).where(jobs.c.job_id == job_id))
        scans = tx.rows(select(items).where(items.c.job_id == job_id))
        tries = tx.rows(select(attempts).where(attempts.c.job_id == job_id))
        journal = tx.rows(select(events).where(events.c.job_id == job_id))
        sends = tx.rows(select(deliveries).where(deliveries.c.job_id == job_id))
    cost = costs[job_id]
    waited_s = (job["claimed_at"] - job["submitted_at"]).total_seconds()
    assert cost["input_bytes"] == sum(row["size_bytes"] for row in scans)
    assert cost["queued_item_s"] == pytest.approx(3 * waited_s)
    assert cost["compute_s"] == pytest.approx(sum(row["facts"]["seconds"] for row in tries))
    worked_s = sum(sum(row["facts"]["item_seconds"].values()) for row in tries)
    assert cost["warm_up_and_handling_s"] == pytest.approx(max(0, cost["compute_s"] - worked_s))
    assert cost["retry_compute_s"] == 0
    assert cost["repeated_invocations"] == 0
    assert cost["result_bytes"] == job["result_size_bytes"] > 0
    assert cost["notification_sends"] == len(sends) > 0
    assert cost["evidence_rows_per_item"] == pytest.approx(len(journal) / 3)
    assert cost["evidence_bytes_per_item"] > 0
    idle = costs[waiting]
    assert (idle["compute_s"], idle["result_bytes"], idle["notification_sends"]) == (0, 0, 0)
