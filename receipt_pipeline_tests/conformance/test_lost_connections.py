"""Connections that are cut and processes that stand still inside a transaction, on a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import select

from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction, open_ledger
from receipt_pipeline.ledger.jobs.waves import register_worker
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.ledger.schema.jobs import events, workers
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import all_rows
from receipt_pipeline_tests.postgres_server import driver_address

pytestmark = pytest.mark.postgres
RACERS = 4
IDLE_S = 5.0


@pytest.fixture
def patient(postgres_ledger_url: str) -> Iterator[Ledger]:
    ledger = open_ledger(postgres_ledger_url)
    yield ledger
    ledger.close()


def cut_all(url: str) -> None:
    with psycopg.connect(driver_address(url), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def await_no_open_transaction(url: str) -> None:
    """Return once the server has ended every session that stood still inside a transaction.

    Raises:
        TimeoutError: a session still stands long after its bound.
    """
    until = time.monotonic() + 12 * IDLE_S
    with psycopg.connect(driver_address(url), autocommit=True) as connection:
        while time.monotonic() < until:
            standing = connection.execute(
                "SELECT count(*) FROM pg_stat_activity"
                " WHERE datname = current_database() AND state = 'idle in transaction'"
            ).fetchone()
            if standing == (0,):
                return
            time.sleep(0.1)
    raise TimeoutError("a session that stands still in a transaction was not ended")


def test_a_connection_that_is_cut_after_the_last_answer_of_a_reader_hurts_nobody(
    patient: Ledger, postgres_ledger_url: str
) -> None:
    with patient.reading() as tx:
        before = tx.rows(select(events))
        cut_all(postgres_ledger_url)
    assert all_rows(patient, events) == before


def test_a_connection_that_is_cut_between_two_answers_of_a_reader_is_told_as_unavailable(
    patient: Ledger, postgres_ledger_url: str
) -> None:
    def read_across_the_cut() -> None:
        with patient.reading() as tx:
            tx.rows(select(events))
            cut_all(postgres_ledger_url)
            tx.rows(select(events))

    with pytest.raises(LedgerUnavailable, match=r"LEDGER\.UNAVAILABLE\.v1"):
        read_across_the_cut()


def test_a_connection_that_is_cut_inside_a_transaction_leaves_nothing_of_it(
    patient: Ledger, postgres_ledger_url: str
) -> None:
    before = all_rows(patient, events)

    def write_across_the_cut() -> None:
        with patient.transaction() as tx:
            append_event(tx, EventKind.ALIAS_MOVED, alias="production")
            cut_all(postgres_ledger_url)
            append_event(tx, EventKind.ALIAS_MOVED, alias="production")

    with pytest.raises(LedgerUnavailable):
        write_across_the_cut()
    assert all_rows(patient, events) == before


def test_an_error_of_the_caller_is_told_as_it_is_though_the_connection_went_too(
    patient: Ledger, postgres_ledger_url: str
) -> None:
    def fail_across_the_cut() -> None:
        with patient.transaction():
            cut_all(postgres_ledger_url)
            raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        fail_across_the_cut()


def test_a_process_that_stands_still_inside_a_transaction_holds_the_others_up_for_a_bound_only(
    patient: Ledger, postgres_ledger_url: str
) -> None:
    job_id = builders.an_accepted_job(patient).job_id
    stopped = open_ledger(postgres_ledger_url, idle_transaction_s=IDLE_S)
    hasty = open_ledger(postgres_ledger_url, lock_wait_s=0.1)
    refused: list[LedgerUnavailable] = []

    def write(tx: LedgerTransaction) -> None:
        read_job(tx, job_id, lock=True)
        append_event(tx, EventKind.REPLAYED, job_id=job_id)

    def stand_still() -> None:
        with stopped.transaction() as tx:
            write(tx)
            with pytest.raises(LedgerUnavailable) as told, hasty.transaction() as other:
                write(other)
            refused.append(told.value)
            await_no_open_transaction(postgres_ledger_url)

    with pytest.raises(LedgerUnavailable):
        stand_still()
    assert refused[0].facts["cause"] == "LockNotAvailable"
    with hasty.transaction() as tx:
        write(tx)
    assert [row["kind"] for row in all_rows(hasty, events, job_id)] == ["accepted", "replayed"]
    stopped.close()
    hasty.close()


def test_installations_that_register_for_the_first_time_at_once_make_one_row(patient: Ledger) -> None:
    together = threading.Barrier(RACERS)
    failed: list[BaseException] = []

    def register() -> None:
        try:
            with patient.transaction() as tx:
                tx.rows(select(workers))
                together.wait()
                register_worker(tx, worker_id="installation", release_ids=["release"])
        except BaseException as error:
            failed.append(error)

    racing = [threading.Thread(target=register) for _ in range(RACERS)]
    for thread in racing:
        thread.start()
    for thread in racing:
        thread.join()
    assert failed == []
    assert [row["worker_id"] for row in all_rows(patient, workers)] == ["installation"]
