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

from receipt_pipeline.core.items import count_classes, is_balanced
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.effects.consume import consume_due
from receipt_pipeline.effects.deliver import deliver
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.schema.effects import effects, review_tasks
from receipt_pipeline.ledger.schema.jobs import attempts, events, items, jobs, refused_writes
from receipt_pipeline.reconciliation.checks import CHECKS
from receipt_pipeline.reconciliation.repair import reconcile
from receipt_pipeline_tests.conftest import TEST_SETTINGS
from receipt_pipeline_tests.crash.history import tally, violations
from receipt_pipeline_tests.crash.many_workers import (
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
    found = violations(journal)
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
def test_every_job_ended_once_and_balances(aftermath: Aftermath) -> None:
    classes: dict[str, list[str]] = {}
    for row in aftermath.rows(items):
        classes.setdefault(row["job_id"], []).append(row["item_class"])
    closed = aftermath.rows(jobs)
    assert len(closed) == aftermath.total
    for job in closed:
        assert job["state"] in TERMINAL_STATES
        assert is_balanced(requested=job["items_requested"], counts=count_classes(classes[job["job_id"]]))
    assert [row for row in aftermath.rows(attempts) if row["closed_at"] is None] == []


def test_every_success_has_its_one_object_and_every_decision_its_one_task(aftermath: Aftermath) -> None:
    sender, _ = services_of(aftermath.ledger, aftermath.folder)
    kept = {row["job_id"]: row for row in aftermath.rows(jobs) if row["state"] == "succeeded"}
    committed = [
        row
        for row in aftermath.rows(effects)
        if row["kind"] == "result_object" and row["state"] == "committed"
    ]
    assert sorted(row["job_id"] for row in committed) == sorted(kept)
    for job in kept.values():
        assert sender.objects.digest(job["result_key"]) == (job["result_digest"], job["result_size_bytes"])
    decided = [
        row["decision_id"]
        for row in aftermath.rows(items)
        if row["job_id"] in kept and row["item_class"] == "classified"
    ]
    assert sorted(row["decision_id"] for row in aftermath.rows(review_tasks)) == sorted(decided)
    assert len(set(decided)) == len(decided)
    sent = [path.name.split(".")[0] for path in (aftermath.folder / "outbox").rglob("msg_*.json")]
    assert sorted(sent) == sorted(f"msg_{row['job_id']}" for row in aftermath.rows(jobs))


def test_the_checks_of_the_house_find_nothing_and_workers_met_only_what_is_announced(
    aftermath: Aftermath,
) -> None:
    _, reconciler = services_of(aftermath.ledger, aftermath.folder)
    # How long jobs waited while everything broke is no fault of the ledger.
    outcomes = {name: check.run(reconciler) for name, check in CHECKS.items()}
    outcomes.pop("queue_age_within_capacity")
    assert {name: outcome.offenders for name, outcome in outcomes.items() if not outcome.passed} == {}
    assert [note["text"] for note in notes_in(aftermath.folder) if not note["expected"]] == []
