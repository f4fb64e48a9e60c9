"""Each gap of the protocol table is seeded by hand; its own query names exactly that job (R096)."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.effects import PROTOCOL_OF, EffectKind
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.reconciliation.sweep import sweep_objects
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.reconcile_bench import ReconcileBench, job_of, two_finished_jobs

ORPHAN = "results/stranger/1-00"
# Per gap: what is done behind the ledger's back. Object gaps are made in the store.
SEEDS: dict[tuple[EffectKind, str], str] = {
    (EffectKind.RESULT_OBJECT, "effect_without_ledger"): "store a stranger",
    (EffectKind.RESULT_OBJECT, "ledger_without_effect"): "remove the object",
    (EffectKind.RESULT_OBJECT, "required_missing"): (
        "UPDATE effects SET state = 'intended' WHERE job_id = :job AND kind = 'result_object'"
    ),
    (EffectKind.REVIEW_TASKS, "effect_without_ledger"): (
        "UPDATE effects SET state = 'abandoned' WHERE job_id = :job AND kind = 'review_tasks'"
    ),
    (EffectKind.REVIEW_TASKS, "ledger_without_effect"): (
        "DELETE FROM review_tasks WHERE job_id = :job AND ordinal = 0"
    ),
    (EffectKind.REVIEW_TASKS, "required_missing"): (
        "DELETE FROM effects WHERE job_id = :job AND kind = 'review_tasks'"
    ),
    (EffectKind.NOTIFICATION, "effect_without_ledger"): (
        "UPDATE effects SET state = 'failed' WHERE job_id = :job AND kind = 'notification'"
    ),
    (EffectKind.NOTIFICATION, "ledger_without_effect"): (
        "UPDATE deliveries SET outcome = 'dropped' WHERE job_id = :job"
    ),
    (EffectKind.NOTIFICATION, "required_missing"): (
        "DELETE FROM deliveries WHERE job_id = :job; DELETE FROM outbox WHERE job_id = :job"
    ),
}
KINDS = (EffectKind.RESULT_OBJECT, EffectKind.REVIEW_TASKS, EffectKind.NOTIFICATION)


@pytest.fixture
def house(ledger: Ledger, clock: FakeClock, tmp_path: Path) -> ReconcileBench:
    return two_finished_jobs(ledger, clock, tmp_path)


def found(house: ReconcileBench, name: str) -> list[dict[str, Any]]:
    sweep_objects(house.services)
    return house.find(name)


def seed(house: ReconcileBench, how: str, job_id: str) -> None:
    if how == "store a stranger":
        house.store_at(ORPHAN, b"nobody's", age_s=house.limits.retention.orphan_grace_s + 1)
    elif how == "remove the object":
        house.path(house.bench.job(job_id)["result_key"]).unlink()
    else:
        for statement in how.split(";"):
            house.edit(statement, job=job_id)


@pytest.mark.requirement("R096")
@pytest.mark.parametrize(("kind", "gap"), SEEDS)
def test_a_seeded_gap_is_found_by_the_query_that_the_table_names(
    house: ReconcileBench, kind: EffectKind, gap: str
) -> None:
    name, fault = getattr(PROTOCOL_OF[kind].gaps, gap).split(".")
    assert found(house, name) == []
    job_id = str(job_of(house, "one")["job_id"])
    seed(house, SEEDS[kind, gap], job_id)
    [row] = [row for row in found(house, name) if row["fault"] == fault]
    assert row["job_id"] == (None if fault == "orphan" else job_id)
    assert row.get("effect", kind) == kind


def test_every_gap_of_an_effect_in_the_ledger_is_seeded() -> None:
    gaps = [field.name for field in dataclasses.fields(PROTOCOL_OF[EffectKind.NOTIFICATION].gaps)]
    assert set(SEEDS) == {(kind, gap) for kind in KINDS for gap in gaps}
