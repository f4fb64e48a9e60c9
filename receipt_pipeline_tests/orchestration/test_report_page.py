"""The page for people: no other file or host, what is open comes first, every figure with its query."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from receipt_pipeline.accounting.page import QUERIES
from receipt_pipeline.app import analyst, maintenance, submitter
from receipt_pipeline.app.context import AppContext
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome


class Links(HTMLParser):
    """Collects what a browser would fetch, and the text of every query."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.queries: list[str] = []
        self._in_query = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_query = tag == "pre"
        if self._in_query:
            self.queries.append("")
        for name, value in attrs:
            inside = (value or "").startswith("#")
            if name in ("src", "href", "xlink:href") and not inside and tag != "svg":
                self.fetched.append(f"{tag} {value}")

    def handle_data(self, data: str) -> None:
        if self._in_query:
            self.queries[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._in_query = False


def page_of(services: AppContext) -> tuple[str, Links]:
    maintenance.publish_report(services)
    text = maintenance.publish_page(services).read_text(encoding="utf-8")
    links = Links()
    links.feed(text)
    return text, links


def test_the_page_fetches_nothing_and_its_queries_run_on_the_report(opened: OpenedHome) -> None:
    opened.bench.finished(key="done")
    opened.submit("waiting")
    text, links = page_of(opened.app)
    assert links.fetched == []
    assert re.findall(r"url\((?!#)[^)]*\)", text) == []
    assert set(QUERIES.values()) <= set(links.queries)
    for query in links.queries:
        analyst.query_report(opened.app, opened.principal, query)
    assert text.count("<svg") == 3


@pytest.mark.requirement("R146")
def test_what_is_open_comes_first_with_its_job_and_what_may_be_done(opened: OpenedHome) -> None:
    job_id = opened.submit("waiting")
    opened.clock.advance(opened.app.settings.alert_thresholds().queue_age_s + 1)
    maintenance.review_alerts(opened.app)
    text, links = page_of(opened.app)
    assert text.index("Open investigations") < text.index("Active alerts") < text.index("Newest jobs")
    assert "queue age" in text
    (evidence,) = [query for query in links.queries if job_id in query]
    assert [row["kind"] for row in analyst.query_report(opened.app, opened.principal, evidence)] == ["accepted"]


def test_what_a_caller_wrote_is_text_on_the_page_and_never_markup(opened: OpenedHome) -> None:
    with opened.app.ledger.transaction() as tx:
        from receipt_pipeline.core.alerts import AlertKind
        from receipt_pipeline.ledger.effects.alerts import AlertFinding, raise_alert

        raise_alert(tx, AlertFinding(AlertKind.TEST, "<script>alert(1)</script>", None, {}))
    text, _ = page_of(opened.app)
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.requirement("R147", "R048")
def test_signals_for_a_collector_say_what_the_report_says(opened: OpenedHome) -> None:
    opened.bench.finished(key="done")
    expired = opened.submit("late")
    opened.clock.advance(30 * 86_400)
    maintenance.reconcile_ledger(opened.app)
    for _ in range(2):  # Counted once, however often the account is published.
        maintenance.publish_report(opened.app)
    path: Path = opened.app.settings.metrics
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }
    (job,) = [row for row in submitter.list_jobs(opened.app, opened.principal) if row["job_id"] == expired]
    assert samples["receipts_jobs", *sorted(["expired", job["terminal_class"]])] == 1
    truth = analyst.query_report(opened.app, opened.principal, "SELECT * FROM time_to_reconciled_truth")
    assert {row["terminal_class"] for row in truth} >= {"complete"}
    for row in truth:
        assert samples["receipts_needing_people_percent", row["terminal_class"]] == row["needing_people_percent"]
        if row["p95_s"] is not None:
            assert samples["receipts_time_to_truth_seconds", *sorted(["p95", row["terminal_class"]])] == row["p95_s"]
