"""Eight worker processes on one PostgreSQL ledger under kills, stops, cut connections and a restart."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table, select

from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.effects.consume import consume_due
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.invariants import CHECKED
from receipt_pipeline.ledger.schema.jobs import events, jobs, refused_writes
from receipt_pipeline.objects.store import RESULTS_PREFIX
from receipt_pipeline.reconciliation.checks import run_check
from receipt_pipeline.reconciliation.repair import reconcile
from receipt_pipeline_tests.chaos.many_workers import (
    LIMITS,
    WorkerPool,
    accept_jobs,
    notes_in,
    services_of,
    work_under_faults,
)
from receipt_pipeline_tests.chaos.oracle.evidence import find_violations, read_ledger
from receipt_pipeline_tests.chaos.oracle.invariants import ALWAYS, AT_REST
from receipt_pipeline_tests.chaos.oracle.records import journal_times_never_decrease
from receipt_pipeline_tests.conftest import TEST_SETTINGS
from receipt_pipeline_tests.postgres_server import private_server

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(3600)]
JOBS = 200
WORKERS = 8
WITHIN_S_A_JOB = 1.5
EFFECTS_A_PASS = 5_000
# Concurrent transactions of PostgreSQL read the clock and take their event number in either order.
EXPECTED = tuple(invariant for invariant in ALWAYS if invariant is not journal_times_never_decrease)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The ledger at the end, its folder, and the pool of workers."""

    ledger: Ledger
    folder: Path
    pool: WorkerPool
    total: int
    seconds: float

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """Return every row of a table."""
        with self.ledger.reading() as tx:
            return tx.rows(select(table).order_by(*table.primary_key.columns))


@pytest.fixture(scope="module")
def outcome(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    """Process RECEIPTS_TEST_JOBS jobs under faults, then deliver, consume and reconcile what remains."""
    total = int(pytestconfig.stash[TEST_SETTINGS].get("RECEIPTS_TEST_JOBS", JOBS))
    folder = tmp_path_factory.mktemp("many-workers")
    with private_server(keeps_commits=True) as server:
        url = server.create_database()
        ledger = open_ledger(url)
        ledger.migrate()
        accept_jobs(ledger, folder, total)
        pool = WorkerPool(server, url, folder, WORKERS, random.Random(total))
        started = time.monotonic()
        try:
            work_under_faults(pool, ledger, total=total, within_s=300 + WITHIN_S_A_JOB * total)
        finally:
            pool.stop_all()
        seconds = time.monotonic() - started
        finish_effects(ledger, folder)
        yield Outcome(ledger, folder, pool, total, seconds)
        ledger.close()


def tally(journal: list[dict[str, Any]]) -> dict[str, int]:
    """Count takeovers, rejections and repeats in the journal."""
    counts: Counter[str] = Counter()
    for event in journal:
        data = event["data"]
        counts["takeovers"] += event["kind"] == "attempt_closed" and data["outcome"] == "lost"
        counts["refused_stale_writes"] += event["kind"] == "write_refused"
        counts["attempts"] += event["kind"] == "claimed"
        counts["terminal"] += event["kind"] == "terminal"
        counts["duplicate_deliveries"] += event["kind"] == "consumed" and data["outcome"] == "duplicate"
        counts["tasks_made"] += data.get("tasks_made", 0) if event["kind"] == "consumed" else 0
    return dict(counts)


def finish_effects(ledger: Ledger, folder: Path) -> None:
    """Deliver, consume and reconcile once more, as the daemon does after faults."""
    sender, reconciler = services_of(ledger, folder)
    for _ in range(2):
        reconcile(reconciler)
        deliver(sender, limit=EFFECTS_A_PASS, time_bound_s=600)
        consume_due(sender, limit=EFFECTS_A_PASS, time_bound_s=600)


@pytest.mark.requirement("R098")
def test_the_journal_shows_rising_epochs_no_stale_write_and_each_decision_acted_upon_once(outcome: Outcome) -> None:
    journal = outcome.rows(events)
    found = [str(entry) for entry in find_violations(read_ledger(outcome.ledger, LIMITS), EXPECTED)]
    counts = tally(journal)
    pool = outcome.pool
    print(
        json.dumps(
            {
                "jobs": outcome.total,
                "seconds": round(outcome.seconds, 1),
                "kills": pool.kills,
                "sleeps": pool.stalls,
                "connections_cut": pool.cuts,
                "server_restarts": pool.restarts,
                **counts,
                "violations": len(found),
                "errors_of_workers": Counter(
                    f"{note['what']} {note['cause']}".strip() for note in notes_in(outcome.folder)
                ),
            }
        )
    )
    assert found == []
    assert counts["terminal"] == outcome.total
    refused = len(outcome.rows(refused_writes))
    assert counts["refused_stale_writes"] == refused > 0
    assert counts["takeovers"] > 0
    assert (pool.restarts, pool.kills > 0, pool.cuts > 0) == (1, True, True)


@pytest.mark.requirement("R098")
def test_every_job_ended_once_with_one_object_one_message_and_one_task_per_decision(outcome: Outcome) -> None:
    sender, _ = services_of(outcome.ledger, outcome.folder)
    closed = outcome.rows(jobs)
    assert len(closed) == outcome.total
    assert {job["state"] for job in closed} <= TERMINAL_STATES
    assert {job["job_id"] for job in closed if job["state"] == "succeeded"} != set()
    stored = {}
    for entry in sender.objects.listing(RESULTS_PREFIX):
        known = sender.objects.digest(entry.key)
        stored[entry.key] = known[0] if known else ""
    found = read_ledger(outcome.ledger, LIMITS, stored=stored)
    assert [str(violation) for violation in find_violations(found, (*EXPECTED, *AT_REST))] == []
    sent = [path.name.split(".")[0] for path in (outcome.folder / "outbox").rglob("msg_*.json")]
    assert sorted(sent) == sorted(f"msg_{job['job_id']}" for job in closed)


def test_every_check_passes_and_workers_met_expected_errors_only(outcome: Outcome) -> None:
    _, reconciler = services_of(outcome.ledger, outcome.folder)
    # The wait of jobs during the faults is no fault of the ledger.
    outcomes = {name: run_check(reconciler, name) for name in CHECKED}
    outcomes.pop("queue_age_within_capacity")
    assert {name: outcome.violations for name, outcome in outcomes.items() if not outcome.passed} == {}
    assert [note["text"] for note in notes_in(outcome.folder) if not note["expected"]] == []
