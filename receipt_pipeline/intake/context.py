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
    """Stand in where no status document is wanted."""


@dataclass(frozen=True, slots=True)
class IntakeContext:
    """The services of intake.

    Attributes:
        home: all run-time state; `home/inbox` is the drop folder, `home/outbox` what we answer.
        status_location: from tenant and job id to where the job's status can be asked.
        after_accept: called with the job id after each acceptance commits and before it is answered;
            it writes the status document, so that the status location resolves at once.
        inbox_caller: on whose account files of the drop folder are submitted.
        rollout: whose jobs are only worked and compared while an older system still serves.
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
        """Return the drop folder's root."""
        return self.home / "inbox"

    def outbox(self, tenant: str) -> Path:
        """Return the folder in which a tenant finds acknowledgements and status documents."""
        return self.home / "outbox" / tenant


def status_document_location(home: Path) -> Callable[[str, str], str]:
    """Return the embedded default: the path of the status document that the outbox sender writes."""

    def location(tenant: str, job_id: str) -> str:
        return str(home / "outbox" / tenant / f"{job_id}.status.json")

    return location
