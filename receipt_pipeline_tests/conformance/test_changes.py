"""What a reader that comes again is told: nothing committed late is passed over, no other history trusted."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from receipt_pipeline.ledger.changes import (
    LedgerMark,
    changed_jobs,
    changed_rows,
    is_mark_of,
    mark_from,
    read_mark,
    unseen,
)
from receipt_pipeline.ledger.effects.objects import (
    ObjectObservation,
    ObjectOutcome,
    record_first_checks,
    record_object_check,
)
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction, open_ledger
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.effects import object_checks
from receipt_pipeline.ledger.schema.jobs import events, jobs, submissions
from receipt_pipeline.ledger.submissions import NewSubmission, SubmissionState, finish_submission, open_submission
from receipt_pipeline_tests import builders


def marked(ledger: Ledger) -> LedgerMark:
    with ledger.reading() as tx:
        return mark_from(read_mark(tx).as_document())


def jobs_since(ledger: Ledger, mark: LedgerMark) -> set[str]:
    with ledger.reading() as tx:
        assert is_mark_of(tx, mark)
        return set(tx.execute(changed_jobs(mark)).scalars()) - {None}


def keys_since(ledger: Ledger, table: sa.Table, mark: LedgerMark) -> set[Any]:
    [key] = table.primary_key.columns
    with ledger.reading() as tx:
        return set(tx.execute(sa.select(key).where(changed_rows(table, mark))).scalars())


@contextmanager
def a_writer_that_stands_open(ledger: Ledger) -> Iterator[LedgerTransaction]:
    with ledger.transaction() as tx:
        yield tx


def test_a_reader_is_told_of_the_jobs_that_changed_and_of_no_other(ledger: Ledger) -> None:
    still, moving = (builders.an_accepted_job(ledger).job_id for _ in range(2))
    mark = marked(ledger)
    assert jobs_since(ledger, mark) == set()
    builders.claimed(ledger, moving)
    new = builders.an_accepted_job(ledger).job_id
    assert jobs_since(ledger, mark) == {moving, new}
    assert still not in jobs_since(ledger, mark)


@pytest.mark.postgres
def test_an_event_that_is_committed_late_is_never_passed_over(postgres_ledger_url: str) -> None:
    ledger, other = open_ledger(postgres_ledger_url), open_ledger(postgres_ledger_url)
    slow, fast = (builders.an_accepted_job(ledger).job_id for _ in range(2))
    with a_writer_that_stands_open(other) as tx:
        low = append_event(tx, EventKind.REPLAYED, job_id=slow)
        with ledger.transaction() as quick:
            high = append_event(quick, EventKind.REPLAYED, job_id=fast)
        assert low < high, "the slow writer drew the lower number"
        mark = marked(ledger)
        assert mark.seq == high, "the reader has seen the higher number"
        for _ in range(2):  # However often it comes while the writer stands open.
            assert jobs_since(ledger, mark) == set()
            mark = marked(ledger)
    assert jobs_since(ledger, mark) == {slow}
    with ledger.reading() as tx:
        assert set(tx.execute(sa.select(events.c.seq).where(unseen(mark))).scalars()) == {low}
    assert jobs_since(ledger, marked(ledger)) == set()
    ledger.close()
    other.close()


@pytest.mark.postgres
def test_a_writer_that_had_not_written_yet_is_found_too_and_one_that_gives_up_is_not(postgres_ledger_url: str) -> None:
    ledger, other = open_ledger(postgres_ledger_url), open_ledger(postgres_ledger_url)
    job_id = builders.an_accepted_job(ledger).job_id
    with a_writer_that_stands_open(other) as tx:
        tx.scalar(sa.select(sa.func.nextval("events_seq_seq")))
        builders.an_accepted_job(ledger)
        mark = marked(ledger)
        late = append_event(tx, EventKind.REPLAYED, job_id=job_id)
    with ledger.reading() as tx:
        assert set(tx.execute(sa.select(events.c.seq).where(unseen(mark))).scalars()) == {late}
    mark = marked(ledger)

    class GaveUp(Exception):
        pass

    def write_in_vain() -> None:
        with a_writer_that_stands_open(other) as tx:
            append_event(tx, EventKind.REPLAYED, job_id=job_id)
            raise GaveUp

    with pytest.raises(GaveUp):
        write_in_vain()
    assert jobs_since(ledger, mark) == set()
    ledger.close()
    other.close()


def test_object_checks_are_found_by_the_event_that_wrote_them(ledger: Ledger) -> None:
    job_id = builders.an_accepted_job(ledger).job_id

    def observed(key: str) -> ObjectObservation:
        return ObjectObservation(key, job_id, ObjectOutcome.OK, "d", "d", 1, 1, pins_stated=True)

    with ledger.transaction() as tx:
        record_first_checks(tx, [observed("results/a"), observed("results/b")])
    mark = marked(ledger)
    assert keys_since(ledger, object_checks, mark) == set()
    with ledger.transaction() as tx:
        assert record_first_checks(tx, [observed("results/c")]) == 1
        record_object_check(tx, replace(observed("results/a"), pins_stated=None))
    assert keys_since(ledger, object_checks, mark) == {"results/a", "results/c"}


def test_a_delivery_is_read_again_while_it_waits_and_once_when_it_is_settled(ledger: Ledger) -> None:
    def a_delivery(tx: LedgerTransaction, state: SubmissionState) -> str:
        named = {"tenant": "acme", "caller": "kim", "door": "inbox", "label": "x", "document_digest": "d"}
        return open_submission(tx, NewSubmission(**named), state=state)

    with ledger.transaction() as tx:
        waiting, ignored = (a_delivery(tx, state) for state in (SubmissionState.WAITING, SubmissionState.IGNORED))
    mark = marked(ledger)
    assert keys_since(ledger, submissions, mark) == {waiting}
    with ledger.transaction() as tx:
        finish_submission(tx, waiting, state=SubmissionState.REFUSED, rows_total=0)
        another = a_delivery(tx, SubmissionState.IGNORED)
    assert keys_since(ledger, submissions, mark) == {waiting, another}
    assert keys_since(ledger, submissions, marked(ledger)) == set()
    assert ignored not in keys_since(ledger, submissions, mark)


def test_a_ledger_that_was_put_back_to_a_copy_is_not_taken_for_the_one_that_was_seen(
    sqlite_ledger_url: str, tmp_path: Path
) -> None:
    ledger = open_ledger(sqlite_ledger_url)
    builders.an_accepted_job(ledger)
    kept = tmp_path / "kept.db"
    ledger.overwrite_deleted()
    shutil.copyfile(tmp_path / "ledger.db", kept)
    builders.an_accepted_job(ledger)
    mark = marked(ledger)
    ledger.close()
    restored = open_ledger(f"sqlite:///{kept}")
    with restored.reading() as tx:
        assert not is_mark_of(tx, mark)
    for _ in range(3):  # Beyond the number that was seen, by another history.
        builders.an_accepted_job(restored)
    with restored.reading() as tx:
        assert not is_mark_of(tx, mark)
    restored.close()


@pytest.mark.postgres
def test_another_database_with_the_same_rows_is_not_the_one_that_was_seen(postgres_ledger_url: str) -> None:
    ledger = open_ledger(postgres_ledger_url)
    builders.an_accepted_job(ledger)
    mark = marked(ledger)
    elsewhere = LedgerMark(mark.seq, mark.event, place="1/1", seen=mark.seen)
    later = LedgerMark(mark.seq, mark.event, place=mark.place, seen="99999990:99999999:")
    with ledger.reading() as tx:
        assert is_mark_of(tx, mark)
        assert not is_mark_of(tx, elsewhere)
        assert not is_mark_of(tx, later), "that server has not come so far"
        assert not is_mark_of(tx, LedgerMark(mark.seq, mark.event, place=mark.place)), "a mark of SQLite"
    ledger.close()


def test_a_schema_that_was_taken_back_for_a_while_is_not_the_one_that_was_seen(ledger: Ledger) -> None:
    builders.an_accepted_job(ledger)
    mark = marked(ledger)
    assert jobs_since(ledger, mark) == set()
    ledger.roll_back("0001")
    ledger.migrate()
    with ledger.reading() as tx:
        assert not is_mark_of(tx, mark), "the earlier version may have written without a word"


def test_what_changed_is_found_without_reading_the_whole_journal(sqlite_ledger_url: str) -> None:
    ledger = open_ledger(sqlite_ledger_url)
    builders.an_accepted_job(ledger)
    mark = marked(ledger)
    with ledger.reading() as tx:
        query = sa.select(jobs.c.job_id).where(changed_rows(jobs, mark)).order_by(jobs.c.job_id)
        text = query.compile(dialect=tx.dialect, compile_kwargs={"literal_binds": True})
        plan = [row["detail"] for row in tx.rows(sa.text(f"EXPLAIN QUERY PLAN {text}"))]
    assert [step for step in plan if "events" in step] == ["SEARCH events USING INTEGER PRIMARY KEY (rowid>?)"], plan
    ledger.close()
