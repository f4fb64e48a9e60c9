"""Every asset check, run by Dagster: green in a good home, red with ids and query, green after the repair."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import dagster as dg
import pytest

from receipt_pipeline.app import analyst, maintenance, operator
from receipt_pipeline.app.maintenance import CHECK_ASSETS
from receipt_pipeline.definitions import defs
from receipt_pipeline.defs.checks import ALL_CHECKS
from receipt_pipeline.defs.metadata import ROWS_MAX
from receipt_pipeline_tests.fakes.reconcile_bench import job_of
from receipt_pipeline_tests.orchestration.breakages import BREAKAGES
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome

ACCOUNT = "job_accounting"


@pytest.fixture
def home(opened: OpenedHome) -> OpenedHome:
    for key in ("one", "two"):
        opened.bench.finished(key=key)
    return opened


def evaluate(home: OpenedHome, name: str) -> dg.AssetCheckEvaluation:
    key = dg.AssetCheckKey(dg.AssetKey(CHECK_ASSETS[name]), name)
    checks = [definition for definition in ALL_CHECKS if key in definition.check_keys]
    with dg.DagsterInstance.ephemeral() as instance:
        result = dg.materialize(
            checks, selection=dg.AssetSelection.checks(key), resources={"app": home.resource}, instance=instance
        )
    assert result.success
    (evaluation,) = result.get_asset_check_evaluations()
    warns = name in ("queue_age_within_capacity", "no_standing_alert")
    assert evaluation.severity is (dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR)
    assert next(iter(evaluation.metadata)) == "repair"
    return evaluation


def who(evaluation: dg.AssetCheckEvaluation) -> list[str]:
    table = evaluation.metadata["jobs"]
    assert isinstance(table, dg.TableMetadataValue)
    assert table.schema.columns[0].name == "job_id"
    assert evaluation.metadata["violations"].value == len(table.records)
    return sorted({str(record.data["job_id"]) for record in table.records})


def query_of(evaluation: dg.AssetCheckEvaluation) -> str:
    shown = evaluation.metadata["query"]
    assert isinstance(shown, dg.MarkdownMetadataValue)
    assert shown.md_str is not None
    return shown.md_str.removeprefix("```sql\n").removesuffix("\n```")


def linked_jobs(evaluation: dg.AssetCheckEvaluation) -> list[str]:
    shown = evaluation.metadata["links"]
    assert isinstance(shown, dg.MarkdownMetadataValue)
    return sorted(re.findall(r"`receipts status (\w+)`", shown.md_str or ""))


def found_by(home: OpenedHome, name: str, query: str) -> list[str]:
    """Run a check's query by hand, where it is meant to be run, and return the job ids that it finds."""
    if CHECK_ASSETS[name] != ACCOUNT:
        return sorted({str(row["job_id"]) for row in home.bench.ask_by_hand(query)})
    if name == "report_matches_ledger":  # The same question to both; the rows that differ are the answer.
        reported = {tuple(row.values()) for row in analyst.query_report(home.app, home.principal, query)}
        kept = {tuple(row.values()) for row in home.bench.ask_by_hand(query)}
        return sorted({str(row[0]) for row in reported ^ kept})
    maintenance.publish_report(home.app)
    return sorted({str(row["job_id"]) for row in analyst.query_report(home.app, home.principal, query)})


def test_every_check_can_be_broken_here() -> None:
    assert set(BREAKAGES) == set(CHECK_ASSETS)
    assert len(BREAKAGES) == 17


@pytest.mark.parametrize("name", sorted(BREAKAGES))
def test_a_check_turns_red_on_what_it_guards_names_it_and_is_green_again(home: OpenedHome, name: str) -> None:
    if CHECK_ASSETS[name] == ACCOUNT:
        maintenance.publish_report(home.app)
    good = evaluate(home, name)
    assert good.passed, good.description
    assert who(good) == []

    broken = BREAKAGES[name](home)
    red = evaluate(home, name)
    assert not red.passed
    assert who(red) == sorted(broken.job_ids)
    assert found_by(home, name, query_of(red)) == sorted(broken.job_ids)
    assert linked_jobs(red) == sorted(set(broken.job_ids) - {"None"})

    broken.mend()
    mended = evaluate(home, name)
    assert mended.passed, mended.description
    assert who(mended) == []


@pytest.mark.parametrize("damage", ["removed", "cut short"])
def test_a_report_that_cannot_be_read_is_red_until_it_is_published_again(home: OpenedHome, damage: str) -> None:
    path = maintenance.publish_report(home.app).path
    assert evaluate(home, "report_matches_ledger").passed
    kept = path.read_bytes()
    path.unlink()
    if damage == "cut short":
        path.write_bytes(kept[: len(kept) // 2])
    assert not evaluate(home, "report_matches_ledger").passed
    maintenance.publish_report(home.app)
    assert evaluate(home, "report_matches_ledger").passed


@pytest.mark.requirement("R139")
def test_the_gate_is_red_over_an_unowned_job_and_green_while_its_question_is_owned(home: OpenedHome) -> None:
    broken = BREAKAGES["every_accepted_job_is_terminal_or_owned"](home)
    assert who(evaluate(home, "release_gate")) == list(broken.job_ids)
    broken.mend()
    report = analyst.read_report(home.app, home.principal)
    assert (report["state"], report["missing_terminal"]) == ("investigate", list(broken.job_ids))
    assert evaluate(home, "release_gate").passed
    home.bench.edit("UPDATE investigations SET owner = 'nobody'")
    assert who(evaluate(home, "release_gate")) == list(broken.job_ids)
    (question,) = operator.list_investigations(home.app, home.principal, only_open=True)
    operator.assign_investigation(home.app, home.principal, question["investigation_id"], owner="operations")
    assert evaluate(home, "release_gate").passed
    home.clock.advance(home.app.settings.limits.staffing.investigation_deadline_s + 1)
    assert who(evaluate(home, "release_gate")) == list(broken.job_ids)


@pytest.mark.requirement("R146")
def test_from_a_red_check_it_is_two_clicks_to_the_run_and_the_query(opened: OpenedHome) -> None:
    job_id = opened.submit("worked")
    (wave_id,) = opened.dispatch()
    run_id = opened.run_wave(wave_id).run_id
    opened.bench.edit("UPDATE items SET item_class = NULL WHERE job_id = :job", job=job_id)
    red = evaluate(opened, "items_balance_to_accepted")
    jobs = red.metadata["links"]
    assert isinstance(jobs, dg.MarkdownMetadataValue)
    assert f"- `receipts status {job_id}` · [run {run_id[:8]}](/runs/{run_id})" in (jobs.md_str or "")
    assert found_by(opened, "items_balance_to_accepted", query_of(red)) == [job_id]


@pytest.mark.requirement("R146")
def test_every_figure_in_the_ui_names_the_query_behind_it(home: OpenedHome) -> None:
    maintenance.publish_report(home.app)
    with dg.DagsterInstance.ephemeral() as instance:
        result = defs().resolve_job_def("accounting").execute_in_process(instance=instance)
    assert result.success
    shown = {
        event.asset_key: event.materialization.metadata
        for event in result.get_asset_materialization_events()
        if event.asset_key
    } | {
        event.asset_key: event.asset_observation_data.asset_observation.metadata
        for event in result.get_asset_observation_events()
        if event.asset_key
    }
    assert len(shown) == 7
    asked = 0
    for key, metadata in shown.items():
        queries = metadata["queries"]
        assert isinstance(queries, dg.MarkdownMetadataValue)
        for name, query in re.findall(r"\*\*([\w. ]+)\*\*\n```sql\n(.*?)\n```", queries.md_str or ""):
            of_ledger = "FROM outbox" in query or "FROM submissions" in query
            by_hand = home.bench.ask_by_hand if of_ledger else partial(analyst.query_report, home.app, home.principal)
            rows, asked = by_hand(query), asked + 1
            figure = metadata.get(name)
            if isinstance(figure, dg.IntMetadataValue):
                assert len(rows) == figure.value, (key, name)
    assert asked > 50


def test_the_gate_is_red_in_a_home_that_accepted_nothing(opened: OpenedHome) -> None:
    red = evaluate(opened, "release_gate")
    assert not red.passed
    assert who(red) == []
    assert "State: empty. Gate: fail. Jobs accepted: 0," in (red.description or "")


def test_a_long_list_of_violations_is_counted_whole_and_shown_in_part(home: OpenedHome) -> None:
    job_id = job_of(home.bench, "one")["job_id"]
    home.bench.edit(
        "INSERT INTO events (job_id, tenant, kind, at, data)"
        " WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 60)"
        " SELECT 'job_nobody_' || n, tenant, kind, at, data FROM events, numbers"
        " WHERE kind = 'terminal' AND job_id = :job",
        job=job_id,
    )
    red = evaluate(home, "one_terminal_record_per_job")
    table: Any = red.metadata["jobs"]
    assert red.metadata["violations"].value == 60
    assert len(table.records) == ROWS_MAX
