"""Opening a home: folders, ledger and releases come by themselves, and two homes side by side never meet."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from receipt_pipeline.app import admin, maintenance, submitter
from receipt_pipeline.app.context import AppContext, Chains, new_context, open_app
from receipt_pipeline.chain.ocr.engine import RapidOcrEngine
from receipt_pipeline.core.canonical import digest_of
from receipt_pipeline.core.errors import IdentityMismatch
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.settings import Settings, read_settings
from receipt_pipeline_tests.fakes.scripted_ocr import ScriptedOcr
from receipt_pipeline_tests.intake_home import as_bytes, job_document, names_in

IMAGE = digest_of("image")


def settings_of(home: Path, **given: str) -> Settings:
    named = {f"RECEIPTS_{name}": value for name, value in given.items()}
    return read_settings({"RECEIPTS_HOME": str(home), "RECEIPTS_IMAGE_DIGEST": IMAGE, **named})


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[AppContext]:
    opened = new_context(settings_of(tmp_path / "home"))
    yield opened
    opened.close()


def pins_of(opened: AppContext, release_id: str) -> Pins:
    (row,) = [row for row in admin.list_releases(opened) if row["release_id"] == release_id]
    return Pins(**{name: row[name] for name in Pins.__slots__})


def submit(opened: AppContext, folder: Path, key: str) -> str:
    document = job_document(folder, key=key)
    (folder / "manifest.json").write_bytes(as_bytes(document))
    (answer,) = submitter.submit(opened, opened.principal(), [folder / "manifest.json"])
    return str(answer["lines"][0]["job_id"])


def test_a_home_opens_from_nothing_with_its_releases_approved(opened: AppContext, tmp_path: Path) -> None:
    assert (tmp_path / "home" / "inbox" / "local" / "loose").is_dir()
    assert (tmp_path / "home" / "outbox" / "local").is_dir()
    assert set(maintenance.count_records(opened)["job_ledger"].values()) == {0}
    aliases = {alias for row in admin.list_releases(opened) for alias in row["aliases"]}
    assert aliases == {"production", "previous"}
    rates = {row["name"]: row["review_rate_ppm"] for row in admin.list_releases(opened)}
    assert rates == {"2027-01": 200_000, "2027-02": 150_000}
    assert {row["image_digest"] for row in admin.list_releases(opened)} == {IMAGE}


def test_opening_a_home_again_changes_nothing_in_it(opened: AppContext, tmp_path: Path) -> None:
    before, files = admin.list_releases(opened), names_in(tmp_path / "home" / "inbox")
    again = new_context(opened.settings)
    assert admin.list_releases(again) == before
    assert names_in(tmp_path / "home" / "inbox") == files
    again.close()


def test_an_installation_supports_what_verifies_in_it(opened: AppContext) -> None:
    assert sorted(opened.supported_releases()) == sorted(row["release_id"] for row in admin.list_releases(opened))
    other = dataclasses.replace(opened, image_digest=digest_of("another image"))
    assert other.supported_releases() == []
    assert other.worker_id != opened.worker_id


def test_a_home_is_opened_once_per_process_and_again_under_other_settings(tmp_path: Path) -> None:
    settings = settings_of(tmp_path / "home")
    opened = open_app(settings)
    assert open_app(settings_of(tmp_path / "home")) is opened
    changed = open_app(settings_of(tmp_path / "home", LIMIT_WAVE_SLOTS="3"))
    assert changed is not opened
    assert changed.settings.limits.work.wave_slots == 3
    opened.close()
    changed.close()


def test_two_homes_side_by_side_never_meet(tmp_path: Path) -> None:
    one, two = (open_app(settings_of(tmp_path / name)) for name in ("one", "two"))
    before = names_in(tmp_path / "two")
    job_id = submit(one, tmp_path / "one" / "handed-in", "key-1")
    maintenance.deliver_and_consume(one)
    assert names_in(tmp_path / "two") == before
    assert len(submitter.list_jobs(one, one.principal())) == 1
    assert submitter.list_jobs(two, two.principal()) == []
    assert maintenance.dispatch_jobs(two).to_launch == ()
    assert submit(two, tmp_path / "two" / "handed-in", "key-1") != job_id
    for each in (one, two):
        each.close()


def test_a_worker_claims_nothing_after_its_end(opened: AppContext) -> None:
    assert not opened.worker(run_id="run").stop_asked()
    assert opened.worker(run_id="run", ends_at=time.monotonic()).stop_asked()
    first, second = (opened.worker(run_id=run) for run in ("run-1", "run-2"))
    assert first.owner != second.owner


def test_a_chain_is_loaded_once_and_only_for_pins_that_verify(opened: AppContext) -> None:
    chains = Chains(opened.settings, IMAGE, engine=ScriptedOcr())
    pins = pins_of(opened, opened.supported_releases()[0])
    assert chains(pins) is chains(pins)
    foreign = dataclasses.replace(pins, risk_model_digest=digest_of("another model"))
    with pytest.raises(IdentityMismatch, match="IDENTITY"):
        chains(foreign)
    assert set(chains.loaded) == {pins}


def test_a_reader_that_could_not_be_warmed_up_is_not_kept(opened: AppContext, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[str] = []

    def warm_up(_engine: RapidOcrEngine) -> None:
        attempts.append("tried")
        if len(attempts) == 1:
            raise MemoryError

    monkeypatch.setattr(RapidOcrEngine, "warm_up", warm_up)
    with pytest.raises(MemoryError):
        opened.chains.warm_up()
    assert opened.chains.engine is None
    opened.chains.warm_up()
    opened.chains.warm_up()
    assert len(attempts) == 2
