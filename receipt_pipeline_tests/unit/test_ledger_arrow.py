"""Batches of the ledger: one snapshot, types whatever the rows hold, known errors, no lost commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.arrow import open_snapshot, read_batches
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline_tests.builders import a_claimed_job, an_accepted_job

QUERY = sa.select(
    jobs.c.job_id, jobs.c.close_cause, sa.type_coerce(jobs.c.claimed_at, sa.BigInteger).label("claimed_at")
)


def test_batches_are_of_one_snapshot(ledger: Ledger) -> None:
    an_accepted_job(ledger)
    with open_snapshot(ledger) as tx:
        assert tx.scalar(sa.select(sa.func.count()).select_from(jobs)) == 1
        an_accepted_job(ledger)
        with read_batches(tx, QUERY) as stream:
            assert stream.read_all().num_rows == 1
    with open_snapshot(ledger) as tx, read_batches(tx, QUERY) as stream:
        assert stream.read_all().num_rows == 2


def test_types_do_not_depend_on_leading_rows_without_a_value(ledger: Ledger) -> None:
    for _ in range(3):
        an_accepted_job(ledger)
    claimed = a_claimed_job(ledger).token.job_id
    with open_snapshot(ledger) as tx:
        with read_batches(tx, QUERY) as stream:
            rows = stream.read_all()
        with read_batches(tx, QUERY.where(jobs.c.job_id == "job_of_no_one")) as stream:
            empty = stream.read_all()
    assert [str(field.type) for field in rows.schema] == ["string", "string", "int64"]
    assert empty.schema == rows.schema
    assert (empty.num_rows, rows.num_rows) == (0, 4)
    assert {row["job_id"] for row in rows.to_pylist() if row["claimed_at"]} == {claimed}


def test_a_ledger_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path / 'there-is-none' / 'ledger.db'}")
    (tmp_path / "there-is-none").rmdir()
    with pytest.raises(LedgerUnavailable), open_snapshot(ledger):
        pass


WRITER = """
import sys
from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline_tests.builders import an_accepted_job
an_accepted_job(open_ledger(sys.argv[1]), key=sys.argv[2])
"""


def test_what_is_committed_after_a_publication_is_kept(sqlite_ledger_url: str, tmp_path: Path) -> None:
    """A second SQLite library in the process would drop its file locks, and another process its log."""
    ledger = open_ledger(sqlite_ledger_url)
    an_accepted_job(ledger)
    publish_report(Accountant(ledger, tmp_path / "report", Limits()))
    for number in range(2):
        subprocess.run([sys.executable, "-c", WRITER, sqlite_ledger_url, f"other-{number}"], check=True)
        an_accepted_job(ledger)
    ledger.close()
    opened = open_ledger(sqlite_ledger_url)
    with opened.reading() as tx:
        assert tx.scalar(sa.select(sa.func.count()).select_from(jobs)) == 5
    opened.close()
