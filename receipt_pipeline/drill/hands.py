"""What a drill does with its own hands in its throw-away home, and what it reads there."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from sqlalchemy import select

from receipt_pipeline.app import submitter
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.core.canonical import digest_of_bytes
from receipt_pipeline.core.errors import PipelineError
from receipt_pipeline.core.request import JOB_CONTRACT
from receipt_pipeline.effects.consume import receive_event
from receipt_pipeline.ledger.schema.effects import outbox
from receipt_pipeline.ledger.schema.jobs import attempts
from receipt_pipeline.ledger.status import read_facts

POLL_S = 0.2


def submit_scan(services: AppContext, scan: Path, *, key: str, release: str, limits: dict[str, int]) -> str:
    """Submit one scan by a manifest of its own, as a caller would; returns the job id."""
    folder = services.settings.home / "drill" / key
    folder.mkdir(parents=True)
    data = scan.read_bytes()
    (folder / scan.name).write_bytes(data)
    manifest = {
        "contract": JOB_CONTRACT,
        "idempotency_key": key,
        "release": release,
        "limits": limits,
        "items": [
            {
                "item_id": key,
                "uri": scan.name,
                "sha256": digest_of_bytes(data).removeprefix("sha256:"),
                "size_bytes": len(data),
            }
        ],
    }
    path = folder / "manifest.json"
    path.write_text(json.dumps(manifest))
    answer = submitter.submit(services, services.principal(), [path], key=None, new=False, release=None)[0]
    return str(answer["lines"][0]["job_id"])


def read_attempts(services: AppContext, job_id: str) -> list[dict[str, Any]]:
    """Return the attempts of a job in order."""
    with services.ledger.reading() as tx:
        return tx.rows(select(attempts).where(attempts.c.job_id == job_id).order_by(attempts.c.lease_epoch))


def is_outbox_idle(services: AppContext, job_id: str) -> bool:
    """Tell whether no message of a job is due any more."""
    with services.ledger.reading() as tx:
        return all(row["state"] != "due" for row in tx.rows(select(outbox).where(outbox.c.job_id == job_id)))


def deliver_again(services: AppContext, job_id: str) -> str:
    """Hand the consumer the same success once more; returns what it made of it."""
    with services.ledger.reading() as tx:
        message = tx.row(select(outbox).where(outbox.c.job_id == job_id))
    assert message is not None
    event = dict(message["payload"]) | {"event_id": f"{message['message_id']}-again", "kind": message["kind"]}
    return str(receive_event(services.effects, event, source="drill").outcome)


def remove_result_object(services: AppContext, job_id: str) -> None:
    """Remove a result from the object store, as an accident would."""
    with services.ledger.reading() as tx:
        key = read_facts(tx, job_id).job["result_key"]
    services.store.delete(key)


def result_refusal(services: AppContext, job_id: str) -> str:
    """Return the reason code with which a result is refused, "" when it is served."""
    try:
        submitter.read_result(services, services.principal(), job_id)
    except PipelineError as error:
        return error.reason.code
    return ""


def wait_past_limits(services: AppContext, job_id: str, *, wait_s: float = 60.0) -> bool:
    """Wait, without any round, until a running job is past its own deadline and the grace."""
    grace_s = services.settings.limits.work.overrun_grace_s
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        with services.ledger.reading() as tx:
            deadline = read_facts(tx, job_id).job["processing_deadline"]
            if deadline is not None and (tx.now() - deadline).total_seconds() > grace_s:
                return True
        time.sleep(POLL_S)
    return False
