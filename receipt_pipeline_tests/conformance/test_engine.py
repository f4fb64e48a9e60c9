"""Transactions and the deciding clock: all or nothing, bounded waits, time that never runs back."""

from __future__ import annotations

import datetime as dt
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.journal import EventKind, append_event, new_id
from receipt_pipeline.ledger.schema.jobs import events, jobs
from receipt_pipeline.ledger.schema.types import UtcMicros
from receipt_pipeline_tests import builders
from receipt_pipeline_tests.conformance.ledger_rows import all_rows, job_row
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

THREADS = 4
EVENTS_EACH = 10


class Stopped(Exception):
    """Stands for the end of a process inside a transaction."""


def append_and_stop(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        append_event(tx, EventKind.ALIAS_MOVED, alias="production")
        raise Stopped


def test_an_error_inside_a_transaction_leaves_nothing(ledger: Ledger) -> None:
    with pytest.raises(Stopped):
        append_and_stop(ledger)
    assert all_rows(ledger, events) == []


def test_a_transaction_that_ended_answers_no_more_and_its_rows_stay_readable(ledger: Ledger) -> None:
    builders.approve(ledger)
    with ledger.transaction() as tx:
        rows = tx.rows(sa.select(events))
    assert [row["kind"] for row in rows] == ["release_approved", "alias_moved"]
    with pytest.raises(sa.exc.ResourceClosedError):
        tx.rows(sa.select(events))


def test_a_reading_transaction_sees_one_snapshot_and_does_not_wait_for_a_writer(ledger: Ledger) -> None:
    job = builders.an_accepted_job(ledger)
    count = sa.select(sa.func.count()).select_from(jobs)
    with ledger.reading() as reader:
        assert reader.scalar(count) == 1
        with ledger.transaction() as writer:
            append_event(writer, EventKind.REPLAYED, job_id=job.job_id)
            assert reader.scalar(count) == 1
        builders.an_accepted_job(ledger)
        assert reader.scalar(count) == 1
    assert len(all_rows(ledger, jobs)) == 2


def test_a_reading_transaction_writes_nothing(ledger: Ledger) -> None:
    with ledger.reading() as tx:
        append_event(tx, EventKind.ALIAS_MOVED, alias="production")
    assert all_rows(ledger, events) == []


@pytest.mark.requirement("R016")
def test_time_never_runs_behind_the_newest_event(ledger: Ledger, clock: FakeClock) -> None:
    job = builders.an_accepted_job(ledger)
    clock.advance(-120)
    with ledger.reading() as tx:
        assert tx.now() == job.submitted_at
    second = builders.an_accepted_job(ledger)
    assert second.submitted_at == job.submitted_at
    clock.advance(300)
    with ledger.reading() as tx:
        assert tx.now() == clock.now()
    times = [row["at"] for row in all_rows(ledger, events)]
    assert times == sorted(times)


def test_without_a_given_clock_the_database_or_its_host_decides(ledger_url: str) -> None:
    ledger = open_ledger(ledger_url)
    here = dt.datetime.now(dt.UTC)
    with ledger.transaction() as tx:
        first, second = tx.now(), tx.now()
    assert first <= second
    assert abs((first - here).total_seconds()) < 60
    assert second.tzinfo is dt.UTC
    ledger.close()


def test_times_are_exact_to_the_microsecond_and_naive_ones_are_refused(ledger: Ledger, clock: FakeClock) -> None:
    exact = dt.datetime(2026, 11, 28, 8, 0, 0, 123_457, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    clock.set(exact + dt.timedelta(days=1))
    with ledger.transaction() as tx:
        append_event(tx, EventKind.ALIAS_MOVED)
    [row] = all_rows(ledger, events)
    assert row["at"] == exact + dt.timedelta(days=1)
    with pytest.raises(ValueError, match="naive"):
        UtcMicros().process_bind_param(dt.datetime(2026, 11, 28), None)  # noqa: DTZ001


def test_ids_are_unique_and_sort_by_the_ledgers_time(ledger: Ledger, clock: FakeClock) -> None:
    made = []
    for _ in range(5):
        with ledger.reading() as tx:
            made.append(new_id(tx, "job"))
        clock.advance(0.01)
    assert made == sorted(set(made))
    assert all(name.startswith("job_") for name in made)


def test_a_job_points_at_its_newest_event_however_many_write_at_once(ledger: Ledger) -> None:
    job_id = builders.an_accepted_job(ledger).job_id
    start = threading.Barrier(THREADS)
    errors: list[BaseException] = []

    def write() -> None:
        start.wait()
        try:
            for _ in range(EVENTS_EACH):
                with ledger.transaction() as tx:
                    append_event(tx, EventKind.REPLAYED, job_id=job_id)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    seen = 0
    of_this_job = sa.select(events.c.seq).where(events.c.job_id == job_id)
    while any(thread.is_alive() for thread in threads):
        # What a reader has seen as newest must never be followed by a lower number that was not there.
        with ledger.reading() as tx:
            numbers = list(tx.execute(of_this_job).scalars())
            latest = tx.scalar(sa.select(jobs.c.latest_seq).where(jobs.c.job_id == job_id))
        assert latest == max(numbers)
        assert latest >= seen
        seen = latest
    assert errors == []
    numbers = [row["seq"] for row in all_rows(ledger, events, job_id)]
    assert len(numbers) == 1 + THREADS * EVENTS_EACH
    assert job_row(ledger, job_id)["latest_seq"] == max(numbers)


@pytest.fixture
def impatient(sqlite_ledger_url: str, clock: FakeClock) -> Iterator[Ledger]:
    ledger = open_ledger(sqlite_ledger_url, clock=clock, busy_timeout_ms=20, begin_tries_max=2)
    yield ledger
    ledger.close()


def locked_by_another(ledger: Ledger) -> sqlite3.Connection:
    path = Path(str(ledger.engine.url.database))
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    return other


def test_a_locked_ledger_is_reported_after_bounded_tries_and_nothing_is_half_written(impatient: Ledger) -> None:
    job = builders.an_accepted_job(impatient)
    request = builders.a_request()
    other = locked_by_another(impatient)
    started = time.monotonic()
    with pytest.raises(LedgerUnavailable) as caught:
        builders.an_accepted_job(impatient, request)
    assert time.monotonic() - started < 5
    assert caught.value.reason.code == "LEDGER.UNAVAILABLE.v1"
    assert caught.value.facts["tries"] == 2
    assert [row["job_id"] for row in all_rows(impatient, jobs)] == [job.job_id], "reads go on meanwhile"
    other.rollback()
    other.close()
    assert builders.an_accepted_job(impatient, request).state == "accepted"


def test_a_lock_that_is_let_go_in_time_costs_nothing_but_the_wait(sqlite_ledger_url: str) -> None:
    ledger = open_ledger(sqlite_ledger_url, busy_timeout_ms=20, begin_tries_max=6)
    builders.approve(ledger)
    other = locked_by_another(ledger)
    timer = threading.Timer(0.2, other.rollback)
    timer.start()
    job = builders.an_accepted_job(ledger)
    timer.join()
    other.close()
    assert [row["job_id"] for row in all_rows(ledger, jobs)] == [job.job_id]
    ledger.close()


def test_a_server_that_does_not_answer_is_reported_in_the_same_words() -> None:
    ledger = open_ledger("postgresql+psycopg://nobody@127.0.0.1:1/nothing?connect_timeout=1", begin_tries_max=1)
    with pytest.raises(LedgerUnavailable) as caught, ledger.reading() as tx:
        tx.now()
    assert caught.value.reason.code == "LEDGER.UNAVAILABLE.v1"
    ledger.close()


def test_a_ledger_of_this_version_is_opened_and_read_while_a_writer_holds_it(
    sqlite_ledger_url: str, tmp_path: Path
) -> None:
    first = open_ledger(sqlite_ledger_url)
    first.migrate()
    with first.transaction():
        second = open_ledger(sqlite_ledger_url, busy_timeout_ms=1, begin_tries_max=1)
        second.migrate()
        with second.reading() as tx:
            assert tx.rows(sa.select(jobs)) == []
        second.close()
    first.close()


def test_a_ledger_whose_file_turns_to_garbage_is_unavailable(
    sqlite_ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    ledger = open_ledger(sqlite_ledger_url)
    ledger.migrate()
    ledger.close()
    path = Path(str(sa.make_url(sqlite_ledger_url).database))
    path.write_bytes(b"no database" * 10_000)
    for name in ("-wal", "-shm"):
        path.with_name(path.name + name).unlink(missing_ok=True)
    with pytest.raises(LedgerUnavailable) as refused:
        ledger.migrate()
    assert refused.value.facts["cause"] == "SQLITE_NOTADB", "damaged, not locked"
    ledger.close()


@pytest.mark.parametrize("pages", [1, 60])
def test_a_full_disk_is_called_so_while_the_ledger_is_made_and_while_it_is_written(
    sqlite_ledger_url: str, tmp_path: Path, pages: int
) -> None:
    url = sqlite_ledger_url if pages > 1 else f"sqlite:///{tmp_path / 'new' / 'ledger.db'}"
    ledger = open_ledger(url)

    @sa.event.listens_for(ledger.engine, "connect")
    def no_room(dbapi_connection: sqlite3.Connection, record: object) -> None:
        dbapi_connection.execute(f"PRAGMA max_page_count = {pages}")

    def fill() -> None:
        ledger.migrate()
        for _ in range(20_000):
            with ledger.transaction() as tx:
                append_event(tx, EventKind.ALIAS_MOVED, alias="x" * 100_000)

    with pytest.raises(LedgerUnavailable) as refused:
        fill()
    assert refused.value.reason.code == "STORAGE.FULL.v1"
    ledger.close()


def test_a_disk_that_is_full_while_the_ledger_is_opened_is_called_so(
    sqlite_ledger_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = open_ledger(sqlite_ledger_url, begin_tries_max=1)
    full = sqlite3.OperationalError("disk I/O error")
    full.sqlite_errorname = "SQLITE_IOERR_SHMSIZE"

    def refuse() -> None:
        raise full

    monkeypatch.setattr(ledger, "_take_connection", refuse)
    with pytest.raises(LedgerUnavailable) as refused, ledger.reading():
        raise AssertionError("nothing was opened")
    assert (refused.value.reason.code, refused.value.facts["tries"]) == ("STORAGE.FULL.v1", 1)
    ledger.close()
