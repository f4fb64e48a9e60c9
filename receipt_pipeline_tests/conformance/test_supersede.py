"""Supersession on every ledger: both records name each other, and what was given up is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from receipt_pipeline.core.errors import InputRefused, LeaseLost, NotAllowed, NotFound
from receipt_pipeline.core.principals import Principal, Role
from receipt_pipeline.intake.context import IntakeContext
from receipt_pipeline.intake.supersede import supersede_by_job, supersede_by_manifest
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.claim import ClaimedJob
from receipt_pipeline.ledger.schema.jobs import events, jobs
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, assert_invariants, item_classes, job_row, snapshot
from receipt_pipeline_tests.fakes.worker_bench import ActingPlan
from receipt_pipeline_tests.intake_home import as_bytes, job_document

LIMITS = builders.LIMITS
KIM = Principal(builders.TENANT, builders.CALLER, frozenset(Role))


@pytest.fixture
def intake(ledger: Ledger, tmp_path: Path) -> IntakeContext:
    return IntakeContext(
        ledger=ledger,
        objects=LocalObjectStore(tmp_path / "objects"),
        limits=LIMITS,
        home=tmp_path,
        status_location=lambda tenant, job_id: f"{tenant}/{job_id}",
    )


def a_half_done_job(ledger: Ledger) -> ClaimedJob:
    job = builders.a_claimed_job(ledger, items=3)
    done = FinishedItem(ordinal=0, outcome=builders.an_outcome(), invocations=1)
    with ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=None, next_ordinal=0, limits=LIMITS)
        write_checkpoint(tx, job.token, finished=done, next_ordinal=1, limits=LIMITS)
    return job


def a_manifest(folder: Path, *, key: str = "better") -> Path:
    document = job_document(folder, count=2, key=key)
    path = folder / "manifest.json"
    path.write_bytes(as_bytes(document))
    return path


@pytest.mark.requirement("R061")
def test_a_manifest_that_replaces_a_job_is_accepted_in_its_lineage_and_both_name_each_other(
    intake: IntakeContext, tmp_path: Path
) -> None:
    old = a_half_done_job(intake.ledger)
    old_id = old.token.job_id
    manifest = a_manifest(tmp_path / "in")
    for _ in range(2):  # Saying it twice changes nothing.
        new_id = supersede_by_manifest(intake, old_id, manifest=manifest, principal=KIM)
    ledger = intake.ledger
    assert len(all_rows(ledger, jobs)) == 2
    assert item_classes(ledger, old_id) == ["classified", "superseded", "superseded"]
    assert job_row(ledger, new_id)["lineage"] == job_row(ledger, old_id)["lineage"]
    with ledger.reading() as tx:
        replaced, replacing = read_status(tx, old_id), read_status(tx, new_id)
    assert (replaced["state"], replaced["terminal_class"]) == ("canceled", "superseded")
    assert (replaced["links"]["superseded_by"], replacing["links"]["supersedes"]) == (new_id, [old_id])
    assert replaced["next_action"] == "follow_the_replacing_job"
    [told] = [row["data"] for row in all_rows(ledger, events, new_id) if row["kind"] == "supersedes"]
    assert told == {"replaced": old_id, "abandoned": ["r-002", "r-003"], "by": builders.CALLER}
    with pytest.raises(LeaseLost), ledger.transaction() as tx:
        write_checkpoint(tx, old.token, finished=None, next_ordinal=1, limits=LIMITS)
    assert_invariants(ledger, LIMITS)


@pytest.mark.requirement("R061")
def test_a_job_that_is_there_already_may_replace_another(intake: IntakeContext) -> None:
    old_id = a_half_done_job(intake.ledger).token.job_id
    new_id = builders.an_accepted_job(intake.ledger).job_id
    with ActingPlan({}) as plan:
        assert supersede_by_job(intake, old_id, by_job_id=new_id, principal=KIM) == new_id
        assert supersede_by_job(intake, old_id, by_job_id=new_id, principal=KIM) == new_id
    assert plan.passed[:2] == ["supersede.before", "supersede.after"]
    assert job_row(intake.ledger, old_id)["superseded_by"] == new_id
    assert [row["kind"] for row in all_rows(intake.ledger, events, new_id)].count("supersedes") == 1
    assert_invariants(intake.ledger, LIMITS)


def test_a_closed_job_is_not_replaced_and_its_manifest_is_not_accepted(intake: IntakeContext, tmp_path: Path) -> None:
    builders.approve(intake.ledger)
    done = builders.a_succeeded_job(intake.ledger).token.job_id
    before = (snapshot(intake.ledger, done), len(all_rows(intake.ledger, jobs)))
    with pytest.raises(NotAllowed) as refused:
        supersede_by_manifest(intake, done, manifest=a_manifest(tmp_path / "in"), principal=KIM)
    assert refused.value.reason.code == "STATE.REFUSES.v1"
    assert (snapshot(intake.ledger, done), len(all_rows(intake.ledger, jobs))) == before


def test_a_job_is_replaced_neither_by_itself_nor_by_one_that_was_given_up(intake: IntakeContext) -> None:
    ledger = intake.ledger
    old_id = builders.an_accepted_job(ledger).job_id
    canceled = builders.an_accepted_job(ledger).job_id
    with ledger.transaction() as tx:
        cancel_job(tx, job_id=canceled, limits=LIMITS)
    for by_job_id in (old_id, canceled):
        with pytest.raises(InputRefused) as refused:
            supersede_by_job(intake, old_id, by_job_id=by_job_id, principal=KIM)
        assert refused.value.reason.code == "SUPERSEDE.ITSELF.v1"
    foreign = builders.an_accepted_job(ledger, tenant="globex").job_id
    for unknown in (foreign, "job_unknown"):
        with pytest.raises(NotFound):
            supersede_by_job(intake, old_id, by_job_id=unknown, principal=KIM)
    assert job_row(ledger, old_id)["state"] == "accepted"
