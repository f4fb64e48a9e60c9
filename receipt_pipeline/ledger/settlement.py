"""Settlement: the time at which the last required effect of a closed job was committed."""

from __future__ import annotations

from sqlalchemy import select, update

from receipt_pipeline.core.effect_lifecycle import EffectKind, EffectState
from receipt_pipeline.ledger.effect_tables import effects
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.tables import jobs


def settle_if_done(tx: LedgerTransaction, job_id: str) -> bool:
    """Set `settled_at` once no required effect of a terminal job is missing (D11)."""
    missing = tx.row(
        select(effects.c.effect_id)
        .where(effects.c.job_id == job_id)
        .where(effects.c.required)
        # The terminal record itself says whether a result object was verified; an upload of an
        # earlier attempt that failed holds nothing up.
        .where(effects.c.kind != EffectKind.RESULT_OBJECT)
        .where(effects.c.state.not_in([EffectState.COMMITTED, EffectState.ABANDONED]))
    )
    if missing is not None:
        return False
    written = tx.execute(
        update(jobs)
        .where(jobs.c.job_id == job_id)
        .where(jobs.c.terminal_at.is_not(None))
        .where(jobs.c.settled_at.is_(None))
        .values(settled_at=tx.now())
    )
    if written.rowcount == 1:
        append_event(tx, EventKind.SETTLED, job_id=job_id)
        return True
    return False
