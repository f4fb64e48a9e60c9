"""Refreshes that were cut off, spoilt, raced or read: the next report is whole, and loud where it must be."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from receipt_pipeline.accounting import publish
from receipt_pipeline.accounting.checks import ACCOUNTING_CHECKS
from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.accounting.refresh import ReportWriter
from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline_tests.builders import an_accepted_job
from receipt_pipeline_tests.crash.talking_child import CHILD_S_MAX, child, end, hear
from receipt_pipeline_tests.fakes.accounted_home import an_accountant
from receipt_pipeline_tests.fakes.effects_home import effects_home
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.report_rows import built_whole, everything_in, refreshes

REFRESHES = 12
REBUILT = "REPORT.REBUILT.v1"
# Holds the report open from the first to the last refresh, and asks it again and again.
HOLDER = """
import duckdb, sys, threading, time
connection = duckdb.connect(sys.argv[1], read_only=True)
asked, ended = 0, threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("ready", flush=True)
while not ended.is_set():
    shown = connection.execute("SELECT count(*), count(DISTINCT job_id) FROM job_report").fetchall()
    assert shown == [(1, 1)], shown
    asked += 1
    time.sleep(0.25)
print(asked, flush=True)
"""
# Opens the report by its name for every question.
COMER = """
import duckdb, sys, threading, time
asked, ended, before = 0, threading.Event(), 0
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
print("ready", flush=True)
while not ended.is_set():
    with duckdb.connect(sys.argv[1], read_only=True) as connection:
        (jobs, info), = connection.execute(
            "SELECT (SELECT count(*) FROM job_report), (document->>'$.accepted')::BIGINT FROM report_info"
        ).fetchall()
    assert jobs == info >= before, (jobs, info, before)
    asked, before = asked + 1, jobs
    time.sleep(0.25)
print(asked, flush=True)
"""


@pytest.fixture(autouse=True)
def _nothing_but_refreshes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "NEW_EVENTS_SHARE_MAX", 1_000)


def test_readers_see_refreshes_pass_without_an_error_on_either_side(accountant: Accountant) -> None:
    readers = [child(script, str(accountant.published)) for script in (HOLDER, COMER)]
    try:
        assert [hear(process) for process in readers] == ["ready"] * 2
        for number in range(REFRESHES):
            an_accepted_job(accountant.ledger)
            published = publish_report(accountant)
            assert published.notices == ()
            assert published.document["accepted"] == number + 2
        assert refreshes(accountant) == REFRESHES
        for process in readers:
            told, _ = process.communicate(timeout=CHILD_S_MAX)
            assert process.returncode == 0
            assert int(told) > 0
    finally:
        for process in readers:
            end(process)
    rebuilt = built_whole(accountant, accountant.report_root / "again")
    assert everything_in(accountant.published) == rebuilt
    size = (accountant.report_root / "again" / "report.duckdb").stat().st_size
    assert accountant.published.stat().st_size < 2 * size, "a file does not grow with every refresh"


def cut_note(accountant: Accountant) -> None:
    note = accountant.report_root / "published.json"
    note.write_text(note.read_text()[: len(note.read_text()) // 2])


def forge_mark(accountant: Accountant) -> None:
    note = accountant.report_root / "published.json"
    note.write_text(note.read_text().replace(" accepted ", " replayed "))


def lose_note(accountant: Accountant) -> None:
    (accountant.report_root / "published.json").unlink()


def spoil_rows(accountant: Accountant) -> None:
    found = accountant.published.stat()
    accountant.published.chmod(0o644)
    with accountant.published.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\0" * (found.st_size - 3 * 4096))
    os.utime(accountant.published, ns=(found.st_atime_ns, found.st_mtime_ns))


@pytest.mark.parametrize("spoil", [cut_note, forge_mark, lose_note, spoil_rows])
def test_a_report_that_cannot_be_refreshed_is_kept_and_built_again_with_a_notice(
    accountant: Accountant, tmp_path: Path, spoil: Callable[[Accountant], None]
) -> None:
    spoil(accountant)
    an_accepted_job(accountant.ledger)
    published = publish_report(accountant)
    assert [notice.partition(":")[0] for notice in published.notices] == [REBUILT]
    assert len(list((accountant.report_root / "set-aside").iterdir())) == 1
    assert refreshes(accountant) == 0
    assert everything_in(accountant.published) == built_whole(accountant, tmp_path / "again")
    assert publish_report(accountant).notices == ()


def test_a_report_that_changes_while_it_is_copied_is_built_again(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def touched_meanwhile(*given: Any) -> Any:
        document = write(*given)
        os.utime(accountant.published)
        return document

    write = ReportWriter.write
    monkeypatch.setattr(ReportWriter, "write", touched_meanwhile)
    an_accepted_job(accountant.ledger)
    published = publish_report(accountant)
    assert [notice.partition(":")[0] for notice in published.notices] == [REBUILT]
    assert (refreshes(accountant), published.document["accepted"]) == (0, 2)


def test_a_report_that_someone_changed_is_kept_aside_and_not_carried_on(accountant: Accountant) -> None:
    accountant.published.chmod(0o644)
    with duckdb.connect(str(accountant.published)) as connection:
        connection.execute("UPDATE jobs SET tenant = 'nobody'")
    published = publish_report(accountant)
    assert "someone had changed it" in published.notices[0]
    [kept] = (accountant.report_root / "set-aside").iterdir()
    with duckdb.connect(str(kept), read_only=True) as connection:
        assert connection.execute("SELECT tenant FROM jobs").fetchall() == [("nobody",)]
    assert {row["tenant"] for row in everything_in(accountant.published)["jobs"]} == {"acme"}


def test_a_report_that_was_seen_to_differ_is_built_anew(accountant: Accountant) -> None:
    with accountant.ledger.transaction() as tx:  # As a hand does that goes past the product.
        tx.execute(jobs.update().values(reason_code="FORGED.v1"))
    assert not ACCOUNTING_CHECKS["report_matches_ledger"].run(accountant).passed
    published = publish_report(accountant)
    assert [notice.partition(":")[0] for notice in published.notices] == [REBUILT]
    assert ACCOUNTING_CHECKS["report_matches_ledger"].run(accountant).passed
    assert publish_report(accountant).notices == ()


def test_a_ledger_of_which_half_is_new_is_read_whole(accountant: Accountant, monkeypatch: pytest.MonkeyPatch) -> None:
    an_accepted_job(accountant.ledger)
    publish_report(accountant)
    assert refreshes(accountant) == 1
    monkeypatch.setattr(publish, "NEW_EVENTS_SHARE_MAX", 0.5)
    for _ in range(3):
        an_accepted_job(accountant.ledger)
    assert publish_report(accountant).notices == ()
    assert refreshes(accountant) == 0


@pytest.mark.postgres
def test_what_a_slow_writer_commits_late_is_in_the_next_report(
    postgres_ledger_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    ledger, other = (open_ledger(postgres_ledger_url, clock=clock), open_ledger(postgres_ledger_url, clock=clock))
    accountant = an_accountant(effects_home(ledger, tmp_path), tmp_path)
    job_id = an_accepted_job(ledger).job_id
    publish_report(accountant)
    with other.transaction() as tx:
        seq = append_event(tx, EventKind.REPLAYED, job_id=job_id)
        for _ in range(2):
            an_accepted_job(ledger)
            assert publish_report(accountant).seq > seq
    publish_report(accountant)
    told = everything_in(accountant.published)
    assert seq in {row["seq"] for row in told["events"]}
    assert next(row["latest_seq"] for row in told["jobs"] if row["job_id"] == job_id) == seq
    assert told == built_whole(accountant, tmp_path / "again")
    ledger.close()
    other.close()
