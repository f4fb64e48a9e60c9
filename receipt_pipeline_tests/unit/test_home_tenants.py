"""Two tenants of one home: every door that reads shows each its own, and nothing of the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.app import analyst, maintenance, operator, reviewer, submitter
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.core.alerts import AlertKind
from receipt_pipeline.core.audiences import ROLES_OF_AUDIENCE, Audience
from receipt_pipeline.core.errors import NotAllowed, NotFound
from receipt_pipeline.core.principals import Principal, Role
from receipt_pipeline.ledger.effects.alerts import AlertFinding, raise_alert
from receipt_pipeline.objects.store import set_aside_key
from receipt_pipeline.worker.loop import work_group
from receipt_pipeline_tests.builders import CALLER, TENANT
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.intake_home import as_bytes, job_document
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home

OTHER = "globex"
EVERY_ROLE = frozenset(Role)


def principal(tenant: str, roles: frozenset[str] = EVERY_ROLE) -> Principal:
    """Return a principal of a tenant; every one asks the same opened instance."""
    return Principal(tenant, CALLER, roles)


def a_job_of(home: OpenedHome, tenant: str) -> str:
    """Submit, work off and hand on a job of one tenant, and lose its object."""
    folder = home.folder / "handed-in" / tenant
    path = folder / "manifest.json"
    document = job_document(folder, key=f"of-{tenant}")
    path.write_bytes(as_bytes(document))
    (answer,) = submitter.submit(home.app, principal(tenant), [path])
    job_id = str(answer["lines"][0]["job_id"])
    work_group(home.app.worker(run_id="run-1"), wave_id="", job_ids=[job_id])
    maintenance.deliver_and_consume(home.app)
    return job_id


@pytest.fixture
def home(
    migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> OpenedHome:
    """A home with a job of each tenant, whose objects are gone, and bytes that were set aside."""
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    for tenant in (TENANT, OTHER):
        job = home.job(a_job_of(home, tenant))
        home.app.store.delete(job["result_key"])
        home.app.store.put(set_aside_key(f"scans/{tenant}/00ff", "sha256:11"), tenant.encode())
    home.clock.advance(86_400 * 3)
    maintenance.sweep_objects(home.app)
    maintenance.publish_report(home.app)
    return home


def job_of(home: OpenedHome, tenant: str) -> str:
    """Return the job of a tenant."""
    [row] = submitter.list_jobs(home.app, principal(tenant))
    return str(row["job_id"])


READING: dict[str, Callable[[AppContext, Principal], Any]] = {
    "jobs": lambda app, who: submitter.list_jobs(app, who),
    "investigations": lambda app, who: operator.list_investigations(app, who, only_open=False),
    "review tasks": lambda app, who: reviewer.list_tasks(app, who, only_open=False),
    "report": lambda app, who: analyst.read_report(app, who),
    "jobs of the report": lambda app, who: analyst.query_report(app, who, "SELECT * FROM job_report"),
    "events of the report": lambda app, who: analyst.query_report(app, who, "SELECT * FROM events"),
    "items of the report": lambda app, who: analyst.query_report(app, who, "SELECT * FROM items"),
    "deliveries of the report": lambda app, who: analyst.query_report(
        app, who, "SELECT * FROM submissions, deliveries"
    ),
}


@pytest.mark.requirement("R131")
@pytest.mark.parametrize("name", READING)
@pytest.mark.parametrize(("tenant", "other"), [(TENANT, OTHER), (OTHER, TENANT)])
def test_what_a_door_reads_names_nothing_of_another_tenant(
    home: OpenedHome, name: str, tenant: str, other: str
) -> None:
    text = json.dumps(READING[name](home.app, principal(tenant)), default=str)
    assert job_of(home, other) not in text
    assert f"of-{other}" not in text
    assert f"/{other}/" not in text
    assert job_of(home, tenant) in text


@pytest.mark.requirement("R131")
def test_no_table_or_view_of_the_report_shows_rows_of_another_tenant(home: OpenedHome) -> None:
    who, foreign = principal(TENANT), job_of(home, OTHER)
    names = analyst.query_report(
        home.app,
        who,
        "SELECT table_name AS name FROM duckdb_tables() UNION ALL"
        " SELECT view_name FROM duckdb_views() WHERE NOT internal",
    )
    assert {"jobs", "events", "job_report", "report_info"} <= {row["name"] for row in names}
    for row in names:
        rows = json.dumps(
            analyst.query_report(home.app, who, f'SELECT * FROM "{row["name"]}"'),
            default=str,
        )
        assert foreign not in rows, row["name"]
        assert OTHER not in rows, row["name"]


@pytest.mark.requirement("R131")
def test_the_account_of_a_tenant_counts_and_judges_its_own_jobs(home: OpenedHome) -> None:
    document = analyst.read_report(home.app, principal(TENANT))
    assert (document["accepted"], document["succeeded"]) == (1, 1)
    assert document["success_without_object"] == [job_of(home, TENANT)]
    assert document["notifications"]["delivered"] == document["consumer"]["review_tasks"] == 1
    with pytest.raises(NotAllowed, match=r"REPORT\.SEVERAL_TENANTS\.v1"):
        analyst.read_report(home.app, principal(TENANT), published=True)


@pytest.mark.requirement("R131")
def test_a_question_of_another_tenant_is_answered_like_an_unknown_one(home: OpenedHome) -> None:
    foreign = [
        row["investigation_id"]
        for row in operator.list_investigations(home.app, principal(OTHER), only_open=False)
    ]
    assert len(foreign) == 2, "the missing object, and the bytes that were set aside"
    before = home.bench.snapshot()
    who = principal(TENANT)
    for investigation_id in (*foreign, "inv_unknown"):
        with pytest.raises(NotFound, match=r"NOT_FOUND\.v1"):
            operator.assign_investigation(home.app, who, investigation_id, owner="operations")
        with pytest.raises(NotFound, match=r"NOT_FOUND\.v1"):
            operator.resolve_investigation(home.app, who, investigation_id, note="mine")
    assert home.bench.snapshot() == before


@pytest.mark.requirement("R131")
def test_an_alert_about_another_tenants_job_is_not_shown(home: OpenedHome) -> None:
    ids = {tenant: job_of(home, tenant) for tenant in (TENANT, OTHER)}
    with home.app.ledger.transaction() as tx:
        for job_id in ids.values():
            raise_alert(tx, AlertFinding(AlertKind.UNBALANCED_TOTALS, job_id, job_id, {}))
    for tenant, other in ((TENANT, OTHER), (OTHER, TENANT)):
        for everything in (False, True):
            text = json.dumps(
                operator.list_alerts(home.app, principal(tenant), everything=everything),
                default=str,
            )
            assert ids[tenant] in text
            assert ids[other] not in text


@pytest.mark.requirement("R127")
@pytest.mark.parametrize("audience", list(Audience))
@pytest.mark.parametrize("role", list(Role))
def test_a_role_reads_its_own_view_and_no_deeper_one(
    home: OpenedHome, audience: Audience, role: Role
) -> None:
    who, job_id = principal(TENANT, frozenset({role})), job_of(home, TENANT)
    if role in ROLES_OF_AUDIENCE[audience]:
        assert submitter.read_status(home.app, who, job_id, audience=audience)
        return
    with pytest.raises(NotAllowed, match=r"NOT_PERMITTED\.v1") as refused:
        submitter.read_status(home.app, who, job_id, audience=audience)
    assert refused.value.facts["needed"] == sorted(ROLES_OF_AUDIENCE[audience])


def test_a_submitter_reads_neither_support_nor_engineering() -> None:
    assert Role.SUBMITTER not in ROLES_OF_AUDIENCE[Audience.SUPPORT]
    assert ROLES_OF_AUDIENCE[Audience.ENGINEERING] == {Role.OPERATOR}
