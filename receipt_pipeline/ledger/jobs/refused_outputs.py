"""Where the output of a refused write is kept: as evidence, never served, gone with its job's payload."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import select

from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.schema.jobs import refused_writes

REFUSED_PREFIX = "set-aside/refused/"
_OF_JOBS: sa.BindParameter[Any] = sa.bindparam("of_jobs", expanding=True)
_CARRIED = (
    select(*(refused_writes.c[name] for name in ("job_id", "ordinal", "lease_epoch", "digest")))
    .where(refused_writes.c.job_id.in_(_OF_JOBS))
    .where(refused_writes.c.ordinal.is_not(None))
    .where(refused_writes.c.digest.is_not(None))
)


def refused_output_key(*, job_id: str, ordinal: int, lease_epoch: int, digest: str) -> str:
    """Return the object key of an item's outcome that a stale worker carried: job, item, epoch and digest."""
    return f"{REFUSED_PREFIX}{job_id}/{ordinal}-{lease_epoch}-{digest.removeprefix('sha256:')}"


def refused_output_keys(tx: LedgerTransaction, job_ids: Collection[str]) -> dict[str, str]:
    """Return the keys of the outputs whose refusal is recorded, each with its digest; stored or not."""
    if not job_ids:
        return {}
    rows = tx.rows(_CARRIED, {"of_jobs": sorted(job_ids)})
    return {refused_output_key(**row): str(row["digest"]) for row in rows}


def recorded_refusals(tx: LedgerTransaction, keys: Iterable[str]) -> set[str]:
    """Return those of the keys under which the output of a recorded refusal is kept."""
    kept = {key for key in keys if key.startswith(REFUSED_PREFIX)}
    of_jobs = {key.removeprefix(REFUSED_PREFIX).partition("/")[0] for key in kept}
    return kept & set(refused_output_keys(tx, of_jobs))
