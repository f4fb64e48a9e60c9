"""Alerts, their channels, and the quotas of submitters: what an operator asks of a home."""

from __future__ import annotations

import datetime as dt
from typing import Any

from receipt_pipeline.app.account import AccountOrders
from receipt_pipeline.core.alerts import MEANINGS, AlertKind
from receipt_pipeline.core.errors import InputRefused, NotAllowed, NotFound
from receipt_pipeline.core.principals import Role, require
from receipt_pipeline.core.reasons import (
    ALERT_UNKNOWN,
    CHANNEL_UNKNOWN,
    NOT_FOUND,
    QUOTA_NOT_RAISED,
    SETTING_INVALID,
)
from receipt_pipeline.effects.alerts import alert_document, deliver_alerts
from receipt_pipeline.ledger.effects.alerts import (
    all_alerts,
    last_delivered_test,
    link_alerts,
    links,
    open_alerts,
    raise_alert,
    resolve_alert,
)
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.grants import list_submitters, put_submitter, read_submitter
from receipt_pipeline.ledger.invariants.alerts import AlertFinding
from receipt_pipeline.ledger.rows import read_scope
from receipt_pipeline.reconciliation.checks import AlertSummary, review_alerts
from receipt_pipeline.settings import NAME

# What must be watched before anybody may hand in more.
WATCHED = (AlertKind.CAPACITY, AlertKind.QUEUE_AGE)
FIRST_QUOTA_ITEMS = 100
ALERTS_SHOWN_MAX = 500
ALERTS_SENT_MAX = 100


class OperationOrders(AccountOrders):
    """What the operator asks about warnings and about who may hand in how much."""

    def review_alerts(self, *, whole: bool = True) -> AlertSummary:
        """Look once at what is worth a warning, and send what is linked to a channel.

        Args:
            whole: False for a sensor's tick, which does not read the whole ledger.
        """
        summary = review_alerts(self.reconciler, self.settings.alert_thresholds(), whole=whole)
        deliver_alerts(self.effects, tenant=self.settings.tenant, limit=ALERTS_SENT_MAX)
        return summary

    def alerts(self, *, everything: bool = False) -> list[dict[str, Any]]:
        """Return the alerts that stand, or the newest of all, each with its meaning and first step.

        Those about another tenant's job are left out; those about no single job are everybody's.
        """
        require(self.principal, Role.OPERATOR, Role.ANALYST)
        with self.ledger.reading() as tx:
            rows = all_alerts(tx, limit=ALERTS_SHOWN_MAX) if everything else open_alerts(tx)
            scope = read_scope(tx, self.settings.tenant)
        return [alert_document(row) for row in rows if scope.shows_job(row["job_id"])]

    def alert_links(self) -> list[dict[str, Any]]:
        """Return which kinds of alerts leave over which channels."""
        require(self.principal, Role.OPERATOR)
        with self.ledger.reading() as tx:
            return links(tx)

    def link_alerts(self, kind: str, *, channel: str) -> bool:
        """Send alerts of one kind, or of `all`, over a channel; returns whether anything is new.

        Raises:
            InputRefused: ALERT.UNKNOWN.v1, CHANNEL.UNKNOWN.v1.
        """
        require(self.principal, Role.OPERATOR)
        if kind != "all" and kind not in {known.value for known in AlertKind}:
            raise InputRefused(ALERT_UNKNOWN, kind=kind, kinds=["all", *(known.value for known in AlertKind)])
        if channel != self.effects.channel.name:
            raise InputRefused(CHANNEL_UNKNOWN, channel=channel, channels=[self.effects.channel.name])
        kinds = list(AlertKind) if kind == "all" else [AlertKind(kind), AlertKind.TEST]
        with self.ledger.transaction() as tx:
            new = [link_alerts(tx, each, channel=channel, linked_by=self.settings.caller) for each in kinds]
        return any(new)

    def test_alerts(self) -> dict[str, Any]:
        """Send a test alert over every linked channel; returns it with what became of each send."""
        require(self.principal, Role.OPERATOR)
        subject = f"asked for by {self.settings.caller}"
        with self.ledger.transaction() as tx:
            line = AlertFinding(AlertKind.TEST, subject, None, {"meaning": MEANINGS[AlertKind.TEST].meaning})
            standing = [row for row in open_alerts(tx) if (row["kind"], row["subject"]) == ("test", subject)]
            for row in standing:
                resolve_alert(tx, row)
            alert_id = raise_alert(tx, line)
            resolve_alert(tx, {"alert_id": alert_id, "kind": "test", "subject": subject})
        sent = deliver_alerts(self.effects, tenant=self.settings.tenant, limit=ALERTS_SENT_MAX)
        return {"alert_id": alert_id, **sent}

    def submitters(self) -> list[dict[str, Any]]:
        """Return the named submitters with their quotas and the items they have open."""
        require(self.principal, Role.OPERATOR)
        with self.ledger.reading() as tx:
            return list_submitters(tx, tenant=self.settings.tenant)

    def add_submitter(self, caller: str) -> dict[str, Any]:
        """Name a submitter, who starts with a small quota; adding it again changes nothing.

        Raises:
            InputRefused: SETTING.INVALID.v1 for a name that cannot be one.
        """
        require(self.principal, Role.OPERATOR)
        if not NAME.fullmatch(caller):
            raise InputRefused(SETTING_INVALID, variable="caller")
        tenant = self.settings.tenant
        with self.ledger.transaction() as tx:
            if read_submitter(tx, tenant=tenant, caller=caller) is None:
                put_submitter(
                    tx,
                    tenant=tenant,
                    caller=caller,
                    quota_items=FIRST_QUOTA_ITEMS,
                    actor=self.settings.caller,
                )
            return read_submitter(tx, tenant=tenant, caller=caller) or {}

    def change_quota(self, caller: str, *, quota_items: int) -> dict[str, Any]:
        """Change a quota; more than before only while capacity and queue age are watched (R144).

        Raises:
            NotFound: no submitter of this name. NotAllowed: QUOTA.NOT_RAISED.v1, naming what is missing.
        """
        require(self.principal, Role.OPERATOR)
        tenant = self.settings.tenant
        self.review_alerts()
        with self.ledger.transaction() as tx:
            row = read_submitter(tx, tenant=tenant, caller=caller)
            if row is None:
                raise NotFound(NOT_FOUND)
            missing = self._missing_for_more(tx) if quota_items > row["quota_items"] else []
            if missing:
                raise NotAllowed(QUOTA_NOT_RAISED, missing=missing)
            put_submitter(
                tx, tenant=tenant, caller=caller, quota_items=quota_items, actor=self.settings.caller
            )
            return read_submitter(tx, tenant=tenant, caller=caller) or {}

    def _missing_for_more(self, tx: LedgerTransaction) -> list[str]:
        """Return what is missing before anybody may hand in more, in the order of doing it."""
        channels: dict[str, set[str]] = {kind.value: set() for kind in WATCHED}
        for row in links(tx):
            channels.setdefault(row["kind"], set()).add(row["channel"])
        missing = [
            f"link {kind.value} to a channel: receipts alerts link {kind.value}"
            for kind in WATCHED
            if not channels[kind.value]
        ]
        since = tx.now() - dt.timedelta(seconds=self.settings.alert_thresholds().test_valid_s)
        for channel in sorted(set().union(*(channels[kind.value] for kind in WATCHED))):
            tested = last_delivered_test(tx, channel=channel)
            if tested is None or tested < since:
                missing.append(f"deliver a test alert over {channel}: receipts alerts test")
        standing = {row["kind"] for row in open_alerts(tx)}
        missing += [f"wait until the alert {kind.value} is resolved" for kind in WATCHED if kind in standing]
        return missing
