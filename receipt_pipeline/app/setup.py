"""Prepares an instance: its directories, a ledger that is not lost, the shipped releases, the samples."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable

from sqlalchemy.exc import IntegrityError

from receipt_pipeline.chain.release import ShippedRelease
from receipt_pipeline.core.errors import data_directory_fault
from receipt_pipeline.ledger.engine import Ledger, LedgerTransaction, open_ledger
from receipt_pipeline.ledger.releases import SETUP, alias_head, approve_release, list_releases, move_alias
from receipt_pipeline.reconciliation.lost_ledger import DataFolders, refuse_lost_ledger
from receipt_pipeline.settings import Settings

MANIFEST = "manifest.json"


def make_directories(settings: Settings) -> None:
    """Make the data directory with its inbox, outbox, objects and report.

    Raises:
        InputRefused: SETTING.INVALID.v1. ObjectFault: STORAGE.FULL.v1.
    """
    tenant = settings.tenant
    own = (settings.objects, settings.report)
    for folder in (settings.home, settings.inbox / tenant / "loose", settings.outbox / tenant, *own):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise data_directory_fault(error, folder) from error


def check_ledger_not_lost(settings: Settings, ledger: Ledger | None = None) -> None:
    """Refuse a data directory whose ledger is gone while what its jobs left is there; creates nothing.

    Args:
        ledger: the opened one; without it one is opened for this check alone.
    Raises:
        LedgerUnavailable: LEDGER.LOST.v1, or the database cannot be reached within the bound.
    """
    opened = ledger or open_ledger(settings.ledger_url)
    try:
        refuse_lost_ledger(opened, DataFolders(settings.home, settings.objects, settings.inbox, settings.outbox))
    finally:
        if ledger is None:
            opened.close()


def set_up_releases(ledger: Ledger, shipped: Iterable[ShippedRelease]) -> None:
    """Approve the shipped releases of this installation as recorded events by `system:setup`.

    An alias that set-up moved last follows its template; one that a person moved stays where it is.
    Nothing is written when nothing has changed since the last opening.
    """
    shipped = tuple(shipped)
    with ledger.reading() as tx:
        if not _wanted(tx, shipped):
            return
    try:
        _write(ledger, shipped)
    except IntegrityError:
        # Another process opened the same instance at this moment and approved them first.
        _write(ledger, shipped)


def _write(ledger: Ledger, shipped: tuple[ShippedRelease, ...]) -> None:
    with ledger.transaction() as tx:
        for template in _wanted(tx, shipped):
            release_id = approve_release(tx, template.release, name=template.name, approved_by=SETUP)
            if template.alias is not None and _follows(tx, template.alias):
                move_alias(tx, alias=template.alias, release_id=release_id, moved_by=SETUP)


def _wanted(tx: LedgerTransaction, shipped: tuple[ShippedRelease, ...]) -> list[ShippedRelease]:
    """Return the templates that are not approved yet, or whose alias does not point at them yet."""
    known = {row["release_id"]: row for row in list_releases(tx)}
    wanted = []
    for template in shipped:
        row = known.get(template.release.release_id)
        if row is None:
            wanted.append(template)
        elif row["retired_at"] is None and template.alias is not None:
            head = alias_head(tx, template.alias)
            behind = head is None or head["release_id"] != row["release_id"]
            if behind and _follows(tx, template.alias):
                wanted.append(template)
    return wanted


def _follows(tx: LedgerTransaction, alias: str) -> bool:
    head = alias_head(tx, alias)
    return head is None or head["moved_by"] == SETUP


def drop_samples(settings: Settings) -> str:
    """Copy the sample scans to the inbox, then their manifest; returns its idempotency key."""
    samples, inbox = settings.samples, settings.inbox / settings.tenant
    inbox.mkdir(parents=True, exist_ok=True)
    manifest = json.loads((samples / MANIFEST).read_bytes())
    for item in manifest["items"]:
        target = inbox / item["uri"]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(samples / item["uri"], target)
    # The sensor may look at any moment: the manifest appears whole, and after its scans.
    half = inbox / f".{MANIFEST}.tmp"
    shutil.copyfile(samples / MANIFEST, half)
    half.rename(inbox / f"samples-{MANIFEST}")
    return str(manifest["idempotency_key"])
