"""Opens one instance: settings, ledger, store, chains and what each service works with."""

from __future__ import annotations

import os
import platform
import threading
import time
from dataclasses import dataclass, field
from functools import cached_property

from receipt_pipeline.accounting.facts import Accountant
from receipt_pipeline.app.setup import check_ledger_not_lost, make_directories, set_up_releases
from receipt_pipeline.chain.ocr.engine import RapidOcrEngine
from receipt_pipeline.chain.ocr.models import place_models
from receipt_pipeline.chain.release import installed_image_digest, load_chain, shipped_releases, verify_release
from receipt_pipeline.chain.values import OcrEngine
from receipt_pipeline.core.pins import Pins
from receipt_pipeline.core.principals import Principal
from receipt_pipeline.effects.channels import Channel, CommandChannel, FileChannel
from receipt_pipeline.effects.context import EffectContext
from receipt_pipeline.effects.status_documents import send_status_documents
from receipt_pipeline.evaluation.records import Evaluations
from receipt_pipeline.intake.context import IntakeContext, status_document_location
from receipt_pipeline.ledger.engine import Ledger, open_ledger
from receipt_pipeline.ledger.grants import acting_under_grant
from receipt_pipeline.ledger.releases import list_releases
from receipt_pipeline.objects.local_store import LocalObjectStore
from receipt_pipeline.objects.store import ObjectStore
from receipt_pipeline.reconciliation.context import ReconciliationContext
from receipt_pipeline.settings import PACKAGE_ROOT, Settings
from receipt_pipeline.worker.context import Classifier, Worker

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
        """Load the reader's models now, so that their errors come before the first claim."""
        with self.lock:
            self._reader()


@dataclass(frozen=True)
class AppContext:
    """One opened instance; each service context is built when it is first needed."""

    settings: Settings
    ledger: Ledger
    store: ObjectStore
    image_digest: str
    chains: Chains

    def principal(self) -> Principal:
        """Return whom the settings name, in the roles that his grant leaves him.

        Raises:
            NotAllowed: AUTHORITY.EXPIRED.v1 or AUTHORITY.REVOKED.v1.
        """
        named = Principal(self.settings.tenant, self.settings.caller, self.settings.roles)
        with self.ledger.reading() as tx:
            return acting_under_grant(tx, named)

    @cached_property
    def effects(self) -> EffectContext:
        """Return what delivery and consumption work with."""
        return EffectContext(
            ledger=self.ledger,
            objects=self.store,
            channel=new_channel(self.settings),
            outbox_root=self.settings.outbox,
            limits=self.settings.limits,
        )

    @cached_property
    def intake(self) -> IntakeContext:
        """Return what intake works with."""

        def write_status_document(job_id: str) -> None:
            send_status_documents(self.effects, limit=1, job_id=job_id)

        return IntakeContext(
            ledger=self.ledger,
            objects=self.store,
            limits=self.settings.limits,
            home=self.settings.home,
            status_location=status_document_location(self.settings.home),
            after_accept=write_status_document,
            inbox_caller=self.settings.caller,
            rollout=self.settings.rollout,
        )

    @cached_property
    def reconciler(self) -> ReconciliationContext:
        """Return what reconciliation works with."""
        return ReconciliationContext(
            ledger=self.ledger,
            objects=self.store,
            limits=self.settings.limits,
            thresholds=self.settings.alert_thresholds,
        )

    @cached_property
    def accountant(self) -> Accountant:
        """Return what accounting works with."""
        return Accountant(ledger=self.ledger, report_root=self.settings.report, limits=self.settings.limits)

    @cached_property
    def evaluations(self) -> Evaluations:
        """Return what evaluations of releases work with."""
        return Evaluations(
            ledger=self.ledger,
            folder=self.settings.evaluations,
            artifacts=self.settings.shipped,
            image_digest=self.image_digest,
            labeled_scans=self.settings.evaluation_set,
        )

    def worker(self, *, run_id: str, ends_at: float = _FOREVER) -> Worker:
        """Return a worker of this process; it yields at its next boundary past `ends_at` (monotonic)."""
        return Worker(
            ledger=self.ledger,
            objects=self.store,
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

    def supported_releases(self) -> list[str]:
        """Return the ids of approved releases that verify in this installation right now."""
        with self.ledger.reading() as tx:
            rows = list_releases(tx)
        supported = []
        for row in rows:
            pins = Pins.from_document(row)
            if verify_release(pins, shipped=self.settings.shipped, image_digest=self.image_digest) is None:
                supported.append(str(row["release_id"]))
        return supported

    def close(self) -> None:
        """Return every connection."""
        self.ledger.close()


def new_channel(settings: Settings) -> Channel:
    """Return where notifications are sent: the outbox folder, or the operator's own program."""
    if settings.notify_command:
        return CommandChannel(settings.notify_command, settings.notify_capability)
    return FileChannel(settings.outbox)


def new_context(settings: Settings) -> AppContext:
    """Open an instance: directories made, ledger migrated, shipped releases completed and approved.

    Raises:
        LedgerUnavailable: the database cannot be reached within the bound, or it is new while the data
            directory is not (LEDGER.LOST.v1).
        InputRefused: SETTING.INVALID.v1 when the directories cannot be made.
        ObjectFault: STORAGE.FULL.v1 when the disk is full.
    """
    make_directories(settings)
    image_digest = settings.image_digest or installed_image_digest(PACKAGE_ROOT)
    ledger = open_ledger(settings.ledger_url)
    check_ledger_not_lost(settings, ledger)
    ledger.migrate()
    set_up_releases(ledger, shipped_releases(settings.shipped, image_digest=image_digest))
    return AppContext(
        settings=settings,
        ledger=ledger,
        store=LocalObjectStore(settings.objects),
        image_digest=image_digest,
        chains=Chains(settings, image_digest),
    )


_opened: dict[tuple[str, str], AppContext] = {}
_opening = threading.Lock()


def open_app(settings: Settings) -> AppContext:
    """Open an instance once per process, and return it again after that. Raises as `new_context` does."""
    with _opening:
        name = (str(settings.home), settings.ledger_url)
        known = _opened.get(name)
        if known is None or known.settings != settings:
            known = _opened[name] = new_context(settings)
        return known
