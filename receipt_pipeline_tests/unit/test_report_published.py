"""The published file: its tables and views, what it says of each job, and that it matches the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlalchemy import select, update

from receipt_pipeline.accounting import publish
from receipt_pipeline.accounting.charts import chart_png, figures_table
from receipt_pipeline.accounting.checks import ACCOUNTING_CHECKS
from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.publish import export_ledger, publish_report
from receipt_pipeline.accounting.query import read_published, reading_report, run_query
from receipt_pipeline.accounting.refresh import TABLES
from receipt_pipeline.accounting.report import report_document
from receipt_pipeline.core.errors import InputRefused, NotFound
from receipt_pipeline.core.reasons import REPORT_NONE, REPORT_SQL
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.effects.objects import ObjectObservation, ObjectOutcome, record_object_check
from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline.ledger.investigations import InvestigationKind
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline_tests.builders import LIMITS, an_accepted_job
from receipt_pipeline_tests.fakes.accounted_home import (
    a_job_in_every_state,
    a_question,
    an_accountant,
    an_outcome_of,
    round_of_effects,
)
from receipt_pipeline_tests.fakes.effects_home import a_stored_success, effects_home, rows_of
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.report_rows import built_whole, everything_in, refreshes

VIEWS = (
    "job_report",
    "jobs",
    "items",
    "attempts",
    "effects",
    "deliveries",
    "review_tasks",
    "output_checks",
    "investigations",
    "unresolved_investigations",
    "time_to_reconciled_truth",
)


def matches(accountant: Accountant) -> list[tuple[str, str]]:
    outcome = ACCOUNTING_CHECKS["report_matches_ledger"].run(accountant)
    assert outcome.passed == (outcome.violations == ())
    return [(row["job_id"], row["fault"]) for row in outcome.violations]


@pytest.mark.requirement("R133", "R135", "R136", "R137")
def test_the_job_report_says_of_each_job_what_it_was_and_what_became_of_it(
    services: EffectContext, accountant: Accountant, clock: FakeClock
) -> None:
    made = a_job_in_every_state(services, clock)
    publish_report(accountant)
    rows = {row["job_id"]: row for row in run_query(accountant, "SELECT * FROM job_report")}
    ledger = {row["job_id"]: row for row in rows_of(services, select(jobs))}
    assert rows.keys() == ledger.keys()
    for job_id, row in rows.items():
        same = ("state", "terminal_class", "risk_model_digest", "submitted_at", "terminal_at", "result_digest")
        assert {name: row[name] for name in same} == {name: ledger[job_id][name] for name in same}
        assert len(row["input_digests"]) == row["items_requested"]
    shown = {name: rows[job_id] for name, job_id in made.items()}
    assert [shown[name]["retried"] for name in ("clear", "retried")] == [False, True]
    assert (shown["clear"]["duplicate_events"], shown["clear"]["notification_state"]) == (1, "committed")
    assert (shown["review"]["review_tasks"], shown["review"]["rejected"]) == (1, 1)
    assert shown["clear"]["output_check"] == "read back at commit"
    assert shown["expired"]["output_check"] == "none expected"
    assert (shown["expired"]["model_invocations"], shown["open"]["total_s"]) == (0, None)
    expired = ledger[made["expired"]]
    span = (expired["terminal_at"] - expired["submitted_at"]).total_seconds()
    assert shown["expired"]["total_s"] == shown["expired"]["queue_s"] == span
    assert run_query(accountant, shown["clear"]["evidence_query"])[0]["kind"] == "accepted"


@pytest.mark.requirement("R134")
def test_the_job_report_shows_what_was_last_found_under_each_result(
    services: EffectContext, accountant: Accountant
) -> None:
    found = {}
    for outcome in (ObjectOutcome.OK, ObjectOutcome.MISSING, ObjectOutcome.MISMATCH):
        job = a_stored_success(services)
        found[job.job_id] = outcome.value
        with services.ledger.transaction() as tx:
            record_object_check(tx, ObjectObservation(object_key=job.result_key, job_id=job.job_id, outcome=outcome))
    unlooked = a_stored_success(services).job_id
    publish_report(accountant)
    rows = run_query(accountant, "SELECT job_id, output_check FROM job_report")
    assert {row["job_id"]: row["output_check"] for row in rows} == found | {unlooked: "read back at commit"}


def test_the_published_document_is_the_ledgers_at_that_moment(
    services: EffectContext, accountant: Accountant, clock: FakeClock
) -> None:
    a_job_in_every_state(services, clock)
    published = publish_report(accountant)
    assert read_published(accountant) == published.document == report_document(accountant)
    assert matches(accountant) == []
    an_accepted_job(services.ledger)
    assert read_published(accountant) == published.document
    assert matches(accountant) == []  # The report is older, which is no difference.


def test_every_view_answers_also_when_nothing_was_accepted(accountant: Accountant) -> None:
    publish_report(accountant)
    for view in VIEWS:
        assert run_query(accountant, f"SELECT * FROM {view} LIMIT 1") == []
    assert read_published(accountant)["state"] == "empty"


def test_every_table_view_and_column_says_what_it_means(accountant: Accountant) -> None:
    publish_report(accountant)
    silent = run_query(
        accountant,
        "SELECT table_name AS name FROM duckdb_tables() WHERE comment IS NULL"
        " UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal AND comment IS NULL"
        " UNION ALL SELECT table_name || '.' || column_name FROM duckdb_columns()"
        " WHERE NOT internal AND comment IS NULL",
    )
    assert silent == []


def test_times_are_zoned_money_is_decimal_and_leases_are_left_out(accountant: Accountant) -> None:
    publish_report(accountant)
    types = {
        (row["table_name"], row["column_name"]): row["data_type"]
        for row in run_query(accountant, "SELECT * FROM duckdb_columns() WHERE NOT internal")
    }
    at = {kind for (_, name), kind in types.items() if name.endswith("_at")}
    assert at == {"TIMESTAMP WITH TIME ZONE"}
    assert types["items", "total"] == "DECIMAL(24,3)"
    columns = {name for _, name in types}
    assert not {name for name in columns if name.startswith("lease_")} - {"lease_epoch"}
    assert ("jobs", "lease_epoch") not in types
    assert not columns & {"heartbeat_at", "wave_id", "fields", "label", "place"}
    json_columns = {name for (_, name), kind in types.items() if kind == "JSON"}
    assert json_columns == {
        *(column.name for table in TABLES for column in table.columns if column.type == "JSON"),
        "document",
    }


@pytest.mark.requirement("R126")
def test_nothing_that_was_read_from_a_scan_is_in_the_report_but_its_total(
    services: EffectContext, accountant: Accountant
) -> None:
    a_stored_success(services, an_outcome_of(3998170))
    publish_report(accountant)
    for path in accountant.report_root.rglob("*"):
        assert not path.is_file() or b"SECRET SHOP" not in path.read_bytes(), path
    assert run_query(accountant, "SELECT total, total_currency FROM items") == [
        {"total": Decimal("39981.700"), "total_currency": "EUR"}
    ]


def test_amounts_follow_the_digits_of_their_currency(services: EffectContext, accountant: Accountant) -> None:
    given = [(3998170, "EUR", "39981.700"), (500, "JPY", "500.000"), (1234, "KWD", "1.234"), (-5, None, "-0.050")]
    a_stored_success(services, *(an_outcome_of(minor, currency) for minor, currency, _ in given), items=4)
    publish_report(accountant)
    shown = run_query(accountant, "SELECT total_minor, total_currency, total FROM items ORDER BY ordinal")
    assert [tuple(row.values()) for row in shown] == [
        (minor, currency, Decimal(amount)) for minor, currency, amount in given
    ]


def test_an_absurd_amount_does_not_stop_the_report(services: EffectContext, accountant: Accountant) -> None:
    a_stored_success(services, an_outcome_of(2**53 - 1, "JPY"), an_outcome_of(None), an_outcome_of(1, None))
    publish_report(accountant)
    totals = run_query(accountant, "SELECT currency, total_minor, total FROM totals_by_currency")
    assert totals == [
        {"currency": "JPY", "total_minor": 2**53 - 1, "total": Decimal("9007199254740991.000")},
        {"currency": "unknown", "total_minor": 1, "total": Decimal("0.010")},
    ]


def test_the_export_is_parquet_with_types_and_says_how_far_it_goes(
    services: EffectContext, accountant: Accountant
) -> None:
    for _ in range(5):
        an_accepted_job(services.ledger)
    rows = export_ledger(accountant)
    assert set(rows) == {table.name for table in TABLES}
    note = json.loads((accountant.export / "export.json").read_text())
    assert (note["seq"], note["rows"]) == (read_published(accountant)["seq"], rows)
    assert rows["jobs"] == 5
    exported = pq.read_table(accountant.export / "jobs")
    assert set(exported["job_id"].to_pylist()) == {row["job_id"] for row in rows_of(services, select(jobs.c.job_id))}
    assert exported.schema.field("submitted_at").type == pa.timestamp("us", tz="UTC")
    an_accepted_job(services.ledger)
    assert export_ledger(accountant)["jobs"] == 6
    assert {path.name for path in accountant.report_root.iterdir()} >= {"export", "report.duckdb"}
    assert not list(accountant.report_root.glob("export.*"))


@pytest.mark.parametrize(
    ("sql", "word"),
    [
        ("SELEC 1", "syntax"),
        ("SELECT * FROM nothing_here", "nothing_here"),
        ("DELETE FROM jobs", "read-only"),
        ("SELECT * FROM read_csv('report_info.csv')", "disabled"),
        ("SET enable_external_access = true", "locked"),
        ("COPY jobs TO 'jobs.csv'", "disabled"),
        ("-- nothing is asked", "no statement"),
    ],
)
def test_a_refused_query_says_why_and_changes_nothing(
    sqlite_ledger_url: str, tmp_path: Path, clock: FakeClock, sql: str, word: str
) -> None:
    ledger = open_ledger(sqlite_ledger_url, clock=clock)
    accountant = an_accountant(effects_home(ledger, tmp_path), tmp_path)
    publish_report(accountant)
    with pytest.raises(InputRefused) as refused:
        run_query(accountant, sql)
    assert refused.value.reason is REPORT_SQL
    assert REPORT_SQL.code == "REPORT.SQL.v1"
    assert word in str(refused.value.facts["detail"])
    ledger.close()


def test_without_a_report_the_reader_is_told_so(accountant: Accountant) -> None:
    readers: list[Callable[[Accountant], Any]] = [read_published, lambda its: run_query(its, "SELECT 1")]
    for read in readers:
        with pytest.raises(NotFound) as refused:
            read(accountant)
        assert refused.value.reason is REPORT_NONE
        assert REPORT_NONE.code == "REPORT.NONE.v1"
    assert matches(accountant) == [("", "report_unreadable")]


@pytest.mark.parametrize(
    ("change", "fault"), [({"reason_code": "FORGED.v1"}, "reason_code"), ({"latest_seq": 1}, "ahead_of_the_ledger")]
)
def test_a_ledger_row_that_changed_without_an_event_is_named(
    services: EffectContext, accountant: Accountant, change: dict[str, Any], fault: str
) -> None:
    job = a_stored_success(services)
    publish_report(accountant)
    with services.ledger.transaction() as tx:
        tx.execute(update(jobs).where(jobs.c.job_id == job.job_id).values(**change))
    assert matches(accountant) == [(job.job_id, fault)]
    publish_report(accountant)
    assert matches(accountant) == []


def test_a_report_that_was_edited_is_named_and_the_next_publication_mends_it(
    services: EffectContext, accountant: Accountant, clock: FakeClock
) -> None:
    job = a_stored_success(services)
    clock.advance(60)
    publish_report(accountant)
    accountant.published.chmod(0o644)
    with duckdb.connect(str(accountant.published)) as connection:
        connection.execute("DELETE FROM jobs")
    assert set(matches(accountant)) == {
        ("", "figure accepted"),
        ("", "figure succeeded"),
        (job.job_id, "missing_in_the_report"),
    }
    publish_report(accountant)
    assert matches(accountant) == []


def test_the_markdown_of_a_report_has_its_figures_and_a_chart(
    services: EffectContext, accountant: Accountant, clock: FakeClock
) -> None:
    a_job_in_every_state(services, clock)
    published = publish_report(accountant)
    assert "| accepted | 7 |" in published.markdown
    assert "| **gate** | pass |" in figures_table(published.document)
    assert "(data:image/png;base64," in published.markdown
    assert chart_png([], []).startswith(b"\x89PNG")


def test_open_questions_are_shown_with_their_owner_and_whether_they_are_overdue(
    services: EffectContext, accountant: Accountant, clock: FakeClock
) -> None:
    job = a_stored_success(services)
    round_of_effects(services)
    question = a_question(services, InvestigationKind.ORPHAN_OBJECT, job.job_id)
    publish_report(accountant)
    query = "SELECT investigation_id, owned, overdue FROM unresolved_investigations"
    assert run_query(accountant, query) == [{"investigation_id": question, "owned": True, "overdue": False}]
    clock.advance(accountant.limits.staffing.investigation_deadline_s + 1)
    publish_report(accountant)
    assert run_query(accountant, query) == [{"investigation_id": question, "owned": False, "overdue": True}]
    gate = ACCOUNTING_CHECKS["release_gate"].run(accountant)
    assert [row["investigation_id"] for row in gate.violations] == [question]
    found = run_query(accountant, gate.query_text)
    assert [row["investigation_id"] for row in found] == [question]


def test_a_refresh_finds_what_time_alone_brings_and_keeps_what_is_wrong_with_jobs_that_rest(
    services: EffectContext, accountant: Accountant, clock: FakeClock, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(publish, "NEW_EVENTS_SHARE_MAX", 1_000)
    late, odd = (a_stored_success(services, key=key).job_id for key in ("late", "odd"))
    assert publish_report(accountant).document["effect_gaps"] == []
    with services.ledger.transaction() as tx:
        tx.execute(update(jobs).where(jobs.c.job_id == odd).values(items_requested=7))
        append_event(tx, EventKind.REPLAYED, job_id=odd)
    clock.advance(LIMITS.delivery.effect_deadline_s + 1)
    for key in ("another", "and another"):
        an_accepted_job(services.ledger, key=key)
        assert publish_report(accountant).document["effect_gaps"] == sorted([late, odd])
        found = "SELECT job_id FROM account_findings WHERE finding = 'unbalanced_items'"
        with reading_report(accountant.published) as report:
            assert report.execute(found).fetchall() == [(odd,)]
    assert refreshes(accountant) == 2
    assert everything_in(accountant.published) == built_whole(accountant, tmp_path / "anew")


def test_what_was_overdue_by_a_clock_that_was_put_back_since_is_asked_again(
    services: EffectContext, accountant: Accountant, clock: FakeClock
) -> None:
    late = a_stored_success(services).job_id
    publish_report(accountant)
    for seconds, found in ((LIMITS.delivery.effect_deadline_s + 1, [late]), (-LIMITS.delivery.effect_deadline_s, [])):
        clock.advance(seconds)
        assert publish_report(accountant).document["effect_gaps"] == found
    assert refreshes(accountant) == 2
