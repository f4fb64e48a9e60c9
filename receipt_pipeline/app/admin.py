"""What administrators do: releases and their evaluations, grants, quotas, legacy import, rollback."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from receipt_pipeline.app import maintenance
from receipt_pipeline.app.context import AppContext
from receipt_pipeline.chain.release import load_policy, shipped_releases
from receipt_pipeline.core.alerts import AlertKind
from receipt_pipeline.core.errors import IdentityMismatch, InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.lifecycle import TerminalClass
from receipt_pipeline.core.principals import Principal, Role, require
from receipt_pipeline.core.reasons import (
    FIELD_INVALID,
    NOT_FOUND,
    QUOTA_NOT_RAISED,
    RELEASE_LAST_LIVE,
    ROLLBACK_SERVED,
    SETTING_INVALID,
)
from receipt_pipeline.evaluation import records
from receipt_pipeline.evaluation.scans import PROCESSES
from receipt_pipeline.intake import legacy_import
from receipt_pipeline.intake.legacy_import import OPEN_STATE, ImportAnswer, LegacySystem
from receipt_pipeline.ledger import grants, releases
from receipt_pipeline.ledger.effects.alerts import last_delivered_test, list_links, open_alerts
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.legacy_jobs import OWN_ORIGIN
from receipt_pipeline.runtime.serving import is_served
from receipt_pipeline.settings import NAME

DAY_S = 86_400.0
# Alerts that must be linked and tested before a quota is raised.
WATCHED = (AlertKind.CAPACITY, AlertKind.QUEUE_AGE)
FIRST_QUOTA_ITEMS = 100


# Releases and their evaluations.


def list_releases(context: AppContext) -> list[dict[str, Any]]:
    """Return every release with the aliases that point at it and the review rate its policy states.

    The rate is that of genuine receipts, in parts per million; None where the policy states none or
    is not shipped here.
    """
    with context.ledger.reading() as tx:
        rows = releases.list_releases(tx)
    return [row | {"review_rate_ppm": _review_rate_ppm(context, row["policy_revision"])} for row in rows]


def _review_rate_ppm(context: AppContext, revision: str) -> int | None:
    try:
        return load_policy(context.settings.shipped, revision).review_rate_ppm or None
    except IdentityMismatch:
        return None


def shipped_release_id(context: AppContext, name: str) -> str:
    """Return the id of a shipped release by its template's alias or name. Raises NotFound."""
    for shipped in shipped_releases(context.settings.shipped, image_digest=context.image_digest):
        if name in (shipped.alias, shipped.name):
            return shipped.release.release_id
    raise NotFound(NOT_FOUND, release=name)


def evaluate_release(
    context: AppContext, principal: Principal, name: str, *, processes: int = PROCESSES
) -> dict[str, Any]:
    """Evaluate a shipped release on the labeled scans and record it. Raises as `records.evaluate_release`."""
    require(principal, Role.OPERATOR)
    return records.evaluate_release(context.evaluations, name, caller=principal.caller, processes=processes)


def approve_release(context: AppContext, principal: Principal, name: str, *, despite: str | None = None) -> str:
    """Approve a shipped release completed for this installation; returns its id.

    Raises:
        NotAllowed: RELEASE.WORSE.v1 when its evaluation on record says that it is worse, and `despite`
            gives no reason to approve it all the same.
    """
    require(principal, Role.OPERATOR)
    shipped = records.find_shipped(context.evaluations, name)
    override = records.check_not_worse(context.evaluations, name, despite=despite)
    with context.ledger.transaction() as tx:
        records.record_override(tx, override, caller=principal.caller)
        return releases.approve_release(tx, shipped.release, name=shipped.name, approved_by=principal.caller)


def promote_release(
    context: AppContext, principal: Principal, name: str, *, alias: str, despite: str | None = None
) -> str:
    """Point an alias at an approved release, given by name or id; returns its id.

    An alias with the name of a release would hide that release, and is refused.

    Raises:
        NotAllowed: RELEASE.WORSE.v1 as for `approve_release`.
    """
    require(principal, Role.OPERATOR)
    if not NAME.fullmatch(alias):
        raise InputRefused(FIELD_INVALID, pointer="--alias", expected=NAME.pattern)
    override = records.check_not_worse(context.evaluations, name, despite=despite)
    with context.ledger.transaction() as tx:
        if alias in {row["name"] for row in releases.list_releases(tx)}:
            raise InputRefused(FIELD_INVALID, pointer="--alias", expected="no release's name")
        release_id = str(releases.resolve_release(tx, name)["release_id"])
        records.record_override(tx, override, caller=principal.caller)
        releases.move_alias(tx, alias=alias, release_id=release_id, moved_by=principal.caller)
        return release_id


def retire_release(context: AppContext, principal: Principal, name: str, *, even_the_last: bool = False) -> str:
    """Retire a release, given by name or id; returns its id.

    Raises:
        NotAllowed: RELEASE.LAST_LIVE.v1 when no other is left, unless `even_the_last`.
    """
    require(principal, Role.OPERATOR)
    with context.ledger.transaction() as tx:
        release_id = str(releases.resolve_release(tx, name)["release_id"])
        if releases.approved_release_ids(tx) == [release_id] and not even_the_last:
            raise NotAllowed(RELEASE_LAST_LIVE, release_id=release_id)
        releases.retire_release(tx, release_id=release_id, retired_by=principal.caller)
        return release_id


# Grants and quotas.


def list_grants(context: AppContext, principal: Principal) -> list[dict[str, Any]]:
    """Return the tenant's grants, oldest first."""
    require(principal, Role.OPERATOR)
    with context.ledger.reading() as tx:
        return grants.list_grants(tx, tenant=principal.tenant)


def give_grant(
    context: AppContext, principal: Principal, caller: str, *, roles: Collection[str], days: float | None = None
) -> int:
    """Grant roles to a caller for a number of days, without an end by default; returns the grant's number."""
    require(principal, Role.OPERATOR)
    if not NAME.fullmatch(caller):
        raise InputRefused(FIELD_INVALID, pointer="CALLER", expected=NAME.pattern)
    if not roles or not set(roles) <= set(Role):
        raise InputRefused(FIELD_INVALID, pointer="--roles", allowed=", ".join(Role))
    if days is not None and not 0 < days <= 36_500:
        raise InputRefused(FIELD_INVALID, pointer="--days", expected="more than 0, at most 36500")
    with context.ledger.transaction() as tx:
        return grants.give_grant(
            tx,
            tenant=principal.tenant,
            caller=caller,
            roles=roles,
            actor=principal.caller,
            lasts_s=None if days is None else days * DAY_S,
        )


def revoke_grant(context: AppContext, principal: Principal, caller: str) -> int:
    """Revoke a caller's grant; returns how many of his open jobs keep their scope."""
    require(principal, Role.OPERATOR)
    if not NAME.fullmatch(caller):
        raise InputRefused(FIELD_INVALID, pointer="CALLER", expected=NAME.pattern)
    with context.ledger.transaction() as tx:
        return grants.revoke_grant(tx, tenant=principal.tenant, caller=caller, actor=principal.caller)


def list_submitters(context: AppContext, principal: Principal) -> list[dict[str, Any]]:
    """Return the named submitters with their quotas and the items they have open."""
    require(principal, Role.OPERATOR)
    with context.ledger.reading() as tx:
        return grants.list_submitters(tx, tenant=principal.tenant)


def add_submitter(context: AppContext, principal: Principal, caller: str) -> dict[str, Any]:
    """Name a submitter, who starts with a small quota; adding it again changes nothing.

    Raises:
        InputRefused: SETTING.INVALID.v1 for a name that cannot be one.
    """
    require(principal, Role.OPERATOR)
    if not NAME.fullmatch(caller):
        raise InputRefused(SETTING_INVALID, variable="caller")
    tenant = principal.tenant
    with context.ledger.transaction() as tx:
        if grants.read_submitter(tx, tenant=tenant, caller=caller) is None:
            grants.put_submitter(
                tx, tenant=tenant, caller=caller, quota_items=FIRST_QUOTA_ITEMS, actor=principal.caller
            )
        return grants.read_submitter(tx, tenant=tenant, caller=caller) or {}


def change_quota(context: AppContext, principal: Principal, caller: str, *, quota_items: int) -> dict[str, Any]:
    """Change a quota; it rises only while alerts of capacity and queue age are linked, tested and quiet.

    Raises:
        NotFound: no submitter of this name. NotAllowed: QUOTA.NOT_RAISED.v1, naming what is missing.
    """
    require(principal, Role.OPERATOR)
    tenant = principal.tenant
    maintenance.review_alerts(context)
    with context.ledger.transaction() as tx:
        row = grants.read_submitter(tx, tenant=tenant, caller=caller)
        if row is None:
            raise NotFound(NOT_FOUND)
        missing = _missing_for_more(context, tx) if quota_items > row["quota_items"] else []
        if missing:
            raise NotAllowed(QUOTA_NOT_RAISED, missing=missing)
        grants.put_submitter(tx, tenant=tenant, caller=caller, quota_items=quota_items, actor=principal.caller)
        return grants.read_submitter(tx, tenant=tenant, caller=caller) or {}


def _missing_for_more(context: AppContext, tx: LedgerTransaction) -> list[str]:
    """Return what is missing before a quota may rise, in the order of doing it."""
    channels: dict[str, set[str]] = {kind.value: set() for kind in WATCHED}
    for row in list_links(tx):
        channels.setdefault(row["kind"], set()).add(row["channel"])
    missing = [
        f"link {kind.value} to a channel: receipts alerts link {kind.value}"
        for kind in WATCHED
        if not channels[kind.value]
    ]
    since = tx.now() - dt.timedelta(seconds=context.settings.alert_thresholds().test_valid_s)
    for channel in sorted(set().union(*(channels[kind.value] for kind in WATCHED))):
        tested = last_delivered_test(tx, channel=channel)
        if tested is None or tested < since:
            missing.append(f"deliver a test alert through {channel}: receipts alerts test")
    active = {row["kind"] for row in open_alerts(tx)}
    missing += [f"wait until the alert {kind.value} is resolved" for kind in WATCHED if kind in active]
    return missing


# Legacy import and rollback.


def import_legacy_jobs(
    context: AppContext, principal: Principal, path: Path, *, origin: str, states: Sequence[str]
) -> ImportAnswer:
    """Import a file of a legacy system's jobs; the same file again changes nothing.

    Args:
        origin: a name for the legacy system; ids are unique within it.
        states: what its own states mean, as `STATE=CLASS`, or `STATE=open` for an unfinished job.
    Raises:
        InputRefused: for the file as a whole, or FIELD.INVALID.v1 for origin and states.
    """
    require(principal, Role.OPERATOR)
    if not NAME.fullmatch(origin) or origin == OWN_ORIGIN:
        raise InputRefused(FIELD_INVALID, pointer="--origin", expected=f"{NAME.pattern}, not {OWN_ORIGIN}")
    system = LegacySystem(origin, dict(_state_mapping(written) for written in states))
    return legacy_import.import_legacy_jobs(context.intake, path, system, principal=principal)


def _state_mapping(written: str) -> tuple[str, TerminalClass | None]:
    state, separator, meant = written.rpartition("=")
    if not separator or not state.strip() or meant not in (OPEN_STATE, *TerminalClass):
        allowed = ", ".join((OPEN_STATE, *TerminalClass))
        raise InputRefused(FIELD_INVALID, pointer="--state", expected=f"STATE=CLASS, with one of: {allowed}")
    return state.strip().lower(), None if meant == OPEN_STATE else TerminalClass(meant)


def roll_back_ledger(context: AppContext, principal: Principal, revision: str) -> list[str]:
    """Downgrade the ledger to an earlier schema; returns the tables that were dropped.

    Raises:
        InputRefused: FIELD.INVALID.v1 for what is no earlier revision.
        NotAllowed: ROLLBACK.SERVED.v1 while web server and daemon of this instance run.
    """
    require(principal, Role.OPERATOR)
    if is_served(context.settings):
        raise NotAllowed(ROLLBACK_SERVED)
    return context.ledger.roll_back(revision)
