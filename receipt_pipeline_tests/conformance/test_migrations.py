"""The migrated schema is the schema that the code speaks to, and migrating is safe at any time."""

from __future__ import annotations

import dataclasses
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.core.reasons import UPLOAD_UNKNOWN
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.investigations import InvestigationKind, InvestigationRequest, open_investigation
from receipt_pipeline.ledger.rows import EffectRow, ItemRow, JobRow
from receipt_pipeline.ledger.schema import admin as operation_tables
from receipt_pipeline.ledger.schema import effects as effect_tables
from receipt_pipeline.ledger.schema import jobs as tables
from receipt_pipeline.ledger.schema.effects import investigations
from receipt_pipeline.ledger.schema.jobs import metadata
from receipt_pipeline_tests import builders

PROCESSES = 2
HEAD = "0002"

assert effect_tables.effects.metadata is operation_tables.alerts.metadata is metadata


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def fresh_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    if request.param == "sqlite":
        yield [f"sqlite:///{tmp_path / name}.db" for name in ("one", "two")]
        return
    server = request.getfixturevalue("postgres_server")
    urls = [server.create_database() for _ in range(2)]
    yield urls
    for url in urls:
        server.drop_database(url)


def described(engine: sa.Engine) -> dict[str, Any]:
    inspector = sa.inspect(engine)
    return {
        table: {
            "columns": {
                column["name"]: (str(column["type"]), column["nullable"], column["default"])
                for column in inspector.get_columns(table)
            },
            "primary key": inspector.get_pk_constraint(table),
            "foreign keys": sorted(map(str, inspector.get_foreign_keys(table))),
            "unique": sorted(map(str, inspector.get_unique_constraints(table))),
            "checks": {
                check["name"]: " ".join(check["sqltext"].split()) for check in inspector.get_check_constraints(table)
            },
            "indexes": sorted(_index_text(index) for index in inspector.get_indexes(table)),
        }
        for table in inspector.get_table_names()
        if table != "alembic_version"
    }


def _index_text(index: Any) -> str:
    conditions = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return f"{index['name']} {index['column_names']} unique={bool(index['unique'])} {conditions}"


def test_the_migrated_schema_is_the_one_that_the_tables_declare(fresh_urls: list[str]) -> None:
    migrated, declared = open_ledger(fresh_urls[0]), open_ledger(fresh_urls[1])
    migrated.migrate()
    metadata.create_all(declared.engine)
    with migrated.engine.connect() as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    assert differences == []
    assert described(migrated.engine) == described(declared.engine)
    migrated.close()
    declared.close()


def test_migrating_again_changes_nothing(ledger: Ledger) -> None:
    before = described(ledger.engine)
    ledger.migrate()
    assert described(ledger.engine) == before
    assert revisions(ledger) == [HEAD]


def test_processes_that_migrate_a_fresh_database_at_once_all_succeed(fresh_urls: list[str]) -> None:
    context = multiprocessing.get_context("fork")
    start = context.Barrier(PROCESSES)
    processes = [context.Process(target=migrate_at_once, args=(fresh_urls[0], start)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=60)
    assert [process.exitcode for process in processes] == [0] * PROCESSES
    ledger = open_ledger(fresh_urls[0])
    assert revisions(ledger) == [HEAD]
    ledger.close()


def migrate_at_once(url: str, start: Any) -> None:
    ledger = open_ledger(url)
    start.wait(timeout=60)
    ledger.migrate()
    ledger.close()


def revisions(ledger: Ledger) -> list[str]:
    with ledger.reading() as tx:
        return [row["version_num"] for row in tx.rows(sa.text("SELECT version_num FROM alembic_version"))]


def test_a_ledger_of_a_later_version_is_called_so_and_left_as_it_is(ledger: Ledger) -> None:
    with ledger.transaction() as tx:
        tx.execute(sa.text("UPDATE alembic_version SET version_num = 'v9999'"))
    with pytest.raises(LedgerUnavailable) as refused:
        ledger.migrate()
    assert (refused.value.reason.code, refused.value.facts["revision"]) == ("LEDGER.NEWER.v1", "v9999")
    with ledger.reading() as tx:
        assert tx.scalar(sa.text("SELECT version_num FROM alembic_version")) == "v9999"


def test_an_investigation_of_an_earlier_version_takes_the_tenant_of_its_job(fresh_urls: list[str]) -> None:
    ledger = open_ledger(fresh_urls[0])
    ledger.migrate()
    builders.approve(ledger)
    job_id = builders.an_accepted_job(ledger).job_id
    with ledger.transaction() as tx:
        for subject, owner in ((job_id, job_id), ("orphan", None)):
            open_investigation(
                tx,
                InvestigationRequest(InvestigationKind.UNKNOWN_EFFECT, subject, owner, UPLOAD_UNKNOWN, "", ""),
                limits=builders.LIMITS,
            )
    ledger.roll_back("0001")
    ledger.migrate()
    with ledger.reading() as tx:
        kept = {row["subject"]: row["tenant"] for row in tx.rows(sa.select(investigations))}
    assert kept == {job_id: builders.TENANT, "orphan": ""}
    ledger.close()


def test_every_table_and_column_has_a_comment() -> None:
    unsaid = [
        f"{table.name}.{column.name}"
        for table in metadata.sorted_tables
        for column in table.columns
        if not (table.comment and column.comment)
    ]
    assert unsaid == []


@pytest.mark.parametrize(
    ("record", "table"), [(JobRow, tables.jobs), (ItemRow, tables.items), (EffectRow, effect_tables.effects)]
)
def test_a_record_has_the_columns_of_its_table_in_order(record: type[Any], table: sa.Table) -> None:
    assert [field.name for field in dataclasses.fields(record)] == table.c.keys()
