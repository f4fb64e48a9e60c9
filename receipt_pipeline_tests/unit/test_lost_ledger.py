"""An empty ledger is never started in a data directory that has files of earlier jobs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from receipt_pipeline.app import maintenance, submitter
from receipt_pipeline.app.context import new_context
from receipt_pipeline.app.setup import check_ledger_not_lost
from receipt_pipeline.cli.main import app
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import LedgerUnavailable
from receipt_pipeline.defs.resources import AppResource
from receipt_pipeline.settings import Settings, read_settings
from receipt_pipeline_tests.intake_home import as_bytes, job_document

IMAGE = digest_of("image")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    named = {"RECEIPTS_HOME": str(tmp_path / "home"), "RECEIPTS_IMAGE_DIGEST": IMAGE}
    opened = new_context(read_settings(named))
    document = job_document(tmp_path / "handed in")
    (tmp_path / "handed in" / "manifest.json").write_bytes(as_bytes(document))
    submitter.submit(opened, opened.principal(), [tmp_path / "handed in" / "manifest.json"])
    opened.close()
    (tmp_path / "home" / "ledger.db").rename(tmp_path / "backup.db")
    return named


@pytest.fixture
def settings(environment: dict[str, str]) -> Settings:
    return read_settings(environment)


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_entry_point_refuses_a_data_directory_without_its_ledger_and_changes_nothing(
    settings: Settings, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(settings.home)
    with pytest.raises(LedgerUnavailable, match=r"LEDGER\.LOST\.v1.* found: objects/scans/") as refused:
        new_context(settings)
    assert refused.value.reason.code == "LEDGER.LOST.v1"
    with pytest.raises(LedgerUnavailable, match=r"LEDGER\.LOST\.v1"):
        AppResource(environment=environment).open()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for command in (["up"], ["jobs"], ["report"]):
        answered = CliRunner().invoke(app, command)
        assert (answered.exit_code, "LEDGER.LOST.v1" in answered.output) == (5, True)
    assert files(settings.home) == before


def test_the_restored_ledger_opens_as_if_nothing_had_been(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "backup.db").rename(settings.home / "ledger.db")
    opened = new_context(settings)
    assert maintenance.count_records(opened)["job_ledger"]["accepted"] == 1
    opened.close()


@pytest.mark.parametrize("left", ["objects", "outbox", "inbox"])
def test_each_kind_of_trace_alone_keeps_a_new_ledger_from_beginning(settings: Settings, left: str) -> None:
    handled = settings.inbox / "local" / "accepted"
    handled.mkdir()
    (handled / "m.json").write_text("{}")
    for name in {"objects", "outbox", "inbox"} - {left}:
        shutil.rmtree(settings.home / name)
    with pytest.raises(LedgerUnavailable, match=r"LEDGER\.LOST\.v1"):
        check_ledger_not_lost(settings)


def test_a_ledger_that_was_begun_anew_unnoticed_is_refused_as_well(settings: Settings, migrated_sqlite: Path) -> None:
    shutil.copyfile(migrated_sqlite, settings.home / "ledger.db")
    with pytest.raises(LedgerUnavailable, match=r"LEDGER\.LOST\.v1"):
        new_context(settings)


@pytest.mark.postgres
def test_a_database_without_records_beside_stored_objects_is_refused(
    environment: dict[str, str], postgres_database: str, postgres_ledger_url: str
) -> None:
    for url in (postgres_database, postgres_ledger_url):
        plain = url.replace("postgresql+psycopg", "postgresql")
        settings = read_settings({**environment, "RECEIPTS_POSTGRES_URL": plain})
        with pytest.raises(LedgerUnavailable, match=r"LEDGER\.LOST\.v1"):
            new_context(settings)


def test_a_home_into_which_something_was_only_dropped_is_a_new_one(tmp_path: Path) -> None:
    settings = read_settings({"RECEIPTS_HOME": str(tmp_path / "home"), "RECEIPTS_IMAGE_DIGEST": IMAGE})
    for path in (settings.inbox / "local" / "manifest.json", settings.outbox / "local" / "inbox.json"):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    (settings.objects / "scans").mkdir(parents=True)
    (settings.objects / "scans" / ".tmp-1").write_text("half")
    opened = new_context(settings)
    assert maintenance.count_records(opened)["job_ledger"]["accepted"] == 0
    opened.close()
