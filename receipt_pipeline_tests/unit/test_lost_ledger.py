"""A ledger that is gone is never begun anew in silence while what its jobs left still stands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from filelock import FileLock
from typer.testing import CliRunner

from receipt_pipeline.app.context import look_for_lost_ledger, open_rooms
from receipt_pipeline.app.facade import Services
from receipt_pipeline.cli.main import app
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import LedgerUnavailable, NotAllowed
from receipt_pipeline.defs.resources import ReceiptServices
from receipt_pipeline.runtime.serving import begin_anew
from receipt_pipeline.settings import Settings, read_settings
from receipt_pipeline_tests.intake_home import as_bytes, job_document

IMAGE = digest_of("image")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The settings of a home in which one job was accepted, and whose ledger was lost then."""
    named = {"RECEIPTS_HOME": str(tmp_path / "home"), "RECEIPTS_IMAGE_DIGEST": IMAGE}
    opened = open_rooms(read_settings(named), Services)
    document = job_document(tmp_path / "handed in")
    (tmp_path / "handed in" / "manifest.json").write_bytes(as_bytes(document))
    opened.submit([tmp_path / "handed in" / "manifest.json"], key=None, new=False, release=None)
    opened.close()
    (tmp_path / "home" / "ledger.db").rename(tmp_path / "backup.db")
    return named


@pytest.fixture
def settings(environment: dict[str, str]) -> Settings:
    """The same settings, read."""
    return read_settings(environment)


def files(folder: Path) -> set[str]:
    """Return the files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_door_refuses_a_home_whose_ledger_is_gone_and_changes_nothing(
    settings: Settings, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files(settings.home)
    with pytest.raises(LedgerUnavailable, match=r"LEDGER\.LOST\.v1.* found=objects/scans/") as refused:
        open_rooms(settings, Services)
    assert refused.value.reason.code == "LEDGER.LOST.v1"
    with pytest.raises(LedgerUnavailable, match=r"LEDGER\.LOST\.v1"):
        ReceiptServices(environment=environment).refuse_lost_ledger()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for command in (["up"], ["demo"], ["jobs"], ["report"]):
        answered = CliRunner().invoke(app, command)
        assert (answered.exit_code, "receipts afresh" in answered.output) == (5, True)
    assert files(settings.home) == before


def test_the_restored_ledger_opens_as_if_nothing_had_been(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "backup.db").rename(settings.home / "ledger.db")
    opened = open_rooms(settings, Services)
    assert opened.counts()["jobs"]["accepted"] == 1
    opened.close()


@pytest.mark.parametrize("left", ["objects", "outbox", "inbox"])
def test_each_kind_of_trace_alone_keeps_a_new_ledger_from_beginning(settings: Settings, left: str) -> None:
    handled = settings.inbox / "local" / "accepted"
    handled.mkdir()
    (handled / "m.json").write_text("{}")
    for name in {"objects", "outbox", "inbox"} - {left}:
        shutil.rmtree(settings.home / name)
    with pytest.raises(LedgerUnavailable, match=r"LEDGER\.LOST\.v1"):
        look_for_lost_ledger(settings)


def test_a_ledger_that_was_begun_anew_unnoticed_is_refused_as_well(
    settings: Settings, migrated_sqlite: Path
) -> None:
    shutil.copyfile(migrated_sqlite, settings.home / "ledger.db")
    with pytest.raises(LedgerUnavailable, match=r"LEDGER\.LOST\.v1"):
        open_rooms(settings, Services)


@pytest.mark.postgres
def test_a_database_without_records_beside_stored_objects_is_refused(
    environment: dict[str, str], postgres_database: str, postgres_ledger_url: str
) -> None:
    for url in (postgres_database, postgres_ledger_url):
        plain = url.replace("postgresql+psycopg", "postgresql")
        settings = read_settings({**environment, "RECEIPTS_POSTGRES_URL": plain})
        with pytest.raises(LedgerUnavailable, match=r"LEDGER\.LOST\.v1"):
            open_rooms(settings, Services)


def test_a_home_into_which_something_was_only_dropped_is_a_new_one(tmp_path: Path) -> None:
    settings = read_settings({"RECEIPTS_HOME": str(tmp_path / "home"), "RECEIPTS_IMAGE_DIGEST": IMAGE})
    for path in (settings.inbox / "local" / "manifest.json", settings.outbox / "local" / "inbox.json"):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    (settings.objects / "scans").mkdir(parents=True)
    (settings.objects / "scans" / ".tmp-1").write_text("half")
    opened = open_rooms(settings, Services)
    assert opened.counts()["jobs"]["accepted"] == 0
    opened.close()


def test_beginning_anew_sets_everything_aside_and_deletes_nothing(
    settings: Settings, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (settings.home / "ledger.db").write_bytes(b"")
    stood = {name for name in files(settings.home) if name.startswith(("objects/", "outbox/"))}
    assert CliRunner().invoke(app, ["afresh"]).exit_code == 2
    assert stood <= files(settings.home)
    done = CliRunner().invoke(app, ["afresh", "--yes"])
    assert (done.exit_code, "outbox, objects" in done.output) == (0, True)
    assert files(settings.home / "set-aside" / "1") == stood | {"ledger.db"}
    opened = open_rooms(settings, Services)
    assert opened.counts()["jobs"]["accepted"] == 0
    opened.close()
    again = CliRunner().invoke(app, ["afresh", "--yes"])
    assert (again.exit_code, "nothing stands here" in again.output) == (0, True)
    assert not (settings.home / "set-aside" / "2").exists()


def test_a_ledger_with_records_and_a_served_home_are_never_set_aside(
    settings: Settings, tmp_path: Path
) -> None:
    with FileLock(settings.home / "serving.lock"), pytest.raises(NotAllowed, match=r"HOME\.SERVED\.v1"):
        begin_anew(settings)
    (tmp_path / "backup.db").rename(settings.home / "ledger.db")
    before = files(settings.home)
    with pytest.raises(NotAllowed, match=r"LEDGER\.IN_USE\.v1"):
        begin_anew(settings)
    assert files(settings.home) == before
