"""Grants, named submitters and quotas."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import Any

from sqlalchemy import and_, bindparam, func, insert, select, update

from receipt_pipeline.core.errors import NotAllowed
from receipt_pipeline.core.lifecycle import TERMINAL_STATES
from receipt_pipeline.core.principals import Principal, Role
from receipt_pipeline.core.reasons import AUTHORITY_EXPIRED, AUTHORITY_REVOKED, Reason
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.journal import EventKind, append_event
from receipt_pipeline.ledger.schema.admin import submitters
from receipt_pipeline.ledger.schema.jobs import grants, jobs

_NEWEST = (
    select(grants)
    .where(grants.c.tenant == bindparam("of_tenant"))
    .where(grants.c.caller == bindparam("of_caller"))
    .order_by(grants.c.grant_no.desc())
    .limit(1)
)


def newest_grant(tx: LedgerTransaction, *, tenant: str, caller: str) -> dict[str, Any] | None:
    """Return the grant that decides about a caller, None where none was ever recorded."""
    return tx.row(_NEWEST, {"of_tenant": tenant, "of_caller": caller})


def authority_fault(tx: LedgerTransaction, *, tenant: str, caller: str, role: Role | None = None) -> Reason | None:
    """Return why a caller may not act now, None while he may.

    A caller without any recorded grant acts under the roles of the settings alone. A grant that
    no longer holds the asked role is a revocation of that role.
    """
    grant = newest_grant(tx, tenant=tenant, caller=caller)
    if grant is None:
        return None
    if grant["revoked_at"] is not None or (role is not None and role not in grant["roles"]):
        return AUTHORITY_REVOKED
    if grant["expires_at"] is not None and grant["expires_at"] <= tx.now():
        return AUTHORITY_EXPIRED
    return None


def require_authority(tx: LedgerTransaction, *, tenant: str, caller: str) -> None:
    """Let a caller act, in the transaction that writes what he asks for.

    Raises:
        NotAllowed: AUTHORITY.EXPIRED.v1 or AUTHORITY.REVOKED.v1.
    """
    fault = authority_fault(tx, tenant=tenant, caller=caller)
    if fault is not None:
        raise NotAllowed(fault, caller=caller)


def acting_under_grant(tx: LedgerTransaction, principal: Principal) -> Principal:
    """Return the principal with those roles that settings and grant both give.

    Raises:
        NotAllowed: AUTHORITY.EXPIRED.v1 or AUTHORITY.REVOKED.v1.
    """
    require_authority(tx, tenant=principal.tenant, caller=principal.caller)
    grant = newest_grant(tx, tenant=principal.tenant, caller=principal.caller)
    if grant is None:
        return principal
    return Principal(principal.tenant, principal.caller, principal.roles & frozenset(grant["roles"]))


def give_grant(
    tx: LedgerTransaction, *, tenant: str, caller: str, roles: Collection[str], actor: str, lasts_s: float | None = None
) -> int:
    """Record a new grant, which decides from now on; returns its number."""
    now = tx.now()
    result = tx.execute(
        insert(grants).values(
            tenant=tenant,
            caller=caller,
            roles=sorted(roles),
            given_by=actor,
            given_at=now,
            expires_at=None if lasts_s is None else now + dt.timedelta(seconds=lasts_s),
        )
    )
    assert result.inserted_primary_key is not None
    _tell(tx, tenant=tenant, caller=caller, change="given", actor=actor)
    return int(result.inserted_primary_key[0])


def revoke_grant(tx: LedgerTransaction, *, tenant: str, caller: str, actor: str) -> int:
    """Revoke what a caller may do; returns how many of his jobs are open, which keep their scope.

    Revoking twice changes nothing. A caller without a grant gets a revoked one.
    """
    grant = newest_grant(tx, tenant=tenant, caller=caller)
    number = grant["grant_no"] if grant else give_grant(tx, tenant=tenant, caller=caller, roles=(), actor=actor)
    written = tx.execute(
        update(grants)
        .where(grants.c.grant_no == number)
        .where(grants.c.revoked_at.is_(None))
        .values(revoked_by=actor, revoked_at=tx.now())
    )
    if written.rowcount == 0:
        return len(_open_jobs(tx, tenant=tenant, caller=caller))
    return _tell(tx, tenant=tenant, caller=caller, change="revoked", actor=actor)


def _tell(tx: LedgerTransaction, *, tenant: str, caller: str, change: str, actor: str) -> int:
    """Journal the change, and on every open job of the caller, whose status then shows it."""
    told: dict[str, Any] = {"caller": caller, "change": change, "by": actor}
    append_event(tx, EventKind.GRANT_CHANGED, tenant=tenant, **told)
    open_ids = _open_jobs(tx, tenant=tenant, caller=caller)
    for job_id in open_ids:
        append_event(tx, EventKind.GRANT_CHANGED, job_id=job_id, tenant=tenant, **told)
    return len(open_ids)


def _open_jobs(tx: LedgerTransaction, *, tenant: str, caller: str) -> list[str]:
    query = (
        select(jobs.c.job_id)
        .where(jobs.c.tenant == tenant)
        .where(jobs.c.caller == caller)
        .where(jobs.c.state.not_in(sorted(TERMINAL_STATES)))
        .order_by(jobs.c.job_id)
    )
    return [str(row["job_id"]) for row in tx.rows(query)]


def list_grants(tx: LedgerTransaction, *, tenant: str) -> list[dict[str, Any]]:
    """Return a tenant's grants, oldest first, each as it stands."""
    return tx.rows(select(grants).where(grants.c.tenant == tenant).order_by(grants.c.grant_no))


_IS_HE = and_(submitters.c.tenant == bindparam("of_tenant"), submitters.c.caller == bindparam("of_caller"))
_ONE = select(submitters).where(_IS_HE)
# Writes nothing new: who has the row holds it until his transaction ends.
_HOLD = update(submitters).where(_IS_HE).values(quota_items=submitters.c.quota_items)


def list_submitters(tx: LedgerTransaction, *, tenant: str) -> list[dict[str, Any]]:
    """Return the tenant's named submitters with the items they have open."""
    rows = tx.rows(select(submitters).where(submitters.c.tenant == tenant).order_by(submitters.c.caller))
    return [{**row, "open_items": open_items(tx, tenant=tenant, caller=row["caller"])} for row in rows]


def read_submitter(tx: LedgerTransaction, *, tenant: str, caller: str) -> dict[str, Any] | None:
    """Return one named submitter, None for a caller without a quota."""
    return tx.row(_ONE, {"of_tenant": tenant, "of_caller": caller})


def open_items(tx: LedgerTransaction, *, tenant: str, caller: str) -> int:
    """Return how many items of the caller's jobs are accepted and not closed."""
    count = tx.scalar(
        select(func.coalesce(func.sum(jobs.c.items_requested), 0)).where(
            jobs.c.tenant == tenant, jobs.c.caller == caller, jobs.c.terminal_at.is_(None)
        )
    )
    return int(count or 0)


def lock_submitter(tx: LedgerTransaction, *, tenant: str, caller: str) -> int | None:
    """Return the quota, held until the transaction ends so that two acceptances cannot share the rest.

    None for a caller without a quota.
    """
    held = tx.execute(_HOLD, {"of_tenant": tenant, "of_caller": caller})
    if held.rowcount == 0:
        return None
    row = read_submitter(tx, tenant=tenant, caller=caller)
    return None if row is None else int(row["quota_items"])


def put_submitter(tx: LedgerTransaction, *, tenant: str, caller: str, quota_items: int, actor: str) -> None:
    """Add a submitter or change its quota; who allowed it is recorded."""
    now = tx.now()
    changed = tx.execute(
        update(submitters)
        .where(submitters.c.tenant == tenant, submitters.c.caller == caller)
        .values(quota_items=quota_items, changed_by=actor, changed_at=now)
    )
    if changed.rowcount == 0:
        tx.execute(
            insert(submitters).values(
                tenant=tenant,
                caller=caller,
                quota_items=quota_items,
                added_by=actor,
                added_at=now,
                changed_by=actor,
                changed_at=now,
            )
        )
    append_event(tx, EventKind.SUBMITTER_CHANGED, tenant=tenant, caller=caller, quota_items=quota_items, by=actor)
