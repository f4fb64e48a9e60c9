"""Planted words: none of them reaches a receipt, and none is left once the source data is deleted."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.app import analyst, maintenance, operator, reviewer, submitter
from receipt_pipeline.core.audiences import Audience
from receipt_pipeline.core.receipt_text import render_receipt
from receipt_pipeline.ledger.schema.jobs import attempts
from receipt_pipeline.worker.loop import work_group
from receipt_pipeline_tests.fakes.fake_clock import FakeClock
from receipt_pipeline_tests.fakes.scripted_chain import scripted_outcome
from receipt_pipeline_tests.fakes.worker_bench import PAST_RETRY_S
from receipt_pipeline_tests.intake_home import as_bytes
from receipt_pipeline_tests.orchestration.opened_home import OpenedHome, open_home

IN_BYTES = "CANARYBYTES"
IN_FIELDS = "CANARYMERCHANT"
IN_EVIDENCE = "CANARYEVIDENCE"
IN_NAME = "CANARYNAME"
IN_ERROR = "CANARYERROR"
IN_SECRET = "CANARYSECRET"
CONTENTS = (IN_BYTES, IN_FIELDS, IN_EVIDENCE, IN_NAME, IN_ERROR, IN_SECRET)
RETENTION_S = 86_400


@pytest.fixture
def home(migrated_sqlite: Path, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenedHome:
    secret = {"RECEIPTS_NOTIFY_COMMAND": "", "SOME_PASSWORD": IN_SECRET}
    return open_home(tmp_path / "home", migrated_sqlite, clock, monkeypatch, secret)


def a_job_full_of_canaries(home: OpenedHome, *, job_key: str = "private") -> str:
    folder = home.folder / "handed-in" / job_key
    folder.mkdir(parents=True)
    listed = []
    for number in (1, 2):
        name, data = f"{IN_NAME}-{number}.jpg", f"{IN_BYTES} {job_key} {number}".encode()
        (folder / name).write_bytes(data)
        listed.append({"item_id": f"r-{number}", "uri": name, "sha256": hashlib.sha256(data).hexdigest()})
    document = {"contract": "receipt-job/v1", "idempotency_key": job_key, "items": listed}
    document["limits"] = {"result_retention_s": RETENTION_S}
    (folder / "manifest.json").write_bytes(as_bytes(document))
    first, second = (f"{IN_BYTES} {job_key} {number}".encode() for number in (1, 2))
    read = replace(scripted_outcome(first), fields={"merchant": IN_FIELDS}, evidence={"text": IN_EVIDENCE})
    home.chain.answers = {first: read, second: RuntimeError(IN_ERROR)}
    answers = submitter.submit(home.app, home.principal, [folder / "manifest.json"])
    job_id = str(answers[0]["lines"][0]["job_id"])
    for _ in range(home.app.settings.limits.work.item_losses_max):
        with pytest.raises(RuntimeError):
            work_group(home.app.worker(run_id="run-1"), wave_id="", job_ids=[job_id])
        home.clock.advance(PAST_RETRY_S)
    work_group(home.app.worker(run_id="run-2"), wave_id="", job_ids=[job_id])
    maintenance.deliver_and_consume(home.app)
    assert (home.job(job_id)["state"], home.job(job_id)["terminal_class"]) == ("succeeded", "partial")
    return job_id


def public_texts(home: OpenedHome, job_id: str) -> Iterator[tuple[str, str]]:
    for audience in Audience:
        document = submitter.read_status(home.app, home.principal, job_id, audience=audience)
        yield f"status {audience}", json.dumps(document, default=str)
    yield "receipt", render_receipt(submitter.read_status(home.app, home.principal, job_id))
    yield "jobs", json.dumps(submitter.list_jobs(home.app, home.principal), default=str)
    yield (
        "investigations",
        json.dumps(operator.list_investigations(home.app, home.principal, only_open=False), default=str),
    )
    yield ("tasks", json.dumps(reviewer.list_tasks(home.app, home.principal, only_open=False), default=str))
    yield ("report", json.dumps(analyst.read_report(home.app, home.principal), default=str))
    maintenance.publish_report(home.app)
    for folder in (home.app.settings.outbox, home.app.settings.report):
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                yield path.name, path.read_bytes().decode(errors="replace")


@pytest.mark.requirement("R126")
def test_no_receipt_message_or_report_repeats_input_names_secrets_or_errors(home: OpenedHome) -> None:
    job_id = a_job_full_of_canaries(home)
    shown = dict(public_texts(home, job_id))
    assert {"status customer", "status support", "status engineering", "report"} <= set(shown)
    assert f"{job_id}.status.json" in shown
    told = {(place, word) for place, text in shown.items() for word in (*CONTENTS, "Traceback") if word in text}
    assert told == set()
    assert IN_FIELDS in json.dumps(submitter.read_result(home.app, home.principal, job_id)), (
        "the result itself is for its submitter"
    )


def places_of(home: OpenedHome, *words: str) -> set[tuple[str, str]]:
    found = {
        (table, word)
        for table, rows in home.bench.snapshot().items()
        for word in words
        if any(word in value for row in rows for value in row)
    }
    for path in home.folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            found |= {(path.name, word) for word in words if word.encode() in data}
    return found


def purge_everything(home: OpenedHome) -> None:
    limits = home.app.settings.limits
    # Files carry the host's time, which may be a day or two ahead of the test's clock.
    home.clock.advance(RETENTION_S * 5)
    for _ in range(3):
        maintenance.purge_expired(home.app)
        home.clock.advance(limits.retention.orphan_grace_s + 1)


def answer_questions(home: OpenedHome) -> None:
    for row in operator.list_investigations(home.app, home.principal, only_open=True):
        operator.resolve_investigation(home.app, home.principal, row["investigation_id"], note="seen")


@pytest.mark.requirement("R128")
def test_after_its_deletion_source_data_is_in_no_table_and_no_file(home: OpenedHome) -> None:
    job_id = a_job_full_of_canaries(home)
    maintenance.publish_report(home.app)
    answer_questions(home)
    shutil.rmtree(home.folder / "handed-in")
    assert places_of(home, IN_BYTES) != set(), "until then the scans are kept"
    purge_everything(home)
    maintenance.publish_report(home.app)
    assert places_of(home, *CONTENTS) == set()
    assert submitter.read_status(home.app, home.principal, job_id)["items"]["classified"] == 1


@pytest.mark.requirement("R130")
def test_after_the_evidence_is_gone_the_receipt_still_explains_what_happened(home: OpenedHome) -> None:
    job_id = a_job_full_of_canaries(home)
    answer_questions(home)
    before = submitter.read_status(home.app, home.principal, job_id, audience="support")
    purge_everything(home)
    after = submitter.read_status(home.app, home.principal, job_id, audience="support")
    for part in ("asked", "item_reasons", "decision_reasons", "samples", "effects", "promised"):
        assert after[part] == before[part], part
    [reason] = after["item_reasons"]
    assert (reason["code"], reason["count"]) == ("WORKER.LOST.v1", 1)
    assert reason["meaning"]
    assert reason["next_step"]
    customer = submitter.read_status(home.app, home.principal, job_id)
    assert customer["result"]["digest"] == home.job(job_id)["result_digest"]
    assert customer["result"]["purged_at"] is not None
    assert "deleted" in render_receipt(customer)


@pytest.mark.requirement("R129")
def test_diagnostics_expire_sooner_than_results_and_the_receipt_stays(home: OpenedHome) -> None:
    limits = home.app.settings.limits
    assert limits.retention.diagnostics_retention_s < 2_592_000, "the default retention of a result"
    job_id = home.submit("kept")
    work_group(home.app.worker(run_id="run-1"), wave_id="", job_ids=[job_id])
    maintenance.deliver_and_consume(home.app)
    [attempt] = tried(home, job_id)
    assert (attempt["run_id"], attempt["owner"] != "", attempt["facts"] != {}) == ("run-1", True, True)
    home.clock.advance(limits.retention.diagnostics_retention_s - 1)
    maintenance.purge_expired(home.app)
    assert tried(home, job_id) == [attempt]
    home.clock.advance(1)
    maintenance.purge_expired(home.app)
    [left] = tried(home, job_id)
    assert (left["run_id"], left["owner"], left["facts"]) == ("", "", {})
    assert (left["outcome"], left["invocations"]) == ("committed", 1)
    assert home.job(job_id)["result_purged_at"] is None
    assert submitter.read_result(home.app, home.principal, job_id)["object"]["verified"]
    assert submitter.read_status(home.app, home.principal, job_id)["attempts"] == 1


def tried(home: OpenedHome, job_id: str) -> list[dict[str, Any]]:
    return home.bench.bench.rows(attempts, job_id)


def test_a_job_that_ended_without_a_result_lets_go_of_its_scans_as_well(home: OpenedHome) -> None:
    folder = home.folder / "handed-in"
    job_id = home.submit("canceled", limits={"result_retention_s": RETENTION_S})
    submitter.cancel_job(home.app, home.principal, job_id)
    shutil.rmtree(folder)
    assert len(list(home.app.store.listing("scans/"))) == 1
    purge_everything(home)
    assert list(home.app.store.listing("scans/")) == []
    assert home.job(job_id)["result_purged_at"] is not None


def test_a_scan_that_another_job_still_holds_stays(home: OpenedHome) -> None:
    home.submit("short", limits={"result_retention_s": RETENTION_S})
    waiting = home.submit("long", limits={"max_queue_age_s": RETENTION_S * 9})
    for job_id in (row["job_id"] for row in submitter.list_jobs(home.app, home.principal) if row["job_id"] != waiting):
        submitter.cancel_job(home.app, home.principal, job_id)
    purge_everything(home)
    assert len(list(home.app.store.listing("scans/"))) == 1
