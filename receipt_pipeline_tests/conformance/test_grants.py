"""Grants on every ledger: the newest decides, none is edited, and a revocation shows in what follows."""

from __future__ import annotations

import pytest

from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.principals import Principal, Role
from receipt_pipeline.core.reasons import AUTHORITY_EXPIRED, AUTHORITY_REVOKED
from receipt_pipeline.ledger.effects.consumption import make_review_tasks
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.grants import acting_under_grant, authority_fault, give_grant, list_grants, revoke_grant
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.ledger.schema.effects import review_tasks
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.builders import CALLER, TENANT
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, assert_invariants, event_kinds, job_row
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

KIM = Principal(TENANT, CALLER, frozenset({Role.SUBMITTER, Role.REVIEWER}))


def revoke(ledger: Ledger) -> int:
    with ledger.transaction() as tx:
        return revoke_grant(tx, tenant=TENANT, caller=CALLER, actor="operations")


def test_without_a_grant_the_settings_decide_alone(ledger: Ledger) -> None:
    with ledger.reading() as tx:
        assert acting_under_grant(tx, KIM) == KIM
        assert authority_fault(tx, tenant=TENANT, caller=CALLER, role=Role.SUBMITTER) is None


def test_the_newest_grant_decides_and_ends_at_its_time(ledger: Ledger, clock: FakeClock) -> None:
    with ledger.transaction() as tx:
        give_grant(tx, tenant=TENANT, caller=CALLER, roles=["submitter"], actor="operations", lasts_s=10)
        assert acting_under_grant(tx, KIM).roles == {"submitter"}
        assert authority_fault(tx, tenant=TENANT, caller=CALLER, role=Role.REVIEWER) is AUTHORITY_REVOKED
    clock.advance(10)
    with ledger.transaction() as tx:
        assert authority_fault(tx, tenant=TENANT, caller=CALLER) is AUTHORITY_EXPIRED
        with pytest.raises(NotAllowed):
            acting_under_grant(tx, KIM)
        give_grant(tx, tenant=TENANT, caller=CALLER, roles=["submitter"], actor="operations")
        assert authority_fault(tx, tenant=TENANT, caller=CALLER) is None
        assert [row["grant_no"] for row in list_grants(tx, tenant=TENANT)] == [1, 2]
        assert list_grants(tx, tenant="globex") == []


@pytest.mark.requirement("R042")
def test_a_grant_revoked_while_a_job_runs_keeps_its_denominator_and_sends_its_decisions_to_review(
    ledger: Ledger,
) -> None:
    job = builders.a_claimed_job(ledger, items=2)
    job_id = job.token.job_id
    assert revoke(ledger) == 1
    assert revoke(ledger) == 1, "a second revocation changes nothing"
    assert event_kinds(ledger, job_id).count("grant_changed") == 2, "given empty, then revoked"
    builders.finish_items(ledger, job)
    builders.publish(ledger, job)
    row = job_row(ledger, job_id)
    assert (row["state"], row["terminal_class"], row["items_requested"]) == ("succeeded", "complete", 2)
    with ledger.transaction() as tx:
        assert make_review_tasks(tx, JobRow.from_row(row)) == 2
    tasks = all_rows(ledger, review_tasks, job_id)
    assert [(task["decision"], task["state"], task["reasons"]) for task in tasks] == [
        (Decision.CLEAR, "open", ["AUTHORITY.REVOKED.v1"])
    ] * 2
    assert_invariants(ledger, builders.LIMITS)
