"""What intake needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from receipt_pipeline.core.limits import SERVES_ALL, Limits, Rollout
from receipt_pipeline.ledger.engine import Ledger
from receipt_pipeline.objects.store import ObjectStore

SCAN_SIZE_BYTES_MAX = 64 * 1024 * 1024


def ignore_event(job_id: str) -> None:
    """Do nothing: no status document is wanted."""


@dataclass(frozen=True, slots=True)
class IntakeContext:
    """Ledger, objects, limits and places of intake.

    Attributes:
        home: the data directory, with `inbox` for dropped files and `outbox` for answers.
        status_location: from tenant and job id to the location of its status.
        after_accept: called with the job id after each acceptance commits and before it is answered;
            it writes the status document, so the status location exists immediately.
        inbox_caller: the caller of dropped files.
        rollout: whose jobs are only processed and compared while a legacy system still serves.
    """

    ledger: Ledger
    objects: ObjectStore
    limits: Limits
    home: Path
    status_location: Callable[[str, str], str]
    after_accept: Callable[[str], None] = ignore_event
    inbox_caller: str = "drop-folder"
    rollout: Rollout = SERVES_ALL
    scan_size_bytes_max: int = SCAN_SIZE_BYTES_MAX

    @property
    def inbox(self) -> Path:
        """Return the folder for dropped files."""
        return self.home / "inbox"

    def outbox(self, tenant: str) -> Path:
        """Return the folder in which a tenant finds acknowledgments and status documents."""
        return self.home / "outbox" / tenant


def status_document_location(home: Path) -> Callable[[str, str], str]:
    """Return the default: the path of the status document in the outbox."""

    def location(tenant: str, job_id: str) -> str:
        return str(home / "outbox" / tenant / f"{job_id}.status.json")

    return location
