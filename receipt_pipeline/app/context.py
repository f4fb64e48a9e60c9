"""Open an instance: settings, ledger, store, chains and service contexts."""

from __future__ import annotations

import os
import platform
import threading
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from receipt_pipeline.accounting.services import Accountant
from receipt_pipeline.app.setup import set_up_releases
from receipt_pipeline.chain.image_digest import installed_image_digest
from receipt_pipeline.chain.ocr import RapidOcrEngine
from receipt_pipeline.chain.ocr_models import place_models
from receipt_pipeline.chain.release import load_chain, shipped_releases, verify_release
from receipt_pipeline.chain.values import OcrEngine
from receipt_pipeline.core.errors import data_directory_fault
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.effects.channels import Channel, CommandChannel, FileChannel
from receipt_pipeline.effects.context import EffectServices
from receipt_pipeline.effects.status_documents import send_status_documents
from receipt_pipeline.intake.context import IntakeContext, status_document_location
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.releases import list_releases
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline.objects.store import ObjectStore
from receipt_pipeline.reconciliation.context import Reconciler
from receipt_pipeline.reconciliation.lost_ledger import HomeFolders, begin_anew, refuse_lost_ledger
from receipt_pipeline.settings import PACKAGE_ROOT, Settings
from receipt_pipeline.worker.context import Classifier, Worker

# The watchdog and leases are per job; a wave stops taking up work this long after it began.
_FOREVER = float("inf")


@dataclass(slots=True)
class Chains:
    """Loads chains by their pins, once each, over one reader that is warmed up before the first claim."""

    settings: Settings
    image_digest: str
    loaded: dict[Pins, Classifier] = field(default_factory=dict)
    engine: OcrEngine | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, pins: Pins) -> Classifier:
        """Return the verified chain of the pins. Raises IdentityMismatch."""
        with self.lock:
            if pins not in self.loaded:
                self.loaded[pins] = load_chain(
                    pins, shipped=self.settings.shipped, image_digest=self.image_digest, engine=self._reader()
                )
            return self.loaded[pins]

    def _reader(self) -> OcrEngine:
        if self.engine is None:
            engine = RapidOcrEngine(place_models(self.settings.ocr_models))
            engine.warm_up()
            self.engine = engine
        return self.engine

    def warm_up(self) -> None:
        """Load the reader's models now; their errors come at the first call, never at construction."""
        with self.lock:
            self._reader()


@dataclass(frozen=True)
class Rooms:
    """Every room of one home, opened over the same ledger, objects and limits."""

    settings: Settings
    ledger: Ledger
    objects: ObjectStore
    image_digest: str
    chains: Chains

    @cached_property
    def effects(self) -> EffectServices:
        """Return what delivering and consuming work with."""
        return EffectServices(
            ledger=self.ledger,
            objects=self.objects,
            channel=_channel(self.settings),
            outbox_root=self.settings.outbox,
            limits=self.settings.limits,
        )

    @cached_property
    def intake(self) -> IntakeContext:
        """Return what the doors of intake work with."""

        def tell(job_id: str) -> None:
            send_status_documents(self.effects, limit=1, job_id=job_id)

        return IntakeContext(
            ledger=self.ledger,
            objects=self.objects,
            limits=self.settings.limits,
            home=self.settings.home,
            status_location=status_document_location(self.settings.home),
            after_accept=tell,
            inbox_caller=self.settings.caller,
            rollout=self.settings.rollout,
        )

    @cached_property
    def reconciler(self) -> Reconciler:
        """Return what reconciliation works with."""
        return Reconciler(
            ledger=self.ledger,
            objects=self.objects,
            limits=self.settings.limits,
            thresholds=self.settings.alert_thresholds,
        )

    @cached_property
    def accountant(self) -> Accountant:
        """Return what accounting works with."""
        return Accountant(ledger=self.ledger, report_root=self.settings.report, limits=self.settings.limits)

    def worker(self, *, run_id: str, ends_at: float = _FOREVER) -> Worker:
        """Return a worker of this process; it yields at its next boundary past `ends_at` (monotonic)."""
        return Worker(
            ledger=self.ledger,
            objects=self.objects,
            chains=self.chains,
            limits=self.settings.limits,
            owner=f"{platform.node()}:{os.getpid()}:{run_id or 'cli'}",
            run_id=run_id,
            stop_asked=lambda: time.monotonic() >= ends_at,
        )

    @property
    def worker_id(self) -> str:
        """Return the name under which this installation is registered as a worker."""
        return f"{platform.node()}:{self.image_digest[:19]}"

    def carried_releases(self) -> list[str]:
        """Return the ids of approved releases that verify in this installation right now."""
        with self.ledger.reading() as tx:
            rows = list_releases(tx)
        carried = []
        for row in rows:
            pins = Pins(**{name: row[name] for name in Pins.__slots__})
            fault = verify_release(pins, shipped=self.settings.shipped, image_digest=self.image_digest)
            if fault is None:
                carried.append(str(row["release_id"]))
        return carried

    def close(self) -> None:
        """Return every connection."""
        self.ledger.close()


def _channel(settings: Settings) -> Channel:
    """Return the way on which notifications leave: the outbox folder, or the operator's own program."""
    if settings.notify_command:
        return CommandChannel(settings.notify_command, settings.notify_capability)
    return FileChannel(settings.outbox)


def _make_folders(settings: Settings) -> None:
    tenant = settings.tenant
    own = (settings.objects, settings.report)
    for folder in (settings.home, settings.inbox / tenant / "loose", settings.outbox / tenant, *own):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise data_directory_fault(error, folder) from error


def _folders(settings: Settings) -> HomeFolders:
    return HomeFolders(settings.home, settings.objects, settings.inbox, settings.outbox)


def look_for_lost_ledger(settings: Settings) -> None:
    """Refuse a home whose ledger is gone while what its jobs left still stands; creates nothing.

    Raises:
        LedgerUnavailable: LEDGER.LOST.v1, or the database cannot be reached within the bound.
    """
    ledger = open_ledger(settings.ledger_url)
    try:
        refuse_lost_ledger(ledger, _folders(settings))
    finally:
        ledger.close()


def begin_home_anew(settings: Settings) -> tuple[Path | None, list[str]]:
    """Set aside what stands in a home without its ledger; see `begin_anew`."""
    return begin_anew(open_ledger(settings.ledger_url), _folders(settings))


R = TypeVar("R", bound=Rooms)


def open_rooms(settings: Settings, kind: type[R]) -> R:
    """Open a home: folders made, ledger migrated, shipped releases completed and approved.

    Raises:
        LedgerUnavailable: the database cannot be reached within the bound, or it is new while the home is
            not (LEDGER.LOST.v1).
        InputRefused: SETTING.INVALID.v1 when the home's folders cannot be made.
        ObjectFault: STORAGE.FULL.v1 when there is no room for them.
    """
    _make_folders(settings)
    image_digest = settings.image_digest or installed_image_digest(PACKAGE_ROOT)
    ledger = open_ledger(settings.ledger_url)
    refuse_lost_ledger(ledger, _folders(settings))
    ledger.migrate()
    set_up_releases(ledger, shipped_releases(settings.shipped, image_digest=image_digest))
    return kind(
        settings=settings,
        ledger=ledger,
        objects=LocalObjectStore(settings.objects),
        image_digest=image_digest,
        chains=Chains(settings, image_digest),
    )
