"""Who may do what: every function checks the principal it is given, side by side in one process."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.app import admin, analyst, maintenance, operator, reviewer, submitter
from receipt_pipeline.core.alerts import AlertKind
from receipt_pipeline.core.audiences import ROLES_OF_AUDIENCE, Audience
from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.principals import Principal, Role
from receipt_pipeline.ledger.effects.alerts import AlertFinding, raise_alert
from receipt_pipeline.objects.store import set_aside_key
from receipt_pipeline.worker.loop import work_group
from receipt_pipeline_tests.builders import CALLER, TENANT
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.intake_home import as_bytes, job_document
from receipt_pipeline_tests.orchestration.breakages import BREAKAGES
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home

OTHER = "globex"
ANYONE = frozenset(Role)
SUBMITTER, OPERATOR = frozenset({Role.SUBMITTER}), frozenset({Role.OPERATOR})
EITHER = SUBMITTER | OPERATOR
ANALYST = frozenset({Role.ANALYST, Role.OPERATOR})
JOB, SCAN, MANIFEST = "JOB", "SCAN", "MANIFEST"

# Per use case: the roles that may use it, the function, and what it is given; capitals are filled in.
USES: dict[str, tuple[frozenset[Role], Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "status": (ANYONE, submitter.read_status, (JOB,), {}),
    "result": (ANYONE, submitter.read_result, (JOB,), {}),
    "rejections": (ANYONE, submitter.list_rejections, (JOB,), {}),
    "jobs": (ANYONE, submitter.list_jobs, (), {}),
    "submit": (SUBMITTER, submitter.submit, (MANIFEST,), {}),
    "classify": (SUBMITTER, submitter.classify_scan, (SCAN,), {}),
    "cancel": (EITHER, submitter.cancel_job, (JOB,), {}),
    "retry": (EITHER, submitter.retry_job, (JOB,), {}),
    "preview": (EITHER, submitter.preview_retry, (JOB,), {}),
    "supersede": (EITHER, submitter.supersede_job, (JOB,), {"by": "job_other"}),
    "tasks": (frozenset({Role.REVIEWER, Role.OPERATOR}), reviewer.list_tasks, (), {"only_open": True}),
    "finish": (frozenset({Role.REVIEWER}), reviewer.finish_task, ("sha256:00",), {}),
    "requeue": (OPERATOR, operator.requeue_job, (JOB,), {}),
    "reconcile": (OPERATOR, operator.reconcile, (), {}),
    "investigations": (ANALYST, operator.list_investigations, (), {"only_open": True}),
    "assign": (OPERATOR, operator.assign_investigation, ("inv-1",), {"owner": "operations"}),
    "resolve": (OPERATOR, operator.resolve_investigation, ("inv-1",), {"note": "looked"}),
    "report": (ANALYST, analyst.read_report, (), {}),
    "query": (ANALYST, analyst.query_report, ("SELECT 1",), {}),
    "page": (ANALYST, analyst.publish_page, (), {}),
    "approve": (OPERATOR, admin.approve_release, ("2027-01",), {}),
    "promote": (OPERATOR, admin.promote_release, ("2027-01",), {"alias": "other"}),
    "retire": (OPERATOR, admin.retire_release, ("2027-01",), {}),
    "grants": (OPERATOR, admin.list_grants, (), {}),
    "give": (OPERATOR, admin.give_grant, ("kim",), {"roles": ["submitter"], "days": 1}),
    "revoke": (OPERATOR, admin.revoke_grant, ("kim",), {}),
    "submitters": (OPERATOR, admin.list_submitters, (), {}),
    "rollback": (OPERATOR, admin.roll_back_ledger, ("0001",), {}),
}


def principal(tenant: str = TENANT, roles: frozenset[str] = ANYONE) -> Principal:
    return Principal(tenant, CALLER, roles)


def use(home: OpenedHome, who: Principal, name: str, job_id: str) -> Any:
    _, function, arguments, named = USES[name]
    folder = home.folder / "handed-in" / "job"
    filled = {JOB: job_id, SCAN: folder / "scans" / "1.png", MANIFEST: [folder / "manifest.json"]}
    return function(home.app, who, *(filled.get(one, one) for one in arguments), **named)


@pytest.fixture
def home(migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedHome:
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    home.submit("job")
    return home


def job_of(home: OpenedHome, tenant: str = TENANT) -> str:
    (row,) = submitter.list_jobs(home.app, principal(tenant))
    return str(row["job_id"])


@pytest.mark.requirement("R024")
@pytest.mark.parametrize("name", USES)
def test_every_role_that_may_not_is_refused_and_nothing_is_written(home: OpenedHome, name: str) -> None:
    allowed, job_id, before = USES[name][0], job_of(home), home.bench.snapshot()
    with pytest.raises(NotAllowed, match=r"NOT_PERMITTED\.v1") as refused:
        use(home, principal(roles=ANYONE - allowed), name, job_id)
    assert set(refused.value.facts["needed"]) == set(allowed)
    assert home.bench.snapshot() == before


@pytest.mark.parametrize("role", sorted(ANYONE))
@pytest.mark.parametrize("name", ["status", "jobs", "report", "cancel", "tasks", "investigations", "promote"])
def test_one_role_that_may_is_enough(home: OpenedHome, name: str, role: Role) -> None:
    who = principal(roles=frozenset({role}))
    if role in USES[name][0]:
        use(home, who, name, job_of(home))
        return
    with pytest.raises(NotAllowed):
        use(home, who, name, job_of(home))


@pytest.mark.requirement("R023")
@pytest.mark.parametrize("name", ["status", "result", "cancel", "requeue", "retry", "supersede", "rejections"])
def test_another_tenants_id_is_answered_like_an_unknown_one(home: OpenedHome, name: str) -> None:
    before, answers = home.bench.snapshot(), []
    for job_id in (job_of(home), "job_unknown"):
        with pytest.raises(NotFound, match=r"NOT_FOUND\.v1") as refused:
            use(home, principal(OTHER), name, job_id)
        answers.append(refused.value.as_document())
    assert answers[0] == answers[1]
    assert home.bench.snapshot() == before


@pytest.mark.requirement("R023")
def test_lists_of_another_tenant_show_nothing_of_this_one(home: OpenedHome) -> None:
    (wave_id,) = home.dispatch()
    assert home.run_wave(wave_id).success
    maintenance.deliver_and_consume(home.app)
    other = principal(OTHER)
    assert submitter.list_jobs(home.app, other) == []
    assert reviewer.list_tasks(home.app, other, only_open=False) == []
    (task,) = reviewer.list_tasks(home.app, home.principal, only_open=False)
    with pytest.raises(NotFound):
        reviewer.finish_task(home.app, other, task["decision_id"])


def test_only_the_investigation_of_a_quarantine_takes_keep_or_withdraw(home: OpenedHome) -> None:
    with pytest.raises(NotFound):
        operator.resolve_investigation(home.app, home.principal, "unknown", note="looked")
    BREAKAGES["every_accepted_job_is_terminal_or_owned"](home).mend()
    (row,) = operator.list_investigations(home.app, home.principal, only_open=True)
    investigation_id = row["investigation_id"]
    for note, withdraw in (("looked", True), (" ", False)):
        with pytest.raises(InputRefused, match=r"FIELD\.INVALID\.v1"):
            operator.resolve_investigation(home.app, home.principal, investigation_id, note=note, withdraw=withdraw)
    with pytest.raises(NotAllowed, match=r"INVESTIGATION\.FACT_STANDS\.v1"):
        operator.resolve_investigation(home.app, home.principal, investigation_id, note="seen")
    assert operator.list_investigations(home.app, home.principal, only_open=True) == [row]


# Two tenants of one instance.


def submit_as(home: OpenedHome, who: Principal, key: str) -> str:
    folder = home.folder / "handed-in" / who.tenant / key
    path = folder / "manifest.json"
    document = job_document(folder, key=key)
    path.write_bytes(as_bytes(document))
    (answer,) = submitter.submit(home.app, who, [path])
    return str(answer["lines"][0]["job_id"])


@pytest.mark.requirement("R023", "R024", "R042", "R127", "R131")
def test_two_principals_of_two_tenants_act_side_by_side_in_one_process(home: OpenedHome) -> None:
    admin.give_grant(home.app, principal(OTHER), CALLER, roles=["submitter"])
    admin.revoke_grant(home.app, principal(OTHER), CALLER)
    deny = principal(OTHER)
    with pytest.raises(NotAllowed, match=r"AUTHORITY\.REVOKED\.v1"):
        submit_as(home, deny, "revoked")
    admin.give_grant(home.app, principal(OTHER), CALLER, roles=["submitter"])
    here, there = principal(roles=SUBMITTER), principal(OTHER, roles=OPERATOR | SUBMITTER)
    asked = [(who, f"{who.tenant}-{number}") for number in range(4) for who in (here, there)]
    with ThreadPoolExecutor(2) as pool:
        job_ids = list(pool.map(lambda one: submit_as(home, *one), asked))
    for who, other in ((here, there), (there, here)):
        own = {job_id for (asker, _), job_id in zip(asked, job_ids, strict=True) if asker is who}
        foreign = set(job_ids) - own
        listed = {row["job_id"] for row in submitter.list_jobs(home.app, who)}
        assert own <= listed
        assert not foreign & listed
        with pytest.raises(NotFound):
            submitter.read_status(home.app, who, foreign.pop())
        assert {home.job(job_id)["tenant"] for job_id in own} == {who.tenant} != {other.tenant}
    assert submitter.read_status(home.app, there, job_ids[1], audience=Audience.ENGINEERING)
    with pytest.raises(NotAllowed):
        submitter.read_status(home.app, here, job_ids[0], audience=Audience.ENGINEERING)


@pytest.fixture
def shared(migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedHome:
    home = open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch)
    for tenant in (TENANT, OTHER):
        job_id = submit_as(home, principal(tenant), f"of-{tenant}")
        work_group(home.app.worker(run_id="run-1"), wave_id="", job_ids=[job_id])
        maintenance.deliver_and_consume(home.app)
        home.app.store.delete(home.job(job_id)["result_key"])
        home.app.store.put(set_aside_key(f"scans/{tenant}/00ff", "sha256:11"), tenant.encode())
    home.clock.advance(86_400 * 3)
    maintenance.sweep_objects(home.app)
    maintenance.publish_report(home.app)
    return home


def query(sql: str) -> Callable[[OpenedHome, Principal], Any]:
    return lambda home, who: analyst.query_report(home.app, who, sql)


READING: dict[str, Callable[[OpenedHome, Principal], Any]] = {
    "jobs": lambda home, who: submitter.list_jobs(home.app, who),
    "investigations": lambda home, who: operator.list_investigations(home.app, who, only_open=False),
    "review tasks": lambda home, who: reviewer.list_tasks(home.app, who, only_open=False),
    "report": lambda home, who: analyst.read_report(home.app, who),
    "jobs of the report": query("SELECT * FROM job_report"),
    "events of the report": query("SELECT * FROM events"),
    "items of the report": query("SELECT * FROM items"),
    "deliveries of the report": query("SELECT * FROM submissions, deliveries"),
}


@pytest.mark.requirement("R131")
@pytest.mark.parametrize(("tenant", "other"), [(TENANT, OTHER), (OTHER, TENANT)])
def test_a_tenant_reads_its_own_records_and_nothing_of_another(shared: OpenedHome, tenant: str, other: str) -> None:
    own, foreign = job_of(shared, tenant), job_of(shared, other)
    for name, read in READING.items():
        text = json.dumps(read(shared, principal(tenant)), default=str)
        assert own in text, name
        assert not [mark for mark in (foreign, f"of-{other}", f"/{other}/") if mark in text], name


@pytest.mark.requirement("R131")
def test_no_table_or_view_of_the_report_shows_rows_of_another_tenant(shared: OpenedHome) -> None:
    who, foreign = principal(TENANT), job_of(shared, OTHER)
    tables = (
        "SELECT table_name AS name FROM duckdb_tables() UNION ALL"
        " SELECT view_name FROM duckdb_views() WHERE NOT internal"
    )
    names = {row["name"] for row in analyst.query_report(shared.app, who, tables)}
    assert {"jobs", "events", "job_report", "report_info"} <= names
    for name in names:
        rows = json.dumps(analyst.query_report(shared.app, who, f'SELECT * FROM "{name}"'), default=str)
        assert foreign not in rows, name
        assert OTHER not in rows, name


@pytest.mark.requirement("R131")
def test_the_account_of_a_tenant_covers_its_own_jobs_alone(shared: OpenedHome) -> None:
    document = analyst.read_report(shared.app, principal())
    assert (document["accepted"], document["succeeded"]) == (1, 1)
    assert document["success_without_object"] == [job_of(shared)]
    assert document["notifications"]["delivered"] == document["consumer"]["review_tasks"] == 1
    with pytest.raises(NotAllowed, match=r"REPORT\.SEVERAL_TENANTS\.v1"):
        analyst.read_report(shared.app, principal(), published=True)


@pytest.mark.requirement("R131")
def test_an_investigation_of_another_tenant_is_answered_like_an_unknown_one(shared: OpenedHome) -> None:
    rows = operator.list_investigations(shared.app, principal(OTHER), only_open=False)
    assert len(rows) == 2, "the missing object, and the bytes that were set aside"
    before, who = shared.bench.snapshot(), principal(TENANT)
    for investigation_id in (*(row["investigation_id"] for row in rows), "inv_unknown"):
        with pytest.raises(NotFound, match=r"NOT_FOUND\.v1"):
            operator.assign_investigation(shared.app, who, investigation_id, owner="operations")
        with pytest.raises(NotFound, match=r"NOT_FOUND\.v1"):
            operator.resolve_investigation(shared.app, who, investigation_id, note="mine")
    assert shared.bench.snapshot() == before


@pytest.mark.requirement("R131")
def test_an_alert_about_another_tenants_job_is_not_shown(shared: OpenedHome) -> None:
    ids = {tenant: job_of(shared, tenant) for tenant in (TENANT, OTHER)}
    with shared.app.ledger.transaction() as tx:
        for job_id in ids.values():
            raise_alert(tx, AlertFinding(AlertKind.UNBALANCED_TOTALS, job_id, job_id, {}))
    for tenant, other in ((TENANT, OTHER), (OTHER, TENANT)):
        for everything in (False, True):
            rows = operator.list_alerts(shared.app, principal(tenant), everything=everything)
            text = json.dumps(rows, default=str)
            assert ids[tenant] in text
            assert ids[other] not in text


@pytest.mark.requirement("R127")
@pytest.mark.parametrize("audience", list(Audience))
@pytest.mark.parametrize("role", list(Role))
def test_a_role_reads_its_own_view_and_no_deeper_one(home: OpenedHome, audience: Audience, role: Role) -> None:
    who, job_id = principal(roles=frozenset({role})), job_of(home)
    if role in ROLES_OF_AUDIENCE[audience]:
        assert submitter.read_status(home.app, who, job_id, audience=audience)
        return
    with pytest.raises(NotAllowed, match=r"NOT_PERMITTED\.v1") as refused:
        submitter.read_status(home.app, who, job_id, audience=audience)
    assert refused.value.facts["needed"] == sorted(ROLES_OF_AUDIENCE[audience])


def test_a_submitter_reads_neither_support_nor_engineering() -> None:
    assert Role.SUBMITTER not in ROLES_OF_AUDIENCE[Audience.SUPPORT]
    assert ROLES_OF_AUDIENCE[Audience.ENGINEERING] == {Role.OPERATOR}
