"""Records stay readable on the way back: by an earlier version's schema, and with no service at all."""

from __future__ import annotations

import datetime as dt
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import duckdb
import pytest
import sqlalchemy as sa

from receipt_pipeline.accounting.publish import publish_report
from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.schema.jobs import metadata
from receipt_pipeline_tests.conformance.test_legacy_jobs import DONE, RUNNING, take
from receipt_pipeline_tests.fakes.accounted_home import a_job_in_every_state, an_accountant
from receipt_pipeline_tests.fakes.effects_home import effects_home
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

EARLIER = "0001"
# What an earlier version does not know of tables that it knows.
LATER_COLUMNS = {("investigations", "tenant")}


@pytest.fixture
def services(ledger: Ledger, tmp_path: Path, clock: FakeClock) -> EffectContext:
    home = effects_home(ledger, tmp_path)
    a_job_in_every_state(home, clock)
    take(ledger, RUNNING)
    take(ledger, DONE, origin="older")
    return home


def every_row(ledger: Ledger, *, known_only: bool = True) -> dict[str, list[Any]]:
    held = sa.MetaData()
    with ledger.engine.connect() as connection:
        held.reflect(connection)
        return {
            name: [tuple(row) for row in connection.execute(_known(table, known_only).order_by(*table.primary_key))]
            for name, table in held.tables.items()
            if name != "alembic_version"
        }


def _known(table: sa.Table, known_only: bool) -> sa.Select[Any]:
    later = LATER_COLUMNS if known_only else ()
    return sa.select(*(column for column in table.columns if (table.name, column.name) not in later))


@pytest.mark.requirement("R150")
def test_an_earlier_version_reads_every_record_it_knows_after_the_way_back(services: EffectContext) -> None:
    ledger = services.ledger
    before = every_row(ledger)
    assert ledger.roll_back(EARLIER) == []
    assert every_row(ledger) == before
    assert {"jobs", "items", "events", "investigations"} <= {name for name, rows in before.items() if rows}


def test_going_forward_again_loses_nothing(services: EffectContext) -> None:
    ledger = services.ledger
    whole = every_row(ledger, known_only=False)
    ledger.roll_back(EARLIER)
    ledger.migrate()
    assert every_row(ledger, known_only=False) == whole
    assert set(whole) == set(metadata.tables)


def test_what_is_no_earlier_revision_is_refused_and_nothing_changes(services: EffectContext) -> None:
    before = every_row(services.ledger)
    for revision in ("0099", "base", "-1"):
        with pytest.raises(InputRefused, match=r"FIELD\.INVALID\.v1"):
            services.ledger.roll_back(revision)
    assert every_row(services.ledger) == before


@pytest.mark.requirement("R150")
def test_without_any_service_the_records_are_read_by_plain_tools(
    migrated_sqlite: Path, tmp_path: Path, clock: FakeClock
) -> None:
    shutil.copyfile(migrated_sqlite, tmp_path / "ledger.db")
    ledger = open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)
    home = effects_home(ledger, tmp_path)
    made = a_job_in_every_state(home, clock)
    published = publish_report(an_accountant(home, tmp_path)).path
    ledger.close()
    plain = sqlite3.connect(f"file:{tmp_path / 'ledger.db'}?mode=ro", uri=True)
    query = "SELECT job_id, state, submitted_at FROM jobs"
    told = {job_id: (state, submitted) for job_id, state, submitted in plain.execute(query)}
    plain.close()
    assert told.keys() == set(made.values())
    with duckdb.connect(str(published), read_only=True) as report:
        rows = report.execute("SELECT job_id, state, submitted_at FROM job_report").fetchall()
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert {job_id: (state, (at - epoch) // dt.timedelta(microseconds=1)) for job_id, state, at in rows} == told
