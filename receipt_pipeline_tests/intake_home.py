"""A home for tests of intake: services over a test's ledger, scans, and manifests that name them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from receipt_pipeline.core.errors import InputRefused
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.core.principals import Principal, Role
from receipt_pipeline.core.request import JobRequest
from receipt_pipeline.intake.accept import Acceptance, Arrival, accept_job
from receipt_pipeline.intake.context import IntakeContext, ignore_event, status_document_location
from receipt_pipeline.intake.inbox.sweep import SweepSummary, sweep_inbox
from receipt_pipeline.intake.manifest import parse_document
from receipt_pipeline.intake.scans import FolderScans, list_loader
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.schema.effects import object_refs
from receipt_pipeline.ledger.schema.jobs import items, jobs, submission_rows, submissions
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline_tests.builders import CALLER, TENANT, approve

PRINCIPAL = Principal(TENANT, CALLER, frozenset({Role.SUBMITTER}))
PNG = b"\x89PNG\r\n\x1a\n"


def an_intake(
    ledger: Ledger, home: Path, *, after_accept: Callable[[str], None] = ignore_event, **limits: Any
) -> IntakeContext:
    """Return an intake context over a ledger in which the production release is approved."""
    approve(ledger)
    return IntakeContext(
        ledger=ledger,
        objects=LocalObjectStore(home / "objects"),
        limits=Limits().replace(**limits),
        home=home,
        status_location=status_document_location(home),
        after_accept=after_accept,
    )


def scan_bytes(number: int = 1) -> bytes:
    return PNG + f"scan {number}".encode()


def hex_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def put_scan(folder: Path, name: str, number: int = 1) -> dict[str, Any]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(scan_bytes(number))
    return {"item_id": f"r-{number:03d}", "uri": name, "sha256": hex_digest(scan_bytes(number))}


def job_document(folder: Path, *, count: int = 1, key: str = "job-1", **fields: Any) -> dict[str, Any]:
    """Write so many scans into the folder and return a manifest that names them."""
    listed = [put_scan(folder, f"scans/{number}.png", number) for number in range(1, count + 1)]
    return {"contract": "receipt-job/v1", "idempotency_key": key, "items": listed} | fields


def row_of(folder: Path, name: str, number: int, *, key: str | None = None) -> dict[str, Any]:
    item = put_scan(folder, name, number)
    return {"idempotency_key": key or f"row-{number}", "uri": name, "sha256": item["sha256"]}


def as_bytes(document: Any) -> bytes:
    return json.dumps(document).encode()


def batch_bytes(rows: list[dict[str, Any]], **fields: Any) -> bytes:
    return as_bytes({"contract": "receipt-batch/v1", "rows": rows} | fields)


def accept_manifest(
    intake: IntakeContext, document: Any, folder: Path, *, principal: Principal = PRINCIPAL
) -> Acceptance:
    """Accept one manifest, given as bytes or as an object, whose scans are in the folder."""
    scans = FolderScans(folder)
    data = document if isinstance(document, bytes) else as_bytes(document)
    request = parse_document(data, suffix=".json", load_list=list_loader(scans))
    assert isinstance(request, JobRequest)
    return accept_job(intake, request, Arrival(principal, scans, "test"))


def refusal_of(intake: IntakeContext, document: Any, folder: Path, **given: Any) -> tuple[str, str]:
    """Return reason and place for which a manifest is refused; nothing may be accepted by it."""
    with pytest.raises(InputRefused) as caught:
        accept_manifest(intake, document, folder, **given)
    assert job_rows(intake.ledger) == []
    return caught.value.reason.code, caught.value.pointer


def holders(ledger: Ledger) -> set[str]:
    with ledger.reading() as tx:
        return {row["holder"] for row in tx.rows(object_refs.select())}


def submission_states(intake: IntakeContext) -> list[str]:
    return [row["state"] for row in submission_list(intake.ledger)]


def drop(intake: IntakeContext, name: str, document: Any, *, tenant: str = TENANT) -> Path:
    path = intake.inbox / tenant / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(document if isinstance(document, bytes) else as_bytes(document))
    return path


def sweep(intake: IntakeContext) -> SweepSummary:
    return sweep_inbox(intake, time_bound_s=60)


def job_rows(ledger: Ledger) -> list[dict[str, Any]]:
    with ledger.reading() as tx:
        return tx.rows(jobs.select().order_by(jobs.c.submitted_at, jobs.c.idempotency_key))


def item_rows(ledger: Ledger) -> list[dict[str, Any]]:
    with ledger.reading() as tx:
        return tx.rows(items.select().order_by(items.c.job_id, items.c.ordinal))


def submission_list(ledger: Ledger) -> list[dict[str, Any]]:
    with ledger.reading() as tx:
        return tx.rows(submissions.select().order_by(submissions.c.received_at, submissions.c.submission_id))


def row_list(ledger: Ledger) -> list[dict[str, Any]]:
    with ledger.reading() as tx:
        return tx.rows(submission_rows.select().order_by(*submission_rows.primary_key))


def names_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def acknowledgements(intake: IntakeContext, tenant: str = TENANT) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(intake.outbox(tenant).glob("*.ack.json"))]
