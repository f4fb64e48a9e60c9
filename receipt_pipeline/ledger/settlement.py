"""Settlement: the time at which the last required effect of a closed job was committed."""

from __future__ import annotations

from sqlalchemy import bindparam, select, update

from receipt_pipeline.core.effect_lifecycle import EffectKind, EffectState
from receipt_pipeline.ledger.effect_tables import effects
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.tables import jobs

# The terminal record itself says whether a result object was verified; an upload of an earlier attempt
# that failed holds nothing up.
_MISSING = (
    select(effects.c.effect_id)
    .where(effects.c.job_id == bindparam("of_job"))
    .where(effects.c.required)
    .where(effects.c.kind != EffectKind.RESULT_OBJECT)
    .where(effects.c.state.not_in([EffectState.COMMITTED, EffectState.ABANDONED]))
)
_SETTLE = (
    update(jobs)
    .where(jobs.c.job_id == bindparam("of_job"))
    .where(jobs.c.terminal_at.is_not(None))
    .where(jobs.c.settled_at.is_(None))
)


def settle_if_done(tx: LedgerTransaction, job_id: str) -> bool:
    """Set `settled_at` once no required effect of a terminal job is missing (D11)."""
    if tx.row(_MISSING, {"of_job": job_id}) is not None:
        return False
    if tx.execute(_SETTLE, {"of_job": job_id, "settled_at": tx.now()}).rowcount == 1:
        append_event(tx, EventKind.SETTLED, job_id=job_id)
        return True
    return False
