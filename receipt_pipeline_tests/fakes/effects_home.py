"""Effect services on a folder, and succeeded jobs whose result objects really lie there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from receipt_pipeline.core.items import ItemOutcome
from receipt_pipeline.core.limits import Limits
from receipt_pipeline.effects.channels import Channel, FileChannel
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.ledger.jobs.finalize import VerifiedResult
from receipt_pipeline.ledger.rows import JobRow, read_job
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline_tests.builders import LIMITS, a_claimed_job, a_result, finish_items, publish


def effects_home(
    ledger: Ledger, folder: Path, *, channel: Channel | None = None, limits: Limits = LIMITS
) -> EffectContext:
    outbox = folder / "outbox"
    return EffectContext(
        ledger=ledger,
        objects=LocalObjectStore(folder / "objects"),
        channel=channel or FileChannel(outbox),
        outbox_root=outbox,
        limits=limits,
    )


def a_stored_success(services: EffectContext, *outcomes: ItemOutcome, content: str = "result", **given: Any) -> JobRow:
    """Accept, work off and publish a job, its object stored; return the job's row."""
    given.setdefault("items", len(outcomes) or 1)
    job = a_claimed_job(services.ledger, **given)
    finish_items(services.ledger, job, *outcomes)
    result: VerifiedResult = a_result(job, content=content)
    services.objects.put(result.key, content.encode())
    publish(services.ledger, job, result)
    return the_job(services, job.token.job_id)


def the_job(services: EffectContext, job_id: str) -> JobRow:
    with services.ledger.reading() as tx:
        row = read_job(tx, job_id)
    assert row is not None
    return row


def rows_of(services: EffectContext, statement: Any) -> list[dict[str, Any]]:
    with services.ledger.reading() as tx:
        return tx.rows(statement)


def an_event(job: JobRow | Mapping[str, Any], event_id: str, **given: Any) -> dict[str, Any]:
    """Return a success event of a job, as a channel would deliver it; `given` replaces fields."""
    row = job.as_mapping() if isinstance(job, JobRow) else job
    return {
        "event_id": event_id,
        "job_id": row["job_id"],
        "state": "succeeded",
        "result_digest": row["result_digest"],
    } | given
