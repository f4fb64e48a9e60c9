"""A ledger with every outcome in it, settled once, stays as it is however often it is reconciled."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from receipt_pipeline.core.lifecycle import TERMINAL_STATES, JobState, TerminalClass
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline.reconciliation.compare import compare
from receipt_pipeline.reconciliation.repair import reconcile
from receipt_pipeline_tests.fakes.every_outcome import every_outcome
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S
from receipt_pipeline_tests.intake_home import names_in

TIMES = 3


def classes(house: ReconcileBench) -> dict[str, tuple[str, str | None]]:
    with house.ledger.reading() as tx:
        rows = tx.rows(select(jobs.c.job_id, jobs.c.state, jobs.c.terminal_class))
    return {row["job_id"]: (row["state"], row["terminal_class"]) for row in rows}


@pytest.mark.requirement("R158")
def test_repeated_reconciliations_change_no_row_and_no_file(house: ReconcileBench) -> None:
    made = every_outcome(house)
    before_any = classes(house)
    reached = {terminal_class for _, terminal_class in before_any.values() if terminal_class}
    assert reached == {terminal_class.value for terminal_class in TerminalClass}
    assert {state for state, _ in before_any.values()} == {*TERMINAL_STATES, JobState.RUNNING}
    assert {house.bench.job(made[name])["phase"] for name in ("quarantined", "reconciling")} == {
        "quarantined",
        "reconciling",
    }

    # The first pass finds what is wrong, asks about it and lets go of what it can decide.
    reconcile(house.services)
    house.clock.advance(PAST_RETRY_S)
    house.bench.work(made["reconciling"])
    house.finish_effects()
    reconcile(house.services)
    settled, files = house.snapshot(), names_in(house.folder)
    asked = house.open_subjects()
    assert {("missing_object", made["missing"]), ("altered_object", made["altered"])} <= {
        (kind, job_id) for kind, job_id in ((row["kind"], row["job_id"]) for row in house.investigations())
    }

    for _ in range(TIMES):
        summary = reconcile(house.services)
        house.finish_effects()
        assert not summary.changed
        assert house.snapshot() == settled
        assert names_in(house.folder) == files
    assert house.open_subjects() == asked
    kept = {job_id: standing for job_id, standing in before_any.items() if standing[1] is not None}
    assert {job_id: classes(house)[job_id] for job_id in kept} == kept
    assert not compare(house.services).agrees, "what nobody has decided yet is found every time"
