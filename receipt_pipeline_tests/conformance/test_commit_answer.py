"""A commit whose answer is lost is neither a success nor a failure: it is said so, and repeating is safe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.core.request import JobRequest, resolve_limits
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.jobs.accept import NewJob, find_replay, insert_job
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import all_rows
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

pytestmark = pytest.mark.postgres


@pytest.fixture
def on_postgres(postgres_ledger_url: str, clock: FakeClock) -> Iterator[Ledger]:
    ledger = open_ledger(postgres_ledger_url, clock=clock)
    builders.approve(ledger)
    yield ledger
    ledger.close()


def change_and_be_cut(ledger: Ledger, *, reads_on: bool) -> None:
    with ledger.transaction() as tx:
        tx.execute(sa.update(jobs).values(caller="somebody else"))
        cut(ledger, int(tx.scalar(sa.text("SELECT pg_backend_pid()"))))
        if reads_on:
            tx.rows(sa.select(jobs))


def cut(ledger: Ledger, backend: int) -> None:
    with ledger.reading() as tx:
        tx.execute(sa.text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": backend})


def accept(ledger: Ledger, request: JobRequest) -> JobRow:
    frozen = resolve_limits(request.limits, items=len(request.items), cutoff_margin_s=900)
    with ledger.transaction() as tx:
        return find_replay(tx, tenant=builders.TENANT, request=request) or insert_job(
            tx,
            NewJob(
                tenant=builders.TENANT,
                caller=builders.CALLER,
                request=request,
                limits=frozen,
                stored=builders.stored(request),
            ),
        )


@pytest.mark.requirement("R025")
def test_a_commit_that_was_made_before_its_answer_was_lost_is_joined_by_the_repeat(
    on_postgres: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect, request = on_postgres.engine.dialect, builders.a_request()
    commit = dialect.do_commit

    def commit_and_lose_the_answer(connection: Any) -> None:
        commit(connection)
        connection.dbapi_connection.close()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(dialect, "do_commit", commit_and_lose_the_answer)
    with pytest.raises(LedgerUnavailable) as caught:
        accept(on_postgres, request)
    monkeypatch.undo()
    assert caught.value.reason.code == "LEDGER.OUTCOME_UNKNOWN.v1"
    [row] = all_rows(on_postgres, jobs)
    assert accept(on_postgres, request).job_id == row["job_id"]
    assert len(all_rows(on_postgres, jobs)) == 1


def test_a_connection_cut_before_the_commit_is_not_called_a_failure_either(on_postgres: Ledger) -> None:
    request = builders.a_request()
    builders.an_accepted_job(on_postgres, request)
    with pytest.raises(LedgerUnavailable) as caught:
        change_and_be_cut(on_postgres, reads_on=False)
    assert caught.value.reason.code == "LEDGER.OUTCOME_UNKNOWN.v1"
    assert "repeat" in caught.value.reason.next_step
    assert [row["caller"] for row in all_rows(on_postgres, jobs)] == [builders.CALLER]


def test_a_connection_cut_while_it_works_has_certainly_written_nothing(on_postgres: Ledger) -> None:
    builders.an_accepted_job(on_postgres)
    with pytest.raises(LedgerUnavailable) as caught:
        change_and_be_cut(on_postgres, reads_on=True)
    assert caught.value.reason.code == "LEDGER.UNAVAILABLE.v1"
    assert [row["caller"] for row in all_rows(on_postgres, jobs)] == [builders.CALLER]
