"""A result is served verified, or refused by name; accepted is never a decision."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from sqlalchemy import update

from receipt_pipeline.core.errors import NotAllowed, NotFound, ObjectFault
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.effects.results import read_result
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.rows import read_items
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline_tests.builders import LIMITS, TENANT
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.worker_bench import WorkerBench


@pytest.mark.requirement("R007", "R017")
def test_an_accepted_job_is_not_decided_and_shows_no_score(bench: WorkerBench, services: EffectContext) -> None:
    job_id = bench.accept()

    with pytest.raises(NotAllowed, match=r"RESULT\.NOT_READY\.v1"):
        read_result(services, job_id, tenant=TENANT)
    with bench.ledger.reading() as tx:
        status = read_status(tx, job_id, tenant=TENANT)
        (item,) = read_items(tx, job_id)
    assert item.decision is None
    assert status["state"] == "accepted"
    assert not {"decision", "risk_ppm", "score"} & set(status)


@pytest.mark.requirement("R039")
def test_a_succeeded_job_serves_its_items_and_restates_its_pins(bench: WorkerBench, services: EffectContext) -> None:
    job_id = bench.accept(items=2)
    bench.work(job_id)

    result = read_result(services, job_id, tenant=TENANT)

    assert result["object"]["verified"] is True
    assert [item["class"] for item in result["items"]] == ["classified", "classified"]
    assert [item["label"] for item in result["items"]] == [row["label"] for row in bench.items(job_id)]
    assert result["pins"]["release_id"] == bench.job(job_id)["release_id"]


def test_a_missing_or_altered_object_is_a_fault_and_nothing_is_served(
    bench: WorkerBench, services: EffectContext, tmp_path: Path
) -> None:
    job_id = bench.accept()
    bench.work(job_id)
    path = tmp_path / "objects" / bench.job(job_id)["result_key"]
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"a", b"b", 1))

    with pytest.raises(ObjectFault, match=r"RESULT\.MISMATCH\.v1"):
        read_result(services, job_id, tenant=TENANT)

    path.unlink()
    with pytest.raises(ObjectFault, match=r"RESULT\.MISSING\.v1"):
        read_result(services, job_id, tenant=TENANT)


def test_a_job_that_closed_without_an_object_shows_what_it_kept_and_says_so(
    bench: WorkerBench, services: EffectContext
) -> None:
    job_id = bench.accept(items=2)
    with bench.ledger.transaction() as tx:
        cancel_job(tx, job_id=job_id, limits=LIMITS)

    result = read_result(services, job_id, tenant=TENANT)

    assert (result["object"], result["reason"]) == (None, "RESULT.NONE.v1")
    assert [item["class"] for item in result["items"]] == ["cancelled", "cancelled"]


def test_a_purged_result_is_refused_by_name_while_the_record_stays(
    bench: WorkerBench, services: EffectContext, clock: FakeClock
) -> None:
    job_id = bench.accept()
    bench.work(job_id)
    with bench.ledger.transaction() as tx:
        purged_at = clock.now() + dt.timedelta(days=31)
        tx.execute(update(jobs).where(jobs.c.job_id == job_id).values(result_purged_at=purged_at))

    with pytest.raises(NotAllowed, match=r"RESULT\.RETENTION_PASSED\.v1"):
        read_result(services, job_id, tenant=TENANT)
    assert bench.job(job_id)["state"] == "succeeded"


def test_an_unknown_and_a_foreign_job_get_the_same_answer(bench: WorkerBench, services: EffectContext) -> None:
    job_id = bench.accept()

    with pytest.raises(NotFound) as foreign:
        read_result(services, job_id, tenant="somebody-else")
    with pytest.raises(NotFound) as unknown:
        read_result(services, "job_unknown", tenant=TENANT)
    assert foreign.value.reason == unknown.value.reason
    assert "NOT_FOUND.v1" in str(unknown.value)
