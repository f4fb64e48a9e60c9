"""Eight worker processes on one PostgreSQL ledger, through kills, sleeps, cut connections and a restart."""

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
from receipt_pipeline_tests.chaos.oracle.evidence import find_violations, read_ledger
from receipt_pipeline_tests.chaos.oracle.invariants import ALWAYS, AT_REST
from receipt_pipeline_tests.conftest import TEST_SETTINGS
from receipt_pipeline_tests.crash.many_workers import (
    LIMITS,
    Crew,
    accept_jobs,
    notes_in,
    services_of,
    work_through_it_all,
)
from receipt_pipeline_tests.postgres_server import private_server

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(3600)]
JOBS = 200
WORKERS = 8
WITHIN_S_A_JOB = 1.5
EFFECTS_A_PASS = 5_000


@dataclass(frozen=True, slots=True)
class Aftermath:
    """The ledger when all is over, its folder, and the crew that went through it."""

    ledger: Ledger
    folder: Path
    crew: Crew
    total: int
    seconds: float

    def rows(self, table: Table) -> list[dict[str, Any]]:
        """Return every row of a table."""
        with self.ledger.reading() as tx:
            return tx.rows(select(table).order_by(*table.primary_key.columns))


@pytest.fixture(scope="module")
def aftermath(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    """Go through it once: RECEIPTS_TEST_JOBS jobs, then deliver, consume and reconcile what is left."""
    total = int(pytestconfig.stash[TEST_SETTINGS].get("RECEIPTS_TEST_JOBS", JOBS))
    folder = tmp_path_factory.mktemp("many-workers")
    with private_server(keeps_commits=True) as server:
        url = server.create_database()
        ledger = open_ledger(url)
        ledger.migrate()
        accept_jobs(ledger, folder, total)
        crew = Crew(server, url, folder, WORKERS, random.Random(total))
        started = time.monotonic()
        try:
            work_through_it_all(crew, ledger, total=total, within_s=300 + WITHIN_S_A_JOB * total)
        finally:
            crew.send_home()
        seconds = time.monotonic() - started
        settle(ledger, folder)
        yield Aftermath(ledger, folder, crew, total, seconds)
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


def settle(ledger: Ledger, folder: Path) -> None:
    """Deliver, consume and reconcile once more, as the daemon does after a storm."""
    sender, reconciler = services_of(ledger, folder)
    for _ in range(2):
        reconcile(reconciler)
        deliver(sender, limit=EFFECTS_A_PASS, time_bound_s=600)
        consume_due(sender, limit=EFFECTS_A_PASS, time_bound_s=600)


@pytest.mark.requirement("R098")
def test_the_journal_shows_rising_epochs_no_stale_write_and_each_decision_acted_upon_once(
    aftermath: Aftermath,
) -> None:
    journal = aftermath.rows(events)
    found = [str(entry) for entry in find_violations(read_ledger(aftermath.ledger, LIMITS), ALWAYS)]
    counts = tally(journal)
    crew = aftermath.crew
    print(
        json.dumps(
            {
                "jobs": aftermath.total,
                "seconds": round(aftermath.seconds, 1),
                "kills": crew.kills,
                "sleeps": crew.stalls,
                "connections_cut": crew.cuts,
                "server_restarts": crew.restarts,
                **counts,
                "violations": len(found),
                "told_by_workers": Counter(
                    f"{note['what']} {note['cause']}".strip() for note in notes_in(aftermath.folder)
                ),
            }
        )
    )
    assert found == []
    assert counts["terminal"] == aftermath.total
    refused = len(aftermath.rows(refused_writes))
    assert counts["refused_stale_writes"] == refused > 0
    assert counts["takeovers"] > 0
    assert (crew.restarts, crew.kills > 0, crew.cuts > 0) == (1, True, True)


@pytest.mark.requirement("R098")
def test_every_job_ended_once_with_one_object_one_message_and_one_task_per_decision(
    aftermath: Aftermath,
) -> None:
    sender, _ = services_of(aftermath.ledger, aftermath.folder)
    closed = aftermath.rows(jobs)
    assert len(closed) == aftermath.total
    assert {job["state"] for job in closed} <= TERMINAL_STATES
    assert {job["job_id"] for job in closed if job["state"] == "succeeded"} != set()
    stored = {}
    for entry in sender.objects.listing(RESULTS_PREFIX):
        known = sender.objects.digest(entry.key)
        stored[entry.key] = known[0] if known else ""
    found = read_ledger(aftermath.ledger, LIMITS, stored=stored)
    assert [str(violation) for violation in find_violations(found, (*ALWAYS, *AT_REST))] == []
    sent = [path.name.split(".")[0] for path in (aftermath.folder / "outbox").rglob("msg_*.json")]
    assert sorted(sent) == sorted(f"msg_{job['job_id']}" for job in closed)


def test_the_checks_of_the_house_find_nothing_and_workers_met_only_what_is_announced(
    aftermath: Aftermath,
) -> None:
    _, reconciler = services_of(aftermath.ledger, aftermath.folder)
    # How long jobs waited while everything broke is no fault of the ledger.
    outcomes = {name: run_check(reconciler, name) for name in CHECKED}
    outcomes.pop("queue_age_within_capacity")
    assert {name: outcome.violations for name, outcome in outcomes.items() if not outcome.passed} == {}
    assert [note["text"] for note in notes_in(aftermath.folder) if not note["expected"]] == []
