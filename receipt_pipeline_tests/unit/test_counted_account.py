"""The account over a copy that counts what is in order says what the account that joins every job says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from benchmarks import sets_peer
from receipt_pipeline.accounting.refresh import TABLES, report_as_ledger
from receipt_pipeline.core.lifecycle import JobState
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.invariants import account as counted_account
from receipt_pipeline.ledger.invariants.account import AccountSets, account_sets, counted_account_sets

JOBS = 100
STATES = ("succeeded", "failed", "expired", "canceled")
_MOVE = "UPDATE events SET job_id = {} WHERE job_id IN {}"
_COPY = "INSERT INTO events SELECT {} FROM events WHERE job_id = '{}'"
# Of twenty generated jobs the first is rejected, the second expired, the third canceled, the fourth open.
FAILED, CANCELED, OPEN, READ = (f"job_{i:026d}" for i in (20, 42, 63, 84))
FAULTS = {
    "none": "SELECT 1",
    "a record is missing": f"DELETE FROM events WHERE job_id = '{READ}'",
    "a record is there twice": _COPY.format("*", READ),
    "a job is missing": f"DELETE FROM jobs WHERE job_id = '{READ}'",
    "a record names nobody": _COPY.format("* REPLACE ('job_nobody' AS job_id)", READ),
    "a record names no job at all": _COPY.format("* REPLACE (NULL AS job_id)", READ),
    "an open job has a record": _COPY.format(f"* REPLACE ('{OPEN}' AS job_id)", READ),
    "records took each other's job": _MOVE.format(f"if(job_id = '{FAILED}', '{READ}', '{FAILED}')", (FAILED, READ)),
    "a record of one job stands for another's": _MOVE.format(f"'{FAILED}'", (READ, READ)),
    "a row says another state": f"UPDATE jobs SET state = 'expired' WHERE job_id = '{CANCELED}'",
    "a record says no state": f"UPDATE events SET data = '{{}}' WHERE job_id = '{CANCELED}'",
    "a job is held": f"UPDATE jobs SET phase = 'quarantined' WHERE job_id = '{OPEN}'",
    "a job is late": f"UPDATE jobs SET queue_deadline = '2026-11-29' WHERE job_id = '{OPEN}'",
    "an item is lost": f"UPDATE items SET item_class = 'unresolved' WHERE job_id IN ('{READ}', '{OPEN}')",
}


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    sets_peer.generate(tmp_path, JOBS)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for table in TABLES:
            rows = f"read_parquet('{tmp_path / 'parquet' / table.name}.parquet')"
            connection.execute(f"CREATE TABLE {table.name} AS SELECT * FROM {rows}")
        yield connection


def both(copied: duckdb.DuckDBPyConnection, *, early: bool) -> tuple[AccountSets, AccountSets]:
    [(amid,)] = copied.execute("SELECT median(submitted_at) FROM jobs").fetchall()
    limits, cutoff = Limits(), amid if early else None
    with report_as_ledger(copied, now=sets_peer.NOW) as tx:
        return counted_account_sets(tx, limits=limits, cutoff=cutoff), account_sets(tx, limits=limits, cutoff=cutoff)


@pytest.mark.requirement("R138", "R141")
def test_each_fault_is_found_though_the_jobs_in_order_are_only_counted(
    copied: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counted_account, "GROUPS", 4)  # So that jobs in order share a group with a fault.
    for fault in FAULTS.values():
        copied.execute("BEGIN")
        copied.execute(fault)
        for early in (False, True):
            agree(*both(copied, early=early), fault)
        copied.execute("ROLLBACK")
    for fault in FAULTS.values():
        copied.execute(fault)
    agree(*both(copied, early=False), "all of them")


def agree(counted: AccountSets, joined: AccountSets, fault: str) -> None:
    assert counted.unresolved == joined.unresolved, fault
    assert counted.orphan_terminal == joined.orphan_terminal, fault
    assert counted.overlapping == joined.overlapping, fault
    assert counted.unresolved_items == joined.unresolved_items, fault
    assert counted.accepted <= joined.accepted
    assert len(counted.accepted) + sum(counted.ordinary.values()) == len(joined.accepted), fault
    for state in map(JobState, STATES):
        assert counted.terminal[state] <= joined.terminal[state]
        there = len(counted.terminal[state]) + counted.ordinary.get(state, 0)
        assert there == len(joined.terminal[state]), fault
    waiting = counted.ordinary.get(JobState.ACCEPTED, 0) + counted.ordinary.get(JobState.RUNNING, 0)
    assert len(counted.in_flight) + waiting == len(joined.in_flight), fault


def test_of_jobs_in_order_none_is_named(copied: duckdb.DuckDBPyConnection) -> None:
    counted, joined = both(copied, early=False)
    assert counted.accepted == counted.in_flight == frozenset()
    assert sum(counted.ordinary.values()) == len(joined.accepted) == JOBS
    rows = copied.execute("SELECT job_id, state FROM jobs").fetchall()
    records = copied.execute("SELECT job_id, data ->> 'state' FROM events").fetchall()
    assert {row for row in rows if row[1] in STATES} == set(records), "the plain recount agrees"


def test_one_fault_names_the_jobs_that_it_concerns_and_no_other(copied: duckdb.DuckDBPyConnection) -> None:
    copied.execute(FAULTS["a record of one job stands for another's"])
    counted, _ = both(copied, early=False)
    assert counted.unresolved == ((READ, "terminal_without_record"),)
    assert counted.overlapping == (FAILED,)
    assert counted.accepted == {READ, FAILED}
