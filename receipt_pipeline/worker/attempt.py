"""One attempt and its measurements."""

from __future__ import annotations

import datetime as dt
import functools
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from receipt_pipeline.core.attempts import FencingToken
from receipt_pipeline.core.canonical import canonical_json
from receipt_pipeline.core.errors import LeaseLost, ObjectFault
from receipt_pipeline.core.items import EarlierItem, ItemOutcome
from receipt_pipeline.core.reasons import STALE_LEASE
from receipt_pipeline.ledger.effects.objects import rejected_output_key
from receipt_pipeline.ledger.engine import LedgerTransaction
from receipt_pipeline.ledger.jobs.checkpoint import record_attempt_facts
from receipt_pipeline.ledger.jobs.claim import ClaimedJob
from receipt_pipeline.ledger.jobs.publication import intent_evidence, uploads_of
from receipt_pipeline.ledger.jobs.quarantine import competing_digests, hold_divergent, record_rejected_write
from receipt_pipeline.ledger.rows import read_job
from receipt_pipeline.worker.context import Classifier, Worker
from receipt_pipeline.worker.heartbeat import Heartbeat


class Stop(StrEnum):
    """Why the worker is through with a claim, as far as the items go."""

    PUBLISH = "publish"
    YIELDED = "yielded"
    HELD = "held"
    CLOSED = "closed"


@dataclass(slots=True)
class Attempt:
    """A claimed job with everything that its worker needs until the last write.

    Attributes:
        chain: None for an attempt that computes nothing.
        must_yield: whether the slice is used up or the worker was asked to stop.
        items_done: items that this attempt has committed.
        printed: the committed items that left a print, by ordinal.
    """

    worker: Worker
    claimed: ClaimedJob
    chain: Classifier | None
    beats: Heartbeat
    meter: AttemptMeter
    must_yield: Callable[[], bool]
    items_done: int = 0
    printed: dict[int, EarlierItem] = field(default_factory=dict)

    @property
    def token(self) -> FencingToken:
        """Return the token of every write."""
        return self.claimed.token

    def record_facts(self, tx: LedgerTransaction) -> None:
        """Write the attempt's facts in the transaction of its last write."""
        record_attempt_facts(tx, self.token, self.meter.document())

    @contextmanager
    def writing(
        self, kind: str, *, ordinal: int | None = None, digest: str | None = None, outcome: ItemOutcome | None = None
    ) -> Iterator[LedgerTransaction]:
        """Open the transaction of one fenced write; a refusal is kept with the digest that it carried.

        Args:
            kind: names the write in `refused_writes`: begin, checkpoint, yield, intent, commit, close, fail.
            ordinal: of the item whose outcome is written, else None.
            digest: of the outcome or result that the write carries, else None.
            outcome: the item's outcome itself, which is kept as evidence when its write is refused.
        Raises:
            LeaseLost: a later epoch holds the job, by the ledger's answer or the heartbeat's before it.
        """
        try:
            if self.beats.refused:
                raise LeaseLost(STALE_LEASE, job_id=self.token.job_id, lease_epoch=self.token.lease_epoch)
            with self.worker.ledger.transaction() as tx:
                yield tx
        except LeaseLost:
            kept = record_rejection(self.worker, self.token, kind=kind, ordinal=ordinal, digest=digest)
            if kept and outcome is not None and ordinal is not None:
                _keep_output(self.worker, self.token, ordinal, outcome)
            raise
        self.beats.progressed()


def record_rejection(
    worker: Worker, token: FencingToken, *, kind: str, ordinal: int | None, digest: str | None
) -> bool:
    """Record a stale worker's refused write; a digest that differs from the ledger's is quarantined.

    Returns:
        Whether what it carried may be kept: not when the job's payload is purged already.
    """
    with worker.ledger.transaction() as tx:
        record_rejected_write(tx, token, write_kind=kind, ordinal=ordinal, digest=digest)
        job = read_job(tx, token.job_id)
        kept = job is not None and job.result_purged_at is None
        if digest is None:
            return kept
        subject = "result" if ordinal is None else f"item:{ordinal}"
        further = _intents(tx, token.job_id) if ordinal is None else []
        known = competing_digests(tx, job_id=token.job_id, subject=subject) + further
        # What the ledger committed or another attempt intended stands against what this worker carried.
        if any(entry["digest"] != digest for entry in known if not entry["source"].startswith("refused")):
            hold_divergent(tx, job_id=token.job_id, subject=subject, limits=worker.limits, further=further or None)
        return kept


def _keep_output(worker: Worker, token: FencingToken, ordinal: int, outcome: ItemOutcome) -> None:
    """Keep the outcome of a refused write as bytes, beside the digest that is on record."""
    data = canonical_json(outcome.as_document())
    key = rejected_output_key(
        job_id=token.job_id, ordinal=ordinal, lease_epoch=token.lease_epoch, digest=outcome.outcome_digest
    )
    # Evidence that cannot be stored leaves the digest; this worker stands down either way.
    with suppress(ObjectFault):
        worker.objects.put(key, data)


def _intents(tx: LedgerTransaction, job_id: str) -> list[dict[str, Any]]:
    job = read_job(tx, job_id, lock=True)
    if job is None or job.close_cause is not None:
        return []
    return [intent_evidence(row) for row in uploads_of(tx, job_id)]


LIBRARIES = ("numpy", "onnxruntime", "rapidocr", "pillow", "pypdfium2", "pillow-heif", "opencv-python")
CPU_INFO = Path("/proc/cpuinfo")


@dataclass(slots=True)
class AttemptMeter:
    """Runs from the claim to the attempt's last write.

    Args:
        monotonic: seconds that never go back.
        clock_skew_s: this host's clock less the ledger's, at the claim.
    """

    monotonic: Callable[[], float]
    clock_skew_s: float
    item_seconds: dict[int, float] = field(default_factory=dict)
    _started: float = 0.0
    _cpu_started: float = 0.0

    def __post_init__(self) -> None:
        self._started = self.monotonic()
        self._cpu_started = time.process_time()

    def item_took(self, ordinal: int, seconds: float) -> None:
        """Note how long one item took in this attempt."""
        self.item_seconds[ordinal] = round(seconds, 3)

    @property
    def seconds(self) -> float:
        """Return the seconds since the claim."""
        return round(self.monotonic() - self._started, 3)

    def document(self) -> dict[str, Any]:
        """Return the facts as plain JSON; seconds and counts."""
        return {
            "seconds": self.seconds,
            "cpu_s": round(time.process_time() - self._cpu_started, 3),
            "threads": psutil.Process().num_threads(),
            "clock_skew_s": round(self.clock_skew_s, 3),
            "item_seconds": {str(ordinal): took for ordinal, took in self.item_seconds.items()},
            **installation_facts(),
        }


def host_skew_s(ledger_now: dt.datetime) -> float:
    """Return this host's clock less the ledger's, in seconds."""
    return (dt.datetime.now(dt.UTC) - ledger_now).total_seconds()


@functools.cache
def installation_facts() -> dict[str, Any]:
    """Return what shapes speed on this machine: processor, Python and library versions."""
    return {"cpu_model": _cpu_model(), "python": platform.python_version(), "libraries": _versions()}


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue  # Not every installation carries every decoder.
    return found


def _cpu_model() -> str:
    try:
        lines = CPU_INFO.read_text().splitlines()
    except OSError:
        return platform.machine()
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return named[0] if named else platform.machine()
