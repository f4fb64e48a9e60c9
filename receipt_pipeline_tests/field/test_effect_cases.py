"""The public cases about delivery, consumption and the report: 08, 09, 31 to 35."""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import signal
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sqlalchemy import select

from receipt_pipeline.accounting.checks import ACCOUNTING_CHECKS
from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.accounting.query import read_published
from receipt_pipeline.accounting.report import report_document
from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.failure_points import install_plan, remove_plan
from receipt_pipeline.core.items import Decision
from receipt_pipeline.core.request import JOB_CONTRACT, ItemRequest, JobRequest
from receipt_pipeline.drill.failure_plan import Fault, Plan, PlannedFault
from receipt_pipeline.effects.consume import receive_event
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.jobs.checkpoint import FinishedItem, write_checkpoint
from receipt_pipeline.ledger.jobs.expire import expire_job
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.ledger.schema.effects import consumed, investigations, quarantine, review_tasks
from receipt_pipeline.reconciliation.checks import run_check
from receipt_pipeline.reconciliation.context import ReconciliationContext
from receipt_pipeline_tests.builders import (
    LIMITS,
    a_result,
    an_accepted_job,
    an_outcome,
    claimed,
    finish_items,
    publish,
)
from receipt_pipeline_tests.fakes.accounted_home import an_accountant, an_outcome_of, round_of_effects
from receipt_pipeline_tests.fakes.effects_home import an_event, rows_of, the_job
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.field.cases import case

pytestmark = pytest.mark.field

CHILD_S_MAX = 180
READER = """
import duckdb, sys, time
for _ in range(200):
    with duckdb.connect(sys.argv[1], read_only=True) as connection:
        (jobs,), = connection.execute("SELECT count(*) FROM job_report").fetchall()
    print(jobs, flush=True)
    time.sleep(0.1)
"""
ANALYST = """
import duckdb, os, signal, sys
connection = duckdb.connect(sys.argv[1])
connection.execute("CREATE TABLE notes AS SELECT range AS n FROM range(1000)")
os.kill(os.getpid(), signal.SIGKILL)
"""
ACCOUNT_IN_A_ZONE = """
import json, sys
from pathlib import Path
from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.accounting.query import run_query
from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import open_ledger
accountant = Accountant(open_ledger(sys.argv[1]), Path(sys.argv[2]), Limits())
publish_report(accountant)
queries = {
    "totals": "SELECT * FROM totals_by_currency",
    "UTC": "SELECT day, time_zone, jobs FROM jobs_per_day",
    "Europe/Berlin": "SELECT day, time_zone, jobs FROM jobs_per_day_in('Europe/Berlin')",
    "largest": "SELECT max(total) AS total FROM items",
    "zone": "SELECT time_zone FROM report_info",
}
print(json.dumps({name: run_query(accountant, query) for name, query in queries.items()}, default=str))
"""


def rows_of_manifest(folder: Path) -> list[JobRequest]:
    manifest = json.loads((folder / "manifest.json").read_text())
    return [
        JobRequest(
            contract=JOB_CONTRACT,
            idempotency_key=row["key"],
            items=(ItemRequest(row["key"], row["file"], row["sha256"], row["bytes"]),),
        )
        for row in manifest["items"]
    ]


def a_success(services: EffectContext, job_id: str, *, stored: bool = True, **outcome: Any) -> JobRow:
    job = claimed(services.ledger, job_id)
    finish_items(services.ledger, job, an_outcome(**outcome))
    result = a_result(job, content=job_id)
    if stored:
        services.objects.put(result.key, job_id.encode())
    publish(services.ledger, job, result)
    return the_job(services, job_id)


def accept_all(services: EffectContext, requests: list[JobRequest]) -> list[str]:
    return [an_accepted_job(services.ledger, request).job_id for request in requests]


def tasks_by_job(services: EffectContext) -> dict[str, int]:
    rows = rows_of(services, select(review_tasks.c.job_id))
    return {row["job_id"]: sum(other == row for other in rows) for row in rows}


@pytest.mark.requirement("R073", "R074", "R079", "R084", "R088", "R135")
def test_case_08_a_lost_notification_is_made_up_for_and_a_repeated_one_counted(
    services: EffectContext, shared: Path, tmp_path: Path
) -> None:
    job_ids = accept_all(services, rows_of_manifest(case(shared, "08")))
    first, second, third = (a_success(services, job_id) for job_id in job_ids)
    # Messages leave in the order in which their jobs closed, so the second is the second to be sent.
    install_plan(Plan((PlannedFault("outbox_send.drop", Fault.ALTER, first=2),)))
    try:
        round_of_effects(services)
    finally:
        remove_plan()
    receive_event(services, an_event(third, "again"), source="notification")
    assert tasks_by_job(services) == dict.fromkeys((row.job_id for row in (first, second, third)), 1)
    document = report_document(an_accountant(services, tmp_path))
    assert document["notifications"] == {"delivered": 2, "dropped": 1, "late": 0, "duplicate": 1}
    assert document["consumer"] == {"review_tasks": 3, "duplicates": 1, "conflicts": 0}
    assert (document["succeeded"], document["state"], document["gate"]) == (3, "accounted", "pass")


@pytest.mark.requirement("R081", "R082")
def test_case_09_a_success_marker_without_its_object_is_named_and_never_acted_upon(
    services: EffectContext, shared: Path, tmp_path: Path
) -> None:
    job_ids = accept_all(services, rows_of_manifest(case(shared, "09")))
    first, second, third = (a_success(services, job_id, stored=job_id != job_ids[1]) for job_id in job_ids)
    reconciler = ReconciliationContext(ledger=services.ledger, objects=services.objects, limits=LIMITS)
    checked = run_check(reconciler, "every_success_has_its_object")
    assert (checked.passed, [row["job_id"] for row in checked.violations]) == (False, [second.job_id])
    round_of_effects(services)
    round_of_effects(services)
    assert tasks_by_job(services) == {first.job_id: 1, third.job_id: 1}
    document = report_document(an_accountant(services, tmp_path))
    assert document["success_without_object"] == [second.job_id]
    assert (document["verified_succeeded"], document["failed"], document["state"]) == (2, 0, "investigate")


@pytest.mark.slow
def test_case_31_a_reader_of_the_report_stands_in_nobodys_way(
    services: EffectContext, shared: Path, tmp_path: Path
) -> None:
    accountant = an_accountant(services, tmp_path)
    publish_report(accountant)
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(accountant.published)], stdout=subprocess.PIPE, text=True
    )
    assert reader.stdout is not None
    shown = [int(reader.stdout.readline())]
    for job_id in accept_all(services, rows_of_manifest(case(shared, "31"))):
        a_success(services, job_id)
        round_of_effects(services)
        publish_report(accountant)
        shown.append(int(reader.stdout.readline()))
    reader.send_signal(signal.SIGKILL)
    reader.communicate(timeout=CHILD_S_MAX)
    publish_report(accountant)
    assert shown == sorted(shown)
    assert shown[0] == 0
    assert read_published(accountant)["accepted"] == read_published(accountant)["succeeded"] == 4
    assert ACCOUNTING_CHECKS["report_matches_ledger"].run(accountant).passed


def test_case_32_cut_logs_are_set_aside_and_the_account_is_built_from_the_ledger(
    services: EffectContext, shared: Path, tmp_path: Path
) -> None:
    accountant = an_accountant(services, tmp_path)
    for job_id in accept_all(services, rows_of_manifest(case(shared, "32"))):
        a_success(services, job_id)
    round_of_effects(services)
    publish_report(accountant)
    accountant.published.chmod(0o644)
    build = accountant.report_root / "build-7.duckdb"
    for path in (accountant.published, build):
        ended = subprocess.run([sys.executable, "-c", ANALYST, str(path)], timeout=CHILD_S_MAX, check=False)
        assert ended.returncode == -signal.SIGKILL
        log = path.with_name(f"{path.name}.wal")
        os.truncate(log, log.stat().st_size - 100)
    published = publish_report(accountant)
    kept = {path.name.rpartition(".")[0] for path in (accountant.report_root / "set-aside").iterdir()}
    assert kept == {"report.duckdb.wal", "build-7.duckdb.wal"}
    assert len(published.notices) == 2
    assert all("No row is lost" in notice for notice in published.notices)
    assert read_published(accountant) == report_document(accountant)
    assert ACCOUNTING_CHECKS["report_matches_ledger"].run(accountant).passed
    with duckdb.connect(str(accountant.published), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM job_report").fetchall() == [(3,)]


def account_in(zone: str, ledger_url: str, folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", ACCOUNT_IN_A_ZONE, ledger_url, str(folder)],
        env=os.environ | {"TZ": zone},
        capture_output=True,
        text=True,
        timeout=CHILD_S_MAX,
        check=True,
    )
    return json.loads(done.stdout)


@pytest.mark.slow
def test_case_33_money_is_exact_and_days_are_the_same_wherever_the_machine_stands(
    services: EffectContext, shared: Path, tmp_path: Path, clock: FakeClock, ledger_url: str
) -> None:
    folder = case(shared, "33")
    expected = json.loads((folder / "expected.json").read_text())
    with (folder / "amounts.csv").open(newline="") as file:
        amounts = [(Decimal(row["amount"]), row["currency"]) for row in csv.DictReader(file)]
    with (folder / "jobs.csv").open(newline="") as file:
        moments = [dt.datetime.fromisoformat(row["submitted_at"]) for row in csv.DictReader(file)]
    for number, moment in enumerate(moments):
        clock.set(moment)
        job = an_accepted_job(services.ledger, items=1 if number else len(amounts))
        if number == 0:
            work_off_at_once(services, job.job_id, amounts)
    expected_days = {zone: expected[f"jobs_per_day_{zone}"] for zone in ("UTC", "Europe/Berlin")}
    for zone in ("UTC", "Pacific/Auckland"):
        answer = account_in(zone, ledger_url, tmp_path / zone.replace("/", "-"))
        (total,) = answer["totals"]
        assert (total["currency"], total["items"]) == ("EUR", expected["count"])
        assert Decimal(total["total"]) == Decimal(expected["sum"])
        assert Decimal(answer["largest"][0]["total"]) == Decimal("39981.70")
        assert answer["zone"] == [{"time_zone": "UTC"}]
        for days, counts in expected_days.items():
            assert {row["day"]: row["jobs"] for row in answer[days]} == counts
            assert {row["time_zone"] for row in answer[days]} == {days}


def work_off_at_once(services: EffectContext, job_id: str, amounts: list[tuple[Decimal, str]]) -> None:
    job = claimed(services.ledger, job_id)
    with services.ledger.transaction() as tx:
        write_checkpoint(tx, job.token, finished=None, next_ordinal=0, limits=LIMITS)
        for ordinal, (amount, currency) in enumerate(amounts):
            following = ordinal + 1 if ordinal + 1 < len(amounts) else None
            outcome = an_outcome_of(int(amount * 100), currency)
            finished = FinishedItem(ordinal=ordinal, outcome=outcome, invocations=1)
            write_checkpoint(tx, job.token, finished=finished, next_ordinal=following, limits=LIMITS)


def deliveries_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "deliveries.jsonl").read_text().splitlines()]


@pytest.mark.requirement("R083", "R084", "R085", "R088", "R136")
def test_case_34_repeats_are_told_by_the_decision_and_another_output_is_a_conflict(
    services: EffectContext, shared: Path, tmp_path: Path
) -> None:
    told = deliveries_of(case(shared, "34"))
    made, digests = {}, {}
    for line in told:
        if line["job"] not in made:
            job_id = an_accepted_job(services.ledger, key=line["job"]).job_id
            made[line["job"]] = a_success(services, job_id, decision=Decision(line["class"]))
            digests[line["output_sha256"]] = made[line["job"]].result_digest
    before = None
    for line in told:
        digest = digests.get(line["output_sha256"], digest_of_bytes(line["output_sha256"].encode()))
        before = rows_of(services, select(review_tasks).order_by(review_tasks.c.decision_id))
        receive_event(
            services,
            {
                "event_id": line["event_id"],
                "job_id": made[line["job"]].job_id,
                "state": line["status"],
                "result_digest": digest,
            },
            source="notification",
        )
    after = rows_of(services, select(review_tasks).order_by(review_tasks.c.decision_id))
    assert [row | {"disputed": False} for row in after] == before
    disputed = {row["job_id"] for row in after if row["disputed"]}
    assert disputed == {row["job_id"] for row in rows_of(services, select(quarantine))}
    assert disputed == {made["rcpt-3401"].job_id}
    outcomes = [row["outcome"] for row in rows_of(services, select(consumed))]
    assert sorted(outcomes) == ["acted", "acted", "conflict", "duplicate"]
    document = report_document(an_accountant(services, tmp_path))
    assert document["consumer"] == {"review_tasks": 2, "duplicates": 1, "conflicts": 1}
    assert len(rows_of(services, select(investigations))) == 1


@pytest.mark.requirement("R054", "R138")
def test_case_35_events_out_of_order_never_take_a_state_back(
    services: EffectContext, shared: Path, tmp_path: Path, clock: FakeClock
) -> None:
    told = deliveries_of(case(shared, "35"))
    made = {name: an_accepted_job(services.ledger, key=name) for name in sorted({row["job"] for row in told})}
    ids = {name: row.job_id for name, row in made.items()}
    a_success(services, ids["rcpt-3501"])
    running = claimed(services.ledger, ids["rcpt-3503"])
    clock.set(made["rcpt-3502"].queue_deadline)
    clock.advance(1)
    with services.ledger.transaction() as tx:
        assert expire_job(tx, job_id=ids["rcpt-3502"], limits=LIMITS)
    before = {name: the_job(services, job_id).state for name, job_id in ids.items()}
    for line in told:
        event = {"event_id": line["event_id"], "job_id": ids[line["job"]], "state": line["status"]}
        receive_event(services, event, source="notification")
    assert {name: the_job(services, job_id).state for name, job_id in ids.items()} == before
    assert before == {"rcpt-3501": "succeeded", "rcpt-3502": "expired", "rcpt-3503": "running"}
    document = report_document(an_accountant(services, tmp_path))
    assert document["missing_terminal"] == [running.token.job_id]
    assert (document["failed"], document["in_flight"], document["unresolved"]) == (0, 0, 1)
    assert (document["state"], document["gate"]) == ("investigate", "fail")
    assert document["notifications"]["late"] == 3
