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
from receipt_pipeline.effects.context import EffectServices
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.schema.jobs import metadata
from receipt_pipeline_tests.conformance.test_legacy_jobs import DONE, RUNNING, take
from receipt_pipeline_tests.fakes.accounted_home import a_job_in_every_state, an_accountant
from receipt_pipeline_tests.fakes.effects_home import effects_home
from receipt_pipeline_tests.fakes.fake_clock import FakeClock

EARLIER = "0004"
# What an earlier version does not know of tables that it knows.
LATER_COLUMNS = {("events", "written_in"), ("object_checks", "latest_seq")}


@pytest.fixture
def services(ledger: Ledger, tmp_path: Path, clock: FakeClock) -> EffectServices:
    """A ledger with a job in every state and two that an older system ran, delivered and consumed."""
    home = effects_home(ledger, tmp_path)
    a_job_in_every_state(home, clock)
    take(ledger, RUNNING)
    take(ledger, DONE, origin="older")
    return home


def every_row(ledger: Ledger) -> dict[str, list[Any]]:
    """Return all rows of all tables as the database holds them, in the columns of an earlier version."""
    held = sa.MetaData()
    with ledger.engine.connect() as connection:
        held.reflect(connection)
        return {
            name: [tuple(row) for row in connection.execute(_known(table).order_by(*table.primary_key))]
            for name, table in held.tables.items()
            if name != "alembic_version"
        }


def _known(table: sa.Table) -> sa.Select[Any]:
    return sa.select(*(column for column in table.columns if (table.name, column.name) not in LATER_COLUMNS))


@pytest.mark.requirement("R150")
def test_an_earlier_version_reads_every_record_it_knows_after_the_way_back(services: EffectServices) -> None:
    ledger = services.ledger
    before = every_row(ledger)
    dropped = ledger.roll_back(EARLIER)
    after = every_row(ledger)
    assert set(dropped) == set(before) - set(after)
    assert "imported_jobs" in dropped
    assert after == {name: rows for name, rows in before.items() if name in after}
    assert {"jobs", "items", "events", "investigations"} <= {name for name, rows in after.items() if rows}


def test_going_forward_again_loses_nothing_and_the_same_import_brings_its_records_back(
    services: EffectServices,
) -> None:
    ledger = services.ledger
    before = every_row(ledger)
    ledger.roll_back(EARLIER)
    ledger.migrate()
    after = every_row(ledger)
    assert set(after) == set(before) == set(metadata.tables)
    assert {name for name in before if before[name] != after[name]} == {"imported_jobs"}
    take(ledger, DONE, origin="older")
    assert len(every_row(ledger)["imported_jobs"]) == 1


def test_what_is_no_earlier_revision_is_refused_and_nothing_changes(services: EffectServices) -> None:
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
    assert {
        job_id: (state, (at - epoch) // dt.timedelta(microseconds=1)) for job_id, state, at in rows
    } == told
