"""Status documents follow the ledger, survive deletion, and are only ever whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.durable_files import status_path, write_whole
from receipt_pipeline.effects import status_documents
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.effects.status_documents import restore_status_documents, send_status_documents
from receipt_pipeline.ledger.effects.outbox import stale_status_jobs
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.rows import JobRow
from receipt_pipeline_tests.builders import an_accepted_job, claimed, finish_items, publish
from receipt_pipeline_tests.fakes.effects_home import a_stored_success, the_job
from receipt_pipeline_tests.fakes.fake_clock import FakeClock


def path_of(services: EffectContext, job: JobRow) -> Path:
    return status_path(services.outbox_root, tenant=job.tenant, job_id=job.job_id)


def shown(services: EffectContext, job: JobRow) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path_of(services, job).read_text())
    return document


def test_the_status_location_resolves_right_after_acceptance_and_follows_the_job(services: EffectContext) -> None:
    job = an_accepted_job(services.ledger)
    assert send_status_documents(services, limit=1, job_id=job.job_id) == 1
    first = shown(services, job)
    assert (first["job_id"], first["state"], first["result"]) == (job.job_id, "accepted", None)
    work = claimed(services.ledger, job.job_id)
    finish_items(services.ledger, work)
    publish(services.ledger, work)
    assert send_status_documents(services, limit=10) == 1
    assert shown(services, job)["state"] == "succeeded"
    assert shown(services, job)["seq"] == the_job(services, job.job_id).latest_seq
    assert send_status_documents(services, limit=10) == 0


def test_a_deleted_document_comes_back_by_the_next_event_or_on_request(services: EffectContext) -> None:
    job = an_accepted_job(services.ledger)
    send_status_documents(services, limit=10)
    path_of(services, job).unlink()
    assert send_status_documents(services, limit=10) == 0
    assert restore_status_documents(services, limit=10, recent_s=60) == 1
    assert shown(services, job)["state"] == "accepted"
    path_of(services, job).unlink()
    claimed(services.ledger, job.job_id)
    assert send_status_documents(services, limit=10) == 1
    assert shown(services, job)["state"] == "running"


def test_documents_of_jobs_closed_long_ago_are_not_restored(services: EffectContext, clock: FakeClock) -> None:
    old = a_stored_success(services)
    clock.advance(3600)
    recent = a_stored_success(services)
    clock.advance(10)
    assert restore_status_documents(services, limit=10, recent_s=60) == 1
    assert (path_of(services, recent).exists(), path_of(services, old).exists()) == (True, False)


def test_a_job_that_moves_while_its_document_is_written_is_written_again(
    services: EffectContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = an_accepted_job(services.ledger)
    moves = [2]

    def write_and_let_the_job_move(path: Path, data: bytes) -> None:
        write_whole(path, data)
        if moves[0]:
            moves[0] -= 1
            with services.ledger.transaction() as tx:
                append_event(tx, EventKind.REPLAYED, job_id=job.job_id, tenant=job.tenant)

    monkeypatch.setattr(status_documents, "write_whole", write_and_let_the_job_move)
    send_status_documents(services, limit=10)
    assert moves == [0]
    assert shown(services, job)["seq"] == the_job(services, job.job_id).latest_seq


def test_a_job_that_never_rests_is_left_to_the_next_pass(
    services: EffectContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = an_accepted_job(services.ledger)
    writes = []

    def write_and_move(path: Path, data: bytes) -> None:
        write_whole(path, data)
        writes.append(path)
        with services.ledger.transaction() as tx:
            append_event(tx, EventKind.REPLAYED, job_id=job.job_id, tenant=job.tenant)

    monkeypatch.setattr(status_documents, "write_whole", write_and_move)
    send_status_documents(services, limit=10)
    assert len(writes) == status_documents.REWRITES_MAX
    with services.ledger.reading() as tx:
        assert stale_status_jobs(tx, limit=10) == [job.job_id]


def test_a_document_that_cannot_be_written_keeps_no_other_from_it(services: EffectContext) -> None:
    first, second = (an_accepted_job(services.ledger) for _ in range(2))
    path_of(services, first).mkdir(parents=True)
    with pytest.raises(InputRefused, match=r"SETTING\.INVALID\.v1") as refused:
        send_status_documents(services, limit=10)
    assert (refused.value.facts["path"], refused.value.facts["cause"]) == (str(path_of(services, first)), "EISDIR")
    assert shown(services, second)["state"] == "accepted"
    path_of(services, first).rmdir()
    assert send_status_documents(services, limit=10) == 1


def test_an_unknown_job_has_no_document(services: EffectContext) -> None:
    assert send_status_documents(services, limit=10, job_id="job_unknown") == 0
    assert not services.outbox_root.exists()


def test_a_document_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a" / "b.json"
    write_whole(path, b"first")

    def no_rename(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", no_rename)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"second")
    assert [(entry.name, entry.read_bytes()) for entry in path.parent.iterdir()] == [("b.json", b"first")]
