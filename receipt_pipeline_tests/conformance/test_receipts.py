"""Three views of one job, made from the same events: each shows its own fields and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.audiences import DOCUMENTS, EVIDENCE, FIELDS, Audience
from receipt_pipeline.core.items import Decision
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.cancel import cancel_job
from receipt_pipeline.ledger.schema.jobs import attempts, jobs
from receipt_pipeline.ledger.status import read_status
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import event_kinds
from receipt_pipeline_tests.fakes.accounted_home import round_of_effects
from receipt_pipeline_tests.fakes.effects_home import a_stored_success, effects_home

CUSTOMER = {
    "contract", "job_id", "operation_class", "fingerprint", "seq", "state", "phase", "terminal_class",
    "reason", "items", "item_reasons", "progress", "completion", "result", "pins", "times", "attempts",
    "notifications", "investigations", "cancel_available", "warnings", "links", "next_action",
}  # fmt: skip
SUPPORT = {
    "asked", "stands", "safe_now", "promised", "item_reasons", "decision_reasons", "investigations",
    "effects", "evidence", "samples", "secondary", "ids",
}  # fmt: skip
CONSEQUENCE = ["asked", "stands", "safe_now"]
INTERNALS = ("wave_id", "send_no", "lease_owner", "host", "owner_epoch")
ENGINEERING = {
    "status", "lease", "attempts", "checkpoints", "effects", "deliveries", "evidence", "samples", "trail",
    "queries",
}  # fmt: skip
INTERNAL = {"lease_epoch", "lease_owner", "owner", "run_id", "provider_reference", "idempotency_key", "facts"}
NEVER = {"label", "fields", "uri", "item_id", "resolution"}


@pytest.fixture
def job_id(ledger: Ledger, tmp_path: Path) -> str:
    services = effects_home(ledger, tmp_path)
    outcomes = (builders.an_outcome(), builders.an_outcome(Decision.REVIEW), builders.a_rejection())
    job = a_stored_success(services, *outcomes)
    round_of_effects(services)
    return str(job.job_id)


def view(ledger: Ledger, job_id: str, audience: Audience) -> dict[str, Any]:
    with ledger.reading() as tx:
        return read_status(tx, job_id, audience=audience)


def names_in(value: Any) -> set[str]:
    if isinstance(value, dict):
        return set(value) | {name for inner in value.values() for name in names_in(inner)}
    if isinstance(value, list):
        return {name for inner in value for name in names_in(inner)}
    return set()


@pytest.mark.requirement("R122", "R123", "R127")
@pytest.mark.parametrize(
    ("audience", "wanted"),
    [(Audience.CUSTOMER, CUSTOMER), (Audience.SUPPORT, SUPPORT), (Audience.ENGINEERING, ENGINEERING)],
)
def test_a_view_has_exactly_its_fields(ledger: Ledger, job_id: str, audience: Audience, wanted: set[str]) -> None:
    document = view(ledger, job_id, audience)
    assert set(document) == wanted == set(FIELDS[audience])
    assert names_in(document) & NEVER == set()


@pytest.mark.requirement("R122", "R127")
def test_customer_and_support_see_nothing_of_ownership_and_providers(ledger: Ledger, job_id: str) -> None:
    assert names_in(view(ledger, job_id, Audience.CUSTOMER)) & INTERNAL == set()
    assert names_in(view(ledger, job_id, Audience.SUPPORT)) & INTERNAL == set()
    assert set(DOCUMENTS) == set(FIELDS) == set(Audience)


@pytest.mark.requirement("R123")
def test_the_internal_view_tells_epochs_attempts_checkpoints_references_and_runnable_queries(
    ledger: Ledger, job_id: str
) -> None:
    document = view(ledger, job_id, Audience.ENGINEERING)
    [attempt] = document["attempts"]
    assert set(attempt) == set(attempts.c.keys())
    assert document["lease"]["epoch"] == attempt["lease_epoch"] == 1
    assert [mark["items"] for mark in document["checkpoints"]] == [1, 2, 3]
    assert {row["kind"] for row in document["effects"]} == {"result_object", "review_tasks", "notification"}
    assert all(row["provider_reference"] for row in document["effects"])
    for query in document["queries"].values():
        with ledger.engine.connect() as connection:
            connection.exec_driver_sql(query).all()


@pytest.mark.requirement("R123")
def test_every_view_says_what_the_events_say(ledger: Ledger, job_id: str) -> None:
    customer, support, engineering = (view(ledger, job_id, audience) for audience in Audience)
    trail = engineering["trail"]
    assert [event["kind"] for event in trail] == event_kinds(ledger, job_id)
    [ending] = [event["data"] for event in trail if event["kind"] == "terminal"]
    for shown in (customer, support["stands"], engineering["status"]):
        assert (shown["state"], shown["terminal_class"]) == (ending["state"], ending["terminal_class"])
        assert shown["result"]["digest"] == ending["result_digest"]
        assert {name: count for name, count in shown["items"].items() if count} == {"requested": 3} | ending["items"]
    assert customer["attempts"] == [event["kind"] for event in trail].count("claimed")
    assert customer["seq"] == trail[-1]["seq"]
    assert support["evidence"] == engineering["evidence"]


@pytest.mark.requirement("R151")
def test_creation_delivery_processing_and_settlement_are_evidence_of_their_own(ledger: Ledger, tmp_path: Path) -> None:
    services = effects_home(ledger, tmp_path)
    job_id = a_stored_success(services).job_id
    assert set(EVIDENCE.values()) & set(event_kinds(ledger, job_id)) == {"message_created"}
    assert view(ledger, job_id, Audience.SUPPORT)["evidence"] == {
        "created": 1,
        "delivery": 0,
        "processing": 0,
        "settlement": 0,
    }
    round_of_effects(services)
    assert set(view(ledger, job_id, Audience.SUPPORT)["evidence"].values()) == {1}


@pytest.mark.requirement("R151")
def test_a_job_that_awaits_no_required_effect_is_settled_by_an_event_as_well(ledger: Ledger) -> None:
    with_none = builders.an_accepted_job(ledger)
    with ledger.transaction() as tx:
        cancel_job(tx, job_id=with_none.job_id, limits=builders.LIMITS)
    assert event_kinds(ledger, with_none.job_id).count("settled") == 1


@pytest.mark.requirement("R124")
def test_contract_and_codes_carry_versions_and_a_code_of_another_version_is_kept(ledger: Ledger, job_id: str) -> None:
    document = view(ledger, job_id, Audience.CUSTOMER)
    assert document["contract"] == "receipt-status/v1"
    assert document["completion"]["contract"] == "receipt-classification/v1"
    assert [reason["code"] for reason in document["item_reasons"]] == ["SCAN.BROKEN.v1"]
    with ledger.transaction() as tx:
        tx.execute(jobs.update().where(jobs.c.job_id == job_id).values(reason_code="SOMETHING.NEW.v9"))
    reason = view(ledger, job_id, Audience.CUSTOMER)["reason"]
    assert reason["code"] == "SOMETHING.NEW.v9"
    assert (reason["meaning"], reason["next_step"]) == ("This version does not know the reason.", "Upgrade to read it.")


@pytest.mark.requirement("R099")
def test_the_requester_reads_what_completion_means_for_the_job(ledger: Ledger, job_id: str) -> None:
    promised = view(ledger, job_id, Audience.CUSTOMER)["completion"]
    assert promised["required"] == ["result_object", "review_tasks"]
    assert promised["best_effort"] == ["notification"]
    assert promised["promise"]
    assert view(ledger, job_id, Audience.SUPPORT)["promised"] == promised
    required = {row["kind"] for row in view(ledger, job_id, Audience.ENGINEERING)["effects"] if row["required"]}
    assert required == set(promised["required"])


def test_samples_name_no_item_and_are_bounded(ledger: Ledger) -> None:
    job = builders.a_claimed_job(ledger, items=30)
    builders.finish_items(ledger, job, *(builders.a_rejection() for _ in range(30)))
    samples = view(ledger, job.token.job_id, Audience.SUPPORT)["samples"]
    assert [sample["ordinal"] for sample in samples] == list(range(20))
    assert {sample["reason"]["code"] for sample in samples} == {"SCAN.BROKEN.v1"}
    assert all(len(sample["source"]) == 12 for sample in samples)


@pytest.mark.requirement("R148")
def test_the_support_view_begins_with_the_consequence_and_ends_with_the_ids(ledger: Ledger, job_id: str) -> None:
    document = view(ledger, job_id, Audience.SUPPORT)
    order = list(document)
    assert order[:3] == CONSEQUENCE
    assert order[-2:] == ["secondary", "ids"]
    text = json.dumps({name: document[name] for name in order[:-1]})
    assert job_id not in text, "no id stands before the consequence and its evidence"
    assert [name for name in INTERNALS if name in json.dumps(document)] == []
    assert document["safe_now"]["command"] == "receipts result JOB --rejections FILE"
    assert document["ids"]["job_id"] == job_id
    assert document["ids"]["run_path"] == f"/runs/run-{builders.WORKER}"
