"""Refreshes that were cut off, spoilt, raced or read: the next report is whole, and loud where it must be."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
from receipt_pipeline.accounting.export_note import NOTE
from sqlalchemy import update

from receipt_pipeline.accounting import publish
from receipt_pipeline.accounting.checks import ACCOUNTING_CHECKS
from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.publish import export_ledger, publish_report
from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline_tests.builders import a_claimed_job, an_accepted_job
from receipt_pipeline_tests.crash.talking_child import CHILD_S_MAX, child, end, hear
from receipt_pipeline_tests.fakes.accounted_home import an_accountant
from receipt_pipeline_tests.fakes.effects_home import effects_home
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.report_rows import built_whole, everything_in, refreshes

REFRESHES = 50
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
    """However small the ledger is, it is not read whole again for being small."""
    monkeypatch.setattr(publish, "NEW_EVENTS_SHARE_MAX", 1_000)


def test_readers_see_fifty_refreshes_pass_without_an_error_on_either_side(accountant: Accountant) -> None:
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
    anew = built_whole(accountant, accountant.report_root / "anew")
    assert everything_in(accountant.published) == anew


def test_a_file_that_is_refreshed_ten_times_does_not_grow_with_every_refresh(
    accountant: Accountant,
) -> None:
    first = accountant.published.stat().st_size
    job = a_claimed_job(accountant.ledger).token.job_id
    for _ in range(REFRESHES // 5):
        with accountant.ledger.transaction() as tx:
            append_event(tx, EventKind.REPLAYED, job_id=job)
        publish_report(accountant)
    assert accountant.published.stat().st_size < 2 * first


def spoil_note(folder: Path) -> None:
    """Cut the note in half."""
    text = (folder / NOTE).read_text()
    (folder / NOTE).write_text(text[: len(text) // 2])


def spoil_mark(folder: Path) -> None:
    """Let the mark tell of an event that never was."""
    text = (folder / NOTE).read_text()
    (folder / NOTE).write_text(text.replace("accepted", "replayed"))


def cut_part(folder: Path) -> None:
    """Cut a part that the note names."""
    part = folder / "jobs" / "part-00000.parquet"
    part.write_bytes(part.read_bytes()[:100])


def lose_note(folder: Path) -> None:
    """Lose the note."""
    (folder / NOTE).unlink()


@pytest.mark.parametrize("spoil", [spoil_note, spoil_mark, cut_part, lose_note])
def test_a_damaged_export_is_set_aside_and_all_is_read_anew_loudly(
    accountant: Accountant, tmp_path: Path, spoil: object
) -> None:
    assert callable(spoil)
    spoil(accountant.export)
    an_accepted_job(accountant.ledger)
    published = publish_report(accountant)
    assert [notice.partition(":")[0] for notice in published.notices] == [REBUILT]
    assert refreshes(accountant) == 0
    assert everything_in(accountant.published) == built_whole(accountant, tmp_path / "anew")
    assert publish_report(accountant).notices == ()


def test_a_refresh_that_finds_its_rows_spoilt_reads_all_anew(accountant: Accountant) -> None:
    """The size is right and the bytes are not: only reading them shows it."""
    an_accepted_job(accountant.ledger)
    export_ledger(accountant)
    spoilt = accountant.export / "jobs" / "refresh-00001-00000.parquet"
    spoilt.write_bytes(b"\0" * spoilt.stat().st_size)
    published = publish_report(accountant)
    assert [notice.partition(":")[0] for notice in published.notices] == [REBUILT]
    assert published.document["accepted"] == 2
    assert refreshes(accountant) == 0


def test_a_report_that_somebody_changed_is_kept_aside_and_not_carried_on(accountant: Accountant) -> None:
    accountant.published.chmod(0o644)
    with duckdb.connect(str(accountant.published)) as connection:
        connection.execute("UPDATE jobs SET tenant = 'nobody'")
    published = publish_report(accountant)
    assert "somebody had changed it" in published.notices[0]
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


def test_an_export_that_runs_ahead_of_the_report_is_caught_up_with(
    accountant: Accountant, tmp_path: Path
) -> None:
    """As when the process is killed between export and publication, several times."""
    job_ids = [a_claimed_job(accountant.ledger).token.job_id for _ in range(3)]
    export_ledger(accountant)
    for job_id in job_ids[1:]:
        with accountant.ledger.transaction() as tx:
            tx.execute(update(jobs).where(jobs.c.job_id == job_id).values(items_requested=7))
            append_event(tx, EventKind.REPLAYED, job_id=job_id)
        export_ledger(accountant)
    published = publish_report(accountant)
    assert published.notices == ()
    assert refreshes(accountant) == 3
    assert everything_in(accountant.published) == built_whole(accountant, tmp_path / "anew")


def test_a_report_that_is_gone_is_built_from_the_export_with_its_refreshes(
    accountant: Accountant, tmp_path: Path
) -> None:
    a_claimed_job(accountant.ledger)
    publish_report(accountant)
    accountant.published.unlink()
    assert publish_report(accountant).notices == ()
    assert refreshes(accountant) == 1
    assert everything_in(accountant.published) == built_whole(accountant, tmp_path / "anew")


def test_a_ledger_of_which_half_was_renewed_is_read_whole(
    accountant: Accountant, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_accepted_job(accountant.ledger)
    publish_report(accountant)
    assert refreshes(accountant) == 1
    monkeypatch.setattr(publish, "NEW_EVENTS_SHARE_MAX", 0.5)
    an_accepted_job(accountant.ledger)
    assert publish_report(accountant).notices == ()
    assert refreshes(accountant) == 0


@pytest.mark.postgres
def test_what_a_slow_writer_commits_late_is_in_the_next_report(
    postgres_ledger_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    ledger, other = (
        open_ledger(postgres_ledger_url, clock=clock),
        open_ledger(postgres_ledger_url, clock=clock),
    )
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
    assert told == built_whole(accountant, tmp_path / "anew")
    ledger.close()
    other.close()
