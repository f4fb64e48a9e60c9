"""Rows of the ledger as typed records, and tenant filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, bindparam, select, true, union_all

from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.schema.admin import imported_jobs
from receipt_pipeline.ledger.schema.jobs import jobs

_SET_ASIDE, _SCANS, _RESULTS = "set-aside/", "scans/", "results/"


def is_terminal() -> ColumnElement[bool]:
    """Return the condition that a job's row is closed."""
    return jobs.c.state.in_(sorted(TERMINAL_STATES))


@dataclass(frozen=True, slots=True)
class TenantScope:
    """Everything but what belongs to another tenant; what belongs to nobody is everybody's to find.

    Attributes:
        tenant: None for the product itself, which sees all.
        foreign: ids of the other tenants' jobs.
    """

    tenant: str | None = None
    foreign: frozenset[str] = frozenset()

    def shows_job(self, job_id: str | None) -> bool:
        """Tell whether a job may be shown."""
        return job_id not in self.foreign

    def shows_key(self, key: str) -> bool:
        """Tell whether an object's key may be shown: it names a job, or a tenant."""
        plain = key.removeprefix(_SET_ASIDE)
        owner = plain.split("/")[1] if plain.count("/") else ""
        if plain.startswith(_SCANS):
            return self.tenant in (None, owner)
        return self.shows_job(owner) if plain.startswith(_RESULTS) else True

    def shows_question(self, row: Mapping[str, Any]) -> bool:
        """Tell whether an investigation may be shown: by its job, or else by what it is about."""
        if row["job_id"] is not None:
            return self.shows_job(row["job_id"])
        return self.shows_key(str(row["subject"]).partition("#")[0])

    def owned(self, job_id: ColumnElement[Any]) -> ColumnElement[bool]:
        """Return the condition that a row's job is not another tenant's."""
        if self.tenant is None:
            return true()
        return job_id.not_in(_ids_of_others(self.tenant))


# Not FOR UPDATE: rows that refer to the job are written before its lock is asked for, and two
# transactions that did so would wait for each other.
_READ_JOB = select(jobs).where(jobs.c.job_id == bindparam("wanted"))
_LOCK_JOB = _READ_JOB.with_for_update(key_share=True)


def read_job(tx: LedgerTransaction, job_id: str, *, lock: bool = False) -> dict[str, Any] | None:
    """Return the job's row, locked for this transaction where the database locks rows."""
    return tx.row(_LOCK_JOB if lock else _READ_JOB, {"wanted": job_id})


WHOLE = TenantScope()


def _ids_of_others(tenant: str) -> CompoundSelect[Any]:
    """Select the ids of the other tenants' jobs, those that an older system ran among them."""
    return union_all(
        select(jobs.c.job_id).where(jobs.c.tenant != tenant),
        select(imported_jobs.c.job_id).where(imported_jobs.c.tenant != tenant),
    )


def read_scope(tx: LedgerTransaction, tenant: str | None) -> TenantScope:
    """Return what a tenant may see; without a tenant, everything."""
    if tenant is None:
        return WHOLE
    others = tx.execute(_ids_of_others(tenant)).scalars()
    return TenantScope(tenant, frozenset(str(job_id) for job_id in others))
