"""Batches of the ledger: one snapshot with the transaction, types whatever the rows hold, known errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa

from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.ledger.arrow import open_batches
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.schema.jobs import jobs
from receipt_pipeline_tests.builders import a_claimed_job, an_accepted_job

QUERY = sa.select(
    jobs.c.job_id, jobs.c.close_cause, sa.type_coerce(jobs.c.claimed_at, sa.BigInteger).label("claimed_at")
)


def test_batches_are_of_the_snapshot_also_after_its_transaction(ledger: Ledger) -> None:
    an_accepted_job(ledger)
    with open_batches(ledger) as batches:
        with batches.snapshot() as tx:
            an_accepted_job(ledger)
            assert tx.scalar(sa.select(sa.func.count()).select_from(jobs)) == 1
        an_accepted_job(ledger)
        with batches.read(QUERY) as stream:
            assert stream.read_all().num_rows == 1
    with open_batches(ledger) as batches, batches.snapshot(), batches.read(QUERY) as stream:
        assert stream.read_all().num_rows == 3


def test_a_commit_between_both_transactions_is_noticed(sqlite_ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = open_ledger(sqlite_ledger_url)
    an_accepted_job(ledger)
    reading, opened = Ledger.reading, []

    def reading_before_another_commit(self: Ledger) -> object:
        opened.append(self)
        if len(opened) == 2:
            an_accepted_job(ledger)
        return reading(self)

    with open_batches(ledger) as batches:
        monkeypatch.setattr(Ledger, "reading", reading_before_another_commit)
        opened.append(ledger)
        with batches.snapshot() as tx, batches.read(QUERY) as stream:
            assert stream.read_all().num_rows == tx.scalar(sa.select(sa.func.count()).select_from(jobs)) == 2
    assert len(opened) == 3
    ledger.close()


def test_types_do_not_depend_on_leading_rows_without_a_value(ledger: Ledger) -> None:
    for _ in range(3):
        an_accepted_job(ledger)
    claimed = a_claimed_job(ledger).token.job_id
    with open_batches(ledger) as batches:
        with batches.snapshot(), batches.read(QUERY) as stream:
            rows = stream.read_all()
        nothing = QUERY.where(jobs.c.job_id == "job_of_no_one")
        with batches.read(nothing) as stream:
            empty = stream.read_all()
    assert [str(field.type) for field in rows.schema] == ["string", "string", "int64"]
    assert empty.schema == rows.schema
    assert (empty.num_rows, rows.num_rows) == (0, 4)
    assert {row["job_id"] for row in rows.to_pylist() if row["claimed_at"]} == {claimed}


def test_a_ledger_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    ledger = open_ledger(f"sqlite:///{tmp_path / 'there-is-none' / 'ledger.db'}")
    (tmp_path / "there-is-none").rmdir()
    with pytest.raises(LedgerUnavailable), open_batches(ledger) as batches, batches.snapshot():
        pass


PUBLISHER = """
import sys
from pathlib import Path
from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.ledger.engine import open_ledger
for _ in range(2):
    publish_report(Accountant(open_ledger(sys.argv[1]), Path(sys.argv[2]), Limits()))
print("pandas" in sys.modules)
"""


def test_publishing_does_not_import_pandas(sqlite_ledger_url: str, tmp_path: Path) -> None:
    """Importing pandas costs more than a small refresh of the report does."""
    ledger = open_ledger(sqlite_ledger_url)
    an_accepted_job(ledger)
    ledger.close()
    command = [sys.executable, "-c", PUBLISHER, sqlite_ledger_url, str(tmp_path / "report")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout.strip() == "False"
