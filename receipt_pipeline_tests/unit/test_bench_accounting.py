"""The measurement of the report works: on a small ledger, and over little Parquet."""

from __future__ import annotations

from pathlib import Path

from benchmarks import sets_peer
from benchmarks.accounting import accountant_of, ask, change_jobs, copy, rebuild, refresh
from benchmarks.bulk_ledger import add_jobs, bulk_ledger
from receipt_pipeline_tests.fakes.report_rows import refreshes

JOBS = 300


def test_a_bulk_ledger_is_rebuilt_changed_grown_refreshed_and_asked(tmp_path: Path) -> None:
    path = bulk_ledger(tmp_path, JOBS)
    whole = rebuild(tmp_path)
    assert whole > JOBS
    change_jobs(tmp_path, 10)
    assert refresh(tmp_path) == whole
    add_jobs(path, 3, JOBS + 1)
    assert refresh(tmp_path) == ask(tmp_path) == whole + 3
    assert refreshes(accountant_of(tmp_path)) == 2
    assert copy(tmp_path) == (tmp_path / "report" / "report.duckdb").stat().st_size


def test_report_account_and_sets_count_the_same_jobs_over_parquet(tmp_path: Path) -> None:
    sets_peer.generate(tmp_path, JOBS)
    steps = (sets_peer.sets_of_parquet, sets_peer.account_of_parquet, sets_peer.report_of_parquet)
    assert [step(tmp_path) for step in steps] == [JOBS] * 3
