"""Frames over the published report: exact amounts, and one closed day's counts that never change again."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import pandas as pd
import pytest

from receipt_pipeline.accounting.frames import day_frame, last_closed_day, query_frame, write_frame
from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.items import Decision
from receipt_pipeline.ledger.engine import open_ledger
from receipt_pipeline_tests.builders import a_rejection, an_accepted_job, an_outcome
from receipt_pipeline_tests.fakes.accounted_home import an_accountant, an_outcome_of
from receipt_pipeline_tests.fakes.effects_home import a_stored_success, effects_home
from receipt_pipeline_tests.fakes.fake_clock import FakeClock


def test_a_closed_day_is_counted_by_tenant_release_decision_and_currency(
    sqlite_ledger_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    ledger = open_ledger(sqlite_ledger_url, clock=clock)
    services = effects_home(ledger, tmp_path)
    accountant = an_accountant(services, tmp_path)
    clock.set(dt.datetime(2026, 11, 30, 12, tzinfo=dt.UTC))
    day = clock.now().date()
    for total, currency in ((1999, "EUR"), (1, "EUR"), (500, "JPY")):
        a_stored_success(services, an_outcome_of(total, currency))
    a_stored_success(services, an_outcome(Decision.REVIEW), a_rejection(), items=2)
    an_accepted_job(ledger)
    publish_report(accountant)
    with pytest.raises(InputRefused, match=r"FIELD\.INVALID\.v1"):
        day_frame(accountant.published, day)
    clock.set(dt.datetime(2026, 12, 1, tzinfo=dt.UTC))
    a_stored_success(services, an_outcome_of(7))
    publish_report(accountant)
    assert last_closed_day(accountant.published) == day
    frame = day_frame(accountant.published, day)
    shown = frame.drop(columns=["tenant", "release_id"]).to_dict("records")
    assert shown == [
        {
            "decision": decision,
            "currency": currency,
            "jobs": jobs,
            "receipts": receipts,
            "total_minor": minor,
            "total": total,
        }
        for decision, currency, jobs, receipts, minor, total in (
            ("clear", "EUR", 2, 2, 2000, Decimal("20.000")),
            ("clear", "JPY", 1, 1, 500, Decimal("500.000")),
            ("none", "none", 1, 1, 0, Decimal(0)),
            ("review", "EUR", 1, 1, 0, Decimal(0)),
        )
    ]
    assert set(frame["tenant"]) == {"acme"}
    write_frame(frame, tmp_path / "day.parquet")
    kept = pd.read_parquet(tmp_path / "day.parquet", dtype_backend="pyarrow")
    assert kept.to_dict("records") == frame.to_dict("records")
    assert day_frame(accountant.published, day - dt.timedelta(days=1)).empty
    ledger.close()


def test_a_frame_for_people_keeps_exact_money_and_zones(
    sqlite_ledger_url: str, tmp_path: Path, clock: FakeClock
) -> None:
    ledger = open_ledger(sqlite_ledger_url, clock=clock)
    services = effects_home(ledger, tmp_path)
    accountant = an_accountant(services, tmp_path)
    a_stored_success(services, an_outcome_of(3998170))
    publish_report(accountant)
    query = "SELECT i.total, j.submitted_at, j.cutoff_at FROM items i JOIN jobs j USING (job_id)"
    frame = query_frame(accountant.published, query)
    assert frame["total"].iloc[0] == Decimal("39981.700")
    assert frame["submitted_at"].iloc[0].utcoffset() == dt.timedelta(0)
    assert frame["cutoff_at"].iloc[0] is pd.NA
    ledger.close()
