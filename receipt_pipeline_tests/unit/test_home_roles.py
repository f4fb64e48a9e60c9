"""Who may ask what of a home: the role is checked behind every door, and a foreign id is an unknown one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.app import admin, analyst, maintenance, operator, reviewer, submitter
from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.principals import Principal
from receipt_pipeline_tests.builders import CALLER, TENANT
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.breakages import BREAKAGES
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home

ANYONE = frozenset({"submitter", "operator", "reviewer", "analyst"})
Order = Callable[[OpenedHome, Principal, str], Any]

# Per order: the roles that may give it, and how it is given about one job.
ORDERS: dict[str, tuple[set[str] | frozenset[str], Order]] = {
    "status": (ANYONE, lambda home, who, job_id: submitter.read_status(home.app, who, job_id)),
    "result": (ANYONE, lambda home, who, job_id: submitter.read_result(home.app, who, job_id)),
    "jobs": (ANYONE, lambda home, who, job_id: submitter.list_jobs(home.app, who)),
    "submit": (
        {"submitter"},
        lambda home, who, job_id: submitter.submit(
            home.app,
            who,
            [home.folder / "handed-in" / "job" / "manifest.json"],
        ),
    ),
    "classify": (
        {"submitter"},
        lambda home, who, job_id: submitter.classify_scan(
            home.app, who, home.folder / "handed-in" / "job" / "scans" / "1.png"
        ),
    ),
    "cancel": (
        {"submitter", "operator"},
        lambda home, who, job_id: submitter.cancel_job(home.app, who, job_id),
    ),
    "retry": (
        {"submitter", "operator"},
        lambda home, who, job_id: submitter.retry_job(home.app, who, job_id),
    ),
    "preview": (
        {"submitter", "operator"},
        lambda home, who, job_id: submitter.preview_retry(home.app, who, job_id),
    ),
    "supersede": (
        {"submitter", "operator"},
        lambda home, who, job_id: submitter.supersede_job(home.app, who, job_id, by=job_id),
    ),
    "rejections": (ANYONE, lambda home, who, job_id: submitter.list_rejections(home.app, who, job_id)),
    "grants": ({"operator"}, lambda home, who, job_id: admin.list_grants(home.app, who)),
    "give": (
        {"operator"},
        lambda home, who, job_id: admin.give_grant(home.app, who, "kim", roles=["submitter"], days=1),
    ),
    "revoke": ({"operator"}, lambda home, who, job_id: admin.revoke_grant(home.app, who, "kim")),
    "reconcile": (
        {"operator"},
        lambda home, who, job_id: operator.reconcile(home.app, who),
    ),
    "requeue": ({"operator"}, lambda home, who, job_id: operator.requeue_job(home.app, who, job_id)),
    "approve": ({"operator"}, lambda home, who, job_id: admin.approve_release(home.app, who, "2026-11")),
    "promote": (
        {"operator"},
        lambda home, who, job_id: admin.promote_release(home.app, who, "2026-11", alias="other"),
    ),
    "retire": ({"operator"}, lambda home, who, job_id: admin.retire_release(home.app, who, "2026-10")),
    "investigations": (
        {"operator", "analyst"},
        lambda home, who, job_id: operator.list_investigations(home.app, who, only_open=True),
    ),
    "assign": (
        {"operator"},
        lambda home, who, job_id: operator.assign_investigation(home.app, who, "inv-1", owner="operations"),
    ),
    "resolve": (
        {"operator"},
        lambda home, who, job_id: operator.resolve_investigation(home.app, who, "inv-1", note="looked"),
    ),
    "tasks": (
        {"reviewer", "operator"},
        lambda home, who, job_id: reviewer.list_tasks(home.app, who, only_open=True),
    ),
    "finish": ({"reviewer"}, lambda home, who, job_id: reviewer.finish_task(home.app, who, "sha256:00")),
    "report": (
        {"analyst", "operator"},
        lambda home, who, job_id: analyst.read_report(home.app, who),
    ),
    "query": (
        {"analyst", "operator"},
        lambda home, who, job_id: analyst.query_report(home.app, who, "SELECT 1"),
    ),
}


@pytest.fixture
def home(
    migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OpenedHome:
    """A home in which one job waits."""
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    home.submit("job")
    return home


def principal(*, tenant: str = TENANT, roles: frozenset[str] = ANYONE) -> Principal:
    """Return someone else who asks the same instance."""
    return Principal(tenant, CALLER, roles)


def the_job(home: OpenedHome) -> str:
    return str(submitter.list_jobs(home.app, home.principal)[0]["job_id"])


@pytest.mark.requirement("R024")
@pytest.mark.parametrize("name", ORDERS)
def test_an_order_is_refused_to_every_role_that_may_not_give_it(home: OpenedHome, name: str) -> None:
    allowed, order = ORDERS[name]
    job_id = the_job(home)
    before = home.bench.snapshot()
    with pytest.raises(NotAllowed, match=r"NOT_PERMITTED\.v1") as refused:
        order(home, principal(roles=ANYONE - allowed), job_id)
    assert set(refused.value.facts["needed"]) == set(allowed)
    assert home.bench.snapshot() == before


@pytest.mark.parametrize("role", sorted(ANYONE))
@pytest.mark.parametrize("name", ["status", "jobs", "report", "cancel", "tasks", "investigations", "promote"])
def test_a_role_that_may_give_an_order_is_enough_by_itself(home: OpenedHome, name: str, role: str) -> None:
    allowed, order = ORDERS[name]
    if role not in allowed:
        with pytest.raises(NotAllowed):
            order(home, principal(roles=frozenset({role})), the_job(home))
        return
    order(home, principal(roles=frozenset({role})), the_job(home))


@pytest.mark.requirement("R023")
@pytest.mark.parametrize(
    "name", ["status", "result", "cancel", "requeue", "retry", "supersede", "rejections"]
)
def test_another_tenants_id_is_answered_like_an_unknown_one(home: OpenedHome, name: str) -> None:
    order = ORDERS[name][1]
    other = principal(tenant="globex")
    before = home.bench.snapshot()
    answers = []
    for job_id in (the_job(home), "job_unknown"):
        with pytest.raises(NotFound, match=r"NOT_FOUND\.v1") as refused:
            order(home, other, job_id)
        answers.append(refused.value.as_document())
    assert answers[0] == answers[1]
    assert home.bench.snapshot() == before


@pytest.mark.requirement("R023")
def test_lists_of_another_tenant_show_nothing_of_this_one(home: OpenedHome) -> None:
    (wave_id,) = home.dispatch()
    assert home.run_wave(wave_id).success
    maintenance.deliver_and_consume(home.app)
    other = principal(tenant="globex")
    assert submitter.list_jobs(home.app, other) == []
    assert reviewer.list_tasks(home.app, other, only_open=False) == []
    (task,) = reviewer.list_tasks(home.app, home.principal, only_open=False)
    with pytest.raises(NotFound):
        reviewer.finish_task(home.app, other, task["decision_id"])


def test_only_the_question_of_a_quarantine_takes_keep_or_withdraw(home: OpenedHome) -> None:
    with pytest.raises(NotFound):
        operator.resolve_investigation(home.app, home.principal, "unknown", note="looked")
    BREAKAGES["every_accepted_job_is_terminal_or_owned"](home).mend()
    (question,) = operator.list_investigations(home.app, home.principal, only_open=True)
    for note, withdraw in (("looked", True), (" ", False)):
        with pytest.raises(InputRefused, match=r"FIELD\.INVALID\.v1"):
            operator.resolve_investigation(
                home.app,
                home.principal,
                question["investigation_id"],
                note=note,
                withdraw=withdraw,
            )
    with pytest.raises(NotAllowed, match=r"INVESTIGATION\.FACT_STANDS\.v1"):
        operator.resolve_investigation(
            home.app,
            home.principal,
            question["investigation_id"],
            note="seen",
        )
    assert operator.list_investigations(home.app, home.principal, only_open=True) == [question]
