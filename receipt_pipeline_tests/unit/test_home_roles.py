"""Who may ask what of a home: the role is checked behind every door, and a foreign id is an unknown one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.app.facade import Services
from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline_tests.builders import TENANT
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.orchestration.breakages import BREAKAGES
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home

ANYONE = frozenset({"submitter", "operator", "reviewer", "analyst"})
Order = Callable[[Services, OpenedHome, str], Any]

# Per order: the roles that may give it, and how it is given about one job.
ORDERS: dict[str, tuple[set[str] | frozenset[str], Order]] = {
    "status": (ANYONE, lambda it, home, job_id: it.status(job_id)),
    "result": (ANYONE, lambda it, home, job_id: it.result(job_id)),
    "jobs": (ANYONE, lambda it, home, job_id: it.jobs()),
    "submit": (
        {"submitter"},
        lambda it, home, job_id: it.submit(
            [home.folder / "handed-in" / "job" / "manifest.json"], key=None, new=False, release=None
        ),
    ),
    "classify": (
        {"submitter"},
        lambda it, home, job_id: it.classify_now(
            home.folder / "handed-in" / "job" / "scans" / "1.png", release=None
        ),
    ),
    "cancel": ({"submitter", "operator"}, lambda it, home, job_id: it.cancel(job_id)),
    "retry": ({"submitter", "operator"}, lambda it, home, job_id: it.retry(job_id)),
    "preview": ({"submitter", "operator"}, lambda it, home, job_id: it.preview_retry(job_id)),
    "supersede": ({"submitter", "operator"}, lambda it, home, job_id: it.supersede(job_id, by=job_id)),
    "rejections": (ANYONE, lambda it, home, job_id: it.rejections(job_id)),
    "grants": ({"operator"}, lambda it, home, job_id: it.grants()),
    "give": ({"operator"}, lambda it, home, job_id: it.give_grant("kim", roles=["submitter"], days=1)),
    "revoke": ({"operator"}, lambda it, home, job_id: it.revoke_grant("kim")),
    "reconcile": ({"operator"}, lambda it, home, job_id: it.reconcile_everything(by_person=True)),
    "requeue": ({"operator"}, lambda it, home, job_id: it.requeue(job_id)),
    "approve": ({"operator"}, lambda it, home, job_id: it.approve_release("2026-11")),
    "promote": ({"operator"}, lambda it, home, job_id: it.promote_release("2026-11", alias="other")),
    "retire": ({"operator"}, lambda it, home, job_id: it.retire_release("2026-10")),
    "investigations": ({"operator", "analyst"}, lambda it, home, job_id: it.investigations(only_open=True)),
    "assign": ({"operator"}, lambda it, home, job_id: it.assign_investigation("inv-1", owner="operations")),
    "resolve": (
        {"operator"},
        lambda it, home, job_id: it.resolve_investigation("inv-1", note="looked", keep=None, withdraw=False),
    ),
    "tasks": ({"reviewer", "operator"}, lambda it, home, job_id: it.review_tasks(only_open=True)),
    "finish": ({"reviewer"}, lambda it, home, job_id: it.finish_review_task("sha256:00")),
    "report": ({"analyst", "operator"}, lambda it, home, job_id: it.report(cutoff=None, published=False)),
    "query": ({"analyst", "operator"}, lambda it, home, job_id: it.query_report("SELECT 1")),
}


@pytest.fixture
def home(
    migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OpenedHome:
    """A home in which one job waits."""
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    home.submit("job")
    return home


def acting(home: OpenedHome, *, tenant: str = TENANT, roles: frozenset[str] = ANYONE) -> Services:
    """Return the same home as another principal sees it."""
    settings = home.services.settings.model_copy(update={"tenant": tenant, "roles": roles})
    return Services(
        settings=settings,
        ledger=home.services.ledger,
        objects=home.services.objects,
        image_digest=home.services.image_digest,
        chains=home.services.chains,
    )


def the_job(home: OpenedHome) -> str:
    return str(home.services.jobs()[0]["job_id"])


@pytest.mark.requirement("R024")
@pytest.mark.parametrize("name", ORDERS)
def test_an_order_is_refused_to_every_role_that_may_not_give_it(home: OpenedHome, name: str) -> None:
    allowed, order = ORDERS[name]
    job_id = the_job(home)
    before = home.bench.snapshot()
    with pytest.raises(NotAllowed, match=r"NOT_PERMITTED\.v1") as refused:
        order(acting(home, roles=ANYONE - allowed), home, job_id)
    assert set(refused.value.facts["needed"]) == set(allowed)
    assert home.bench.snapshot() == before


@pytest.mark.parametrize("role", sorted(ANYONE))
@pytest.mark.parametrize("name", ["status", "jobs", "report", "cancel", "tasks", "investigations", "promote"])
def test_a_role_that_may_give_an_order_is_enough_by_itself(home: OpenedHome, name: str, role: str) -> None:
    allowed, order = ORDERS[name]
    if role not in allowed:
        with pytest.raises(NotAllowed):
            order(acting(home, roles=frozenset({role})), home, the_job(home))
        return
    order(acting(home, roles=frozenset({role})), home, the_job(home))


@pytest.mark.requirement("R023")
@pytest.mark.parametrize(
    "name", ["status", "result", "cancel", "requeue", "retry", "supersede", "rejections"]
)
def test_another_tenants_id_is_answered_like_an_unknown_one(home: OpenedHome, name: str) -> None:
    order = ORDERS[name][1]
    other = acting(home, tenant="globex")
    before = home.bench.snapshot()
    answers = []
    for job_id in (the_job(home), "job_unknown"):
        with pytest.raises(NotFound, match=r"NOT_FOUND\.v1") as refused:
            order(other, home, job_id)
        answers.append(refused.value.as_document())
    assert answers[0] == answers[1]
    assert home.bench.snapshot() == before


@pytest.mark.requirement("R023")
def test_lists_of_another_tenant_show_nothing_of_this_one(home: OpenedHome) -> None:
    (wave_id,) = home.dispatch()
    assert home.run_wave(wave_id).success
    home.services.deliver_and_consume()
    other = acting(home, tenant="globex")
    assert other.jobs() == []
    assert other.review_tasks(only_open=False) == []
    (task,) = home.services.review_tasks(only_open=False)
    with pytest.raises(NotFound):
        other.finish_review_task(task["decision_id"])


def test_only_the_question_of_a_quarantine_takes_keep_or_withdraw(home: OpenedHome) -> None:
    with pytest.raises(NotFound):
        home.services.resolve_investigation("unknown", note="looked", keep=None, withdraw=False)
    BREAKAGES["every_accepted_job_is_terminal_or_owned"](home).mend()
    (question,) = home.services.investigations(only_open=True)
    for note, withdraw in (("looked", True), (" ", False)):
        with pytest.raises(InputRefused, match=r"FIELD\.INVALID\.v1"):
            home.services.resolve_investigation(
                question["investigation_id"], note=note, keep=None, withdraw=withdraw
            )
    with pytest.raises(NotAllowed, match=r"INVESTIGATION\.FACT_STANDS\.v1"):
        home.services.resolve_investigation(
            question["investigation_id"], note="seen", keep=None, withdraw=False
        )
    assert home.services.investigations(only_open=True) == [question]
